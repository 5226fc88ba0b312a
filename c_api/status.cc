#include "c_api/internal/status.h"

#include <array>

namespace invar::abi {

namespace {

// Made while the library loads: nothing may be allocated when it is needed.
invar_status& out_of_memory_status() {
  static invar_status status{Code::kResourceExhausted, "memory.exhausted", "out of memory", 0};
  return status;
}
const invar_status* const kOutOfMemory = &out_of_memory_status();

}  // namespace

invar_status* out_of_memory() noexcept { return const_cast<invar_status*>(kOutOfMemory); }

invar_status* to_caller(const Outcome& outcome) noexcept {
  if (outcome.status.ok()) return nullptr;
  try {
    return new invar_status{outcome.status.code(), outcome.status.reason(), outcome.status.message(),
                            outcome.callback_value};
  } catch (...) {
    return out_of_memory();
  }
}

}  // namespace invar::abi

namespace {

const char* text_of(const std::string* text, size_t* size) {
  if (size != nullptr) *size = text == nullptr ? 0 : text->size();
  return text == nullptr ? "" : text->c_str();
}

}  // namespace

invar_code invar_status_code(const invar_status* status) noexcept {
  return status == nullptr ? INVAR_OK : static_cast<invar_code>(status->code);
}

const char* invar_status_message(const invar_status* status, size_t* size) noexcept {
  return text_of(status == nullptr ? nullptr : &status->message, size);
}

const char* invar_status_reason(const invar_status* status, size_t* size) noexcept {
  return text_of(status == nullptr ? nullptr : &status->reason, size);
}

int32_t invar_status_callback_value(const invar_status* status) noexcept {
  return status == nullptr ? 0 : status->callback_value;
}

void invar_status_release(invar_status* status) noexcept {
  if (status != invar::abi::out_of_memory()) delete status;
}

const char* invar_code_name(invar_code code) noexcept {
  // The core's names are literals: they end in NUL.
  return invar::code_name(static_cast<invar::Code>(code)).data();
}
