#include "c_api/internal/token_callback.h"

#include <cstddef>
#include <string>

namespace invar::abi {

Result<std::unique_ptr<TokenStream>> TokenStream::create(const char* function, const invar_token_callback* callback,
                                                         const invar_cancel* cancel) {
  invar_token_callback copy = INVAR_TOKEN_CALLBACK_INIT;
  if (callback != nullptr) {
    constexpr size_t kVersion1 = offsetof(invar_token_callback, drop) + sizeof(invar_drop_fn);
    INVAR_TRY(copy_struct(function, callback, kVersion1, &copy));
  }
  return std::unique_ptr<TokenStream>(new TokenStream(copy, cancel));
}

GenerateHooks TokenStream::hooks() {
  GenerateHooks hooks;
  hooks.cancel = call_.flag();
  if (callback_.call == nullptr) return hooks;
  hooks.token = [this](int32_t id, int64_t index, std::string_view text) {
    const std::string ended(text);
    const invar_token token = {sizeof(invar_token), id, index, ended.c_str(), ended.size()};
    int32_t stop = 0;
    call_.invoke([&]() -> int32_t {
      exception_ = true;  // until it returns
      stop = callback_.call(callback_.user, &token);
      exception_ = false;
      return 0;
    });
    return stop == 0 && !exception_;
  };
  return hooks;
}

}  // namespace invar::abi
