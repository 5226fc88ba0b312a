#include "core/checkpoint/merge.h"

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>

#include "core/checkpoint/adapter.h"
#include "core/checkpoint/layout.h"
#include "core/checkpoint/model_writer.h"
#include "core/checkpoint/side_files.h"
#include "core/checkpoint/values.h"
#include "core/config/config.h"
#include "core/container/json_document.h"

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kHead = "lm_head.weight";

// The matrices of one change: read when its first rows are, dropped after its last ones.
class SharedFactors {
 public:
  SharedFactors(const Adapter& adapter, const AdapterChange& change)
      : adapter_(adapter), change_(change), left_(element_count(change.shape())) {}

  Result<std::shared_ptr<const Factors>> get() {
    std::lock_guard lock(mutex_);
    if (!factors_) {
      INVAR_ASSIGN(auto read, adapter_.factors_of(change_));
      factors_ = std::make_shared<const Factors>(std::move(read));
    }
    return factors_;
  }
  void done(int64_t elements) {
    std::lock_guard lock(mutex_);
    left_ -= elements;
    if (left_ <= 0) factors_.reset();
  }

 private:
  const Adapter& adapter_;
  const AdapterChange& change_;
  std::mutex mutex_;
  std::shared_ptr<const Factors> factors_;
  int64_t left_;
};

// Any run of a changed tensor. The adapter works on whole rows, so those at the ends are made whole.
ReadFloats changed_values(const CheckpointFolder& base, const TensorPlan& plan, const Adapter& adapter,
                          const AdapterChange& change, double weight) {
  auto factors = std::make_shared<SharedFactors>(adapter, change);
  return [&base, &plan, factors, weight](int64_t first, int64_t count, float* out) -> Status {
    const int64_t cols = plan.shape.back(), row = first / cols, end = (first + count + cols - 1) / cols;
    std::vector<float> rows(static_cast<size_t>((end - row) * cols));
    ValueReader reader(base);
    INVAR_TRY(reader.read(plan, row * cols, std::span(rows)));
    INVAR_ASSIGN(const auto matrices, factors->get());
    matrices->apply(weight, row, rows);
    std::copy_n(rows.data() + (first - row * cols), count, out);
    factors->done(count);
    return {};
  };
}

class Merge {
 public:
  Merge(v1::MergeConfig config, const WorkContext& context, const CheckpointFolder& base, const Layout& layout,
        const Adapter& adapter)
      : config_(std::move(config)), context_(context), base_(base), layout_(layout), adapter_(adapter) {}

  Result<v1::MergeReport> run() {
    const auto start = Clock::now();
    report_.set_base(config_.base());
    report_.set_adapter(config_.adapter());
    report_.set_destination(config_.destination());
    for (const AdapterChange& change : adapter_.changes()) changes_[change.name] = &change;
    for (const TensorPlan& plan : layout_.tensors) INVAR_TRY(add(plan));
    INVAR_TRY(add_head());
    for (const auto& [name, change] : changes_) {
      return no_such_weight(*change, cat("the base ", config_.base(), " has no tensor ", in_quotes(name)));
    }
    INVAR_TRY(add_side_files());
    ModelWriteOptions options;
    options.max_shard_bytes = config_.shard_bytes();
    options.durable = config_.durable();
    options.pool = &context_.pool;
    options.cancel = context_.cancel;
    std::atomic<int64_t> done{0};
    if (context_.progress) {
      options.on_written = [&](int64_t count) { context_.progress(done += count, elements_); };
    }
    INVAR_TRY(write_model_folder(context_.files, config_.destination(), folder_, options));
    report_.set_tensors_written(static_cast<int64_t>(folder_.tensors.size()));
    report_.set_bytes_written(bytes_);
    report_.set_seconds(std::chrono::duration<double>(Clock::now() - start).count());
    return std::move(report_);
  }

 private:
  Status no_such_weight(const AdapterChange& change, const std::string& why) const {
    const TensorInfo& tensor = change.whole != nullptr ? *change.whole : *change.a;
    return Error(Code::kInvalidArgument, "adapter.no_such_weight",
                 cat(join_path(adapter_.folder().path(), adapter_.folder().file_name(tensor)), ": tensor ",
                     in_quotes(tensor.name), " changes a weight of ", shape_text(change.shape()), ", but ", why));
  }

