// Status and Result: how every fallible function of the core reports.
//
//   Result<File> open(std::string_view path);
//   INVAR_ASSIGN(auto file, open(path));      // returns the Status on failure
//   INVAR_TRY(file.read_at(0, bytes));
//   return Error(Code::kDataLoss, "safetensors.truncated",
//                cat(path, ": header ends at byte ", end, " of ", size, ": file is truncated"));
//
// Invariant: an ok Status carries neither reason nor message. Thread rule: values, no sharing.
#pragma once

#include <cassert>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace invar {

// The 17 canonical codes; numbers equal the public header's.
enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The canonical upper-case name, "INVALID_ARGUMENT"; "UNKNOWN" for numbers outside the list.
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // reason: a stable dotted word such as "config.unknown_field"; message: lower-case, for people.
  Status(Code code, std::string_view reason, std::string message)
      : code_(code), reason_(reason), message_(std::move(message)) {
    assert(code != Code::kOk);
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& reason() const { return reason_; }
  const std::string& message() const { return message_; }

  // The same status with "prefix: " in front of the message.
  Status with_context(std::string_view prefix) const;

 private:
  Code code_ = Code::kOk;
  std::string reason_;
  std::string message_;
};

inline Status Error(Code code, std::string_view reason, std::string message) {
  return Status(code, reason, std::move(message));
}

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

// Concatenates anything that streams: cat("row ", 3, " of ", n).
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace invar

#define INVAR_CONCAT_INNER(a, b) a##b
#define INVAR_CONCAT(a, b) INVAR_CONCAT_INNER(a, b)

// Returns from the enclosing function when EXPR is a failed Status.
#define INVAR_TRY(expr)                            \
  do {                                             \
    ::invar::Status status_of_try = (expr);        \
    if (!status_of_try.ok()) return status_of_try; \
  } while (0)

// LHS = the value of the Result EXPR, or returns its Status.
#define INVAR_ASSIGN(lhs, expr) INVAR_ASSIGN_INNER(INVAR_CONCAT(result_of_assign_, __LINE__), lhs, expr)
#define INVAR_ASSIGN_INNER(result, lhs, expr) \
  auto result = (expr);                       \
  if (!result.ok()) return result.status();   \
  lhs = std::move(result).value()
