#include "core/checkpoint/convert.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "core/checkpoint/convert_quantized.h"
#include "core/checkpoint/convert_report.h"
#include "core/checkpoint/folder_lock.h"
#include "core/checkpoint/full_proof.h"
#include "core/checkpoint/layout.h"
#include "core/checkpoint/partial.h"
#include "core/checkpoint/removed_shards.h"
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

DType dtype_of(v1::TargetFormat target) {
  switch (target) {
    case v1::TARGET_FORMAT_FP16: return DType::kF16;
    case v1::TARGET_FORMAT_FP32: return DType::kF32;
    default: return DType::kBF16;
  }
}

// A run of elements of one output; bytes of a tensor that is copied, when its elements are narrower than a byte.
// Without a target: a run of source bytes that is only read for its checksum, as a decoder reads in its own order.
struct Piece {
  ConvertedOutput* output;
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
    std::optional<FolderLock> lock;
    if (config_.remove_source() && !config_.dry_run()) {
      INVAR_ASSIGN(auto taken, FolderLock::take(context_.files, config_.destination()));
      lock.emplace(std::move(taken));
      INVAR_TRY(ResumableFolder::discard_stale_journal(context_.files, config_.destination()));
      INVAR_ASSIGN(removed_, RemovedShards::open(context_.files, config_.source(),
                                                 ResumableFolder::journal_of(config_.destination())));
    }
    FileSystem& files = removed_ ? *removed_ : context_.files;
    INVAR_ASSIGN(auto opened, CheckpointFolder::open(files, config_.source()));
    folder_ = std::make_unique<CheckpointFolder>(std::move(opened));
    if (!config_.dry_run()) INVAR_TRY(check_destination(context_.files, *folder_, config_.destination()));
    INVAR_ASSIGN(const auto stamps, stamps_of(files, *folder_));
    INVAR_ASSIGN(layout_, classify(*folder_, Assumptions(config_.assume().begin(), config_.assume().end())));
    SideFileOptions side_options;
    if (config_.only_size() > 0) {
      INVAR_TRY(keep_all_but({config_.only().begin(), config_.only().end()}, *folder_, &layout_,
                             &side_options.no_longer_quantized));
    }
    side_options.torch_dtype = target_ == DType::kBF16 ? "bfloat16" : target_ == DType::kF16 ? "float16" : "float32";
    INVAR_ASSIGN(side_files_, plan_side_files(*folder_, side_options));
    plan_outputs();
    if (!config_.dry_run()) {
      if (!lock) {
        INVAR_ASSIGN(auto taken, FolderLock::take(context_.files, config_.destination()));
        lock.emplace(std::move(taken));
      }
      INVAR_ASSIGN(auto staged,
                   ResumableFolder::open(context_.files, config_.destination(), fingerprint(stamps), config_.resume()));
      INVAR_TRY(write(staged));
      INVAR_TRY(check_unchanged(files, stamps));
      if (config_.verify() && !removed_) INVAR_TRY(verify_staged(config_, staged.path(), context_, &report_));
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
    same.clear_resume();
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
      ConvertedOutput output;
      output.plan = &plan;
      output.dtype = plan.source->dtype;
      output.rule = plan.rule;
      if (plan.quantized()) {
        output.dtype = target_;
      } else if (plan.rule == "kept") {
        // With its scales, whose dtype belongs to it.
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
    std::vector<ConvertedOutput*> order;
    for (ConvertedOutput& output : outputs_) order.push_back(&output);
    std::sort(order.begin(), order.end(), [](const ConvertedOutput* a, const ConvertedOutput* b) {
      const TensorInfo &x = *a->plan->source, &y = *b->plan->source;
      return x.file != y.file ? x.file < y.file : x.begin != y.begin ? x.begin < y.begin : x.name < y.name;
    });
    std::vector<TensorSpec> specs;
    std::vector<int> file_of;
    std::vector<std::string> names;
    std::vector<int64_t> bytes(folder_->files().size(), 0);
    for (const ConvertedOutput* output : order) {
      specs.push_back({output->plan->name, output->dtype, output->plan->shape});
      file_of.push_back(output->plan->source->file);
      bytes[static_cast<size_t>(file_of.back())] += bytes_of(output->dtype, element_count(output->plan->shape));
    }
    for (const auto& file : folder_->files()) names.push_back(base_name(file->path()));
    const bool fits = folder_->format() == "safetensors" &&
                      std::all_of(bytes.begin(), bytes.end(), [&](int64_t n) { return n <= config_.shard_bytes(); });
    shards_ = fits ? ShardPlan::by_source(std::move(specs), file_of, names)
                   : ShardPlan::by_size(std::move(specs), config_.shard_bytes());
    for (ConvertedOutput& output : outputs_) by_name_[output.plan->name] = &output;
    for (const ConvertedOutput& output : outputs_) total_bytes_ += output.plan->source->byte_size();
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
    const std::string& folder = staged.path();
    INVAR_TRY(removed_ ? write_in_place(staged) : write_all(staged));
    INVAR_TRY(write_index(context_.files, folder, shards_));
    return write_side_files(context_.files, side_files_.files, context_.files, folder, config_.durable());
  }

  // Headers and space of all files first: a full disk fails before the work.
  Status write_all(ResumableFolder& staged) {
    std::vector<SafetensorsWriter> writers;
    for (const Shard& shard : shards_.shards) {
      INVAR_ASSIGN(const bool done, take_recorded(shard, staged));
      if (done) continue;
      INVAR_ASSIGN(auto writer,
                   SafetensorsWriter::create(context_.files, join_path(staged.path(), shard.file_name), shard.tensors));
      INVAR_TRY(writer.reserve());
      bytes_written_ += writer.file_size();
      writers.push_back(std::move(writer));
    }
    for (SafetensorsWriter& writer : writers) {
      INVAR_TRY(write_shard(writer));
      INVAR_TRY(writer.close(config_.durable()));
      v1::ConvertReport found;
      INVAR_TRY(prove_file(writer, &found));
      // One file alone leaves nothing to go on with.
      if (shards_.shards.size() > 1) INVAR_TRY(record(writer, found, staged));
    }
    return {};
  }

  // File by file: written, flushed, verified, recorded; then the files of the source that nothing needs any more go.
  Status write_in_place(ResumableFolder& staged) {
    INVAR_TRY(removed_->remember(*folder_));
    std::vector<int64_t> users(folder_->files().size(), 0);  // outputs that are not safe yet
    for (const ConvertedOutput& output : outputs_) {
      for (const int file : files_of(*output.plan)) ++users[static_cast<size_t>(file)];
    }
    for (const Shard& shard : shards_.shards) {
      INVAR_ASSIGN(const bool done, take_recorded(shard, staged));
      if (!done) INVAR_TRY(write_verified(shard, staged));
      for (const TensorSpec& tensor : shard.tensors) {
        for (const int file : files_of(*by_name_.at(tensor.name)->plan)) --users[static_cast<size_t>(file)];
      }
      INVAR_TRY(staged.keep_at_all_costs());
      for (size_t i = 0; i < users.size(); ++i) {
        if (users[i] == 0) INVAR_TRY(removed_->remove(folder_->files()[i]->path()));
      }
    }
    return {};
  }

  Status write_verified(const Shard& shard, ResumableFolder& staged) {
    const std::string path = join_path(staged.path(), shard.file_name);
    INVAR_ASSIGN(auto writer, SafetensorsWriter::create(context_.files, path, shard.tensors));
    INVAR_TRY(writer.reserve());
    bytes_written_ += writer.file_size();
    INVAR_TRY(write_shard(writer));
    INVAR_TRY(writer.close(/*durable=*/true));
    INVAR_TRY(verify_written(config_, *folder_, layout_, path, context_, report_.mutable_verification()));
    v1::ConvertReport found;
    INVAR_TRY(prove_file(writer, &found));
    return record(writer, found, staged);
  }

  // The files that hold a tensor and what is needed to read it.
  static std::set<int> files_of(const TensorPlan& plan) {
    std::set<int> files = {plan.source->file};
    for (const ScaleTerm& scale : plan.scales) files.insert(scale.tensor->file);
    for (const TensorInfo* helper : plan.helpers) files.insert(helper->file);
    return files;
  }

  Status prove_file(const SafetensorsWriter& writer, v1::ConvertReport* found) {
    if (config_.proof() != v1::PROOF_FULL) return {};
    std::vector<ConvertedOutput*> outputs;
    for (const TensorInfo& target : writer.tensors()) outputs.push_back(by_name_.at(target.name));
    INVAR_TRY(prove_fully(*folder_, outputs, writer.path(), context_, static_cast<int>(workers_.size()), found));
    merge_full_proof(*found, &report_);
    return {};
  }

  // The size of a finished file, what was proved of it and the report's lines of its tensors, in the journal.
  Status record(const SafetensorsWriter& writer, const v1::ConvertReport& found, ResumableFolder& staged) {
    v1::ConvertReport file = found;
    file.set_bytes_written(writer.file_size());
    for (const TensorInfo& target : writer.tensors())
      *file.add_tensors() = report_line(*by_name_.at(target.name), config_);
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
      ConvertedOutput& output = *by_name_.at(tensor.name);
      output.recorded = lines.at(tensor.name);
      done_bytes_ += output.plan->source->byte_size();
    }
    merge_full_proof(*file, &report_);
    recorded_.push_back(std::move(file));
    bytes_written_ += opened->size();
    return true;
  }

