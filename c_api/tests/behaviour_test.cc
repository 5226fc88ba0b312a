// Ownership, callbacks, processes and silence of the ABI.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

TEST(Version, HeaderAndLibraryAgree) {
  EXPECT_EQ(invar_version_number(), INVAR_VERSION_MAJOR * 1000000 + INVAR_VERSION_MINOR * 1000 + INVAR_VERSION_PATCH);
  EXPECT_STREQ(invar_version_string(), "0.1.0");
  EXPECT_NE(std::string(invar_build_info()).find("invar 0.1.0"), std::string::npos);
  EXPECT_TRUE(invar_feature_query("fp8_e4m3", 8));
  EXPECT_FALSE(invar_feature_query("time_travel", 11));
  EXPECT_STREQ(invar_code_name(INVAR_DATA_LOSS), "DATA_LOSS");
  EXPECT_STREQ(invar_dtype_name(INVAR_DTYPE_FP8_E5M2), "fp8_e5m2");
  EXPECT_EQ(invar_dtype_bits(INVAR_DTYPE_FP4_E2M1), 4);
}

TEST(Messages, JsonOverridesDefaultsAndBack) {
  const auto runtime = make_runtime();
  const std::string config = message(runtime.get(), "train", R"({"optimizer": {"lr": 0.5}})");
  invar_bytes* changed = nullptr;
  ASSERT_EQ(text_of(invar_message_set(runtime.get(), "train", 5, config.data(), config.size(), "steps=7", 7, &changed)),
            "ok");
  const Owned<invar_bytes> owner(changed);
  EXPECT_EQ(json(runtime.get(), "train", changed), R"({"optimizer":{"lr":0.5},"steps":7})");
  invar_bytes* full = nullptr;
  ASSERT_EQ(text_of(invar_message_with_defaults(runtime.get(), "train", 5, invar_bytes_data(changed),
                                                invar_bytes_size(changed), &full)),
            "ok");
  const Owned<invar_bytes> full_owner(full);
  EXPECT_NE(json(runtime.get(), "train", full).find("\"micro_batch\":8"), std::string::npos);
  invar_bytes* none = nullptr;
  EXPECT_EQ(text_of(invar_message_from_json(runtime.get(), "train", 5, "{\"stpes\": 1}", 12, &none)),
            "INVALID_ARGUMENT config.unknown_field: stpes: unknown field of TrainConfig; did you mean \"steps\"?");
  EXPECT_EQ(text_of(invar_message_from_json(runtime.get(), "trian", 5, "{}", 2, &none)).substr(0, 60),
            "INVALID_ARGUMENT message.unknown_type: \"trian\": no such mess");
}

TEST(Runtime, InfoNamesDevicesAndFamilies) {
  const auto runtime = make_runtime(2);
  invar_bytes* report = nullptr;
  ASSERT_EQ(text_of(invar_runtime_info(runtime.get(), &report)), "ok");
  const Owned<invar_bytes> owner(report);
  const std::string text = json(runtime.get(), "InfoReport", report);
  EXPECT_NE(text.find("\"name\":\"cpu\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"threads\":2"), std::string::npos) << text;
  EXPECT_NE(text.find("\"families\":[\"llama\""), std::string::npos) << text;
}

TEST(Runtime, OptionsAreChecked) {
  invar_runtime* runtime = nullptr;
  invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
  options.threads = -1;
  EXPECT_EQ(reason_of(invar_runtime_create(&options, &runtime)), "argument.threads");
  invar_runtime_options_init(&options);
  options.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
  EXPECT_EQ(reason_of(invar_runtime_create(&options, &runtime)), "argument.allocator");
  invar_runtime_options_init(&options);
  options.file_size = [](void*, const char*, int64_t*) -> int32_t { return 0; };
  EXPECT_EQ(reason_of(invar_runtime_create(&options, &runtime)), "argument.files");
  invar_runtime_options_init(&options);
  options.struct_size = 8;
  EXPECT_EQ(reason_of(invar_runtime_create(&options, &runtime)), "argument.struct_size");
}

