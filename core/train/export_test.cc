#include "core/train/export.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/memory_files.h"
#include "core/config/config.h"
#include "core/container/checkpoint_folder.h"
#include "core/model/weights_folder.h"
#include "core/text/tokenizer.h"
#include "core/train/bench/bench.h"
#include "core/train/session.h"

namespace invar {
namespace {

class ExportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 200; ++i) text += cat("line ", i * 7919 % 101, " of the text\n");
    files.put("/text.txt", text);
    auto config = config::from_json<v1::TrainConfig>(R"({
      "output": "/run", "steps": 3, "micro_batch": 2, "threads": 1,
      "model": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48},
      "data": {"paths": ["/text.txt"], "sequence_length": 16},
      "checkpoint": {"exports": ["bf16", "fp8_block"], "bf16_copy": true}})");
    ASSERT_TRUE(config.ok()) << config.status().message();
    auto session = Session::create(*config, {.pool = nullptr, .files = &files, .log = {}});
    ASSERT_TRUE(session.ok()) << session.status().message();
    auto trained = (*session)->train({}, nullptr);
    ASSERT_TRUE(trained.ok()) << trained.status().message();
    report = *trained;
  }
  Result<v1::ExportReport> run(v1::TargetFormat target, const std::string& destination, bool copy = false) {
    v1::ExportConfig config;
    config.set_source("/run");
    config.set_destination(destination);
    config.set_target(target);
    config.set_bf16_copy(copy);
    return export_checkpoint(config::with_defaults(config), {.files = &files});
  }
  MemoryFiles files;
  v1::TrainReport report;
};

TEST_F(ExportTest, RunWritesTheFoldersOfItsConfig) {
  ASSERT_EQ(report.exports_size(), 2);
  for (const std::string path : {"/run/export/bf16", "/run/export/fp8_block", "/run/export/fp8_block-bf16"}) {
    EXPECT_TRUE(files.exists(path + "/model.safetensors")) << path;
    EXPECT_TRUE(files.exists(path + "/tokenizer.json")) << path;
  }
  // The same bytes whether from memory or from the checkpoint.
  ASSERT_TRUE(run(v1::TARGET_FORMAT_FP8_BLOCK, "/again").ok());
  EXPECT_EQ(*read_text(files, "/again/model.safetensors", 1 << 24),
            *read_text(files, "/run/export/fp8_block/model.safetensors", 1 << 24));
}

TEST_F(ExportTest, Bf16FolderEqualsTheCheckpointsModel) {
  const auto exported = run(v1::TARGET_FORMAT_BF16, "/out");
  ASSERT_TRUE(exported.ok()) << exported.status().message();
  EXPECT_EQ(exported->step(), 3);
  EXPECT_EQ(exported->source(), report.checkpoint());
  EXPECT_EQ(*read_text(files, "/out/model.safetensors", 1 << 24),
            *read_text(files, report.checkpoint() + "/model.safetensors", 1 << 24));
  EXPECT_FALSE(files.exists("/out/training"));
  EXPECT_TRUE(load_tokenizer(files, "/out").ok());
  EXPECT_TRUE(read_model_shape(files, "/out").ok());
}

