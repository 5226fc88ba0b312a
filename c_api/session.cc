// Sessions: argument checks only, until the training component is part of the library.
#include "c_api/internal/work.h"

struct invar_session {
  std::shared_ptr<invar::abi::RuntimeState> runtime;
  std::atomic<bool> busy{false};
};

namespace {

template <typename Output = void*>
invar_status* absent(const char* name, const void* handle, Output* out = nullptr) noexcept {
  return invar::abi::entry(name, [&](const char* function) -> invar::abi::Outcome {
    if (out != nullptr) *out = nullptr;
    INVAR_REQUIRE(handle);
    return invar::abi::unimplemented(function);
  });
}

}  // namespace

invar_status* invar_session_create(invar_runtime* runtime, const void* config, size_t config_size, invar_cancel*,
                                   const invar_progress_callback*, invar_session** session) noexcept {
  if (session == nullptr || (config == nullptr && config_size > 0)) return absent(__func__, nullptr, session);
  return absent(__func__, runtime, session);
}
invar_status* invar_session_run(invar_session* session, invar_cancel*, const invar_progress_callback*,
                                invar_bytes** report) noexcept {
  return absent(__func__, session, report);
}
invar_status* invar_session_report(invar_session* session, invar_bytes** report) noexcept {
  return absent(__func__, session, report);
}
invar_status* invar_session_info(invar_session* session, invar_bytes** info) noexcept {
  return absent(__func__, session, info);
}
invar_status* invar_session_begin(invar_session* session, int64_t) noexcept { return absent(__func__, session); }
invar_status* invar_session_forward_backward(invar_session* session, const invar_batch*, invar_loss*) noexcept {
  return absent(__func__, session);
}
invar_status* invar_session_step(invar_session* session, invar_step_metrics*) noexcept {
  return absent(__func__, session);
}
invar_status* invar_session_evaluate(invar_session* session, const void*, size_t, invar_cancel*,
                                     const invar_progress_callback*, invar_bytes** report) noexcept {
  return absent(__func__, session, report);
}
invar_status* invar_session_generate(invar_session* session, const void*, size_t, invar_cancel*,
                                     const invar_token_callback*, invar_bytes** report) noexcept {
  return absent(__func__, session, report);
}
invar_status* invar_session_save(invar_session* session, const char*, size_t) noexcept {
  return absent(__func__, session);
}
invar_status* invar_session_resume(invar_session* session, const char*, size_t) noexcept {
  return absent(__func__, session);
}
invar_status* invar_session_export(invar_session* session, const void*, size_t, invar_bytes** report) noexcept {
  return absent(__func__, session, report);
}
void invar_session_release(invar_session* session) noexcept { invar::abi::release_handle(session); }