// A host that was compiled against the first header has room for its fields and nothing behind them.
TEST(Runtime, TheInitializerWritesTheFirstVersionsFieldsOnly) {
  constexpr size_t kFirst = offsetof(invar_runtime_options, file_drop) + sizeof(invar_drop_fn);
  alignas(invar_runtime_options) unsigned char memory[sizeof(invar_runtime_options) + 64];
  std::memset(memory, 0x5A, sizeof memory);
  auto* options = reinterpret_cast<invar_runtime_options*>(memory);
  invar_runtime_options_init(options);
  EXPECT_EQ(options->struct_size, kFirst);
  EXPECT_EQ(options->log_level, INVAR_LOG_INFO);
  for (size_t i = kFirst; i < sizeof memory; ++i) ASSERT_EQ(memory[i], 0x5A) << i;
  invar_runtime* runtime = nullptr;
  ASSERT_EQ(text_of(invar_runtime_create(options, &runtime)), "ok");
  invar_runtime_release(runtime);
}

// A newer host's larger struct is accepted: what this library does not know is not read.
TEST(Runtime, LargerStructsAreAccepted) {
  struct {
    invar_runtime_options known = INVAR_RUNTIME_OPTIONS_INIT;
    uint64_t newer = 5;
  } options;
  options.known.struct_size = sizeof options;
  options.known.threads = 1;
  invar_runtime* runtime = nullptr;
  EXPECT_EQ(text_of(invar_runtime_create(&options.known, &runtime)), "ok");
  invar_runtime_release(runtime);
}

struct Counts {
  std::atomic<int> allocated{0}, released{0}, dropped{0};
};

TEST(Allocator, ServesTensorsAndIsDroppedLast) {
  Counts counts;
  invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
  options.threads = 1;
  options.allocate = [](void* user, size_t size, size_t alignment) -> void* {
    ++static_cast<Counts*>(user)->allocated;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  };
  options.deallocate = [](void* user, void* memory, size_t) {
    ++static_cast<Counts*>(user)->released;
    std::free(memory);
  };
  options.allocator_user = &counts;
  options.allocator_drop = [](void* user) {
    auto* each = static_cast<Counts*>(user);
    EXPECT_EQ(each->allocated, each->released);
    ++each->dropped;
  };
  invar_runtime* runtime = nullptr;
  ASSERT_EQ(text_of(invar_runtime_create(&options, &runtime)), "ok");
  const int before = counts.allocated;
  auto tensor = make_tensor(runtime, INVAR_DTYPE_FP32, {100});
  EXPECT_GT(counts.allocated, before);
  struct DLManagedTensorVersioned* managed = nullptr;
  ASSERT_EQ(text_of(invar_tensor_to_dlpack(tensor.get(), &managed)), "ok");
  invar_runtime_release(runtime);
  tensor.reset();
  EXPECT_EQ(counts.dropped, 0);  // the exported memory is still alive
  // deleter is the third member of the published layout: version (8 bytes), manager_ctx, deleter.
  void (*deleter)(DLManagedTensorVersioned*);
  std::memcpy(&deleter, reinterpret_cast<char*>(managed) + 16, sizeof deleter);
  deleter(managed);
  EXPECT_EQ(counts.dropped, 1);
}

TEST(Allocator, FailureAndExceptionAreResourceExhausted) {
  for (const bool throws : {false, true}) {
    struct State {
      bool throws, armed;
    } state{throws, false};
    invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
    options.threads = 1;
    options.allocate = [](void* user, size_t size, size_t alignment) -> void* {
      const auto* each = static_cast<State*>(user);
      if (each->armed && each->throws) throw std::runtime_error("no memory");
      // The system's answer to more than there is, which a sanitizer's allocator would end the process for.
      if (each->armed || size > size_t{1} << 40) return nullptr;
      return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    };
    options.deallocate = [](void*, void* memory, size_t) { std::free(memory); };
    options.allocator_user = &state;
    invar_runtime* runtime = nullptr;
    ASSERT_EQ(text_of(invar_runtime_create(&options, &runtime)), "ok");
    const Owned<invar_runtime> owner(runtime);
    state.armed = true;
    const int64_t shape[] = {1000};
    invar_tensor* tensor = nullptr;
    EXPECT_EQ(code_of(invar_tensor_create(runtime, INVAR_DTYPE_FP32, shape, 1, &tensor)), INVAR_RESOURCE_EXHAUSTED);
    EXPECT_EQ(tensor, nullptr);
    // More than any machine has.
    state.armed = false;
    const int64_t huge[] = {int64_t{1} << 55};
    EXPECT_EQ(code_of(invar_tensor_create(runtime, INVAR_DTYPE_FP32, huge, 1, &tensor)), INVAR_RESOURCE_EXHAUSTED);
  }
}

