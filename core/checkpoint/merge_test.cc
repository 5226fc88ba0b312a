// Adapters folded into a base: every kind against the formula, and what must be refused.
#include "core/checkpoint/merge.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/memory_files.h"
#include "core/checkpoint/test_checkpoint.h"
#include "core/container/checkpoint_folder.h"

namespace invar {
namespace {

constexpr char kBaseConfig[] = R"({"model_type": "llama", "torch_dtype": "float32", "tie_word_embeddings": true})";
constexpr char kProjection[] = "model.layers.0.self_attn.q_proj.weight";
constexpr char kStored[] = "base_model.model.model.layers.0.self_attn.q_proj";

std::string config_with(const std::string& fields) {
  return cat(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8)", fields.empty() ? "" : ", ", fields, "}");
}

class Merging : public testing::Test {
 protected:
  static constexpr int64_t kOut = 24, kIn = 40, kRank = 4;

  Merging() {
    base_ = random(kOut * kIn, 1);
    a_ = random(kRank * kIn, 2);
    b_ = random(kOut * kRank, 3);
  }

  static std::vector<float> random(int64_t n, uint64_t stream) {
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(0.1f * normal_at(7, stream, static_cast<uint64_t>(i)));
    return values;
  }
  void write_base(const std::string& config = kBaseConfig) {
    TestCheckpoint made;
    made.add_f32(kProjection, {kOut, kIn}, base_).add_f32("model.embed_tokens.weight", {32, 16}, random(512, 4));
    made.add("model.table", DType::kI64, {2}, std::vector<std::byte>(16, std::byte{0x7F}));
    made.write(files_, "/base", config);
  }
  void write_adapter(const std::string& fields, const TestCheckpoint& tensors) {
    tensors.write(files_, "/adapter", "");
    ASSERT_TRUE(write_text_atomically(files_, "/adapter/adapter_config.json", config_with(fields)).ok());
  }
  TestCheckpoint pair(const std::string& stored = kStored) const {
    TestCheckpoint made;
    made.add_f32(stored + ".lora_A.weight", {kRank, kIn}, a_).add_f32(stored + ".lora_B.weight", {kOut, kRank}, b_);
    return made;
  }
  Result<v1::MergeReport> run(double weight = 1) {
    v1::MergeConfig config;
    config.set_base("/base");
    config.set_adapter("/adapter");
    config.set_destination("/out");
    config.set_weight(weight);
    return merge(config, {files_, pool_});
  }
  std::string reason(const std::string& fields, const TestCheckpoint& tensors) {
    write_base();
    write_adapter(fields, tensors);
    const auto report = run();
    EXPECT_FALSE(files_.exists("/out"));
    message_ = report.ok() ? "" : report.status().message();
    return report.ok() ? "" : std::string(report.status().reason());
  }
  std::vector<float> result(const std::string& name) {
    const auto folder = CheckpointFolder::open(files_, "/out");
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    const auto bytes = folder->read_all(*folder->find(name));
    std::vector<float> values(bytes->size() / 4);
    std::memcpy(values.data(), bytes->data(), bytes->size());
    return values;
  }
  // (B A)[out][in] in FP64.
  double product(int64_t out, int64_t in) const {
    double sum = 0;
    for (int64_t r = 0; r < kRank; ++r) {
      sum += static_cast<double>(b_[static_cast<size_t>(out * kRank + r)]) * a_[static_cast<size_t>(r * kIn + in)];
    }
    return sum;
  }
  void expect_changed(double scaling) {
    const std::vector<float> got = result(kProjection);
    for (int64_t out = 0; out < kOut; ++out) {
      for (int64_t in = 0; in < kIn; ++in) {
        const auto i = static_cast<size_t>(out * kIn + in);
        ASSERT_NEAR(got[i], base_[i] + scaling * product(out, in), 1e-6) << out << ", " << in;
      }
    }
  }

  MemoryFiles files_;
  ThreadPool pool_{2};
  std::vector<float> base_, a_, b_;
  std::string message_;
};

TEST_F(Merging, AddsTheScaledProduct) {
  write_base();
  write_adapter("", pair());
  const auto report = run();
  ASSERT_TRUE(report.ok()) << report.status().message();
  expect_changed(2);
  ASSERT_EQ(report->tensors_size(), 1);
  EXPECT_EQ(report->tensors(0).rule(), "lora");
  EXPECT_EQ(report->tensors(0).rank(), kRank);
  EXPECT_EQ(report->tensors_written(), 3);
  EXPECT_EQ(result("model.embed_tokens.weight"), random(512, 4));
  const auto folder = CheckpointFolder::open(files_, "/out");
  EXPECT_EQ(*folder->read_all(*folder->find("model.table")), std::vector<std::byte>(16, std::byte{0x7F}));
}

TEST_F(Merging, TakesAWeight) {
  write_base();
  write_adapter("", pair());
  ASSERT_TRUE(run(-0.5).ok());
  expect_changed(-1);
}

TEST_F(Merging, ScalesByTheRootOfTheRankWhereDeclared) {
  write_base();
  write_adapter(R"("use_rslora": true)", pair());
  ASSERT_TRUE(run().ok());
  expect_changed(4);
}

TEST_F(Merging, TakesAnAlphaOfItsOwn) {
  write_base();
  write_adapter(R"("alpha_pattern": {"self_attn.q_proj": 2, "k_proj": 100})", pair());
  ASSERT_TRUE(run().ok());
  expect_changed(0.5);
}

TEST_F(Merging, BringsDoraRowsToTheirLength) {
  write_base();
  std::vector<float> lengths;
  for (int64_t out = 0; out < kOut; ++out) lengths.push_back(1 + 0.01f * static_cast<float>(out));
  write_adapter(R"("use_dora": true)", pair().add_f32(cat(kStored, ".lora_magnitude_vector"), {kOut}, lengths));
  const auto report = run();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->tensors(0).rule(), "dora");
  const std::vector<float> got = result(kProjection);
  for (int64_t out = 0; out < kOut; ++out) {
    double length = 0;
    std::vector<double> row;
    for (int64_t in = 0; in < kIn; ++in) {
      row.push_back(base_[static_cast<size_t>(out * kIn + in)] + 2 * product(out, in));
      length += row.back() * row.back();
    }
    for (int64_t in = 0; in < kIn; ++in) {
      ASSERT_NEAR(got[static_cast<size_t>(out * kIn + in)],
                  row[static_cast<size_t>(in)] / std::sqrt(length) * lengths[static_cast<size_t>(out)], 1e-6);
    }
  }
}

