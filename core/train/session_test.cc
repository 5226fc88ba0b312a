#include "core/train/session.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "core/base/memory_files.h"
#include "core/checkpoint/training_state.h"
#include "core/config/config.h"
#include "core/train/run_folder.h"

namespace invar {
namespace {

std::string some_text(int sentences) {
  const char* const words[] = {"and", "the", "light", "was", "upon", "waters", "of", "day", "night", "called"};
  std::string text;
  uint32_t state = 12345;
  for (int i = 0; i < sentences; ++i) {
    for (int w = 0; w < 8; ++w) {
      state = state * 1664525u + 1013904223u;
      text += words[(state >> 16) % 10];
      text += w == 7 ? ".\n" : " ";
    }
  }
  return text;
}

v1::TrainConfig tiny_config(int64_t steps) {
  const auto config = config::from_json<v1::TrainConfig>(R"({
    "output": "/run",
    "model": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
              "intermediate_size": 48},
    "data": {"paths": ["/text.txt"], "sequence_length": 16, "heldout_fraction": 0.05},
    "schedule": {"warmup_steps": 2, "kind": "constant"},
    "micro_batch": 2, "threads": 1})");
  EXPECT_TRUE(config.ok()) << config.status().message();
  v1::TrainConfig result = *config;
  result.set_steps(steps);
  return result;
}

class SessionTest : public testing::Test {
 protected:
  void SetUp() override { files.put("/text.txt", some_text(120)); }
  Result<std::unique_ptr<Session>> open(const v1::TrainConfig& config) {
    return Session::create(config, {.pool = nullptr, .files = &files, .log = {}});
  }
  // Trains, and gives the bytes of the checkpoint's tensors.
  std::map<std::string, std::string> train(const v1::TrainConfig& config, std::vector<double>* losses = nullptr) {
    auto session = open(config);
    EXPECT_TRUE(session.ok()) << session.status().message();
    if (!session.ok()) return {};
    TrainCallbacks callbacks;
    callbacks.on_step = [&](const v1::StepMetrics& metrics) {
      if (losses != nullptr) losses->push_back(metrics.loss());
    };
    auto report = (*session)->train(callbacks, nullptr);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? tensors_of(report->checkpoint()) : std::map<std::string, std::string>{};
  }
  std::map<std::string, std::string> tensors_of(const std::string& folder) {
    std::map<std::string, std::string> tensors;
    for (const auto& [path, bytes] : files.snapshot()) {
      const bool inside = path.substr(0, folder.size()) == folder;
      if (inside && path.find(".safetensors") != std::string::npos) tensors[path.substr(folder.size())] = bytes;
    }
    EXPECT_FALSE(tensors.empty()) << folder;
    return tensors;
  }
  MemoryFiles files;
};

struct RecipeCase {
  const char* name;
  v1::Recipe recipe;
  int64_t accumulation;
  bool ladder;
};

class ResumeTest : public SessionTest, public testing::WithParamInterface<RecipeCase> {};

TEST_P(ResumeTest, InterruptedRunEndsWithTheSameBits) {
  const RecipeCase& c = GetParam();
  const auto config_of = [&](const std::string& output, int64_t steps) {
    v1::TrainConfig config = tiny_config(steps);
    config.set_output(output);
    config.set_accumulation(c.accumulation);
    config.mutable_precision()->set_recipe(c.recipe);
    if (c.ladder) {
      config.mutable_precision()->mutable_ladder()->set_warmup_steps(2);
      config.mutable_precision()->mutable_ladder()->set_final_steps(2);
      config.mutable_precision()->mutable_ladder()->set_window(4);
    }
    return config;
  };
  std::vector<double> whole_losses, part_losses;
  const auto whole = train(config_of("/whole", 8), &whole_losses);
  // The first half runs under the whole run's config and is cancelled in the middle.
  {
    auto session = open(config_of("/parts", 8));
    ASSERT_TRUE(session.ok()) << session.status().message();
    CancelFlag cancel;
    TrainCallbacks callbacks;
    callbacks.on_step = [&](const v1::StepMetrics& metrics) {
      part_losses.push_back(metrics.loss());
      if (metrics.step() == 4) cancel.cancel();
    };
    auto report = (*session)->train(callbacks, &cancel);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_TRUE(report->cancelled());
    EXPECT_EQ(report->steps(), 4);
  }
  v1::TrainConfig rest = config_of("/parts", 8);
  rest.set_resume(v1::RESUME_MODE_ALWAYS);
  rest.set_threads(2);  // the result does not depend on it
  const auto parts = train(rest, &part_losses);
  EXPECT_EQ(part_losses, whole_losses);
  ASSERT_EQ(parts.size(), whole.size());
  for (const auto& [name, bytes] : whole) EXPECT_TRUE(parts.at(name) == bytes) << name << " differs";
}