// The allocator fails at its n-th call, for every n until a session can be made, trained and read.
TEST(Allocator, EveryFailureInASessionIsAStatus) {
  for (const bool throws : {false, true}) {
    int failed = 0;
    for (int64_t at = 0;; ++at) {
      struct State {
        bool throws;
        int64_t at;
        std::atomic<int64_t> calls{0}, alive{0};
      } state{throws, at};
      invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
      options.threads = 1;
      options.allocate = [](void* user, size_t size, size_t alignment) -> void* {
        auto* each = static_cast<State*>(user);
        if (each->calls++ == each->at) {
          if (each->throws) throw std::bad_alloc();
          return nullptr;
        }
        ++each->alive;
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
      };
      options.deallocate = [](void* user, void* memory, size_t) {
        if (memory == nullptr) return;
        --static_cast<State*>(user)->alive;
        std::free(memory);
      };
      options.allocator_user = &state;
      invar_runtime* made = nullptr;
      int32_t code = code_of(invar_runtime_create(&options, &made));
      if (code == INVAR_OK) {
        const Owned<invar_runtime> runtime(made);
        const std::string config = message(made, "train", R"({"steps": 3, "micro_batch": 1,
            "model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
            "data": {"sequence_length": 16, "tokenizer": {"kind": "byte"}}})");
        invar_session* session = nullptr;
        code = code_of(invar_session_create(made, config.data(), config.size(), nullptr, nullptr, &session));
        const Owned<invar_session> owner(session);
        if (code == INVAR_OK) {
          int32_t ids[16] = {};
          invar_batch batch = INVAR_BATCH_INIT;
          batch.sequences = 1;
          batch.sequence_length = 16;
          batch.ids = ids;
          EXPECT_EQ(text_of(invar_session_begin(session, 1)), "ok");
          code = code_of(invar_session_forward_backward(session, &batch, nullptr));
        }
      }
      EXPECT_EQ(state.alive, 0);
      if (code == INVAR_OK && state.calls <= at) break;
      if (code == INVAR_OK) continue;  // something that could be done without
      EXPECT_EQ(code, INVAR_RESOURCE_EXHAUSTED) << "allocation " << at;
      ++failed;
    }
    EXPECT_GE(failed, 3);
  }
}