  Status write_shard(SafetensorsWriter& writer) {
    std::vector<Piece> pieces;
    for (const TensorInfo& target : writer.tensors()) {
      ConvertedOutput* output = by_name_.at(target.name);
      const int64_t units =
          output->converts() ? element_count(target.shape) : target.byte_size() / unit_bytes(target.dtype);
      for (int64_t first = 0; first < units; first += kTileElements) {
        pieces.push_back({output, &target, first / kTileElements, first, std::min(kTileElements, units - first)});
      }
      output->target_digests.resize(static_cast<size_t>((units + kTileElements - 1) / kTileElements));
      if (output->converts()) output->source_digests.resize(output->target_digests.size());
      if (output->plan->decodes()) add_source_pieces(output, &pieces);
      if (BlockMaxima::fits(*output->plan)) output->maxima = std::make_unique<BlockMaxima>(*output->plan);
    }
    INVAR_TRY(run_pieces(context_.pool, static_cast<int>(workers_.size()), static_cast<int64_t>(pieces.size()),
                         context_.cancel, [&](int64_t piece, int worker) {
                           return write_piece(writer, pieces[static_cast<size_t>(piece)],
                                              *workers_[static_cast<size_t>(worker)]);
                         }));
    for (const TensorInfo& target : writer.tensors()) {
      ConvertedOutput& output = *by_name_.at(target.name);
      if (!output.maxima) continue;
      output.blocks = output.maxima->summary(output.plan->code_dtype);
      output.maxima.reset();
    }
    return {};
  }