INSTANTIATE_TEST_SUITE_P(Recipes, ResumeTest,
                         testing::Values(RecipeCase{"fp32", v1::RECIPE_FP32, 1, false},
                                         RecipeCase{"bf16", v1::RECIPE_BF16, 1, false},
                                         RecipeCase{"bf16_accumulated", v1::RECIPE_BF16, 3, false},
                                         RecipeCase{"fp8_tensor", v1::RECIPE_FP8_TENSOR, 1, false},
                                         RecipeCase{"fp8_block_accumulated", v1::RECIPE_FP8_BLOCK, 2, false},
                                         RecipeCase{"ladder", v1::RECIPE_FP8_BLOCK, 1, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(SessionTest, LossFallsAndEverythingIsReported) {
  v1::TrainConfig config = tiny_config(30);
  config.mutable_optimizer()->set_lr(0.01);
  config.set_eval_every(10);
  auto session = open(config);
  ASSERT_TRUE(session.ok()) << session.status().message();
  int steps = 0, evals = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const v1::StepMetrics& metrics) {
    EXPECT_EQ(metrics.step(), ++steps);
    EXPECT_EQ(metrics.tokens(), 32);
    EXPECT_EQ(metrics.total_tokens(), 32 * steps);
  };
  callbacks.on_eval = [&](const v1::EvalMetrics&) { ++evals; };
  auto report = (*session)->train(callbacks, nullptr);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(steps, 30);
  EXPECT_EQ(evals, 3);
  EXPECT_LT(report->last_loss(), report->first_loss() - 1);
  EXPECT_LT(report->final_eval().loss(), report->first_loss() - 1);
  ASSERT_EQ(report->recipes_size(), 1);
  EXPECT_EQ(report->recipes(0).last_step(), 30);
  const auto metrics = read_text(files, "/run/metrics.jsonl", 1 << 20);
  ASSERT_TRUE(metrics.ok());
  EXPECT_EQ(std::count(metrics->begin(), metrics->end(), '\n'), 33);
  const auto saved = config::from_json<v1::TrainConfig>(*read_text(files, "/run/train_config.json", 1 << 20));
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->optimizer().beta2(), 0.95) << "the saved config is resolved";
}

TEST_F(SessionTest, LadderChangesTheRecipeWhenItSays) {
  v1::TrainConfig config = tiny_config(6);
  config.mutable_precision()->set_recipe(v1::RECIPE_FP8_BLOCK);
  config.mutable_precision()->mutable_ladder()->set_warmup_steps(2);
  config.mutable_precision()->mutable_ladder()->set_final_steps(1);
  auto session = open(config);
  ASSERT_TRUE(session.ok()) << session.status().message();
  std::vector<v1::Recipe> recipes;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const v1::StepMetrics& metrics) { recipes.push_back(metrics.recipe()); };
  auto report = (*session)->train(callbacks, nullptr);
  ASSERT_TRUE(report.ok());
  const auto low = v1::RECIPE_FP8_BLOCK, high = v1::RECIPE_BF16;
  EXPECT_EQ(recipes, (std::vector<v1::Recipe>{high, high, low, low, low, high}));
  ASSERT_EQ(report->recipes_size(), 3);
  EXPECT_EQ(report->recipes(1).reason(), "warmup_done");
  EXPECT_EQ(report->recipes(1).first_step(), 3);
  EXPECT_EQ(report->recipes(1).last_step(), 5);
}

