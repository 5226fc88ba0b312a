#include "core/checkpoint/full_proof.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <mutex>

#include "core/checkpoint/sha256.h"
#include "core/checkpoint/tile_runner.h"

namespace invar {
namespace {

constexpr int64_t kBuffer = 1 << 20;

using Counts = std::array<int64_t, 256>;

// Four tables, so that runs of one code do not wait for their own counter.
void count_bytes(std::span<const std::byte> bytes, std::array<Counts, 4>& tables) {
  size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) {
    for (size_t k = 0; k < 4; ++k) ++tables[k][static_cast<size_t>(bytes[i + k])];
  }
  for (; i < bytes.size(); ++i) ++tables[0][static_cast<size_t>(bytes[i])];
}

// Of bytes, or of the two halves of each.
Counts codes_of(const std::array<Counts, 4>& tables, Coding coding) {
  Counts bytes{}, codes{};
  for (const Counts& table : tables) {
    for (size_t i = 0; i < 256; ++i) bytes[i] += table[i];
  }
  if (coding != Coding::kPackedFp4) return bytes;
  for (size_t i = 0; i < 256; ++i) {
    codes[i & 15] += bytes[i];
    codes[i >> 4] += bytes[i];
  }
  return codes;
}

// read(offset, bytes) -> Status; each(bytes) sees all of them in order.
template <typename Read, typename Each>
Status stream(int64_t size, std::vector<std::byte>& buffer, const CancelFlag* cancel, Read&& read, Each&& each) {
  for (int64_t at = 0; at < size; at += kBuffer) {
    INVAR_TRY(check_cancel(cancel));
    const auto bytes = std::span(buffer).first(static_cast<size_t>(std::min(kBuffer, size - at)));
    INVAR_TRY(read(at, bytes));
    each(std::span<const std::byte>(bytes));
  }
  return {};
}

class Proof {
 public:
  Proof(const CheckpointFolder& source, const CheckpointFolder& result, const WorkContext& context)
      : source_(source), result_(result), context_(context) {}

  Status run(std::vector<ConvertedOutput*> outputs, int workers) {
    // The largest first, as each is one worker's.
    std::stable_sort(outputs.begin(), outputs.end(), [](const ConvertedOutput* a, const ConvertedOutput* b) {
      return a->plan->source->byte_size() > b->plan->source->byte_size();
    });
    std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(workers),
                                                std::vector<std::byte>(static_cast<size_t>(kBuffer)));
    return run_pieces(context_.pool, workers, static_cast<int64_t>(outputs.size()), context_.cancel,
                      [&](int64_t piece, int worker) {
                        return prove(*outputs[static_cast<size_t>(piece)], buffers[static_cast<size_t>(worker)]);
                      });
  }

  void add_to(v1::ConvertReport* report) const {
    v1::ConvertReport own;
    for (const auto& [kind, histogram] : histograms_) *own.add_histograms() = histogram;
    own.set_proof_bytes(bytes_);
    merge_full_proof(own, report);
  }

 private:
  Status prove(ConvertedOutput& output, std::vector<std::byte>& buffer) {
    const TensorPlan& plan = *output.plan;
    const bool counts = plan.quantized() && !plan.decodes();
    Sha256 of_source, of_target;
    std::array<Counts, 4> tables{};
    INVAR_TRY(stream(
        plan.source->byte_size(), buffer, context_.cancel,
        [&](int64_t at, std::span<std::byte> bytes) { return source_.read(*plan.source, at, bytes); },
        [&](std::span<const std::byte> bytes) {
          of_source.update(bytes);
          if (counts) count_bytes(bytes, tables);
        }));
    const TensorInfo* target = result_.find(plan.name);
    if (target == nullptr) {
      return Error(Code::kInternal, "checkpoint.verify_failed",
                   cat(result_.path(), ": holds no tensor ", in_quotes(plan.name)));
    }
    INVAR_TRY(stream(
        target->byte_size(), buffer, context_.cancel,
        [&](int64_t at, std::span<std::byte> bytes) { return result_.read(*target, at, bytes); },
        [&](std::span<const std::byte> bytes) { of_target.update(bytes); }));
    output.source_sha256 = of_source.hex();
    output.target_sha256 = of_target.hex();
    std::lock_guard lock(mutex_);
    bytes_ += plan.source->byte_size() + target->byte_size();
    if (counts) add(plan, codes_of(tables, plan.coding));
    return {};
  }

  void add(const TensorPlan& plan, const Counts& codes) {
    const bool packed = plan.coding == Coding::kPackedFp4;
    const std::string kind = cat(plan.rule, " ", name_of(plan.code_dtype));
    v1::CodeHistogram& line = histograms_[kind];
    line.set_kind(kind);
    line.set_code_dtype(static_cast<v1::DType>(plan.code_dtype));
    line.set_tensors(line.tensors() + 1);
    line.mutable_counts()->Resize(packed ? 16 : 256, 0);
    for (int i = 0; i < line.counts_size(); ++i) {
      line.set_counts(i, line.counts(i) + codes[static_cast<size_t>(i)]);
    }
  }

  const CheckpointFolder& source_;
  const CheckpointFolder& result_;
  const WorkContext& context_;
  std::mutex mutex_;
  std::map<std::string, v1::CodeHistogram> histograms_;  // by kind
  int64_t bytes_ = 0;
};

}  // namespace

Status prove_fully(const CheckpointFolder& source, const std::vector<ConvertedOutput*>& outputs,
                   const std::string& file, const WorkContext& context, int workers, v1::ConvertReport* report) {
  const auto begin = std::chrono::steady_clock::now();
  INVAR_ASSIGN(const auto result, CheckpointFolder::open(context.files, file));
  Proof proof(source, result, context);
  INVAR_TRY(proof.run(outputs, workers));
  proof.add_to(report);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  report->set_proof_seconds(report->proof_seconds() + seconds.count());
  return {};
}

void merge_full_proof(const v1::ConvertReport& from, v1::ConvertReport* to) {
  for (const v1::CodeHistogram& added : from.histograms()) {
    v1::CodeHistogram* line = nullptr;
    for (v1::CodeHistogram& known : *to->mutable_histograms()) {
      if (known.kind() == added.kind()) line = &known;
    }
    if (line == nullptr) {
      *to->add_histograms() = added;
      continue;
    }
    line->set_tensors(line->tensors() + added.tensors());
    line->mutable_counts()->Resize(std::max(line->counts_size(), added.counts_size()), 0);
    for (int i = 0; i < added.counts_size(); ++i) line->set_counts(i, line->counts(i) + added.counts(i));
  }
  if (from.has_proof_bytes()) to->set_proof_bytes(to->proof_bytes() + from.proof_bytes());
  if (from.has_proof_seconds()) to->set_proof_seconds(to->proof_seconds() + from.proof_seconds());
}

}  // namespace invar
