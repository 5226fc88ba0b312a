#include "core/checkpoint/convert.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>

#include "core/checkpoint/convert_quantized.h"
#include "core/checkpoint/folder_lock.h"
#include "core/checkpoint/layout.h"
#include "core/checkpoint/resumable_folder.h"
#include "core/checkpoint/side_files.h"
#include "core/checkpoint/tile.h"
#include "core/checkpoint/tile_runner.h"
#include "core/checkpoint/verify.h"
#include "core/config/config.h"
#include "core/container/safetensors_writer.h"
#include "core/container/shard_plan.h"

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

// Results above this are no weights of a trained model; a quantiser's scale taken for its inverse gives about 1e6.
constexpr double kLargestPlausible = 4096;

DType dtype_of(v1::TargetFormat target) {
  switch (target) {
    case v1::TARGET_FORMAT_FP16: return DType::kF16;
    case v1::TARGET_FORMAT_FP32: return DType::kF32;
    default: return DType::kBF16;
  }
}

// What becomes of one tensor of the result, and what was found on the way.
struct Output {
  const TensorPlan* plan = nullptr;
  DType dtype = DType::kUnspecified;
  std::string rule;
  TileStats stats;
  std::vector<uint64_t> source_digests, target_digests;

  // The line of the report, where an earlier run made it.
  const v1::ConvertedTensor* recorded = nullptr;

  // The source's checksum is taken in runs of so many of its bytes.
  int64_t source_run() const { return kTileElements * std::max(1, bits_of(plan->source->dtype) / 8); }
  bool converts() const { return plan->quantized() || dtype != plan->source->dtype; }
};

// A run of elements of one output; bytes of a tensor that is copied, when its elements are narrower than a byte.
// Without a target: a run of source bytes that is only read for its checksum, as a decoder reads in its own order.
struct Piece {
  Output* output;
  const TensorInfo* target;
  int64_t index, first, count;
};

int64_t unit_bytes(DType dtype) { return std::max(1, bits_of(dtype) / 8); }

struct SourceStamp {
  std::string path;
  int64_t size = 0, modified_time = 0;
};

Result<std::vector<SourceStamp>> stamps_of(FileSystem& files, const CheckpointFolder& folder) {
  std::vector<SourceStamp> stamps;
  for (const auto& file : folder.files()) {
    for (const std::string& path : file->parts()) {
      INVAR_ASSIGN(const auto opened, files.open(path));
      stamps.push_back({path, opened->size(), opened->modified_time()});
    }
  }
  return stamps;
}

class Conversion {
 public:
  Conversion(v1::ConvertConfig config, const WorkContext& context)
      : config_(std::move(config)), context_(context), target_(dtype_of(config_.target())) {}

  Result<v1::ConvertReport> run() {
    const auto begin = Clock::now();
    INVAR_ASSIGN(auto opened, CheckpointFolder::open(context_.files, config_.source()));
    folder_ = std::make_unique<CheckpointFolder>(std::move(opened));
    if (!config_.dry_run()) INVAR_TRY(check_destination(context_.files, *folder_, config_.destination()));
    INVAR_ASSIGN(const auto stamps, stamps_of(context_.files, *folder_));
    INVAR_ASSIGN(layout_, classify(*folder_, Assumptions(config_.assume().begin(), config_.assume().end())));
    SideFileOptions side_options;
    side_options.torch_dtype = target_ == DType::kBF16 ? "bfloat16" : target_ == DType::kF16 ? "float16" : "float32";
    INVAR_ASSIGN(side_files_, plan_side_files(*folder_, side_options));
    plan_outputs();
    if (!config_.dry_run()) {
      INVAR_ASSIGN(const FolderLock lock, FolderLock::take(context_.files, config_.destination()));
      INVAR_ASSIGN(auto staged, ResumableFolder::open(context_.files, config_.destination(), fingerprint(stamps),
                                                      /*resume=*/true));
      INVAR_TRY(write(staged));
      INVAR_TRY(check_unchanged(stamps));
      if (config_.verify()) INVAR_TRY(verify_staged(config_, staged.path(), context_, &report_));
      INVAR_TRY(check_cancel(context_.cancel));
      INVAR_TRY(staged.commit());
    }
    report(std::chrono::duration<double>(Clock::now() - begin).count());
    return std::move(report_);
  }

