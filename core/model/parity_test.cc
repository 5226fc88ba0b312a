// The first step of tools/bench/peers/parity: loss and gradients against a run in FP64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/model/decoder.h"
#include "core/model/weights_folder.h"

namespace invar {
namespace {

const std::string kFolder = "tools/bench/peers/parity/";

template <typename T>
std::vector<T> read_values(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

nlohmann::json read_json(const std::string& name) {
  std::ifstream file(kFolder + name);
  return nlohmann::json::parse(file);
}

struct Parity {
  std::unique_ptr<DecoderModel> model;
  LossSum loss;
};

void first_step(Recipe recipe, Parity& run) {
  const auto hparams = read_json("hparams.json");
  auto config = hparams["model"];
  config["model_type"] = config["type"];
  const auto shape = parse_model_config(config.dump(), "hparams.json");
  ASSERT_TRUE(shape.ok()) << shape.status().message();
  auto device = Device::open("cpu", std::make_shared<ThreadPool>(2));
  ASSERT_TRUE(device.ok());
  ModelOptions options;
  options.precision.recipe = recipe;
  options.max_tokens = 8 * 128;
  options.max_positions = 128;
  auto model = DecoderModel::create(*device, *shape, options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto weights = FolderWeights::open(posix_files(), kFolder + "init.safetensors", *shape);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  ASSERT_TRUE((*model)->load(**weights, {}).ok());

  const auto tokens = read_values<uint16_t>("tokens.u16");
  const auto order = read_values<int32_t>("order.i32");
  ASSERT_GT(tokens.size(), 400000u);
  std::vector<int32_t> ids, targets, offsets = {0};
  for (int row = 0; row < 8; ++row) {
    const auto first = tokens.begin() + order[row];
    ids.insert(ids.end(), first, first + 128);
    targets.insert(targets.end(), first + 1, first + 129);
    offsets.push_back(static_cast<int32_t>(ids.size()));
  }
  const auto loss = (*model)->forward_backward({ids, targets, offsets, {}}, {.grad_scale = 1.0f / 1024});
  ASSERT_TRUE(loss.ok()) << loss.status().message();
  run.loss = *loss;
  run.model = *std::move(model);
}

TEST(Parity, Fp32StartsAtTheFp64LossAndGradients) {
  Parity run;
  ASSERT_NO_FATAL_FAILURE(first_step(Recipe::kFp32, run));
  const auto curve = read_json("curve_fp64.json");
  const double expected = curve["loss"][0];
  const double loss = run.loss.sum / static_cast<double>(run.loss.count);
  std::printf("loss %.9f, fp64 %.9f, relative difference %.2e\n", loss, expected, loss / expected - 1);
  EXPECT_NEAR(loss, expected, 1e-6 * expected);
  const auto& snapshot = curve["snapshots"]["grad_step0"];
  double worst = 0;
  for (const Parameter& parameter : run.model->parameters()) {
    const double norm = snapshot[parameter.spec.name]["l2"];
    const double ours = std::sqrt(*run.model->device().sum_squares(parameter.gradient, parameter.count));
    worst = std::max(worst, std::abs(ours / norm - 1));
    EXPECT_NEAR(ours, norm, 1e-5 * norm) << parameter.spec.name;
    for (int i = 0; i < 8; ++i) {
      // FP32 sums over 1024 tokens; relative to the tensor's size, since single elements cancel.
      const double element = snapshot[parameter.spec.name]["first8"][i];
      EXPECT_NEAR(parameter.gradient[i], element, 1e-4 * norm / std::sqrt(static_cast<double>(parameter.count)))
          << parameter.spec.name << " element " << i;
    }
  }
  const double norm = std::sqrt(*run.model->gradient_norm_squared());
  const double norm_expected = curve["grad_norm"][0];
  std::printf("gradient norm %.9f, fp64 %.9f; worst tensor %.2e\n", norm, norm_expected, worst);
  EXPECT_NEAR(norm, norm_expected, 1e-6 * norm_expected);
}

TEST(Parity, Bf16StartsNearTheFp64Loss) {
  Parity run;
  ASSERT_NO_FATAL_FAILURE(first_step(Recipe::kBf16, run));
  const auto curve = read_json("curve_fp64.json");
  const double loss = run.loss.sum / static_cast<double>(run.loss.count);
  std::printf("loss %.9f, difference %.2e\n", loss, loss - curve["loss"][0].get<double>());
  EXPECT_NEAR(loss, curve["loss"][0].get<double>(), 1e-4);
  const double norm = std::sqrt(*run.model->gradient_norm_squared());
  EXPECT_NEAR(norm, curve["grad_norm"][0].get<double>(), 1e-2 * norm);
}

}  // namespace
}  // namespace invar
