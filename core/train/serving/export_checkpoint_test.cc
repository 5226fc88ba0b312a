#include "core/train/serving/export_checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/base/memory_files.h"
#include "core/checkpoint/training_state.h"
#include "core/config/config.h"
#include "core/container/checkpoint_folder.h"
#include "core/family/family.h"
#include "core/model/weight_source.h"

namespace invar {
namespace {

// A run with one checkpoint, its masters known.
class Export : public testing::Test {
 protected:
  Export() {
    shape.vocab = 300;
    shape.hidden = 64;
    shape.layers = 1;
    shape.heads = 2;
    shape.kv_heads = 1;
    shape.head_dim = 32;
    shape.intermediate = 144;
    shape.tie_embeddings = true;
    TrainingSnapshot snapshot;
    snapshot.manifest.step = 7;
    snapshot.model.config = write_model_config(shape, "bfloat16").value();
    snapshot.model.side_files.push_back({"tokenizer.json", "{}", ""});
    RandomWeights random(3, std::make_shared<ThreadPool>(1));
    const auto parameters = parameters_of(shape);
    masters.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const ParameterSpec& parameter = parameters[i];
      masters[i].resize(static_cast<size_t>(parameter.count()));
      EXPECT_TRUE(random.read(i, parameter, 0, parameter.count(), masters[i].data()).ok());
      snapshot.model.tensors.push_back(
          tensor_in_memory(parameter.name, parameter.shape, DType::kF32, masters[i].data()));
      snapshot.pieces.push_back(
          {parameter.name, "master", DType::kF32, parameter.shape, 0, parameter.count(), masters[i].data()});
    }
    const auto saved = save_training_checkpoint(files, "/run/checkpoints", snapshot, {});
    EXPECT_TRUE(saved.ok()) << saved.status().message();
  }

  Result<v1::ExportReport> run(const std::string& source, const std::string& target) {
    v1::ExportConfig config;
    config.set_source(source);
    config.set_destination("/out/" + target);
    EXPECT_TRUE(config::set(config, "target=" + target).ok());
    config.set_bf16_copy(target == "fp8_block");
    return export_checkpoint(config::with_defaults(config), {files, pool});
  }

  ModelShape shape;
  std::vector<std::vector<float>> masters;
  MemoryFiles files;
  ThreadPool pool{2};
};

TEST_F(Export, Fp32IsTheMastersBitForBit) {
  const auto report = run("/run", "fp32");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->step(), 7);
  const auto folder = CheckpointFolder::open(files, "/out/fp32");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  const auto parameters = parameters_of(shape);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto bytes = folder->read_all(*folder->find(parameters[i].name));
    ASSERT_TRUE(bytes.ok());
    ASSERT_EQ(bytes->size(), masters[i].size() * sizeof(float));
    EXPECT_EQ(std::memcmp(bytes->data(), masters[i].data(), bytes->size()), 0) << parameters[i].name;
  }
  EXPECT_TRUE(files.exists("/out/fp32/tokenizer.json"));
  EXPECT_EQ(folder->side_text("config.json")->find("bfloat16"), std::string::npos);
}

TEST_F(Export, Fp8QuantisesLinearLayersAndKeepsTheRest) {
  const auto report = run("/run/checkpoints", "fp8_block");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->quantized_tensors(), 7);  // q, k, v, o, gate, up, down
  EXPECT_GT(report->sqnr_db(), 30);
  EXPECT_TRUE(files.is_directory("/out/fp8_block-bf16"));
  const auto folder = CheckpointFolder::open(files, "/out/fp8_block");
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(folder->find("model.embed_tokens.weight")->dtype, DType::kBF16);
  EXPECT_EQ(folder->find("model.layers.0.mlp.up_proj.weight")->dtype, DType::kE4M3FN);
}

TEST_F(Export, ErrorsNameTheFolder) {
  EXPECT_EQ(run("/absent", "bf16").status().reason(), "file.not_found");
  EXPECT_TRUE(files.make_directories("/empty").ok());
  EXPECT_EQ(run("/empty", "bf16").status().reason(), "training.no_checkpoint");
  EXPECT_TRUE(run("/run", "bf16").ok());
  EXPECT_EQ(run("/run", "bf16").status().reason(), "output.not_empty");
}

}  // namespace
}  // namespace invar