TEST_F(SessionTest, EvaluationAndSavesDoNotChangeTheRun) {
  std::vector<double> plain, busy;
  v1::TrainConfig config = tiny_config(6);
  config.set_output("/plain");
  const auto expected = train(config, &plain);
  config.set_output("/busy");
  config.set_eval_every(1);
  config.mutable_checkpoint()->set_save_every(2);
  const auto found = train(config, &busy);
  EXPECT_EQ(busy, plain);
  for (const auto& [name, bytes] : expected) EXPECT_TRUE(found.at(name) == bytes) << name;
}

TEST_F(SessionTest, HostDrivenWindowsNeedNoDataAndNoOutput) {
  v1::TrainConfig config = tiny_config(10);
  config.clear_output();
  config.mutable_data()->clear_paths();
  config.mutable_precision()->set_recipe(v1::RECIPE_FP8_TENSOR);
  config.mutable_precision()->mutable_ladder()->set_warmup_steps(2);  // the recipe changes behind an open-ended window
  auto session = open(config);
  ASSERT_TRUE(session.ok()) << session.status().message();
  const std::vector<int32_t> ids = {5, 6, 7, 8}, targets = {6, 7, 8, -1}, offsets = {0, 4};
  const MicroBatch batch{.ids = ids, .targets = targets, .offsets = offsets, .positions = {}};
  for (int64_t announced : {2, 0}) {
    ASSERT_TRUE((*session)->begin_window(announced).ok());
    ASSERT_TRUE((*session)->forward_backward(batch).ok());
    ASSERT_TRUE((*session)->forward_backward(batch).ok());
    auto metrics = (*session)->step();
    ASSERT_TRUE(metrics.ok()) << metrics.status().message();
    EXPECT_EQ(metrics->tokens(), 6);
  }
  EXPECT_EQ((*session)->steps(), 2);
  EXPECT_EQ((*session)->train({}, nullptr).status().reason(), "train.no_data");
  EXPECT_EQ((*session)->save().status().reason(), "train.no_output");
  ASSERT_TRUE((*session)->save_to("/elsewhere").ok());
  auto second = open(config);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE((*second)->resume("/elsewhere").ok());
  EXPECT_EQ((*second)->steps(), 2);
}

TEST_F(SessionTest, BadInputsAreNamedBeforeWorkStarts) {
  const auto reason = [&](auto change) {
    v1::TrainConfig config = tiny_config(2);
    change(config);
    const auto session = open(config);
    return session.ok() ? std::string("ok") : session.status().reason();
  };
  files.put("/full/file", "x");
  files.put("/empty.txt", "");
  EXPECT_EQ(reason([](auto& c) { c.set_output("/full"); }), "output.not_empty");
  EXPECT_EQ(reason([](auto& c) { c.mutable_data()->set_paths(0, "/empty.txt"); }), "text.empty");
  EXPECT_EQ(reason([](auto& c) { c.mutable_data()->set_paths(0, "/none.txt"); }), "file.not_found");
  EXPECT_EQ(reason([](auto& c) {
              c.mutable_data()->set_sequence_length(2000);
              c.mutable_data()->set_heldout_fraction(0.9);
            }),
            "text.sequence_too_long");
  EXPECT_EQ(reason([](auto& c) { c.mutable_data()->set_sequence_length(5000); }), "config.out_of_range");
  EXPECT_EQ(reason([](auto& c) { c.mutable_model()->set_vocab_size(100); }), "text.vocabulary_mismatch");
  EXPECT_EQ(reason([](auto& c) { c.mutable_model()->set_family("lama"); }), "config.unknown_model_type");
  EXPECT_EQ(reason([](auto& c) { c.mutable_model()->set_path("/no/model"); }), "file.not_found");
  EXPECT_EQ(reason([](auto& c) { c.set_resume(v1::RESUME_MODE_ALWAYS); }), "training.no_checkpoint");
}

TEST_F(SessionTest, ResumingOnOtherDataIsRefused) {
  v1::TrainConfig config = tiny_config(2);
  train(config);
  files.put("/text.txt", some_text(119));
  config.set_steps(4);
  config.set_resume(v1::RESUME_MODE_AUTO);
  const auto session = open(config);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().reason(), "text.data_changed");
}