TEST(Callbacks, AreDroppedOnceAlsoOnFailure) {
  const auto runtime = make_runtime();
  int dropped = 0;
  invar_progress_callback callback = INVAR_PROGRESS_CALLBACK_INIT;
  callback.call = [](void*, const invar_progress*) -> int32_t { return 0; };
  callback.user = &dropped;
  callback.drop = [](void* user) { ++*static_cast<int*>(user); };
  invar_bytes* report = nullptr;
  EXPECT_EQ(code_of(invar_checkpoint_inspect(runtime.get(), "\xff", 1, nullptr, &callback, &report)),
            INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(dropped, 1);
  float data[2];
  const int64_t shape[] = {4};
  invar_tensor* tensor = nullptr;
  EXPECT_EQ(code_of(invar_tensor_view(runtime.get(), INVAR_DTYPE_FP32, shape, 1, data, sizeof data, &dropped,
                                      callback.drop, &tensor)),
            INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(dropped, 2);
  const int64_t fits[] = {2};
  ASSERT_EQ(text_of(invar_tensor_view(runtime.get(), INVAR_DTYPE_FP32, fits, 1, data, sizeof data, &dropped,
                                      callback.drop, &tensor)),
            "ok");
  EXPECT_EQ(dropped, 2);
  invar_tensor_release(tensor);
  EXPECT_EQ(dropped, 3);
}

TEST(Tensors, CastQuantiseMultiplyAndRead) {
  const auto runtime = make_runtime();
  const auto a = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {2, 3});
  for (int i = 0; i < 6; ++i) floats(a.get())[i] = static_cast<float>(i + 1);
  invar_tensor* product = nullptr;
  ASSERT_EQ(text_of(invar_tensor_matmul(a.get(), false, a.get(), true, INVAR_DTYPE_FP32, &product)), "ok");
  const Owned<invar_tensor> product_owner(product);
  EXPECT_EQ(floats(product)[0], 14);
  EXPECT_EQ(floats(product)[3], 77);
  invar_tensor* codes = nullptr;
  ASSERT_EQ(text_of(invar_tensor_quantize(a.get(), nullptr, &codes)), "ok");
  const Owned<invar_tensor> codes_owner(codes);
  invar_tensor_info info = INVAR_TENSOR_INFO_INIT;
  ASSERT_EQ(text_of(invar_tensor_describe(codes, &info)), "ok");
  EXPECT_EQ(info.quantized, 1);
  EXPECT_EQ(info.bytes, 6u);
  ASSERT_NE(info.scale_inv, nullptr);
  EXPECT_EQ(info.scale_inv[0], 6.0f / 448);
  invar_tensor* back = nullptr;
  ASSERT_EQ(text_of(invar_tensor_dequantize(codes, INVAR_DTYPE_FP32, &back)), "ok");
  const Owned<invar_tensor> back_owner(back);
  EXPECT_EQ(floats(back)[5], 6);
  size_t needed = 0;
  float copy[6];
  EXPECT_EQ(text_of(invar_tensor_read(back, nullptr, 0, &needed)), "ok");
  EXPECT_EQ(needed, sizeof copy);
  EXPECT_EQ(code_of(invar_tensor_read(back, copy, 5, nullptr)), INVAR_OUT_OF_RANGE);
  EXPECT_EQ(text_of(invar_tensor_read(back, copy, sizeof copy, nullptr)), "ok");
  EXPECT_EQ(copy[5], 6);
  struct DLManagedTensorVersioned* managed = nullptr;
  EXPECT_EQ(reason_of(invar_tensor_to_dlpack(codes, &managed)), "dlpack.quantized");
  ASSERT_EQ(text_of(invar_tensor_to_dlpack(back, &managed)), "ok");
  invar_tensor* again = nullptr;
  ASSERT_EQ(text_of(invar_tensor_from_dlpack(runtime.get(), managed, &again)), "ok");
  EXPECT_EQ(floats(again), floats(back));
  invar_tensor_release(again);
}

// One AdamW step from zero moments moves every element by lr against the sign of its gradient (bias-corrected m /
// sqrt(v) is +-1), after decay by lr * weight_decay.
TEST(Optimizer, StepsFp32AndBf16InPlace) {
  const auto runtime = make_runtime();
  const std::string config = message(runtime.get(), "optimizer", R"({"weight_decay": 0.5, "clip_norm": 0})");
  invar_optimizer* optimizer = nullptr;
  ASSERT_EQ(text_of(invar_optimizer_create(runtime.get(), config.data(), config.size(), &optimizer)), "ok");
  const Owned<invar_optimizer> owner(optimizer);
  const auto weight = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {2, 2});
  const auto gain = make_tensor(runtime.get(), INVAR_DTYPE_BF16, {2});
  for (int i = 0; i < 4; ++i) floats(weight.get())[i] = 1;
  int64_t index = -1;
  ASSERT_EQ(text_of(invar_optimizer_add(optimizer, weight.get(), true, &index)), "ok");
  ASSERT_EQ(text_of(invar_optimizer_add(optimizer, gain.get(), false, &index)), "ok");
  EXPECT_EQ(index, 1);
  const auto dw = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {2, 2});
  const auto dg = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {2});
  for (int i = 0; i < 4; ++i) floats(dw.get())[i] = i % 2 == 0 ? 3 : -3;
  for (int i = 0; i < 2; ++i) floats(dg.get())[i] = 4;
  const invar_tensor* gradients[] = {dw.get(), dg.get()};
  invar_optimizer_result result = INVAR_OPTIMIZER_RESULT_INIT;
  ASSERT_EQ(text_of(invar_optimizer_step(optimizer, gradients, 2, 0.125, 0.5, &result)), "ok");
  EXPECT_EQ(result.step, 1);
  EXPECT_EQ(result.skipped, 0);
  EXPECT_NEAR(result.grad_norm, std::sqrt(4 * 9 + 2 * 16) / 2, 1e-12);
  EXPECT_NEAR(floats(weight.get())[0], 1 - 0.0625 - 0.125, 1e-6);
  EXPECT_NEAR(floats(weight.get())[1], 1 - 0.0625 + 0.125, 1e-6);
  uint16_t bf16[2];
  ASSERT_EQ(text_of(invar_tensor_read(gain.get(), bf16, sizeof bf16, nullptr)), "ok");
  EXPECT_EQ(bf16[0], 0xBE00);  // -0.125
  // Gradients that are not finite leave everything as it is.
  floats(dw.get())[0] = NAN;
  ASSERT_EQ(text_of(invar_optimizer_step(optimizer, gradients, 2, 0.125, 0.5, &result)), "ok");
  EXPECT_EQ(result.skipped, 1);
  EXPECT_EQ(result.step, 1);
  EXPECT_NEAR(floats(weight.get())[0], 1 - 0.0625 - 0.125, 1e-6);
  invar_tensor* moment = nullptr;
  ASSERT_EQ(text_of(invar_optimizer_state(optimizer, 0, INVAR_STATE_FIRST_MOMENT, &moment)), "ok");
  const Owned<invar_tensor> moment_owner(moment);
  EXPECT_NEAR(floats(moment)[0], 0.1 * 1.5, 1e-6);
  EXPECT_EQ(code_of(invar_optimizer_state(optimizer, 2, INVAR_STATE_MASTER, &moment)), INVAR_OUT_OF_RANGE);
  EXPECT_EQ(reason_of(invar_optimizer_add(optimizer, weight.get(), true, &index)), "optimizer.started");
  EXPECT_EQ(reason_of(invar_optimizer_step(optimizer, gradients, 1, 0.1, 1, nullptr)), "optimizer.gradients");
}

