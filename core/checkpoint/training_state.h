// The native training checkpoint: a Hugging Face folder that loads anywhere, plus `training/` with everything a run
// needs to go on bit for bit.
//
//   run/step-00000200/                 config.json, model.safetensors, tokenizer: a model like any other
//   run/step-00000200/training/        manifest.json, master.safetensors, moment1.safetensors, moment2.safetensors
//
//   TrainingSnapshot snapshot;         // pointers into the trainer's memory
//   INVAR_ASSIGN(auto saved, save_training_checkpoint(files, "run", snapshot, {.keep = 2}));
//   ...
//   INVAR_ASSIGN(const std::string folder, newest_training_checkpoint(files, "run"));
//   INVAR_ASSIGN(auto checkpoint, TrainingCheckpoint::open(files, folder));
//   INVAR_TRY(checkpoint.read("lm_head.weight", "master", 0, DType::kF32, bytes));
//
// Invariants: a checkpoint appears under its name complete or not at all; a writer killed anywhere leaves the newest
// old one loadable; pieces lie on the logical tensor, so that any sharding reads what any other wrote.
// Thread rule: functions; TrainingCheckpoint is immutable, read() from any number of threads.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/model_writer.h"
#include "core/checkpoint/training_manifest.h"
#include "core/container/safetensors.h"

namespace invar {

// State in memory to be saved: elements [first, first + count) of `parameter`'s `kind`.
struct StatePiece {
  std::string parameter;
  std::string kind;  // lower-case letters, digits and "_"; the file's name in training/
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // of the whole logical tensor
  int64_t first = 0, count = 0;
  // Null: it is the model's own tensor of that name, which is stored in `dtype` (masters of an FP32 run, norm gains).
  const void* data = nullptr;
};

struct TrainingSnapshot {
  TrainingManifest manifest;
  ModelFolder model;
  std::vector<StatePiece> pieces;
};

struct TrainingSaveOptions {
  int64_t keep = 2;         // checkpoints that stay in the run's folder, this one included; 0: all
  ModelWriteOptions write;  // shards, durability, threads, cancel
};

struct SavedCheckpoint {
  std::string path;
  std::vector<Finding> findings;  // older checkpoints that could not be removed
};

// Writes run_folder/step-NNNNNNNN. A checkpoint of the same step is replaced, and stays until the new one is complete.
// "training.bad_pieces" when the pieces do not cover their tensors exactly.
Result<SavedCheckpoint> save_training_checkpoint(FileSystem& files, const std::string& run_folder,
                                                 const TrainingSnapshot& snapshot, const TrainingSaveOptions& options);

// Writes `target` itself, which must not exist or be an empty folder.
Status save_training_checkpoint_as(FileSystem& files, const std::string& target, const TrainingSnapshot& snapshot,
                                   const ModelWriteOptions& write);

// `path` itself when it is a training checkpoint, else the one saved last in the run's folder `path`.
// NOT_FOUND ("training.no_checkpoint") when there is none.
Result<std::string> newest_training_checkpoint(FileSystem& files, const std::string& path);

class TrainingCheckpoint {
 public:
  // Reads the manifest and the headers; checks that every piece is where it should be.
  static Result<TrainingCheckpoint> open(FileSystem& files, const std::string& folder);

  const std::string& path() const { return path_; }
  const TrainingManifest& manifest() const { return stored_.manifest; }
  const std::vector<PieceRecord>& pieces() const { return stored_.pieces; }
  // The first piece of a tensor of state, for its dtype and shape; null when there is none.
  const PieceRecord* find(std::string_view parameter, std::string_view kind) const;

  // Fills `out` with whole elements from number `first`. Errors: "training.no_state" (no such tensor, or another
  // dtype), OUT_OF_RANGE, "training.damaged" (a piece read whole does not have the bytes that were written).
  Status read(std::string_view parameter, std::string_view kind, int64_t first, DType dtype,
              std::span<std::byte> out) const;

 private:
  TrainingCheckpoint() = default;
  Status read_piece(const PieceRecord& piece, int64_t skip, std::span<std::byte> out) const;
  std::string path_;
  StoredManifest stored_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::pair<std::string, size_t>> file_of_;  // sorted by name, index into files_
};

}  // namespace invar