TEST_F(SessionTest, ResumingAnotherShapeIsRefused) {
  v1::TrainConfig config = tiny_config(2);
  train(config);
  config.set_resume(v1::RESUME_MODE_AUTO);
  config.mutable_model()->set_intermediate_size(64);
  const auto session = open(config);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().reason(), "checkpoint.shape_mismatch");
  EXPECT_NE(session.status().message().find("gate_proj"), std::string::npos) << session.status().message();
}

TEST_F(SessionTest, SkippedStepsAreCountedAndTheRunEndsWithAName) {
  v1::TrainConfig config = tiny_config(1);
  config.mutable_checkpoint()->add_exports(v1::TARGET_FORMAT_BF16);
  train(config);
  // The last bytes of the file are the final norm's last gain: make it infinite.
  const std::string weights = "/run/export/bf16/model.safetensors";
  std::string bytes = *read_text(files, weights, 1 << 24);
  bytes[bytes.size() - 2] = '\x80';
  bytes[bytes.size() - 1] = '\x7F';
  files.put(weights, bytes);
  v1::TrainConfig broken = tiny_config(10);
  broken.set_output("/broken");
  broken.mutable_model()->set_path("/run/export/bf16");
  broken.mutable_precision()->set_max_skipped_steps(3);
  auto session = open(broken);
  ASSERT_TRUE(session.ok()) << session.status().message();
  int skipped = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const v1::StepMetrics& metrics) {
    EXPECT_TRUE(metrics.skipped());
    EXPECT_EQ(metrics.step(), 1);
    EXPECT_EQ(metrics.total_skipped(), ++skipped);
  };
  const auto report = (*session)->train(callbacks, nullptr);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().reason(), "train.not_finite");
  EXPECT_NE(report.status().message().find("model.embed_tokens.weight"), std::string::npos)
      << report.status().message();
  EXPECT_EQ((*session)->steps(), 0);
  EXPECT_EQ(skipped, 2) << "the third ends the run";
}

TEST_F(SessionTest, MetricsOfStepsAfterTheCheckpointAreWrittenAgain) {
  v1::TrainConfig config = tiny_config(6);
  config.mutable_checkpoint()->set_save_every(2);
  config.mutable_checkpoint()->set_save_final(false);
  train(config);  // metrics to step 6, newest checkpoint at step 4
  std::string text = *read_text(files, "/run/metrics.jsonl", 1 << 20);
  files.put("/run/metrics.jsonl", text + "{\"step\":{\"st");  // as a kill leaves it
  config.set_resume(v1::RESUME_MODE_AUTO);
  train(config);
  text = *read_text(files, "/run/metrics.jsonl", 1 << 20);
  int step = 0;
  for (size_t at = text.find("\"step\":{\"step\":"); at != std::string::npos;
       at = text.find("\"step\":{\"step\":", at + 1)) {
    EXPECT_EQ(std::atoi(text.c_str() + at + 15), ++step);
  }
  EXPECT_EQ(step, 6);
}

TEST_F(SessionTest, FullDiskKeepsTheOlderCheckpoint) {
  v1::TrainConfig config = tiny_config(4);
  config.mutable_checkpoint()->set_save_every(2);
  int64_t operations = 0;
  {
    FaultyFiles counting(files, -1, false);
    config.set_output("/count");
    auto session = Session::create(config, {.pool = nullptr, .files = &counting, .log = {}});
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE((*session)->train({}, nullptr).ok());
    operations = counting.operations();
  }
  // The last operations belong to the second checkpoint.
  FaultyFiles full(files, operations - 12, false);
  config.set_output("/run");
  auto session = Session::create(config, {.pool = nullptr, .files = &full, .log = {}});
  ASSERT_TRUE(session.ok());
  const auto report = (*session)->train({}, nullptr);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(*resolve_checkpoint(files, "/run"), "/run/checkpoints/step-00000002");
  config.set_resume(v1::RESUME_MODE_ALWAYS);
  std::vector<double> losses;
  train(config, &losses);
  EXPECT_EQ(losses.size(), 2u);
}