TEST_F(Merging, ChangesEmbeddingsAcross) {
  write_base();
  const std::vector<float> a = random(kRank * 32, 5), b = random(16 * kRank, 6), before = random(512, 4);
  TestCheckpoint made;
  made.add_f32("base_model.model.model.embed_tokens.lora_embedding_A", {kRank, 32}, a);
  made.add_f32("base_model.model.model.embed_tokens.lora_embedding_B", {16, kRank}, b);
  write_adapter("", made);
  ASSERT_TRUE(run().ok());
  const std::vector<float> got = result("model.embed_tokens.weight");
  for (size_t token = 0; token < 32; ++token) {
    for (size_t dim = 0; dim < 16; ++dim) {
      double change = 0;
      for (size_t r = 0; r < kRank; ++r) change += static_cast<double>(a[r * 32 + token]) * b[dim * kRank + r];
      ASSERT_NEAR(got[token * 16 + dim], before[token * 16 + dim] + 2 * change, 1e-6);
    }
  }
}

TEST_F(Merging, AHeadSavedWholeIsNoLongerTied) {
  write_base();
  write_adapter(R"("modules_to_save": ["lm_head"])",
                pair().add_f32("base_model.model.lm_head.weight", {32, 16}, random(512, 9)));
  const auto report = run();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(result("lm_head.weight"), random(512, 9));
  const auto config = read_text(files_, "/out/config.json", 1 << 16);
  EXPECT_NE(config->find("\"tie_word_embeddings\": false"), std::string::npos) << *config;
}

TEST_F(Merging, DecodesALowBitBase) {
  block_checkpoint().write(files_, "/base", kBlockConfig);
  TestCheckpoint made;
  made.add_f32("base_model.model.l.q_proj.lora_A.weight", {2, 72}, random(144, 2));
  made.add_f32("base_model.model.l.q_proj.lora_B.weight", {40, 2}, random(80, 3));
  write_adapter("", made);
  const auto report = run();
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto folder = CheckpointFolder::open(files_, "/out");
  EXPECT_EQ(folder->find("l.q_proj.weight")->dtype, DType::kBF16);
  EXPECT_EQ(folder->find("l.q_proj.weight_scale_inv"), nullptr);
  const auto config = read_text(files_, "/out/config.json", 1 << 16);
  EXPECT_EQ(config->find("quantization_config"), std::string::npos);
}

TEST_F(Merging, RefusesWhatItCannotMean) {
  EXPECT_EQ(reason(R"("use_qalora": true)", pair()), "adapter.unsupported");
  EXPECT_NE(message_.find("use_qalora"), std::string::npos) << message_;
  EXPECT_EQ(reason(R"("init_lora_weights": "pissa")", pair()), "adapter.unsupported");
  EXPECT_EQ(reason(R"("alpha_pattern": {"layers.(1|2).q": 3})", pair()), "adapter.unsupported");
  EXPECT_EQ(reason(R"("lora_alpha": "much")", pair()), "adapter.bad_config");
  EXPECT_EQ(reason(R"("use_dora": true)", pair()), "adapter.bad_tensor");
  EXPECT_EQ(reason("", pair("base_model.model.model.layers.9.q_proj")), "adapter.no_such_weight");
  EXPECT_NE(message_.find("layers.9.q_proj"), std::string::npos) << message_;
  EXPECT_EQ(reason("", pair("base_model.model.model.embed_tokens")), "adapter.no_such_weight");
  EXPECT_NE(message_.find("[24, 40]"), std::string::npos) << message_;
  EXPECT_EQ(reason(cat("\"use_qalora\": ", std::string(200'000, '['), std::string(200'000, ']')), pair()),
            "adapter.bad_config");
  TestCheckpoint lonely;
  lonely.add_f32(cat(kStored, ".lora_A.weight"), {kRank, kIn}, a_);
  EXPECT_EQ(reason("", lonely), "adapter.bad_tensor");
  TestCheckpoint wide = lonely;
  wide.add_f32(cat(kStored, ".lora_B.weight"), {kOut, kRank + 1}, random(kOut * (kRank + 1), 3));
  EXPECT_EQ(reason("", wide), "adapter.bad_tensor");
  a_[5] = std::nanf("");
  EXPECT_EQ(reason("", pair()), "checkpoint.not_finite");
  EXPECT_NE(message_.find("element 5"), std::string::npos) << message_;
}

}  // namespace
}  // namespace invar