  static void add_source_pieces(ConvertedOutput* output, std::vector<Piece>* pieces) {
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
    ConvertedOutput& output = *piece.output;
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
        INVAR_TRY(
            worker.tile.convert(*output.plan, piece.first, input, worker.output.data(), &stats, output.maxima.get()));
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
    ConvertedOutput& output = *piece.output;
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

  Status check_unchanged(FileSystem& files, const std::vector<SourceStamp>& stamps) {
    for (const SourceStamp& before : stamps) {
      INVAR_ASSIGN(const auto now, files.open(before.path));
      if (now->size() == before.size && now->modified_time() == before.modified_time) continue;
      return Error(Code::kAborted, "checkpoint.source_changed",
                   cat(before.path, ": changed while it was read (", before.size, " bytes before, ", now->size(),
                       " now); nothing was written, run again"));
    }
    return {};
  }

  void report(double seconds) {
    if (!recorded_.empty()) {
      report_.add_warnings(
          cat("convert.resumed: ", recorded_.size(), " files were taken over from a run that was killed"));
    }
    if (removed_ && removed_->removed() > 0) {
      report_.add_warnings(cat("convert.source_removed: ", removed_->removed(), " files of ", config_.source(),
                               " were removed after their result was verified"));
    }
    complete_report({config_, *folder_, layout_, outputs_, side_files_, target_}, &report_);
    report_.set_bytes_written(bytes_written_);
    report_.set_peak_buffer_bytes(peak_buffer_bytes_);
    report_.set_seconds(seconds);
  }

  v1::ConvertConfig config_;
  const WorkContext& context_;
  DType target_;
  std::unique_ptr<RemovedShards> removed_;    // of a conversion in place
  std::unique_ptr<CheckpointFolder> folder_;  // layout_ points into it
  Layout layout_;
  std::vector<ConvertedOutput> outputs_;
  std::map<std::string_view, ConvertedOutput*> by_name_;
  ShardPlan shards_;
  SideFilePlan side_files_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex stats_mutex_, progress_mutex_;
  int64_t total_bytes_ = 0, done_bytes_ = 0, bytes_written_ = 0, peak_buffer_bytes_ = 0;
  std::vector<std::unique_ptr<v1::ConvertReport>> recorded_;  // files of an earlier run
  v1::ConvertReport report_;
};

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
  if (full.remove_source() && full.has_calibrate()) {
    return Error(Code::kInvalidArgument, "convert.unsupported_option",
                 "remove_source: cannot go with calibrate, which reads the source afterwards; leave one of them out");
  }
  switch (full.target()) {
    case v1::TARGET_FORMAT_BF16:
    case v1::TARGET_FORMAT_FP16:
    case v1::TARGET_FORMAT_FP32:
      if (full.keep_size() > 0) {
        return Error(Code::kInvalidArgument, "convert.unsupported_option", "keep: is for FP8 targets only");
      }
      return Conversion(full, context).run();
    default:
      if (full.only_size() > 0) {
        return Error(Code::kInvalidArgument, "convert.unsupported_option",
                     "only: is for BF16, FP16 and FP32 targets; `keep` names what an FP8 target leaves alone");
      }
      if (full.proof() == v1::PROOF_FULL) {
        return Error(Code::kInvalidArgument, "convert.unsupported_option",
                     "proof: full is for BF16, FP16 and FP32 targets");
      }
      if (full.remove_source()) {
        return Error(Code::kInvalidArgument, "convert.unsupported_option",
                     "remove_source: is for BF16, FP16 and FP32 targets");
      }
      return convert_quantized(full, context);
  }
}

}  // namespace invar
