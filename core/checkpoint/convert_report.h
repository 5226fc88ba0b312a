// What a conversion says about itself: the lines of its report.
//
//   for each tensor of the result: *file.add_tensors() = report_line(output, config);
//   complete_report({config, folder, layout, outputs, side_files, target}, &report);
//
// Thread rule: functions without state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/layout.h"
#include "core/checkpoint/side_files.h"
#include "core/checkpoint/tile.h"
#include "invar/v1/convert.pb.h"

namespace invar {

// What becomes of one tensor of the result, and what was found on the way.
struct ConvertedOutput {
  const TensorPlan* plan = nullptr;
  DType dtype = DType::kUnspecified;
  std::string rule;
  TileStats stats;
  std::unique_ptr<BlockMaxima> maxima;  // while its file is written
  BlockSummary blocks;
  std::vector<uint64_t> source_digests, target_digests;
  std::string source_sha256, target_sha256;  // of the full proof

  // The line of the report, where an earlier run made it.
  const v1::ConvertedTensor* recorded = nullptr;

  // The source's checksum is taken in runs of so many of its bytes.
  int64_t source_run() const { return kTileElements * std::max(1, bits_of(plan->source->dtype) / 8); }
  bool converts() const { return plan->quantized() || dtype != plan->source->dtype; }
};

// The line of one tensor, with its warnings; without what only a run can know when config.dry_run.
v1::ConvertedTensor report_line(const ConvertedOutput& output, const v1::ConvertConfig& config);

// A whole conversion, when its work is done.
struct ConversionSummary {
  const v1::ConvertConfig& config;
  const CheckpointFolder& folder;
  const Layout& layout;
  const std::vector<ConvertedOutput>& outputs;
  const SideFilePlan& side_files;
  DType target = DType::kBF16;
};

// Everything but sizes, times and what verification found.
void complete_report(const ConversionSummary& conversion, v1::ConvertReport* report);

}  // namespace invar
