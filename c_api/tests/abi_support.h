// Helpers of the ABI tests: owning pointers and what a status says.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "invar/invar.h"

namespace invar_test {

struct Release {
  void operator()(invar_status* p) const { invar_status_release(p); }
  void operator()(invar_bytes* p) const { invar_bytes_release(p); }
  void operator()(invar_runtime* p) const { invar_runtime_release(p); }
  void operator()(invar_cancel* p) const { invar_cancel_release(p); }
  void operator()(invar_tensor* p) const { invar_tensor_release(p); }
  void operator()(invar_optimizer* p) const { invar_optimizer_release(p); }
  void operator()(invar_accumulator* p) const { invar_accumulator_release(p); }
  void operator()(invar_checkpoint* p) const { invar_checkpoint_release(p); }
  void operator()(invar_model* p) const { invar_model_release(p); }
  void operator()(invar_session* p) const { invar_session_release(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Release>;

// "ok", or "CODE reason: message".
inline std::string text_of(invar_status* status) {
  const Owned<invar_status> owner(status);
  if (status == nullptr) return "ok";
  return std::string(invar_code_name(invar_status_code(status))) + " " + invar_status_reason(status, nullptr) + ": " +
         invar_status_message(status, nullptr);
}
inline int32_t code_of(invar_status* status) {
  const Owned<invar_status> owner(status);
  return invar_status_code(status);
}
inline std::string reason_of(invar_status* status) {
  const Owned<invar_status> owner(status);
  return invar_status_reason(status, nullptr);
}
inline std::string string_of(const invar_bytes* bytes) {
  return std::string(reinterpret_cast<const char*>(invar_bytes_data(bytes)), invar_bytes_size(bytes));
}

inline Owned<invar_runtime> make_runtime(int threads = 1) {
  invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
  options.threads = threads;
  invar_runtime* runtime = nullptr;
  EXPECT_EQ(text_of(invar_runtime_create(&options, &runtime)), "ok");
  return Owned<invar_runtime>(runtime);
}

// The serialized form of a JSON config.
inline std::string message(invar_runtime* runtime, const std::string& type, const std::string& json) {
  invar_bytes* bytes = nullptr;
  EXPECT_EQ(text_of(invar_message_from_json(runtime, type.data(), type.size(), json.data(), json.size(), &bytes)),
            "ok");
  const Owned<invar_bytes> owner(bytes);
  return string_of(bytes);
}

// A report as compact JSON.
inline std::string json(invar_runtime* runtime, const std::string& type, const invar_bytes* bytes) {
  invar_bytes* text = nullptr;
  EXPECT_EQ(text_of(invar_message_to_json(runtime, type.data(), type.size(), invar_bytes_data(bytes),
                                          invar_bytes_size(bytes), false, &text)),
            "ok");
  const Owned<invar_bytes> owner(text);
  return string_of(text);
}

inline Owned<invar_tensor> make_tensor(invar_runtime* runtime, int32_t dtype, std::initializer_list<int64_t> shape) {
  invar_tensor* tensor = nullptr;
  EXPECT_EQ(text_of(invar_tensor_create(runtime, dtype, shape.begin(), static_cast<int32_t>(shape.size()), &tensor)),
            "ok");
  return Owned<invar_tensor>(tensor);
}
inline float* floats(invar_tensor* tensor) {
  void* data = nullptr;
  EXPECT_EQ(text_of(invar_tensor_data(tensor, &data)), "ok");
  return static_cast<float*>(data);
}

}  // namespace invar_test
