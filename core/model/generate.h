// Text generation, token by token, with a key-value cache.
//
//   INVAR_ASSIGN(auto result, generate(*model, prompt, {.max_new_tokens = 64}));
//
// Thread rule: as the model; the cancel flag may be set from any thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/base/cancel.h"
#include "core/model/model.h"
#include "core/model/sampler.h"

namespace invar {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  SamplingOptions sampling = {};
  std::vector<int32_t> stop_tokens = {};  // the first of them ends the text and is not part of it
  // Called with each new token; false ends the text after it.
  std::function<bool(int32_t token)> on_token = {};
  const CancelFlag* cancel = nullptr;
};

enum class StopReason : int { kLength = 1, kStopToken = 2, kCallback = 3, kCancelled = 4 };

struct GenerateResult {
  std::vector<int32_t> tokens;  // without the prompt
  StopReason reason = StopReason::kLength;
  double prefill_seconds = 0, decode_seconds = 0;
};

// prompt: at least one token; prompt and new tokens together must fit the model's max_positions
// ("generate.too_long"). Cancelling is a result, not an error: the tokens so far are returned.
Result<GenerateResult> generate(Model& model, std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace invar
