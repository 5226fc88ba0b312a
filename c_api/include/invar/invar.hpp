// C++ over invar.h: every handle as a move-only object, every failure as an exception, and nothing more. C++17.
//
//   invar::Runtime runtime;
//   const std::string config = runtime.from_json("convert", R"({"source": "fp8", "destination": "bf16"})");
//   std::cout << runtime.to_json("ConvertReport", runtime.convert(config), true);
//
// What a function does, its errors, and which threads may call it stands in invar.h under the function of that name.
//
// Handles. Each owns one handle of its type; moving leaves an empty one, on which calls throw INVALID_ARGUMENT.
// Children keep their parents alive: destroy in any order. get() lends the handle to functions of invar.h. Messages.
// Configs and reports are serialized invar.v1 messages in std::string: use your own protobuf, or from_json and to_json.
// Arguments are copied. Errors. What fails throws invar::Error. Nothing is thrown through the library: what a progress
// or token function throws is caught, stops the call, and is thrown again when the call has returned. Functions of
// RuntimeOptions run on threads of the library, where there is no call to throw from: what each one's exception means
// is said there. Arguments. View and Memory are pointer and size, and take any container with data() and size(),
// std::span too.
#ifndef INVAR_INVAR_HPP_
#define INVAR_INVAR_HPP_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "invar/invar.h"
#include "invar/support.hpp"

namespace invar {

// ---- Version and numbers ----

inline int32_t version_number() noexcept { return invar_version_number(); }
inline std::string_view version() noexcept { return invar_version_string(); }
inline int32_t abi_version() noexcept { return invar_abi_version(); }
inline std::string_view build_info() noexcept { return invar_build_info(); }
inline bool has_feature(std::string_view name) noexcept { return invar_feature_query(detail::data(name), name.size()); }
inline std::string_view code_name(invar_code code) noexcept { return invar_code_name(code); }
inline std::string_view dtype_name(invar_dtype dtype) noexcept { return invar_dtype_name(dtype); }
inline int32_t dtype_bits(invar_dtype dtype) noexcept { return invar_dtype_bits(dtype); }

// ---- Runtime and cancel ----

class Cancel;

class Runtime : public Handle<invar_runtime> {
 public:
  using Handle::Handle;
  // "abi.mismatch" when the loaded library is not of this header's ABI.
  explicit Runtime(const RuntimeOptions& options) : Handle(detail::create_runtime(options)) {}
  Runtime() : Runtime(RuntimeOptions()) {}

  std::string info() const {
    return detail::bytes([&](invar_bytes** out) { return invar_runtime_info(get(), out); });
  }

  // Messages. type: "train", "ConvertReport", ...
  std::string from_json(std::string_view type, std::string_view text) const {
    return parsed(invar_message_from_json, type, text);
  }
  std::string from_text(std::string_view type, std::string_view text) const {
    return parsed(invar_message_from_text, type, text);
  }
  std::string to_json(std::string_view type, std::string_view message, bool pretty = false) const {
    return detail::bytes([&](invar_bytes** out) {
      return invar_message_to_json(get(), detail::data(type), type.size(), detail::data(message), message.size(),
                                   pretty, out);
    });
  }
  std::string to_text(std::string_view type, std::string_view message) const {
    return detail::bytes([&](invar_bytes** out) {
      return invar_message_to_text(get(), detail::data(type), type.size(), detail::data(message), message.size(), out);
    });
  }
  // The message after an assignment such as "optimizer.lr=3e-4".
  std::string set(std::string_view type, std::string_view message, std::string_view assignment) const {
    return detail::bytes([&](invar_bytes** out) {
      return invar_message_set(get(), detail::data(type), type.size(), detail::data(message), message.size(),
                               detail::data(assignment), assignment.size(), out);
    });
  }
  std::string with_defaults(std::string_view type, std::string_view message) const {
    return detail::bytes([&](invar_bytes** out) {
      return invar_message_with_defaults(get(), detail::data(type), type.size(), detail::data(message), message.size(),
                                         out);
    });
  }
  void check(std::string_view type, std::string_view message) const {
    detail::check(invar_message_check(get(), detail::data(type), type.size(), detail::data(message), message.size()));
  }
  std::string explain(std::string_view path) const {
    return detail::bytes(
        [&](invar_bytes** out) { return invar_message_explain(get(), detail::data(path), path.size(), out); });
  }
  std::string describe(std::string_view type) const {
    return detail::bytes(
        [&](invar_bytes** out) { return invar_message_describe(get(), detail::data(type), type.size(), out); });
  }

