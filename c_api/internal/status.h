// The owned status object, and the one place where failures and exceptions become one.
//
// Invariant: NULL is success; without memory for a status the shared out-of-memory object is returned, whose release
// does nothing. Thread rule: immutable once made.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "core/base/status.h"
#include "invar/invar.h"

struct invar_status {
  invar::Code code;
  std::string reason;
  std::string message;
  int32_t callback_value;
};

namespace invar::abi {

// What a function's body gives back: a Status and, where a callback stopped the work, its value.
struct Outcome {
  Outcome() = default;
  Outcome(Status failure, int32_t value = 0) : status(std::move(failure)), callback_value(value) {}  // NOLINT: implicit
  Status status;
  int32_t callback_value = 0;
};

invar_status* out_of_memory() noexcept;
// NULL for an ok status.
invar_status* to_caller(const Outcome& outcome) noexcept;

inline Status null_argument(const char* function, const char* argument) {
  return Error(Code::kInvalidArgument, "argument.null", cat(function, ": ", argument, " is NULL"));
}

// Runs body(function name) -> Outcome and lets no exception out.
template <typename Body>
invar_status* entry(const char* function, Body&& body) noexcept {
  try {
    return to_caller(body(function));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    try {
      return to_caller(
          Error(Code::kInternal, "internal.exception", cat(function, ": unexpected exception: ", error.what())));
    } catch (...) {
      return out_of_memory();
    }
  } catch (...) {
    return out_of_memory();
  }
}

}  // namespace invar::abi

// Inside a body: INVALID_ARGUMENT when POINTER is NULL.
#define INVAR_REQUIRE(pointer)                                                        \
  do {                                                                                \
    if ((pointer) == nullptr) return ::invar::abi::null_argument(function, #pointer); \
  } while (0)
