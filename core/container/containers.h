// The table of the formats that can be read, in the order of preference when a folder holds several.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/container/weight_file.h"

namespace invar {

// A format whose files stand alone. A folder may hold several of them as shards, with an index or without.
struct FileFormat {
  std::string_view name;
  std::span<const std::string_view> endings;  // ".safetensors"
  std::string_view index_ending;              // ".safetensors.index.json"; empty when there is none
  // Files of a folder that have the ending and are no weights ("training_args.bin"); null when all are.
  bool (*is_weights)(std::string_view file_name);
  Result<std::unique_ptr<WeightFile>> (*open)(FileSystem& files, const std::string& path, const ContainerLimits& limits,
                                              int file_index);
};

// A format in which a folder is the container.
struct FolderFormat {
  std::string_view name;
  // The folder that holds it, when `folder` is one or leads to one ("latest" names a folder inside); empty otherwise.
  Result<std::string> (*find)(FileSystem& files, const std::string& folder);
  Result<std::unique_ptr<WeightFile>> (*open)(FileSystem& files, const std::string& folder,
                                              const ContainerLimits& limits, int file_index);
};

std::span<const FileFormat> file_formats();
std::span<const FolderFormat> folder_formats();

// The format that claims the file name; null when none does.
const FileFormat* file_format_of(std::string_view file_name);

}  // namespace invar
