// The logits that invar computes for token ids, as raw FP32 [tokens, vocab]: what other software is compared with.
//
//   logits FOLDER OUT ID...
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "core/config/config.h"
#include "core/train/inference/inference.h"

namespace invar {
namespace {

Status run(int argc, char** argv) {
  v1::LoadConfig config;
  config.set_path(argv[1]);
  config.set_recipe(v1::RECIPE_FP32);
  INVAR_ASSIGN(
      const auto loaded,
      LoadedModel::load(
          config::with_defaults(config),
          {.pool = std::make_shared<ThreadPool>(1), .files = &posix_files(), .device = {}, .cancel = nullptr}));
  std::vector<int32_t> ids;
  for (int i = 3; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  const std::vector<int32_t> offsets = {0, static_cast<int32_t>(ids.size())};
  Model& model = loaded->model();
  std::vector<float> logits(ids.size() * static_cast<size_t>(model.shape().vocab));
  INVAR_TRY(model.logits({ids, {}, offsets, {}}, logits.data()));
  std::ofstream out(argv[2], std::ios::binary);
  out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size() * sizeof(float)));
  out.close();
  return out ? Status() : Error(Code::kUnavailable, "file.write", cat(argv[2], ": cannot be written"));
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: logits FOLDER OUT ID...\n");
    return 2;
  }
  const invar::Status status = invar::run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s (%s)\n", status.message().c_str(), status.reason().c_str());
  return status.ok() ? 0 : 1;
}
