// What a call costs, and that ten thousand of each leave memory where it was.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

namespace fs = std::filesystem;

constexpr char kCase[] = "tests/cases/autofp8-static-llama/input";
constexpr int kMany = 10'000;

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t whole = 0, resident = 0;
  file >> whole >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Calls until memory settles, then `count` times.
void flat(const char* what, int count, const std::function<void()>& call) {
  constexpr int64_t kSlack = 512 << 10;
  for (int i = 0; i < count / 5; ++i) call();
  const int64_t before = resident_bytes();
  for (int i = 0; i < count; ++i) call();
  const int64_t growth = resident_bytes() - before;
  std::printf("%s: %d calls, %lld KiB more\n", what, count, static_cast<long long>(growth >> 10));
  EXPECT_LT(growth, kSlack) << what;
}

TEST(Calls, CostLessThanAMicrosecond) {
  const auto runtime = make_runtime();
  const auto tensor = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {4});
  constexpr int kCalls = 100'000;
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) {
      void* data = nullptr;
      if (invar_tensor_data(tensor.get(), &data) != nullptr || data == nullptr) FAIL();
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    best = std::min(best, spent.count() / kCalls);
  }
  std::printf("invar_tensor_data: %.0f ns a call\n", best);
  EXPECT_LT(best, 1000);
}

TEST(Memory, IsFlatOverMessagesErrorsAndTensors) {
  flat("runtime", kMany / 10, [] { make_runtime(); });
  const auto owner = make_runtime();
  invar_runtime* const runtime = owner.get();
  flat("info", kMany, [&] {
    invar_bytes* report = nullptr;
    EXPECT_EQ(code_of(invar_runtime_info(runtime, &report)), INVAR_OK);
    invar_bytes_release(report);
  });
  flat("cancel", kMany, [&] {
    invar_cancel* cancel = nullptr;
    EXPECT_EQ(code_of(invar_cancel_create(runtime, &cancel)), INVAR_OK);
    invar_cancel_request(cancel);
    invar_cancel_release(cancel);
  });
  flat("message", kMany, [&] { message(runtime, "train", R"({"steps": 3})"); });
  flat("error", kMany, [&] {
    invar_bytes* out = nullptr;
    EXPECT_EQ(reason_of(invar_message_from_json(runtime, "train", 5, R"({"stepps": 3})", 13, &out)),
              "config.unknown_field");
  });
  flat("tensor", kMany, [&] {
    const auto tensor = make_tensor(runtime, INVAR_DTYPE_FP32, {8, 8});
    invar_quantize_options options = INVAR_QUANTIZE_OPTIONS_INIT;
    invar_tensor *codes = nullptr, *values = nullptr, *product = nullptr;
    EXPECT_EQ(code_of(invar_tensor_quantize(tensor.get(), &options, &codes)), INVAR_OK);
    EXPECT_EQ(code_of(invar_tensor_dequantize(codes, INVAR_DTYPE_BF16, &values)), INVAR_OK);
    EXPECT_EQ(code_of(invar_tensor_matmul(tensor.get(), false, tensor.get(), true, INVAR_DTYPE_FP32, &product)),
              INVAR_OK);
    invar_tensor_release(codes);
    invar_tensor_release(values);
    invar_tensor_release(product);
  });
}

TEST(Memory, IsFlatOverCheckpointsAndSessions) {
  const auto owner = make_runtime();
  invar_runtime* const runtime = owner.get();
  const fs::path folder = fs::path(testing::TempDir()) / ("invar-steady-" + std::to_string(getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::create_directories(folder / "in");
  for (const auto& entry : fs::directory_iterator(kCase)) {  // runfiles are links
    fs::copy_file(fs::canonical(entry.path()), folder / "in" / entry.path().filename());
  }
  const std::string open = message(runtime, "OpenConfig", R"({"path": ")" + (folder / "in").string() + R"("})");
  flat("open and read", kMany / 10, [&] {
    invar_checkpoint* made = nullptr;
    ASSERT_EQ(text_of(invar_checkpoint_open(runtime, open.data(), open.size(), &made)), "ok");
    const Owned<invar_checkpoint> checkpoint(made);
    invar_checkpoint_tensor tensor = INVAR_CHECKPOINT_TENSOR_INIT;
    EXPECT_EQ(code_of(invar_checkpoint_describe(made, 0, &tensor)), INVAR_OK);
    std::vector<float> values(static_cast<size_t>(tensor.elements));
    EXPECT_EQ(code_of(invar_checkpoint_read_rows(made, 0, 0, tensor.rows, INVAR_DTYPE_FP32, nullptr, values.data(),
                                                 values.size() * sizeof(float))),
              INVAR_OK);
  });
  const std::string convert = message(runtime, "convert",
                                      R"({"durable": false, "source": ")" + (folder / "in").string() +
                                          R"(", "destination": ")" + (folder / "never").string() + R"("})");
  flat("stopped conversion", kMany / 10, [&] {
    invar_progress_callback callback = INVAR_PROGRESS_CALLBACK_INIT;
    callback.call = [](void*, const invar_progress*) -> int32_t { return 7; };
    invar_bytes* report = nullptr;
    EXPECT_EQ(code_of(invar_checkpoint_convert(runtime, convert.data(), convert.size(), nullptr, &callback, &report)),
              INVAR_ABORTED);
  });
  const std::string train = message(
      runtime, "train",
      R"({"model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64},
          "micro_batch": 1, "data": {"sequence_length": 16, "tokenizer": {"kind": "byte"}}})");
  const auto create = [&] {
    invar_session* made = nullptr;
    EXPECT_EQ(text_of(invar_session_create(runtime, train.data(), train.size(), nullptr, nullptr, &made)), "ok");
    return Owned<invar_session>(made);
  };
  flat("session", kMany / 20, [&] { create(); });
  const auto session = create();
  const std::vector<int32_t> ids(16, 'a');
  flat("step", kMany, [&] {
    invar_batch batch = INVAR_BATCH_INIT;
    batch.sequences = 1;
    batch.sequence_length = 16;
    batch.ids = ids.data();
    invar_loss loss = INVAR_LOSS_INIT;
    invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
    EXPECT_EQ(code_of(invar_session_begin(session.get(), 1)), INVAR_OK);
    EXPECT_EQ(code_of(invar_session_forward_backward(session.get(), &batch, &loss)), INVAR_OK);
    EXPECT_EQ(code_of(invar_session_step(session.get(), &metrics)), INVAR_OK);
  });
  const std::string request = message(runtime, "generate", R"({"prompt": "a", "max_tokens": 1})");
  flat("generate", kMany, [&] {
    invar_bytes* report = nullptr;
    EXPECT_EQ(code_of(invar_session_generate(session.get(), request.data(), request.size(), nullptr, nullptr, &report)),
              INVAR_OK);
    invar_bytes_release(report);
  });
  fs::remove_all(folder);
}

}  // namespace
}  // namespace invar_test