  // Work on files: a config to its report. cancel may be null, here and below.
  std::string inspect(std::string_view config, const ProgressFunction& progress = {},
                      const Cancel* cancel = nullptr) const {
    return work(invar_checkpoint_inspect, config, progress, cancel);
  }
  std::string convert(std::string_view config, const ProgressFunction& progress = {},
                      const Cancel* cancel = nullptr) const {
    return work(invar_checkpoint_convert, config, progress, cancel);
  }
  std::string verify(std::string_view config, const ProgressFunction& progress = {},
                     const Cancel* cancel = nullptr) const {
    return work(invar_checkpoint_verify, config, progress, cancel);
  }
  std::string diff(std::string_view config, const ProgressFunction& progress = {},
                   const Cancel* cancel = nullptr) const {
    return work(invar_checkpoint_diff, config, progress, cancel);
  }
  std::string calibrate(std::string_view config, const ProgressFunction& progress = {},
                        const Cancel* cancel = nullptr) const {
    return work(invar_checkpoint_calibrate, config, progress, cancel);
  }
  std::string export_checkpoint(std::string_view config, const ProgressFunction& progress = {},
                                const Cancel* cancel = nullptr) const {
    return work(invar_checkpoint_export, config, progress, cancel);
  }
  std::string merge(std::string_view config, const ProgressFunction& progress = {},
                    const Cancel* cancel = nullptr) const {
    return work(invar_checkpoint_merge, config, progress, cancel);
  }
  std::string bench(std::string_view config, const ProgressFunction& progress = {},
                    const Cancel* cancel = nullptr) const {
    return work(invar_bench_run, config, progress, cancel);
  }
  std::string train_tokenizer(std::string_view config, const ProgressFunction& progress = {},
                              const Cancel* cancel = nullptr) const {
    return work(invar_tokenizer_train, config, progress, cancel);
  }
  std::string preview_data(std::string_view config, const ProgressFunction& progress = {},
                           const Cancel* cancel = nullptr) const {
    return work(invar_data_preview, config, progress, cancel);
  }