// Sets a cancel flag when file number `at` is opened.
class CancelsAtOpen : public FaultyFiles {
 public:
  CancelsAtOpen(FileSystem& below, int64_t at, CancelFlag* cancel)
      : FaultyFiles(below, -1, false), at_(at), cancel_(cancel) {}
  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path) override {
    if (opened_++ == at_) cancel_->cancel();
    return FaultyFiles::open(path);
  }

 private:
  int64_t at_, opened_ = 0;
  CancelFlag* cancel_;
};

TEST_F(SessionTest, CreationIsCancelledWhileTextAndStatesAreRead) {
  v1::TrainConfig config = tiny_config(2);
  train(config);
  config.set_resume(v1::RESUME_MODE_ALWAYS);
  const auto before = files.snapshot();
  int cancelled = 0;
  for (int64_t at = 0;; ++at) {
    CancelFlag cancel;
    CancelsAtOpen watched(files, at, &cancel);
    const auto session = Session::create(config, {.pool = nullptr, .files = &watched, .log = {}}, &cancel);
    if (!cancel.cancelled()) {
      EXPECT_TRUE(session.ok()) << session.status().message();
      break;
    }
    if (session.ok()) continue;  // nothing was left to stop
    EXPECT_EQ(session.status().code(), Code::kCancelled) << session.status().message();
    EXPECT_TRUE(files.snapshot() == before) << "open " << at;
    ++cancelled;
  }
  EXPECT_GE(cancelled, 3) << "text, manifest and states";

  config = tiny_config(2);
  config.set_output("/fresh");
  CancelFlag cancel;
  cancel.cancel();
  const auto session = Session::create(config, {.pool = nullptr, .files = &files, .log = {}}, &cancel);
  EXPECT_EQ(session.status().code(), Code::kCancelled);
  EXPECT_TRUE(files.list("/fresh")->empty());
}

// A child trains with a checkpoint at every step and is killed at a random moment; what it leaves must resume and end
// like a run that nobody disturbed.
TEST(KillTest, KilledRunResumesWithTheSameBits) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string root = join_path(base != nullptr ? base : "/tmp", "kill");
  ASSERT_TRUE(posix_files().remove_all(root).ok());
  ASSERT_TRUE(posix_files().make_directories(root).ok());
  const std::string text = join_path(root, "text.txt");
  ASSERT_TRUE(write_text_atomically(posix_files(), text, some_text(120)).ok());
  const auto config_of = [&](const std::string& output) {
    v1::TrainConfig config = tiny_config(12);
    config.set_output(join_path(root, output));
    config.mutable_data()->set_paths(0, text);
    config.mutable_checkpoint()->set_save_every(1);
    config.mutable_checkpoint()->set_durable(false);
    config.set_resume(v1::RESUME_MODE_AUTO);
    return config;
  };
  const auto run = [&](const std::string& output) {
    auto session = Session::create(config_of(output), {});
    if (!session.ok()) return std::string();
    auto report = (*session)->train({}, nullptr);
    return report.ok() ? report->checkpoint() : std::string();
  };
  const std::string expected = run("whole");
  ASSERT_FALSE(expected.empty());
  int killed = 0;
  for (int delay_ms : {15, 40, 25, 60, 33}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(run("killed").empty() ? 1 : 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    killed += WIFSIGNALED(status) ? 1 : 0;
  }
  EXPECT_GT(killed, 0) << "the child was always faster than the kill: the test showed nothing";
  const std::string found = run("killed");
  ASSERT_FALSE(found.empty());
  for (const char* name : {"model.safetensors", "training/master.safetensors", "training/moment1.safetensors",
                           "training/moment2.safetensors"}) {
    const auto a = read_text(posix_files(), join_path(expected, name), 1 << 24);
    const auto b = read_text(posix_files(), join_path(found, name), 1 << 24);
    ASSERT_TRUE(a.ok() && b.ok()) << name;
    EXPECT_TRUE(*a == *b) << name;
  }
}

}  // namespace
}  // namespace invar
