// The public C interface with owning C++ types, and what a failure means for the exit code.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "invar/invar.h"

namespace cli {

// Exit codes of the tool.
enum Exit : int {
  kDone = 0,
  kGateFailed = 1,  // the work was done and a gate or comparison failed
  kUsage = 2,       // wrong usage or config
  kBadInput = 3,    // bad input data
  kIo = 4,          // input/output or resource
  kInternal = 5,    // a fault of ours
  kInterrupted = 130,
};

// A command ends with this exit code and message.
struct Failure : std::runtime_error {
  Failure(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
  int exit_code;
};

// Throws Failure for a status that is not NULL, and releases it.
void check(invar_status* status);
// The same, for functions that only read what the user wrote: every error there is wrong usage.
void check_usage(invar_status* status);

struct Release {
  void operator()(invar_bytes* p) const { invar_bytes_release(p); }
  void operator()(invar_runtime* p) const { invar_runtime_release(p); }
  void operator()(invar_cancel* p) const { invar_cancel_release(p); }
  void operator()(invar_model* p) const { invar_model_release(p); }
  void operator()(invar_tokenizer* p) const { invar_tokenizer_release(p); }
  void operator()(invar_session* p) const { invar_session_release(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Release>;

// The content of a result; releases it.
std::string take(invar_bytes* bytes);

// A serialized message and its type.
class Message {
 public:
  Message(invar_runtime* runtime, std::string type, std::string bytes = {})
      : runtime_(runtime), type_(std::move(type)), bytes_(std::move(bytes)) {}
  static Message from_json(invar_runtime* runtime, const std::string& type, const std::string& text);
  static Message from_text(invar_runtime* runtime, const std::string& type, const std::string& text);

  // "optimizer.lr=3e-4".
  void set(const std::string& assignment);
  void set(const std::string& key, const std::string& value) { set(key + "=" + value); }
  void set_list(const std::string& key, const std::vector<std::string>& values);
  void check() const;
  std::string json(bool pretty) const;
  std::string text() const;
  Message with_defaults() const;

  const std::string& type() const { return type_; }
  const void* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  invar_runtime* runtime_;
  std::string type_;
  std::string bytes_;
};

}  // namespace cli
