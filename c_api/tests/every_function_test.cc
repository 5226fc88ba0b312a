// Every function of the header, by a table that is generated from it: what it says to zeros, in a forked child, and
// while its handle is at work. A function that is added is tested here without being written down.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

struct Function {
  const char* name;
  const char* handle;  // the type of its first argument, where that is a handle; "" otherwise
  bool has_status;
  // Calls it with the handle and zeros. NULL when it returns no status.
  invar_status* (*call)(void* handle);
};

#include "c_api/tests/functions.inc"

bool is_release(const Function& function) {
  return std::string_view(function.name).ends_with("_release") || std::string_view(function.name).ends_with("_request");
}

TEST(EveryFunction, IsInTheTable) {
  std::set<std::string> names;
  for (const Function& function : kFunctions) names.insert(function.name);
  EXPECT_EQ(names.size(), std::size(kFunctions));
  EXPECT_EQ(names.size(), static_cast<size_t>(kReviewedFunctions)) << "the table is not c_api/symbols.txt";
}

TEST(EveryFunction, TakesZeros) {
  for (const Function& function : kFunctions) {
    SCOPED_TRACE(function.name);
    invar_status* status = function.call(nullptr);
    if (!function.has_status) continue;
    EXPECT_EQ(invar_status_code(status), INVAR_INVALID_ARGUMENT);
    EXPECT_STREQ(invar_status_reason(status, nullptr), "argument.null");
    const std::string message = invar_status_message(status, nullptr);
    EXPECT_TRUE(message.starts_with(std::string(function.name) + ": ")) << message;
    invar_status_release(status);
  }
}

// One handle of each type.
class EveryHandle : public testing::Test {
 public:
  void SetUp() override {
    runtime_ = make_runtime(2);
    invar_runtime* const runtime = runtime_.get();
    tensor_ = make_tensor(runtime, INVAR_DTYPE_FP32, {4});
    invar_cancel* cancel = nullptr;
    ASSERT_EQ(text_of(invar_cancel_create(runtime, &cancel)), "ok");
    cancel_.reset(cancel);
    invar_optimizer* optimizer = nullptr;
    ASSERT_EQ(text_of(invar_optimizer_create(runtime, nullptr, 0, &optimizer)), "ok");
    optimizer_.reset(optimizer);
    const int64_t counts[] = {4};
    invar_accumulator* accumulator = nullptr;
    ASSERT_EQ(text_of(invar_accumulator_create(runtime, counts, 1, &accumulator)), "ok");
    accumulator_.reset(accumulator);
    const std::string config = message(runtime, "train", R"({"steps": 3, "micro_batch": 1,
        "model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
        "data": {"sequence_length": 16, "tokenizer": {"kind": "byte"}}})");
    invar_session* session = nullptr;
    ASSERT_EQ(text_of(invar_session_create(runtime, config.data(), config.size(), nullptr, nullptr, &session)), "ok");
    session_.reset(session);
    folder_ = std::filesystem::path(testing::TempDir()) / ("every-" + std::to_string(getpid()));
    const std::string target = message(runtime, "export", R"({"destination": ")" + folder_.string() + R"("})");
    invar_bytes* report = nullptr;
    ASSERT_EQ(text_of(invar_session_export(session, target.data(), target.size(), nullptr, nullptr, &report)), "ok");
    invar_bytes_release(report);
    const std::string load = message(runtime, "load", R"({"path": ")" + folder_.string() + R"("})");
    invar_model* model = nullptr;
    ASSERT_EQ(text_of(invar_model_load(runtime, load.data(), load.size(), nullptr, nullptr, &model)), "ok");
    model_.reset(model);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void* of(const std::string& type) const {
    const std::map<std::string, void*> handles = {
        {"invar_runtime", runtime_.get()}, {"invar_cancel", cancel_.get()},
        {"invar_tensor", tensor_.get()},   {"invar_optimizer", optimizer_.get()},
        {"invar_session", session_.get()}, {"invar_accumulator", accumulator_.get()},
        {"invar_model", model_.get()},
    };
    const auto found = handles.find(type);
    return found == handles.end() ? nullptr : found->second;
  }

  std::filesystem::path folder_;
  Owned<invar_runtime> runtime_;
  Owned<invar_cancel> cancel_;
  Owned<invar_tensor> tensor_;
  Owned<invar_optimizer> optimizer_;
  Owned<invar_accumulator> accumulator_;
  Owned<invar_session> session_;
  Owned<invar_model> model_;
};

TEST_F(EveryHandle, RefusesToWorkInAForkedChild) {
  int asked = 0;
  for (const Function& function : kFunctions) asked += function.has_status && of(function.handle) != nullptr;
  EXPECT_GT(asked, 40);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool good = true;
    for (const Function& function : kFunctions) {
      if (!function.has_status || of(function.handle) == nullptr) continue;
      const invar_status* status = function.call(of(function.handle));
      if (invar_status_code(status) == INVAR_FAILED_PRECONDITION &&
          std::string(invar_status_reason(status, nullptr)) == "runtime.forked") {
        continue;
      }
      std::fprintf(stderr, "%s in a child: %s\n", function.name, invar_status_message(status, nullptr));
      good = false;
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Zeros behind a handle that is there: whatever they mean, the call comes back, and says something when it fails.
TEST_F(EveryHandle, TakesZerosBehindIt) {
  for (const Function& function : kFunctions) {
    if (of(function.handle) == nullptr || is_release(function)) continue;
    SCOPED_TRACE(function.name);
    invar_status* status = function.call(of(function.handle));
    if (status != nullptr) {
      EXPECT_STRNE(invar_status_message(status, nullptr), "");
      EXPECT_STRNE(invar_status_reason(status, nullptr), "");
      EXPECT_NE(invar_status_code(status), INVAR_INTERNAL) << invar_status_message(status, nullptr);
    }
    invar_status_release(status);
  }
}

TEST_F(EveryHandle, IsBusyWhileACallIsAtWork) {
  struct State {
    EveryHandle* test;
    int calls = 0;
  } state{this};
  static const auto ask = [](State* state, const char* type) {
    for (const Function& function : kFunctions) {
      if (!function.has_status || std::string(function.handle) != type) continue;
      EXPECT_EQ(reason_of(function.call(state->test->of(type))), "handle.busy") << function.name;
      ++state->calls;
    }
  };
  const std::string request = message(runtime_.get(), "generate", R"({"prompt": "a", "max_tokens": 1})");
  invar_token_callback token = INVAR_TOKEN_CALLBACK_INIT;
  token.user = &state;
  invar_bytes* report = nullptr;
  token.call = [](void* user, const invar_token*) -> int32_t {
    ask(static_cast<State*>(user), "invar_model");
    return 0;
  };
  ASSERT_EQ(text_of(invar_model_generate(model_.get(), request.data(), request.size(), nullptr, &token, &report)),
            "ok");
  invar_bytes_release(report);
  EXPECT_GE(state.calls, 3);
  state.calls = 0;
  token.call = [](void* user, const invar_token*) -> int32_t {
    ask(static_cast<State*>(user), "invar_session");
    return 0;
  };
  ASSERT_EQ(text_of(invar_session_generate(session_.get(), request.data(), request.size(), nullptr, &token, &report)),
            "ok");
  invar_bytes_release(report);
  EXPECT_GE(state.calls, 10);
}

}  // namespace
}  // namespace invar_test
