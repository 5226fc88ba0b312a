// The JSON manifest of a training checkpoint: everything but the tensors' bytes, and where those lie.
// Plain data; the meaning of the numbers belongs to the trainer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/numerics/dtype.h"

namespace invar {

struct RngState {
  std::string name;  // "dropout", "stochastic_rounding", ...
  uint64_t seed = 0, stream = 0, position = 0;
  bool operator==(const RngState&) const = default;
};

struct TrainingManifest {
  int64_t step = 0;                         // optimizer steps done
  std::map<std::string, int64_t> counters;  // "tokens", "skipped_steps", ...
  std::map<std::string, double> values;     // "best_eval_loss", ...; infinities and NaN allowed
  std::vector<RngState> rng;
  std::map<std::string, int64_t> data;         // position in the data: "epoch", "index"
  std::map<std::string, std::string> states;   // JSON objects as text: "loss_scaler", "ladder", "amax_history"
  std::string recipe;                          // in force for the next step
  std::map<std::string, std::string> aliases;  // other name to parameter: "lm_head.weight" of a tied model
  std::vector<std::string> trainable;          // parameters that are trained
  std::string config;                          // the resolved config as a JSON object; empty: none
  bool operator==(const TrainingManifest&) const = default;
};

// Elements [first, first + count) of one tensor of state, and where they are stored.
struct PieceRecord {
  std::string parameter;
  std::string kind;  // "master", "moment1", "moment2", ...
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // of the whole logical tensor
  int64_t first = 0, count = 0;
  std::string file;   // relative to the checkpoint: "training/master.safetensors", "model.safetensors"
  std::string entry;  // tensor in that file
  uint64_t hash = 0;  // XXH3, 64 bits, of the bytes
  bool operator==(const PieceRecord&) const = default;
};

struct StoredManifest {
  TrainingManifest manifest;
  int64_t sequence = 0;             // grows with every save in a run's folder, also after going back to an older step
  std::vector<PieceRecord> pieces;  // sorted by parameter, kind, first
};

constexpr int kTrainingFormatVersion = 1;

// INVALID_ARGUMENT when a state or the config is not a JSON object.
Result<std::string> write_manifest(const StoredManifest& stored);
// `path` goes into messages. Reasons: "training.bad_manifest"; "training.newer_format" when it was written by a
// later version. What it returns is consistent: every (parameter, kind) is covered exactly once, file names stay in
// the checkpoint.
Result<StoredManifest> read_manifest(std::string_view text, std::string_view path);

// Sorts pieces and checks that each (parameter, kind) is covered exactly, with one dtype and shape.
// "training.bad_pieces" names the first gap or overlap. `where` goes into the message.
Status check_pieces(std::vector<PieceRecord>& pieces, std::string_view where);

}  // namespace invar