 private:
  template <typename Parse>
  std::string parsed(Parse parse, std::string_view type, std::string_view text) const {
    return detail::bytes([&](invar_bytes** out) {
      return parse(get(), detail::data(type), type.size(), detail::data(text), text.size(), out);
    });
  }
  template <typename Work>
  std::string work(Work function, std::string_view config, const ProgressFunction& progress,
                   const Cancel* cancel) const;
};

// Any thread may request, a signal handler too.
class Cancel : public Handle<invar_cancel> {
 public:
  using Handle::Handle;
  explicit Cancel(const Runtime& runtime)
      : Handle(
            detail::made<invar_cancel>([&](invar_cancel** out) { return invar_cancel_create(runtime.get(), out); })) {}
  void request() const noexcept { invar_cancel_request(get()); }
  bool requested() const noexcept { return invar_cancel_requested(get()); }
};

namespace detail {

inline invar_cancel* raw(const Cancel* cancel) noexcept { return cancel == nullptr ? nullptr : cancel->get(); }

// A config to a report by function(handle, config, cancel, callback, &report). A config that points nowhere stays so.
template <typename Lent, typename T, typename Work, typename Function>
std::string report(Work work, T* handle, std::string_view config, const Function& function, const Cancel* cancel) {
  return text(take_with<invar_bytes, Lent>(function, [&](const auto* callback, invar_bytes** out) {
    return work(handle, config.data(), config.size(), raw(cancel), callback, out);
  }));
}

}  // namespace detail

template <typename Work>
std::string Runtime::work(Work function, std::string_view config, const ProgressFunction& progress,
                          const Cancel* cancel) const {
  return detail::report<detail::LentProgress>(function, get(), {detail::data(config), config.size()}, progress, cancel);
}

// ---- Checkpoints, tensor by tensor ----

class Checkpoint : public Handle<invar_checkpoint> {
 public:
  using Handle::Handle;
  Checkpoint(const Runtime& runtime, std::string_view config)
      : Handle(detail::made<invar_checkpoint>([&](invar_checkpoint** out) {
          return invar_checkpoint_open(runtime.get(), detail::data(config), config.size(), out);
        })) {}
  int64_t count() const {
    int64_t count = 0;
    detail::check(invar_checkpoint_count(get(), &count));
    return count;
  }
  int64_t find(std::string_view name) const {
    int64_t index = -1;
    detail::check(invar_checkpoint_find(get(), detail::data(name), name.size(), &index));
    return index;
  }
  // Its texts are borrowed from the checkpoint.
  invar_checkpoint_tensor describe(int64_t index) const {
    invar_checkpoint_tensor tensor = INVAR_CHECKPOINT_TENSOR_INIT;
    detail::check(invar_checkpoint_describe(get(), index, &tensor));
    return tensor;
  }
  void read_rows(int64_t index, int64_t first_row, int64_t rows, invar_dtype dtype, Memory destination,
                 const Cancel* cancel = nullptr) const {
    detail::check(invar_checkpoint_read_rows(get(), index, first_row, rows, dtype, detail::raw(cancel),
                                             destination.data(), destination.bytes()));
  }
};

// ---- Models and sessions ----

class Model : public Handle<invar_model> {
 public:
  using Handle::Handle;
  Model(const Runtime& runtime, std::string_view config, const ProgressFunction& progress = {},
        const Cancel* cancel = nullptr)
      : Handle(
            detail::take_with<invar_model, detail::LentProgress>(progress, [&](const invar_progress_callback* callback,
                                                                               invar_model** out) {
              return invar_model_load(runtime.get(), detail::data(config), config.size(), detail::raw(cancel), callback,
                                      out);
            }).release()) {}
  std::string info() const {
    return detail::bytes([&](invar_bytes** out) { return invar_model_info(get(), out); });
  }
  std::string evaluate(std::string_view config, const ProgressFunction& progress = {}, const Cancel* cancel = nullptr) {
    return detail::report<detail::LentProgress>(invar_model_evaluate, get(), config, progress, cancel);
  }
  std::string generate(std::string_view config, const TokenFunction& token = {}, const Cancel* cancel = nullptr) {
    return detail::report<detail::LentToken>(invar_model_generate, get(), config, token, cancel);
  }
};

class Session : public Handle<invar_session> {
 public:
  using Handle::Handle;
  Session(const Runtime& runtime, std::string_view config, const ProgressFunction& progress = {},
          const Cancel* cancel = nullptr)
      : Handle(detail::take_with<invar_session, detail::LentProgress>(
                   progress,
                   [&](const invar_progress_callback* callback, invar_session** out) {
                     return invar_session_create(runtime.get(), detail::data(config), config.size(),
                                                 detail::raw(cancel), callback, out);
                   })
                   .release()) {}
  std::string run(const ProgressFunction& progress = {}, const Cancel* cancel = nullptr) {
    return detail::text(detail::take_with<invar_bytes, detail::LentProgress>(
        progress, [&](const invar_progress_callback* callback, invar_bytes** out) {
          return invar_session_run(get(), detail::raw(cancel), callback, out);
        }));
  }
  std::string report() {
    return detail::bytes([&](invar_bytes** out) { return invar_session_report(get(), out); });
  }
  std::string info() {
    return detail::bytes([&](invar_bytes** out) { return invar_session_info(get(), out); });
  }

  void begin(int64_t micro_batches) { detail::check(invar_session_begin(get(), micro_batches)); }
  invar_loss forward_backward(const invar_batch& batch) {
    invar_loss loss = INVAR_LOSS_INIT;
    detail::check(invar_session_forward_backward(get(), &batch, &loss));
    return loss;
  }
  // ids: [sequences, sequence_length]; targets and mask: empty, or as many. "batch.shape" otherwise.
  invar_loss forward_backward(int64_t sequences, View<const int32_t> ids, View<const int32_t> targets = {},
                              View<const uint8_t> mask = {}) {
    const auto fits = [&](size_t size) { return size == 0 || size == ids.size(); };
    if (sequences <= 0 || ids.size() % static_cast<size_t>(sequences) != 0 || !fits(targets.size()) ||
        !fits(mask.size())) {
      throw Error(INVAR_INVALID_ARGUMENT, "batch.shape",
                  "forward_backward: " + std::to_string(ids.size()) + " ids, " + std::to_string(targets.size()) +
                      " targets and " + std::to_string(mask.size()) + " mask bytes are not " +
                      std::to_string(sequences) + " sequences of one length");
    }
    invar_batch batch = INVAR_BATCH_INIT;
    batch.sequences = sequences;
    batch.sequence_length = static_cast<int64_t>(ids.size()) / sequences;
    batch.ids = ids.data();
    batch.targets = targets.size() == 0 ? nullptr : targets.data();
    batch.mask = mask.size() == 0 ? nullptr : mask.data();
    return forward_backward(batch);
  }
  invar_step_metrics step() {
    invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
    detail::check(invar_session_step(get(), &metrics));
    return metrics;
  }
  invar_step_metrics step(double lr) {
    invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
    detail::check(invar_session_step_with_lr(get(), lr, &metrics));
    return metrics;
  }

