#include "core/model/generate.h"

#include <algorithm>
#include <chrono>

namespace invar {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool is_cancelled(const GenerateOptions& options) { return options.cancel != nullptr && options.cancel->cancelled(); }

}  // namespace

Result<GenerateResult> generate(Model& model, std::span<const int32_t> prompt, const GenerateOptions& options) {
  INVAR_TRY(options.sampling.validate());
  const int64_t prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) {
    return Error(Code::kInvalidArgument, "generate.empty_prompt", "the prompt has no tokens: expected at least one");
  }
  if (options.max_new_tokens < 0) {
    return Error(Code::kInvalidArgument, "generate.options",
                 cat("max_new_tokens is ", options.max_new_tokens, ": expected 0 or more"));
  }
  const int64_t room = model.options().max_positions - prompt_tokens;
  if (options.max_new_tokens > room) {
    return Error(Code::kInvalidArgument, "generate.too_long",
                 cat("prompt of ", prompt_tokens, " tokens and ", options.max_new_tokens,
                     " new ones: expected at most ", model.options().max_positions, " together"));
  }
  GenerateResult result;
  if (options.max_new_tokens == 0) return result;
  // The last new token is never read.
  INVAR_ASSIGN(auto cache, model.new_cache(prompt_tokens + options.max_new_tokens - 1));
  std::vector<float> logits(static_cast<size_t>(model.shape().vocab));
  result.tokens.reserve(static_cast<size_t>(options.max_new_tokens));
  Sampler sampler(options.sampling);

  auto start = std::chrono::steady_clock::now();
  // The prompt in pieces, so that a cancel is seen soon.
  const size_t piece = static_cast<size_t>(model.options().max_tokens);
  for (size_t first = 0; first < prompt.size(); first += piece) {
    if (is_cancelled(options)) {
      result.reason = StopReason::kCancelled;
      return result;
    }
    INVAR_TRY(model.extend(*cache, prompt.subspan(first, std::min(piece, prompt.size() - first)), logits.data()));
  }
  result.prefill_seconds = seconds_since(start);

  start = std::chrono::steady_clock::now();
  while (true) {
    if (is_cancelled(options)) {
      result.reason = StopReason::kCancelled;
      break;
    }
    INVAR_ASSIGN(const int32_t token, sampler.pick(logits));
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end()) {
      result.reason = StopReason::kStopToken;
      break;
    }
    result.tokens.push_back(token);
    if (options.on_token && !options.on_token(token)) {
      result.reason = StopReason::kCallback;
      break;
    }
    if (static_cast<int64_t>(result.tokens.size()) == options.max_new_tokens) break;
    INVAR_TRY(model.extend(*cache, {&token, 1}, logits.data()));
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

}  // namespace invar
