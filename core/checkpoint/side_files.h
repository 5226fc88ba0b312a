// The files beside the weights: which are copied, which are rewritten, and which would lie after a conversion.
//
//   SideFileOptions options;
//   options.torch_dtype = "bfloat16";
//   INVAR_ASSIGN(auto side_files, plan_side_files(source, options));
//   INVAR_TRY(write_side_files(files, side_files, source.file_system(), staging));
//
// After dequantisation nothing may say that the weights are quantised, or loaders would decode them again. Everything
// else is the user's and stays as it is, key order included.
// Thread rule: values and functions, no sharing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/container/checkpoint_folder.h"

namespace invar {

struct SideFileOptions {
  std::string torch_dtype;          // "bfloat16", "float16", "float32"; empty: left as it is
  std::string quantization_config;  // JSON object to declare; empty: none is declared
  // Of a partial conversion: modules that were quantised and are not in the result. What declares the rest stays, and
  // its list of exceptions grows by them. Empty: nothing is quantised any more.
  std::vector<std::string> no_longer_quantized;
};

struct SideFile {
  std::string name;
  std::string text;         // the content, unless
  std::string copied_from;  // a path whose bytes are copied
};

struct SideFilePlan {
  std::vector<SideFile> files;       // in the result
  std::vector<std::string> dropped;  // in the source, not in the result
  std::vector<Finding> findings;     // what was removed from where
};

// "checkpoint.bad_config" when a file that must be rewritten is not a JSON object; "convert.partial_unsupported" when
// its quant_method has no known list of exceptions.
Result<SideFilePlan> plan_side_files(const CheckpointFolder& source, const SideFileOptions& options);

// Writes them into `folder`; `source_files` is where copied_from is read.
Status write_side_files(FileSystem& files, const std::vector<SideFile>& side_files, FileSystem& source_files,
                        const std::string& folder, bool durable = true);

// config.json: removes quantization_config, compression_config, quantization, expert_dtype and scale_fmt at the top and
// in nested language configs, sets torch_dtype and dtype where they stand (torch_dtype where neither does), and
// declares options.quantization_config. `path` goes into messages; `removed` lists what went ("text_config.scale_fmt").
Result<std::string> rewrite_config(std::string_view text, std::string_view path, const SideFileOptions& options,
                                   std::vector<std::string>* removed = nullptr);

}  // namespace invar