  // A default string_view for config: the held-out data.
  std::string evaluate(std::string_view config = {}, const ProgressFunction& progress = {},
                       const Cancel* cancel = nullptr) {
    return detail::report<detail::LentProgress>(invar_session_evaluate, get(), config, progress, cancel);
  }
  std::string generate(std::string_view config, const TokenFunction& token = {}, const Cancel* cancel = nullptr) {
    return detail::report<detail::LentToken>(invar_session_generate, get(), config, token, cancel);
  }
  std::string export_to(std::string_view config, const ProgressFunction& progress = {},
                        const Cancel* cancel = nullptr) {
    return detail::report<detail::LentProgress>(invar_session_export, get(), config, progress, cancel);
  }
  void save(std::string_view path) { detail::check(invar_session_save(get(), detail::data(path), path.size())); }
  void resume(std::string_view path) { detail::check(invar_session_resume(get(), detail::data(path), path.size())); }
};

// ---- Tensors ----

class Tensor : public Handle<invar_tensor> {
 public:
  using Handle::Handle;
  // Zeros.
  Tensor(const Runtime& runtime, invar_dtype dtype, View<const int64_t> shape)
      : Handle(detail::made<invar_tensor>([&](invar_tensor** out) {
          return invar_tensor_create(runtime.get(), dtype, shape.data(), static_cast<int32_t>(shape.size()), out);
        })) {}
  // The host's memory, which must stay valid until drop is called, or the tensor is gone. drop must not throw; it is
  // called also when this fails.
  static Tensor view(const Runtime& runtime, invar_dtype dtype, View<const int64_t> shape, Memory memory,
                     std::function<void()> drop = {}) {
    auto user = drop ? std::make_unique<std::function<void()>>(std::move(drop)) : nullptr;
    const invar_drop_fn call = user == nullptr ? nullptr : invar_drop_fn([](void* owned) {
      const std::unique_ptr<std::function<void()>> function(static_cast<std::function<void()>*>(owned));
      (*function)();
    });
    return Tensor(detail::made<invar_tensor>([&](invar_tensor** out) {
      return invar_tensor_view(runtime.get(), dtype, shape.data(), static_cast<int32_t>(shape.size()), memory.data(),
                               memory.bytes(), user.release(), call, out);
    }));
  }
  // Takes over managed, unless it throws.
  static Tensor from_dlpack(const Runtime& runtime, DLManagedTensorVersioned* managed) {
    return Tensor(detail::made<invar_tensor>(
        [&](invar_tensor** out) { return invar_tensor_from_dlpack(runtime.get(), managed, out); }));
  }
  // The caller ends it by its deleter.
  DLManagedTensorVersioned* to_dlpack() {
    DLManagedTensorVersioned* managed = nullptr;
    detail::check(invar_tensor_to_dlpack(get(), &managed));
    return managed;
  }

  // scale_inv is borrowed from the tensor.
  invar_tensor_info describe() const {
    invar_tensor_info info = INVAR_TENSOR_INFO_INIT;
    detail::check(invar_tensor_describe(get(), &info));
    return info;
  }
  // Borrowed from the tensor.
  void* data() {
    void* data = nullptr;
    detail::check(invar_tensor_data(get(), &data));
    return data;
  }
  // Returns the bytes that it takes; Memory(nullptr, 0) asks for their number only.
  size_t read(Memory destination) const {
    size_t needed = 0;
    detail::check(invar_tensor_read(get(), destination.data(), destination.bytes(), &needed));
    return needed;
  }
  Tensor cast(invar_dtype dtype) const {
    return Tensor(detail::made<invar_tensor>([&](invar_tensor** out) { return invar_tensor_cast(get(), dtype, out); }));
  }
  // E4M3 in 128x128 blocks, unless options say otherwise.
  Tensor quantize(const invar_quantize_options& options = INVAR_QUANTIZE_OPTIONS_INIT) const {
    return Tensor(
        detail::made<invar_tensor>([&](invar_tensor** out) { return invar_tensor_quantize(get(), &options, out); }));
  }
  Tensor dequantize(invar_dtype dtype) const {
    return Tensor(
        detail::made<invar_tensor>([&](invar_tensor** out) { return invar_tensor_dequantize(get(), dtype, out); }));
  }
  static Tensor matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, invar_dtype dtype) {
    return Tensor(detail::made<invar_tensor>([&](invar_tensor** out) {
      return invar_tensor_matmul(a.get(), transpose_a, b.get(), transpose_b, dtype, out);
    }));
  }
};

