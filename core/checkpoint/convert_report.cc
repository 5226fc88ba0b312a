#include "core/checkpoint/convert_report.h"

#include <algorithm>
#include <map>

namespace invar {
namespace {

// Results above this are no weights of a trained model; a quantiser's scale taken for its inverse gives about 1e6.
constexpr double kLargestPlausible = 4096;

// Blocks below half of the range, of all, above which scales and codes look as if they did not belong together: a
// quantiser that fits its scales to the largest value leaves none, one that clips or searches leaves some.
constexpr double kPlausibleShareLow = 0.5;
constexpr int64_t kFewBlocks = 4;

void add_tensor(const ConversionSummary& conversion, const ConvertedOutput& output, v1::ConvertReport& report) {
  const TensorInfo& source = *output.plan->source;
  v1::ConvertedTensor& line = *report.add_tensors();
  line = report_line(output, conversion.config);
  report.set_nan_codes(report.nan_codes() + line.nan_codes());
  report.set_reencode_checked(report.reencode_checked() + line.reencode_checked());
  report.set_reencode_mismatched(report.reencode_mismatched() + line.reencode_mismatched());
  for (const std::string& warning : line.warnings()) {
    const auto colon = warning.find(": ");
    report.add_warnings(cat(warning.substr(0, colon), ": ",
                            join_path(conversion.folder.path(), conversion.folder.file_name(source)), ": tensor ",
                            in_quotes(source.name), warning.substr(colon)));
  }
}

// Codes of a quantiser that scales by the largest value reach the top of the format. When many tensors stop at 240,
// the top of the formats of some accelerators, the bytes may mean half of what their dtype says.
void find_oddities(const ConversionSummary& conversion, v1::ConvertReport& report) {
  int64_t full = 0, at_240 = 0;
  constexpr uint32_t kCode448 = 0x7E, kCode240 = 0x77;
  for (const ConvertedOutput& output : conversion.outputs) {
    if (output.plan->code_dtype != DType::kE4M3FN || element_count(output.plan->shape) < 4096) continue;
    if (output.stats.codes.max_magnitude == kCode448) ++full;
    if (output.stats.codes.max_magnitude == kCode240) ++at_240;
  }
  if (at_240 >= 2 && full == 0) {
    report.add_warnings(
        cat("checkpoint.narrow_codes: ", conversion.folder.path(), ": the codes of ", at_240,
            " E4M3 tensors reach 240 and never 448; if they were written for an accelerator with the FNUZ "
            "format, state --assume e4m3=fnuz; a writer for Gaudi 2 stops there by itself and is read as it is"));
  }
}

// How the scales were chosen.
std::string scale_rule_of(const TileStats& stats, const BlockSummary& blocks) {
  if (blocks.blocks == 0) return {};
  if (blocks.full == blocks.blocks) return "amax";
  if (!stats.powers_of_two) return {};
  return blocks.full + blocks.upper == blocks.blocks ? "amax, rounded up to a power of two" : "powers of two";
}

}  // namespace

v1::ConvertedTensor report_line(const ConvertedOutput& output, const v1::ConvertConfig& config) {
  if (output.recorded != nullptr) return *output.recorded;
  const TensorPlan& plan = *output.plan;
  v1::ConvertedTensor line;
  line.set_name(plan.source->name);
  if (plan.name != plan.source->name) line.set_new_name(plan.name);
  line.set_rule(output.rule);
  line.set_source_dtype(static_cast<v1::DType>(plan.source->dtype));
  line.set_target_dtype(static_cast<v1::DType>(output.dtype));
  for (int64_t size : plan.shape) line.add_shape(size);
  line.set_elements(element_count(plan.shape));
  for (const ScaleTerm& scale : plan.scales) line.add_scales(scale.tensor->name);
  for (const TensorInfo* helper : plan.helpers) line.add_scales(helper->name);
  if (plan.rule == "block_scale") {
    line.set_block_rows(plan.scales[0].grid.block_rows);
    line.set_block_cols(plan.scales[0].grid.block_cols);
  }
  if (config.dry_run()) return line;
  line.set_target_checksum(tile_checksum(output.target_digests));
  line.set_source_checksum(output.converts() ? tile_checksum(output.source_digests) : line.target_checksum());
  if (!output.source_sha256.empty()) {
    line.set_source_sha256(output.source_sha256);
    line.set_target_sha256(output.target_sha256);
  }
  if (!output.converts()) return line;
  const TileStats& stats = output.stats;
  line.set_overflows(stats.overflows);
  line.set_underflows(stats.underflows);
  line.set_amax(stats.amax);
  if (!plan.quantized()) return line;
  const int64_t not_finite = stats.codes.nan + stats.codes.infinite;
  line.set_nan_codes(not_finite);
  line.set_zero_codes(stats.codes.zero);
  line.set_saturated_codes(stats.codes.saturated);
  line.set_reencode_checked(stats.reencode_checked + (stats.unproved ? 0 : stats.reencode_proved));
  line.set_reencode_mismatched(stats.reencode_mismatched);
  const auto warn = [&line](std::string_view reason, const std::string& text) {
    line.add_warnings(cat(reason, ": ", text));
  };
  if (!plan.scales.empty() && stats.amax > kLargestPlausible) {
    warn("checkpoint.suspicious_scale", cat("scale ", in_quotes(plan.scales[0].tensor->name), " of up to ",
                                            stats.largest_scale, " gives values of up to ", stats.amax,
                                            ", more than weights have; if it is the quantiser's scale and not its "
                                            "inverse, state --assume scale=divides"));
  }
  if (const BlockSummary& blocks = output.blocks; blocks.blocks > 0) {
    line.set_blocks(blocks.blocks);
    line.set_blocks_full(blocks.full);
    line.set_blocks_upper(blocks.upper);
    if (std::string rule = scale_rule_of(stats, blocks); !rule.empty()) line.set_scale_rule(std::move(rule));
    const int64_t low = blocks.blocks - blocks.full - blocks.upper;
    if (blocks.blocks >= kFewBlocks &&
        static_cast<double>(low) > kPlausibleShareLow * static_cast<double>(blocks.blocks)) {
      warn("checkpoint.low_codes", cat("the largest codes of ", low, " of ", blocks.blocks,
                                       " blocks are below half of ", name_of(plan.code_dtype),
                                       "'s range, as when scales and codes do not belong together; compare with the "
                                       "model this was made from"));
    }
  }
  if (not_finite > 0) warn("checkpoint.nan_code", cat(not_finite, " codes are not finite"));
  if (stats.overflows > 0)
    warn("checkpoint.overflow", cat(stats.overflows, " results are beyond ", name_of(output.dtype)));
  if (stats.underflows > 0)
    warn("checkpoint.underflow", cat(stats.underflows, " non-zero results became zero in ", name_of(output.dtype)));
  if (stats.reencode_mismatched > 0) {
    warn("checkpoint.reencode", cat(stats.reencode_mismatched, " of ", line.reencode_checked(),
                                    " checked results do not encode back to their code"));
  }
  return line;
}

void complete_report(const ConversionSummary& conversion, v1::ConvertReport* out) {
  v1::ConvertReport& report = *out;
  const v1::ConvertConfig& config = conversion.config;
  const Layout& layout = conversion.layout;
  report.set_source(config.source());
  report.set_destination(config.destination());
  report.set_layout(layout.name);
  if (!layout.producer.name.empty()) {
    report.set_producer(layout.producer.name);
    report.set_producer_reason(layout.producer.reason);
  }
  report.set_target(config.target());
  report.set_rounding(config.rounding());
  report.set_nan_policy(config.nan_policy());
  report.set_dry_run(config.dry_run());
  const bool once = config.rounding() == v1::ROUNDING_FP64;
  report.set_arithmetic(cat("decode, multiply in ", once ? "fp64" : "fp32", ", round to nearest even to ",
                            name_of(conversion.target), once ? " once" : ""));
  report.set_nan_codes(0);
  report.set_reencode_checked(0);
  report.set_reencode_mismatched(0);
  std::map<std::string, v1::RuleCount> rules;
  const auto count = [&rules](const std::string& rule, const TensorInfo& tensor) {
    v1::RuleCount& line = rules[rule];
    line.set_rule(rule);
    line.set_tensors(line.tensors() + 1);
    line.set_elements(line.elements() + element_count(tensor.shape));
    line.set_bytes(line.bytes() + tensor.byte_size());
  };
  int64_t scales = 0, bytes_read = 0;
  for (const ConvertedOutput& output : conversion.outputs) {
    add_tensor(conversion, output, report);
    count(output.rule, *output.plan->source);
    bytes_read += output.plan->source->byte_size();
  }
  for (const DroppedTensor& dropped : layout.dropped) {
    v1::ConvertedTensor& line = *report.add_tensors();
    line.set_name(dropped.source->name);
    line.set_new_name("");
    line.set_rule(dropped.rule);
    line.set_source_dtype(static_cast<v1::DType>(dropped.source->dtype));
    for (int64_t size : dropped.source->shape) line.add_shape(size);
    line.set_elements(element_count(dropped.source->shape));
    count(dropped.rule, *dropped.source);
    if (dropped.rule == "scale") {
      ++scales;
      bytes_read += dropped.source->byte_size();
    }
  }
  for (auto& [name, line] : rules) *report.add_rules() = line;
  for (const Finding& finding : layout.findings) report.add_warnings(cat(finding.reason, ": ", finding.message));
  for (const auto& [key, value] : std::map<std::string, std::string>(config.assume().begin(), config.assume().end())) {
    report.add_warnings(cat("checkpoint.assumed: ", key, "=", value, " was stated"));
  }
  const auto detail_of = [&conversion](const std::string& name) {
    const std::string path = join_path(conversion.folder.path(), name) + ": ";
    for (const Finding& finding : conversion.side_files.findings) {
      if (finding.message.starts_with(path)) return finding.message.substr(path.size());
    }
    return std::string();
  };
  const auto add_file = [&](const std::string& name, std::string action) {
    v1::SideFile& line = *report.add_files();
    line.set_name(name);
    line.set_action(std::move(action));
    if (std::string detail = detail_of(name); !detail.empty()) line.set_detail(std::move(detail));
  };
  for (const SideFile& file : conversion.side_files.files)
    add_file(file.name, file.copied_from.empty() ? "rewritten" : "copied");
  for (const std::string& name : conversion.side_files.dropped) add_file(name, "left_out");
  find_oddities(conversion, report);
  report.set_tensors_read(static_cast<int64_t>(conversion.folder.tensors().size()));
  report.set_tensors_written(config.dry_run() ? 0 : static_cast<int64_t>(conversion.outputs.size()));
  report.set_scales_used(scales);
  report.set_bytes_read(config.dry_run() ? 0 : bytes_read);
  report.set_passed(true);
}

}  // namespace invar