TEST(Accumulator, SumsAWindow) {
  const auto runtime = make_runtime();
  const int64_t counts[] = {2, 1};
  invar_accumulator* accumulator = nullptr;
  ASSERT_EQ(text_of(invar_accumulator_create(runtime.get(), counts, 2, &accumulator)), "ok");
  const Owned<invar_accumulator> owner(accumulator);
  const auto gradient = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {2});
  floats(gradient.get())[0] = 1.5;
  floats(gradient.get())[1] = 2;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(text_of(invar_accumulator_add(accumulator, 0, gradient.get())), "ok");
    ASSERT_EQ(text_of(invar_accumulator_add_tokens(accumulator, 10)), "ok");
  }
  EXPECT_EQ(reason_of(invar_accumulator_add(accumulator, 1, gradient.get())), "accumulator.gradient");
  invar_accumulator_info info = INVAR_ACCUMULATOR_INFO_INIT;
  ASSERT_EQ(text_of(invar_accumulator_summary(accumulator, &info)), "ok");
  EXPECT_EQ(info.tokens, 20);
  EXPECT_EQ(info.finite, 1);
  EXPECT_EQ(info.norm, 5);
  invar_tensor* sum = nullptr;
  ASSERT_EQ(text_of(invar_accumulator_gradient(accumulator, 0, &sum)), "ok");
  const Owned<invar_tensor> sum_owner(sum);
  EXPECT_EQ(floats(sum)[1], 4);
  ASSERT_EQ(text_of(invar_accumulator_reset(accumulator)), "ok");
  EXPECT_EQ(floats(sum)[1], 0);
}