 private:
  // What must be the same for a run to go on where another stopped.
  std::string fingerprint(const std::vector<SourceStamp>& stamps) const {
    v1::ConvertConfig same = config_;
    same.clear_threads();
    same.clear_memory_bytes();
    same.clear_verify();
    same.clear_calibrate();
    same.clear_assume();  // maps serialise in any order
    std::string text = cat("invar conversion 1\n", same.SerializeAsString());
    for (const auto& [key, value] :
         std::map<std::string, std::string>(config_.assume().begin(), config_.assume().end())) {
      text += cat("\n", key, "=", value);
    }
    for (const SourceStamp& stamp : stamps) text += cat("\n", stamp.path, " ", stamp.size, " ", stamp.modified_time);
    return text;
  }

  void plan_outputs() {
    outputs_.reserve(layout_.tensors.size());
    for (const TensorPlan& plan : layout_.tensors) {
      Output output;
      output.plan = &plan;
      output.dtype = plan.source->dtype;
      output.rule = plan.rule;
      if (plan.quantized()) {
        output.dtype = target_;
      } else if ((target_ != DType::kBF16 && plan.source->dtype == DType::kBF16) ||
                 (target_ == DType::kF32 && plan.source->dtype == DType::kF16)) {
        output.dtype = target_;
        output.rule = "cast";
      }
      outputs_.push_back(std::move(output));
    }
    plan_shards();
  }

  // The files of the source, unless it is of another format or one grows beyond shard_bytes: then files are cut anew.
  void plan_shards() {
    std::vector<Output*> order;
    for (Output& output : outputs_) order.push_back(&output);
    std::sort(order.begin(), order.end(), [](const Output* a, const Output* b) {
      const TensorInfo &x = *a->plan->source, &y = *b->plan->source;
      return x.file != y.file ? x.file < y.file : x.begin != y.begin ? x.begin < y.begin : x.name < y.name;
    });
    std::vector<TensorSpec> specs;
    std::vector<int> file_of;
    std::vector<std::string> names;
    std::vector<int64_t> bytes(folder_->files().size(), 0);
    for (const Output* output : order) {
      specs.push_back({output->plan->name, output->dtype, output->plan->shape});
      file_of.push_back(output->plan->source->file);
      bytes[static_cast<size_t>(file_of.back())] += bytes_of(output->dtype, element_count(output->plan->shape));
    }
    for (const auto& file : folder_->files()) names.push_back(base_name(file->path()));
    const bool fits = folder_->format() == "safetensors" &&
                      std::all_of(bytes.begin(), bytes.end(), [&](int64_t n) { return n <= config_.shard_bytes(); });
    shards_ = fits ? ShardPlan::by_source(std::move(specs), file_of, names)
                   : ShardPlan::by_size(std::move(specs), config_.shard_bytes());
    for (Output& output : outputs_) by_name_[output.plan->name] = &output;
    for (const Output& output : outputs_) total_bytes_ += output.plan->source->byte_size();
  }