// ---- Training parts ----

class Optimizer : public Handle<invar_optimizer> {
 public:
  using Handle::Handle;
  explicit Optimizer(const Runtime& runtime, std::string_view config = {})
      : Handle(detail::made<invar_optimizer>([&](invar_optimizer** out) {
          return invar_optimizer_create(runtime.get(), detail::data(config), config.size(), out);
        })) {}
  // Returns its index; the parameter is kept alive.
  int64_t add(const Tensor& parameter, bool decays) {
    int64_t index = -1;
    detail::check(invar_optimizer_add(get(), parameter.get(), decays, &index));
    return index;
  }
  // gradients: one for each parameter, in the order of their indices.
  invar_optimizer_result step(View<const Tensor> gradients, double lr, double grad_scale = 1) {
    std::vector<const invar_tensor*> raw(gradients.size());
    for (size_t i = 0; i < raw.size(); ++i) raw[i] = gradients.data()[i].get();
    invar_optimizer_result result = INVAR_OPTIMIZER_RESULT_INIT;
    detail::check(invar_optimizer_step(get(), raw.data(), static_cast<int64_t>(raw.size()), lr, grad_scale, &result));
    return result;
  }
  // which: INVAR_STATE_*; shares the optimizer's memory.
  Tensor state(int64_t index, int32_t which) {
    return Tensor(detail::made<invar_tensor>(
        [&](invar_tensor** out) { return invar_optimizer_state(get(), index, which, out); }));
  }
  void set_step(int64_t step) { detail::check(invar_optimizer_set_step(get(), step)); }
};

class Accumulator : public Handle<invar_accumulator> {
 public:
  using Handle::Handle;
  // elements: of each gradient.
  Accumulator(const Runtime& runtime, View<const int64_t> elements)
      : Handle(detail::made<invar_accumulator>([&](invar_accumulator** out) {
          return invar_accumulator_create(runtime.get(), elements.data(), static_cast<int64_t>(elements.size()), out);
        })) {}
  void add(int64_t index, const Tensor& gradient) {
    detail::check(invar_accumulator_add(get(), index, gradient.get()));
  }
  void add_tokens(int64_t tokens) { detail::check(invar_accumulator_add_tokens(get(), tokens)); }
  invar_accumulator_info summary() {
    invar_accumulator_info info = INVAR_ACCUMULATOR_INFO_INIT;
    detail::check(invar_accumulator_summary(get(), &info));
    return info;
  }
  // Shares the accumulator's memory.
  Tensor gradient(int64_t index) {
    return Tensor(
        detail::made<invar_tensor>([&](invar_tensor** out) { return invar_accumulator_gradient(get(), index, out); }));
  }
  void reset() { detail::check(invar_accumulator_reset(get())); }
};

// ---- Tokenizers ----

class Tokenizer : public Handle<invar_tokenizer> {
 public:
  using Handle::Handle;
  Tokenizer(const Runtime& runtime, std::string_view path)
      : Handle(detail::made<invar_tokenizer>([&](invar_tokenizer** out) {
          return invar_tokenizer_load(runtime.get(), detail::data(path), path.size(), out);
        })) {}
  std::string info() const {
    return detail::bytes([&](invar_bytes** out) { return invar_tokenizer_info(get(), out); });
  }
  // flags: INVAR_ENCODE_*.
  std::vector<int32_t> encode(std::string_view text, uint32_t flags = 0) const {
    const std::string bytes = detail::bytes(
        [&](invar_bytes** out) { return invar_tokenizer_encode(get(), detail::data(text), text.size(), flags, out); });
    std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
    if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(int32_t));
    return ids;
  }
  // flags: INVAR_DECODE_*.
  std::string decode(View<const int32_t> ids, uint32_t flags = 0) const {
    return detail::bytes(
        [&](invar_bytes** out) { return invar_tokenizer_decode(get(), ids.data(), ids.size(), flags, out); });
  }
  std::string chat(std::string_view config) const {
    return detail::bytes(
        [&](invar_bytes** out) { return invar_tokenizer_chat(get(), detail::data(config), config.size(), out); });
  }
};

}  // namespace invar

#endif  // INVAR_INVAR_HPP_
