// The recorded reference run: a small Llama trained on fixed tokens in a fixed order from fixed weights, so that two
// implementations compare loss and gradient norm step by step. A reference folder holds hparams.json, init.safetensors,
// tokens.u16 and order.i32; its README has the rules. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/precision/recipe.h"

namespace invar {

struct ParityOptions {
  std::string reference;  // folder
  Recipe recipe = Recipe::kFp32;
  int64_t steps = 0;        // 0: all of the reference run; the schedule is that of the whole run either way
  int64_t micro_batch = 0;  // sequences in one pass; 0: the whole batch. It must divide the batch.
  bool evaluate = true;     // after the last step
  std::string device = "cpu";
};

struct ParityCurve {
  std::vector<double> loss, grad_norm, lr;  // by step; the norm before clipping
  double eval_loss = 0;                     // when evaluated
  double seconds = 0;                       // of the steps
  int64_t tokens = 0;                       // trained on
  std::string json;                         // the curve file, with snapshots of gradients and weights
};

// on_step: after each step, its number from 1 and its loss; may be empty.
Result<ParityCurve> run_parity(const ParityOptions& options, std::shared_ptr<ThreadPool> pool, FileSystem& files,
                               const std::function<void(int64_t step, double loss)>& on_step, const CancelFlag* cancel);

}  // namespace invar