  Status write(ResumableFolder& staged) {
    int workers = context_.pool.threads();
    if (config_.threads() > 0) workers = static_cast<int>(std::min<int64_t>(workers, config_.threads()));
    constexpr int64_t kInput = kTileElements * 8, kOutput = kTileElements * 4;  // the widest of each
    int64_t decoding = 0;
    for (const TensorPlan& plan : layout_.tensors) {
      if (plan.decodes()) decoding = std::max(decoding, kTileElements * 4 + plan.decoder->scratch_bytes());
    }
    const int64_t each = kInput + kOutput + decoding;
    const int64_t affordable = config_.memory_bytes() / each;
    if (affordable < 1) {
      return Error(Code::kInvalidArgument, "config.out_of_range",
                   cat("memory_bytes: is ", config_.memory_bytes(), "; at least ", each, " are needed"));
    }
    workers = static_cast<int>(std::min<int64_t>(workers, affordable));
    TileOptions options;
    options.target = target_;
    options.round_once = config_.rounding() == v1::ROUNDING_FP64;
    options.keep_nan = config_.nan_policy() == v1::NAN_POLICY_KEEP;
    options.level = cpu_level();
    for (int i = 0; i < workers; ++i) {
      workers_.push_back(std::make_unique<Worker>(*folder_, options));
      workers_.back()->input.resize(kInput);
      workers_.back()->output.resize(kOutput);
    }
    peak_buffer_bytes_ = workers * each;
    // Headers and space of all files first: a full disk fails before the work.
    const std::string& folder = staged.path();
    std::vector<SafetensorsWriter> writers;
    for (const Shard& shard : shards_.shards) {
      INVAR_ASSIGN(const bool done, take_recorded(shard, staged));
      if (done) continue;
      INVAR_ASSIGN(auto writer,
                   SafetensorsWriter::create(context_.files, join_path(folder, shard.file_name), shard.tensors));
      INVAR_TRY(writer.reserve());
      bytes_written_ += writer.file_size();
      writers.push_back(std::move(writer));
    }
    for (SafetensorsWriter& writer : writers) {
      INVAR_TRY(write_shard(writer));
      INVAR_TRY(writer.close(config_.durable()));
      // One file alone leaves nothing to go on with.
      if (shards_.shards.size() > 1) INVAR_TRY(record(writer, staged));
    }
    INVAR_TRY(write_index(context_.files, folder, shards_));
    return write_side_files(context_.files, side_files_.files, context_.files, folder, config_.durable());
  }

  // The size of a finished file and the report's lines of its tensors, in the journal.
  Status record(const SafetensorsWriter& writer, ResumableFolder& staged) {
    v1::ConvertReport file;
    file.set_bytes_written(writer.file_size());
    for (const TensorInfo& target : writer.tensors()) *file.add_tensors() = line_of(*by_name_.at(target.name));
    return staged.record(base_name(writer.path()), file.SerializeAsString());
  }

  // True when an earlier run finished the file; its lines of the report are taken over.
  Result<bool> take_recorded(const Shard& shard, const ResumableFolder& staged) {
    const std::string* bytes = staged.finished(shard.file_name);
    if (bytes == nullptr) return false;
    auto file = std::make_unique<v1::ConvertReport>();
    if (!file->ParseFromString(*bytes)) return false;
    INVAR_ASSIGN(const auto opened, context_.files.open(join_path(staged.path(), shard.file_name)));
    if (opened->size() != file->bytes_written()) return false;
    std::map<std::string, const v1::ConvertedTensor*> lines;
    for (const v1::ConvertedTensor& line : file->tensors()) {
      lines[line.has_new_name() ? line.new_name() : line.name()] = &line;
    }
    for (const TensorSpec& tensor : shard.tensors) {
      if (lines.count(tensor.name) == 0) return false;
    }
    for (const TensorSpec& tensor : shard.tensors) {
      Output& output = *by_name_.at(tensor.name);
      output.recorded = lines.at(tensor.name);
      done_bytes_ += output.plan->source->byte_size();
    }
    recorded_.push_back(std::move(file));
    bytes_written_ += opened->size();
    return true;
  }

  Status write_shard(SafetensorsWriter& writer) {
    std::vector<Piece> pieces;
    for (const TensorInfo& target : writer.tensors()) {
      Output* output = by_name_.at(target.name);
      const int64_t units =
          output->converts() ? element_count(target.shape) : target.byte_size() / unit_bytes(target.dtype);
      for (int64_t first = 0; first < units; first += kTileElements) {
        pieces.push_back({output, &target, first / kTileElements, first, std::min(kTileElements, units - first)});
      }
      output->target_digests.resize(static_cast<size_t>((units + kTileElements - 1) / kTileElements));
      if (output->converts()) output->source_digests.resize(output->target_digests.size());
      if (output->plan->decodes()) add_source_pieces(output, &pieces);
    }
    return run_pieces(context_.pool, static_cast<int>(workers_.size()), static_cast<int64_t>(pieces.size()),
                      context_.cancel, [&](int64_t piece, int worker) {
                        return write_piece(writer, pieces[static_cast<size_t>(piece)],
                                           *workers_[static_cast<size_t>(worker)]);
                      });
  }