  // One tensor of the base in the result.
  Status add(const TensorPlan& plan) {
    ModelTensor tensor{plan.name, plan.shape, {}, plan.quantized() ? DType::kBF16 : plan.source->dtype};
    const auto it = changes_.find(plan.name);
    if (it != changes_.end()) {
      const AdapterChange& change = *it->second;
      if (change.shape() != plan.shape) {
        return no_such_weight(
            change, cat(in_quotes(plan.name), " of the base ", config_.base(), " is ", shape_text(plan.shape)));
      }
      if (!plan.quantized() && !is_float(plan.source->dtype)) {
        return no_such_weight(change, cat(in_quotes(plan.name), " of the base holds no floats"));
      }
      tensor.read = change.whole != nullptr ? whole_values(change)
                                            : changed_values(base_, plan, adapter_, change, config_.weight());
      note(change, plan.quantized() ? plan.code_dtype : plan.source->dtype, tensor.dtype);
      changes_.erase(it);
    } else if (plan.quantized()) {
      tensor.read = [this, &plan](int64_t first, int64_t count, float* out) {
        ValueReader reader(base_);
        return reader.read(plan, first, std::span(out, static_cast<size_t>(count)));
      };
    } else {
      tensor.read_stored = [this, &plan](int64_t offset, std::span<std::byte> out) {
        return base_.read(*plan.source, offset, out);
      };
    }
    push(std::move(tensor));
    return {};
  }

  // A head that was tied to the embedding and is saved whole stands alone in the result.
  Status add_head() {
    const auto it = changes_.find(std::string(kHead));
    if (it == changes_.end() || it->second->whole == nullptr) return {};
    const AdapterChange& change = *it->second;
    const auto embedding = std::find_if(layout_.tensors.begin(), layout_.tensors.end(), [](const TensorPlan& plan) {
      return plan.name.ends_with("embed_tokens.weight");
    });
    if (embedding == layout_.tensors.end() || embedding->shape != change.shape()) return {};
    const DType dtype = embedding->quantized() ? DType::kBF16 : embedding->source->dtype;
    push({std::string(kHead), change.shape(), whole_values(change), dtype});
    note(change, dtype, dtype);
    report_.add_warnings(cat("adapter.untied_head: ", in_quotes(kHead),
                             " is saved whole, so the result's head is no longer tied to its embedding"));
    untied_ = true;
    changes_.erase(it);
    return {};
  }

  void push(ModelTensor tensor) {
    const int64_t count = element_count(tensor.shape);
    elements_ += count;
    bytes_ += bytes_of(tensor.dtype, count);
    folder_.tensors.push_back(std::move(tensor));
  }

  ReadFloats whole_values(const AdapterChange& change) const {
    return [this, &change](int64_t first, int64_t count, float* out) {
      ValueReader reader(adapter_.folder());
      return reader.read(*change.whole, first, std::span(out, static_cast<size_t>(count)));
    };
  }

  void note(const AdapterChange& change, DType base, DType target) {
    v1::MergedTensor& line = *report_.add_tensors();
    line.set_name(change.name);
    line.set_rule(change.rule);
    for (const int64_t size : change.shape()) line.add_shape(size);
    line.set_base_dtype(static_cast<v1::DType>(base));
    line.set_target_dtype(static_cast<v1::DType>(target));
    if (change.whole == nullptr) {
      line.set_rank(change.rank());
      line.set_scaling(change.scaling * config_.weight());
    }
  }

  Status add_side_files() {
    SideFileOptions options;
    if (layout_.name != "none") options.torch_dtype = "bfloat16";
    INVAR_ASSIGN(SideFilePlan plan, plan_side_files(base_, options));
    for (SideFile& file : plan.files) {
      if (file.name != "config.json") {
        folder_.side_files.push_back(std::move(file));
        continue;
      }
      folder_.config = std::move(file.text);
      if (folder_.config.empty()) {
        INVAR_ASSIGN(folder_.config, base_.side_text(file.name));
      }
    }
    folder_.side_file_system = &context_.files;
    for (const Finding& finding : plan.findings) report_.add_warnings(cat(finding.reason, ": ", finding.message));
    for (const Finding& finding : layout_.findings) report_.add_warnings(cat(finding.reason, ": ", finding.message));
    if (!untied_ || folder_.config.empty()) return {};
    INVAR_ASSIGN(auto json,
                 parse_json_object(join_path(base_.path(), "config.json"), folder_.config, "checkpoint.bad_config"));
    json["tie_word_embeddings"] = false;
    folder_.config = json_text(json);
    return {};
  }

  v1::MergeConfig config_;
  const WorkContext& context_;
  const CheckpointFolder& base_;
  const Layout& layout_;
  const Adapter& adapter_;
  std::map<std::string, const AdapterChange*> changes_;  // not yet applied
  ModelFolder folder_;
  bool untied_ = false;
  int64_t elements_ = 0, bytes_ = 0;
  v1::MergeReport report_;
};

}  // namespace

Result<v1::MergeReport> merge(const v1::MergeConfig& config, const WorkContext& context) {
  INVAR_TRY(config::check(config));
  const v1::MergeConfig full = config::with_defaults(config);
  INVAR_ASSIGN(const auto base, CheckpointFolder::open(context.files, full.base()));
  INVAR_TRY(check_destination(context.files, base, full.destination()));
  INVAR_ASSIGN(const auto adapter, Adapter::open(context.files, full.adapter()));
  INVAR_ASSIGN(const auto layout, classify(base, Assumptions(full.assume().begin(), full.assume().end())));
  return Merge(full, context, base, layout, adapter).run();
}

}  // namespace invar
