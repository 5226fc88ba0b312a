// The token callback of one generation.
// Thread rule: as Call.
#pragma once

#include <memory>
#include <string_view>

#include "c_api/internal/callbacks.h"
#include "core/train/inference/inference.h"

namespace invar::abi {

class TokenStream {
 public:
  static Result<std::unique_ptr<TokenStream>> create(const char* function, const invar_token_callback* callback,
                                                     const invar_cancel* cancel);
  GenerateHooks hooks();
  // The host's non-zero result is no failure here; an exception is.
  Outcome finish(Status status) const {
    return exception_ ? call_.finish(std::move(status)) : Outcome(std::move(status));
  }

 private:
  TokenStream(const invar_token_callback& callback, const invar_cancel* cancel)
      : callback_(callback), dropper_(callback.drop, callback.user), call_(cancel) {}

  invar_token_callback callback_;
  Dropper dropper_;
  Call call_;
  bool exception_ = false;
};

}  // namespace invar::abi