  static void add_source_pieces(Output* output, std::vector<Piece>* pieces) {
    const int64_t bytes = output->plan->source->byte_size(), run = output->source_run();
    output->source_digests.resize(static_cast<size_t>((bytes + run - 1) / run));
    for (int64_t first = 0; first < bytes; first += run) {
      pieces->push_back({output, nullptr, first / run, first, std::min(run, bytes - first)});
    }
  }

  struct Worker {
    Worker(const CheckpointFolder& folder, const TileOptions& options) : tile(folder, options) {}
    Tile tile;
    std::vector<std::byte> input, output;
  };

  Status write_piece(SafetensorsWriter& writer, const Piece& piece, Worker& worker) {
    Output& output = *piece.output;
    const TensorInfo& source = *output.plan->source;
    if (piece.target == nullptr) {
      const std::span<std::byte> bytes(worker.input.data(), static_cast<size_t>(piece.count));
      INVAR_TRY(folder_->read(source, piece.first, bytes));
      output.source_digests[static_cast<size_t>(piece.index)] = worker.tile.hash(bytes);
      return {};
    }
    if (output.plan->decodes()) return write_decoded(writer, piece, worker);
    const int64_t width = unit_bytes(source.dtype);
    const bool quantized = output.plan->quantized();
    const int64_t begin = quantized ? output.plan->stored_bytes(piece.first) : piece.first * width;
    const int64_t bytes = quantized ? output.plan->stored_bytes(piece.count) : piece.count * width;
    const std::span<std::byte> input(worker.input.data(), static_cast<size_t>(bytes));
    INVAR_TRY(folder_->read(source, begin, input));
    const auto index = static_cast<size_t>(piece.index);
    if (!output.converts()) {
      output.target_digests[index] = worker.tile.hash(input);
      INVAR_TRY(writer.write(*piece.target, piece.first * width, input));
    } else {
      TileStats stats;
      if (quantized) {
        INVAR_TRY(worker.tile.convert(*output.plan, piece.first, input, worker.output.data(), &stats));
      } else {
        worker.tile.cast(source.dtype, input, worker.output.data(), &stats);
      }
      const int64_t wide = unit_bytes(output.dtype);
      const std::span<const std::byte> result(worker.output.data(), static_cast<size_t>(piece.count * wide));
      output.source_digests[index] = worker.tile.hash(input);
      output.target_digests[index] = worker.tile.hash(result);
      INVAR_TRY(writer.write(*piece.target, piece.first * wide, result));
      std::lock_guard lock(stats_mutex_);
      output.stats.add(stats);
    }
    progress(bytes);
    return {};
  }

  Status write_decoded(SafetensorsWriter& writer, const Piece& piece, Worker& worker) {
    Output& output = *piece.output;
    TileStats stats;
    INVAR_TRY(worker.tile.convert_decoded(*output.plan, piece.first, piece.count, worker.output.data(), &stats));
    const int64_t wide = unit_bytes(output.dtype);
    const std::span<const std::byte> result(worker.output.data(), static_cast<size_t>(piece.count * wide));
    output.target_digests[static_cast<size_t>(piece.index)] = worker.tile.hash(result);
    INVAR_TRY(writer.write(*piece.target, piece.first * wide, result));
    {
      std::lock_guard lock(stats_mutex_);
      output.stats.add(stats);
    }
    progress(output.plan->stored_bytes(piece.count));
    return {};
  }

  void progress(int64_t bytes) {
    if (!context_.progress) return;
    std::lock_guard lock(progress_mutex_);
    done_bytes_ += bytes;
    context_.progress(done_bytes_, total_bytes_);
  }

  Status check_unchanged(const std::vector<SourceStamp>& stamps) {
    for (const SourceStamp& before : stamps) {
      INVAR_ASSIGN(const auto now, context_.files.open(before.path));
      if (now->size() == before.size && now->modified_time() == before.modified_time) continue;
      return Error(Code::kAborted, "checkpoint.source_changed",
                   cat(before.path, ": changed while it was read (", before.size, " bytes before, ", now->size(),
                       " now); nothing was written, run again"));
    }
    return {};
  }

  void report(double seconds);
  v1::ConvertedTensor line_of(const Output& output) const;
  void report_tensor(const Output& output);
  void find_oddities();

