#include "core/train/checkpoint.h"

#include <array>

#include "core/config/config.h"
#include "core/family/family.h"

namespace invar {
namespace {

constexpr const char* kMaster = "master";
constexpr const char* kMoment1 = "moment1";
constexpr const char* kMoment2 = "moment2";
constexpr const char* kProgress = "progress";
constexpr const char* kLadder = "ladder";

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += cat(i > 0 ? ", " : "", shape[i]);
  return text + "]";
}

Status check_state(const TrainingCheckpoint& checkpoint, const ParameterSpec& spec, const char* kind) {
  const PieceRecord* piece = checkpoint.find(spec.name, kind);
  if (piece == nullptr) {
    return Error(
        Code::kFailedPrecondition, "checkpoint.shape_mismatch",
        cat(checkpoint.path(), ": holds no ", kind, " of \"", spec.name, "\"; the checkpoint is of another model"));
  }
  if (piece->shape != spec.shape) {
    return Error(Code::kFailedPrecondition, "checkpoint.shape_mismatch",
                 cat(checkpoint.path(), ": \"", spec.name, "\" is ", shape_text(piece->shape), ", this model's is ",
                     shape_text(spec.shape)));
  }
  return {};
}

}  // namespace

Result<TrainingSnapshot> snapshot_of(const Learner& learner, const Progress& progress, const v1::TrainConfig& config,
                                     std::vector<SideFile> side_files) {
  const Model& model = learner.model();
  TrainingSnapshot snapshot;
  TrainingManifest& manifest = snapshot.manifest;
  manifest.step = learner.steps();
  manifest.counters = {{"tokens", progress.total_tokens}, {"skipped_steps", progress.total_skipped}};
  manifest.data = {{"epoch", progress.data.epoch}, {"index", progress.data.index}};
  manifest.states = {{kProgress, progress.save()}, {kLadder, progress.ladder}};
  manifest.recipe = recipe_name(model.recipe());
  manifest.config = config::to_json(config);

  const DType stored = activation_dtype(model.recipe());
  INVAR_ASSIGN(snapshot.model.config,
               write_model_config(model.shape(), stored == DType::kF32 ? "float32" : "bfloat16"));
  snapshot.model.side_files = std::move(side_files);
  const auto parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& spec = parameters[i].spec;
    // From the master: the same bits as the working weight, which was rounded from it.
    ModelTensor tensor = tensor_in_memory(spec.name, spec.shape, DType::kF32, learner.master(i));
    tensor.dtype = stored;
    snapshot.model.tensors.push_back(std::move(tensor));
    const auto add = [&](const char* kind, const void* data) {
      snapshot.pieces.push_back({spec.name, kind, DType::kF32, spec.shape, 0, parameters[i].count, data});
    };
    add(kMaster, stored == DType::kF32 ? nullptr : learner.master(i));  // null: the model's own F32 tensor
    add(kMoment1, learner.m(i));
    add(kMoment2, learner.v(i));
    manifest.trainable.push_back(spec.name);
    for (const std::string& alias : spec.aliases) manifest.aliases[alias] = spec.name;
  }
  return snapshot;
}

Result<RestoredRun> restore_checkpoint(FileSystem& files, const std::string& folder, Learner* learner,
                                       const CancelFlag* cancel) {
  INVAR_ASSIGN(const auto checkpoint, TrainingCheckpoint::open(files, folder));
  const TrainingManifest& manifest = checkpoint.manifest();
  const auto state = [&](const char* name) -> std::string {
    const auto it = manifest.states.find(name);
    return it == manifest.states.end() ? std::string("{}") : it->second;
  };
  RestoredRun run;
  INVAR_ASSIGN(run.progress, Progress::restore(state(kProgress)));
  run.progress.ladder = state(kLadder);
  INVAR_ASSIGN(run.config, config::from_json<v1::TrainConfig>(manifest.config.empty() ? "{}" : manifest.config));
  const auto parameters = learner->model().parameters();
  constexpr std::array kKinds = {kMaster, kMoment1, kMoment2};
  for (const Parameter& parameter : parameters) {
    for (const char* kind : kKinds) INVAR_TRY(check_state(checkpoint, parameter.spec, kind));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::array<float*, 3> targets = {learner->master(i), learner->m(i), learner->v(i)};
    for (size_t k = 0; k < kKinds.size(); ++k) {
      INVAR_TRY(check_cancel(cancel));
      const std::span<float> values(targets[k], static_cast<size_t>(parameters[i].count));
      INVAR_TRY(checkpoint.read(parameters[i].spec.name, kKinds[k], 0, DType::kF32, std::as_writable_bytes(values)));
    }
  }
  INVAR_TRY(learner->restored(manifest.step));
  return run;
}

}  // namespace invar