TEST_F(ExportTest, EveryFp8LayoutDeclaresItselfAndStoresCodes) {
  struct Layout {
    v1::TargetFormat target;
    std::string method, scale;
  };
  for (const Layout& layout : {Layout{v1::TARGET_FORMAT_FP8_BLOCK, "fp8", "weight_scale_inv"},
                               Layout{v1::TARGET_FORMAT_FP8_TENSOR, "compressed-tensors", "weight_scale"},
                               Layout{v1::TARGET_FORMAT_FP8_CHANNEL, "compressed-tensors", "weight_scale"}}) {
    const std::string out = "/" + target_name(layout.target);
    const auto exported = run(layout.target, out, /*copy=*/true);
    ASSERT_TRUE(exported.ok()) << exported.status().message();
    EXPECT_EQ(exported->quantized_tensors(), 14);
    EXPECT_GT(exported->sqnr_db(), 28);
    // The matrices are smaller than a block.
    EXPECT_EQ(exported->warnings_size(), layout.target == v1::TARGET_FORMAT_FP8_BLOCK ? 1 : 0);
    const auto config = nlohmann::json::parse(*read_text(files, out + "/config.json", 1 << 20));
    EXPECT_EQ(config["quantization_config"]["quant_method"], layout.method);
    const auto folder = CheckpointFolder::open(files, out);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    const std::string layer = "model.layers.1.mlp.up_proj.";
    ASSERT_NE(folder->find(layer + "weight"), nullptr);
    EXPECT_EQ(folder->find(layer + "weight")->dtype, DType::kE4M3FN);
    EXPECT_NE(folder->find(layer + layout.scale), nullptr);
    EXPECT_EQ(folder->find("model.embed_tokens.weight")->dtype, DType::kBF16);
    EXPECT_TRUE(files.exists(out + "-bf16/model.safetensors"));
  }
}

TEST_F(ExportTest, ProgressReachesTheEndAndACancelledExportLeavesNothing) {
  for (const v1::TargetFormat target : {v1::TARGET_FORMAT_BF16, v1::TARGET_FORMAT_FP8_BLOCK}) {
    const bool copy = target == v1::TARGET_FORMAT_FP8_BLOCK;
    v1::ExportConfig config;
    config.set_source("/run");
    config.set_target(target);
    config.set_bf16_copy(copy);
    config.set_destination("/whole-" + target_name(target));
    int64_t last = 0, all = 0;
    const auto watch = [&](int64_t done, int64_t total) {
      EXPECT_GT(done, last);
      last = done;
      all = total;
    };
    ASSERT_TRUE(export_checkpoint(config::with_defaults(config), {.files = &files, .progress = watch}).ok());
    EXPECT_EQ(last, all);
    EXPECT_EQ(all, (copy ? 2 : 1) * report.parameters());

    const auto before = files.snapshot();
    config.set_destination("/stopped");
    for (const int64_t at : {int64_t{1}, all / 2}) {
      CancelFlag cancel;
      const auto stop = [&](int64_t done, int64_t) {
        if (done >= at) cancel.cancel();
      };
      const auto stopped =
          export_checkpoint(config::with_defaults(config), {.files = &files, .cancel = &cancel, .progress = stop});
      EXPECT_EQ(stopped.status().code(), Code::kCancelled);
      EXPECT_TRUE(files.snapshot() == before) << at;
    }
  }
}

TEST_F(ExportTest, BadRequestsAreNamed) {
  files.put("/full/x", "y");
  EXPECT_EQ(run(v1::TARGET_FORMAT_BF16, "/full").status().reason(), "output.not_empty");
  EXPECT_EQ(run(v1::TARGET_FORMAT_BF16, "/out", /*copy=*/true).status().reason(), "config.unsupported");
  v1::ExportConfig config;
  config.set_source("/nowhere");
  config.set_destination("/out");
  EXPECT_EQ(export_checkpoint(config::with_defaults(config), {.files = &files}).status().reason(),
            "training.no_checkpoint");
}

TEST(Bench, TrainReportsRateProfileAndFirstStep) {
  v1::BenchConfig config;
  config.set_shape("tiny");
  config.set_sequence_length(16);
  config.set_repeats(2);
  config.set_threads(1);
  const auto report = bench_train(config::with_defaults(config), {.files = &posix_files()});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_NEAR(report->tokens_per_second() * report->seconds_best(), 16, 1e-9);
  EXPECT_GE(report->seconds_median(), report->seconds_best());
  EXPECT_GT(report->first_step_seconds(), 0);
  EXPECT_GT(report->resident_bytes(), 16 * report->parameters());
  EXPECT_GT(report->profile_size(), 5);
  EXPECT_NEAR(report->profile(0).share() + report->profile(1).share(), 1, 0.05);
  config.set_shape("huge");
  EXPECT_EQ(bench_train(config::with_defaults(config), {.files = &posix_files()}).status().reason(),
            "bench.unknown_shape");
}

}  // namespace
}  // namespace invar