  v1::ConvertConfig config_;
  const WorkContext& context_;
  DType target_;
  std::unique_ptr<CheckpointFolder> folder_;  // layout_ points into it
  Layout layout_;
  std::vector<Output> outputs_;
  std::map<std::string_view, Output*> by_name_;
  ShardPlan shards_;
  SideFilePlan side_files_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex stats_mutex_, progress_mutex_;
  int64_t total_bytes_ = 0, done_bytes_ = 0, bytes_written_ = 0, peak_buffer_bytes_ = 0;
  std::vector<std::unique_ptr<v1::ConvertReport>> recorded_;  // files of an earlier run
  v1::ConvertReport report_;
};

// The report's line of one tensor, with its warnings.
v1::ConvertedTensor Conversion::line_of(const Output& output) const {
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
  if (config_.dry_run()) return line;
  line.set_target_checksum(tile_checksum(output.target_digests));
  line.set_source_checksum(output.converts() ? tile_checksum(output.source_digests) : line.target_checksum());
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
  line.set_reencode_checked(stats.reencode_checked);
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
  if (not_finite > 0) warn("checkpoint.nan_code", cat(not_finite, " codes are not finite"));
  if (stats.overflows > 0)
    warn("checkpoint.overflow", cat(stats.overflows, " results are beyond ", name_of(output.dtype)));
  if (stats.underflows > 0)
    warn("checkpoint.underflow", cat(stats.underflows, " non-zero results became zero in ", name_of(output.dtype)));
  if (stats.reencode_mismatched > 0) {
    warn("checkpoint.reencode", cat(stats.reencode_mismatched, " of ", stats.reencode_checked,
                                    " checked results do not encode back to their code"));
  }
  return line;
}

void Conversion::report_tensor(const Output& output) {
  const TensorInfo& source = *output.plan->source;
  v1::ConvertedTensor& line = *report_.add_tensors();
  line = line_of(output);
  report_.set_nan_codes(report_.nan_codes() + line.nan_codes());
  report_.set_reencode_checked(report_.reencode_checked() + line.reencode_checked());
  report_.set_reencode_mismatched(report_.reencode_mismatched() + line.reencode_mismatched());
  for (const std::string& warning : line.warnings()) {
    const auto colon = warning.find(": ");
    report_.add_warnings(cat(warning.substr(0, colon), ": ", join_path(folder_->path(), folder_->file_name(source)),
                             ": tensor ", in_quotes(source.name), warning.substr(colon)));
  }
}

// Codes of a quantiser that scales by the largest value reach the top of the format. When many tensors stop at 240,
// the top of the formats of some accelerators, the bytes may mean half of what their dtype says.
void Conversion::find_oddities() {
  int64_t full = 0, at_240 = 0;
  constexpr uint32_t kCode448 = 0x7E, kCode240 = 0x77;
  for (const Output& output : outputs_) {
    if (output.plan->code_dtype != DType::kE4M3FN || element_count(output.plan->shape) < 4096) continue;
    if (output.stats.codes.max_magnitude == kCode448) ++full;
    if (output.stats.codes.max_magnitude == kCode240) ++at_240;
  }
  if (at_240 >= 2 && full == 0) {
    report_.add_warnings(
        cat("checkpoint.narrow_codes: ", folder_->path(), ": the codes of ", at_240,
            " E4M3 tensors reach 240 and never 448; if they were written for an accelerator with the FNUZ "
            "format, state --assume e4m3=fnuz; a writer for Gaudi 2 stops there by itself and is read as it is"));
  }
}