TEST(Lifetimes, ParentsMayGoFirst) {
  auto runtime = make_runtime(2);
  auto tensor = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {8});
  invar_cancel* cancel = nullptr;
  ASSERT_EQ(text_of(invar_cancel_create(runtime.get(), &cancel)), "ok");
  invar_optimizer* optimizer = nullptr;
  ASSERT_EQ(text_of(invar_optimizer_create(runtime.get(), nullptr, 0, &optimizer)), "ok");
  int64_t index = 0;
  ASSERT_EQ(text_of(invar_optimizer_add(optimizer, tensor.get(), false, &index)), "ok");
  invar_tensor* state = nullptr;
  ASSERT_EQ(text_of(invar_optimizer_state(optimizer, 0, INVAR_STATE_SECOND_MOMENT, &state)), "ok");
  runtime.reset();
  tensor.reset();
  invar_optimizer_release(optimizer);
  floats(state)[7] = 1;  // still there
  invar_cancel_request(cancel);
  EXPECT_TRUE(invar_cancel_requested(cancel));
  invar_cancel_release(cancel);
  invar_tensor* cast = nullptr;
  EXPECT_EQ(text_of(invar_tensor_cast(state, INVAR_DTYPE_BF16, &cast)), "ok");
  invar_tensor_release(state);
  invar_tensor_release(cast);
}

TEST(Threads, OneRuntimeServesSeveral) {
  const auto runtime = make_runtime(2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        const int64_t shape[] = {33, 17};
        invar_tensor *a = nullptr, *product = nullptr;
        if (code_of(invar_tensor_create(runtime.get(), INVAR_DTYPE_FP32, shape, 2, &a)) != 0) ++wrong;
        void* data = nullptr;
        if (code_of(invar_tensor_data(a, &data)) != 0) ++wrong;
        for (int i = 0; i < 33 * 17; ++i) static_cast<float*>(data)[i] = static_cast<float>(t);
        if (code_of(invar_tensor_matmul(a, false, a, true, INVAR_DTYPE_FP32, &product)) != 0) ++wrong;
        void* result = nullptr;
        if (code_of(invar_tensor_data(product, &result)) != 0) ++wrong;
        if (static_cast<float*>(result)[32 * 33 + 32] != static_cast<float>(17 * t * t)) ++wrong;
        invar_tensor_release(a);
        invar_tensor_release(product);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Fork, HandlesOfTheParentFailInTheChild) {
  auto runtime = make_runtime(2);
  auto tensor = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {4});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    invar_bytes* report = nullptr;
    invar_tensor* cast = nullptr;
    const bool info = reason_of(invar_runtime_info(runtime.get(), &report)) == "runtime.forked";
    const bool tensors = code_of(invar_tensor_cast(tensor.get(), INVAR_DTYPE_BF16, &cast)) == INVAR_FAILED_PRECONDITION;
    tensor.reset();  // must not hang
    runtime.reset();
    invar_runtime* own = nullptr;
    const bool fresh = code_of(invar_runtime_create(nullptr, &own)) == INVAR_OK;
    _exit(info && tensors && fresh ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Silence, NothingIsPrinted) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    const auto runtime = make_runtime(2);
    invar_bytes* report = nullptr;
    (void)text_of(invar_checkpoint_inspect(runtime.get(), "\x0a\x01\xff", 3, nullptr, nullptr, &report));
    (void)text_of(invar_message_from_json(runtime.get(), "train", 5, "{\"a\": \"\xff\"}", 10, &report));
    const std::string config = message(runtime.get(), "inspect", R"({"path": "/nonexistent"})");
    (void)text_of(invar_checkpoint_inspect(runtime.get(), config.data(), config.size(), nullptr, nullptr, &report));
    invar_bytes_release(report);
    auto tensor = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {4});
    invar_tensor* none = nullptr;
    (void)text_of(invar_tensor_cast(tensor.get(), 77, &none));
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace invar_test
