// Several threads of a host on one runtime: sessions side by side, a run that is watched and cancelled from outside.
#define INVAR_EXPERIMENTAL
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

namespace fs = std::filesystem;

constexpr char kShape[] =
    R"({"model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64},
        "micro_batch": 2, "precision": {"recipe": "fp32"}, "optimizer": {"lr": 0.01}, )";

Owned<invar_session> create(invar_runtime* runtime, const std::string& json) {
  const std::string config = message(runtime, "train", json);
  invar_session* session = nullptr;
  EXPECT_EQ(text_of(invar_session_create(runtime, config.data(), config.size(), nullptr, nullptr, &session)), "ok");
  return Owned<invar_session>(session);
}

double step(invar_session* session) {
  int32_t ids[32];
  for (int i = 0; i < 32; ++i) ids[i] = 'a' + i % 7;
  invar_batch batch = INVAR_BATCH_INIT;
  batch.sequences = 2;
  batch.sequence_length = 16;
  batch.ids = ids;
  invar_loss loss = INVAR_LOSS_INIT;
  invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
  EXPECT_EQ(text_of(invar_session_begin(session, 1)), "ok");
  EXPECT_EQ(text_of(invar_session_forward_backward(session, &batch, &loss)), "ok");
  EXPECT_EQ(text_of(invar_session_step(session, &metrics)), "ok");
  return metrics.loss;
}

TEST(Threads, SessionsOfOneRuntimeTrainSideBySide) {
  constexpr int kSessions = 4, kSteps = 6;
  const auto runtime = make_runtime(2);
  std::vector<std::vector<double>> losses(kSessions);
  std::vector<std::thread> threads;
  for (int t = 0; t < kSessions; ++t) {
    threads.emplace_back([&, t] {
      const auto session = create(
          runtime.get(), std::string(kShape) + R"("data": {"sequence_length": 16, "tokenizer": {"kind": "byte"}}})");
      for (int i = 0; i < kSteps; ++i) losses[static_cast<size_t>(t)].push_back(step(session.get()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(losses[0].back(), losses[0].front());
  for (const auto& one : losses) EXPECT_EQ(one, losses[0]) << "neighbours change the numbers";
}

TEST(Threads, ARunIsWatchedAndCancelledFromOutside) {
  const auto runtime = make_runtime(2);
  const fs::path folder = fs::path(testing::TempDir()) / ("invar-threads-" + std::to_string(getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder / "text.txt") << std::string(4000, 'a') << "\n";
  const auto session =
      create(runtime.get(), std::string(kShape) + R"("steps": 1000000, "output": ")" + (folder / "run").string() +
                                R"(", "data": {"sequence_length": 16, "paths": [")" + (folder / "text.txt").string() +
                                R"("]}})");
  invar_cancel* cancel = nullptr;
  ASSERT_EQ(text_of(invar_cancel_create(runtime.get(), &cancel)), "ok");
  const Owned<invar_cancel> owner(cancel);
  int64_t seen = -1;
  ASSERT_EQ(text_of(invar_session_last_step(session.get(), &seen)), "ok");
  EXPECT_EQ(seen, 0);
  int32_t ended = INVAR_OK;
  std::thread trainer([&] {
    invar_bytes* report = nullptr;
    ended = code_of(invar_session_run(session.get(), cancel, nullptr, &report));
    invar_bytes_release(report);
  });
  for (int tries = 0; tries < 60'000 && seen < 5; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    int64_t now = 0;
    EXPECT_EQ(text_of(invar_session_last_step(session.get(), &now)), "ok");
    EXPECT_GE(now, seen);
    seen = now;
  }
  EXPECT_GE(seen, 5);
  // What needs the session itself is refused meanwhile, and does not wait.
  invar_bytes* report = nullptr;
  EXPECT_EQ(reason_of(invar_session_report(session.get(), &report)), "handle.busy");
  invar_cancel_request(cancel);
  trainer.join();
  EXPECT_EQ(ended, INVAR_CANCELLED);
  int64_t last = 0;
  EXPECT_EQ(text_of(invar_session_last_step(session.get(), &last)), "ok");
  EXPECT_GE(last, seen);
  EXPECT_EQ(code_of(invar_session_last_step(nullptr, &last)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_session_last_step(session.get(), nullptr)), INVAR_INVALID_ARGUMENT);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace invar_test