void Conversion::report(double seconds) {
  report_.set_source(config_.source());
  report_.set_destination(config_.destination());
  report_.set_layout(layout_.name);
  report_.set_target(config_.target());
  report_.set_rounding(config_.rounding());
  report_.set_nan_policy(config_.nan_policy());
  report_.set_dry_run(config_.dry_run());
  const bool once = config_.rounding() == v1::ROUNDING_FP64;
  report_.set_arithmetic(cat("decode, multiply in ", once ? "fp64" : "fp32", ", round to nearest even to ",
                             name_of(target_), once ? " once" : ""));
  report_.set_nan_codes(0);
  report_.set_reencode_checked(0);
  report_.set_reencode_mismatched(0);
  std::map<std::string, v1::RuleCount> rules;
  const auto count = [&rules](const std::string& rule, const TensorInfo& tensor) {
    v1::RuleCount& line = rules[rule];
    line.set_rule(rule);
    line.set_tensors(line.tensors() + 1);
    line.set_elements(line.elements() + element_count(tensor.shape));
    line.set_bytes(line.bytes() + tensor.byte_size());
  };
  int64_t scales = 0, bytes_read = 0;
  for (const Output& output : outputs_) {
    report_tensor(output);
    count(output.rule, *output.plan->source);
    bytes_read += output.plan->source->byte_size();
  }
  for (const DroppedTensor& dropped : layout_.dropped) {
    v1::ConvertedTensor& line = *report_.add_tensors();
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
  for (auto& [name, line] : rules) *report_.add_rules() = line;
  for (const Finding& finding : layout_.findings) report_.add_warnings(cat(finding.reason, ": ", finding.message));
  for (const auto& [key, value] :
       std::map<std::string, std::string>(config_.assume().begin(), config_.assume().end())) {
    report_.add_warnings(cat("checkpoint.assumed: ", key, "=", value, " was stated"));
  }
  if (!recorded_.empty()) {
    report_.add_warnings(
        cat("convert.resumed: ", recorded_.size(), " files were taken over from a run that was killed"));
  }
  const auto detail_of = [this](const std::string& name) {
    const std::string path = join_path(folder_->path(), name) + ": ";
    for (const Finding& finding : side_files_.findings) {
      if (finding.message.starts_with(path)) return finding.message.substr(path.size());
    }
    return std::string();
  };
  const auto add_file = [&](const std::string& name, std::string action) {
    v1::SideFile& line = *report_.add_files();
    line.set_name(name);
    line.set_action(std::move(action));
    if (std::string detail = detail_of(name); !detail.empty()) line.set_detail(std::move(detail));
  };
  for (const SideFile& file : side_files_.files) add_file(file.name, file.copied_from.empty() ? "rewritten" : "copied");
  for (const std::string& name : side_files_.dropped) add_file(name, "left_out");
  find_oddities();
  report_.set_tensors_read(static_cast<int64_t>(folder_->tensors().size()));
  report_.set_tensors_written(config_.dry_run() ? 0 : static_cast<int64_t>(outputs_.size()));
  report_.set_scales_used(scales);
  report_.set_bytes_read(config_.dry_run() ? 0 : bytes_read);
  report_.set_bytes_written(bytes_written_);
  report_.set_peak_buffer_bytes(peak_buffer_bytes_);
  report_.set_seconds(seconds);
  report_.set_passed(true);
}

}  // namespace

Status check_destination(FileSystem& files, const CheckpointFolder& source, const std::string& destination) {
  if (destination.empty()) {
    return Error(Code::kInvalidArgument, "output.missing", "destination: is empty; name the folder to write");
  }
  INVAR_ASSIGN(const std::string from, files.canonical(source.path()));
  std::string target = destination;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  // The staging folder is emptied first: it must not be the source either.
  for (const std::string& written : {target, target + ".partial"}) {
    if (!files.exists(written)) continue;
    INVAR_ASSIGN(const std::string resolved, files.canonical(written));
    if (from == resolved || from.starts_with(resolved + "/")) {
      return Error(
          Code::kInvalidArgument, "output.same_as_input",
          cat(destination, ": writing there would overwrite the source ", source.path(), "; choose another folder"));
    }
  }
  return {};
}

Result<v1::ConvertReport> convert(const v1::ConvertConfig& config, const WorkContext& context) {
  INVAR_TRY(config::check(config));
  const v1::ConvertConfig full = config::with_defaults(config);
  switch (full.target()) {
    case v1::TARGET_FORMAT_BF16:
    case v1::TARGET_FORMAT_FP16:
    case v1::TARGET_FORMAT_FP32:
      if (full.keep_size() > 0) {
        return Error(Code::kInvalidArgument, "convert.unsupported_option", "keep: is for FP8 targets only");
      }
      return Conversion(full, context).run();
    default: return convert_quantized(full, context);
  }
}

}  // namespace invar
