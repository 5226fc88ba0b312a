// Training, evaluation and generation through the C interface alone.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

namespace fs = std::filesystem;

class SessionTest : public testing::Test {
 protected:
  SessionTest()
      : runtime(make_runtime(2)), folder(fs::path(testing::TempDir()) / ("invar-" + std::to_string(getpid()))) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 200; ++i)
      text << "line " << i << " says that the sum of " << i << " and 1 is " << i + 1 << "\n";
  }
  ~SessionTest() override { fs::remove_all(folder); }

  // A two-layer model; `more` adds fields.
  std::string config(const std::string& more) {
    return message(runtime.get(), "train",
                   R"({"model": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                       "intermediate_size": 64}, "micro_batch": 2, "optimizer": {"lr": 0.01},
                       "schedule": {"warmup_steps": 1})" +
                       more + "}");
  }
  std::string library_driven(const std::string& output, const std::string& more = "") {
    return config(R"(, "output": ")" + (folder / output).string() +
                  R"(", "data": {"sequence_length": 16, "paths": [")" + (folder / "text.txt").string() + R"("]})" +
                  more);
  }
  std::string host_driven() { return config(R"(, "data": {"sequence_length": 16, "tokenizer": {"kind": "byte"}})"); }

  Owned<invar_session> create(const std::string& bytes) {
    invar_session* session = nullptr;
    EXPECT_EQ(text_of(invar_session_create(runtime.get(), bytes.data(), bytes.size(), nullptr, nullptr, &session)),
              "ok");
    return Owned<invar_session>(session);
  }

  // One optimizer step of two micro-batches; the mean loss.
  static double step(invar_session* session) {
    int32_t ids[32];
    for (int i = 0; i < 32; ++i) ids[i] = 'a' + i % 7;
    invar_batch batch = INVAR_BATCH_INIT;
    batch.sequences = 2;
    batch.sequence_length = 16;
    batch.ids = ids;
    EXPECT_EQ(text_of(invar_session_begin(session, 2)), "ok");
    for (int i = 0; i < 2; ++i) {
      invar_loss loss = INVAR_LOSS_INIT;
      EXPECT_EQ(text_of(invar_session_forward_backward(session, &batch, &loss)), "ok");
      EXPECT_EQ(loss.tokens, 30);  // the last of each row predicts nothing
    }
    invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
    EXPECT_EQ(text_of(invar_session_step(session, &metrics)), "ok");
    EXPECT_EQ(metrics.tokens, 60);
    EXPECT_EQ(metrics.skipped, 0);
    return metrics.loss;
  }

  Owned<invar_runtime> runtime;
  fs::path folder;
};

TEST_F(SessionTest, HostDrivenLossFalls) {
  const auto session = create(host_driven());
  const double first = step(session.get());
  EXPECT_NEAR(first, std::log(259.0), 0.5);
  double last = first;
  for (int i = 0; i < 20; ++i) last = step(session.get());
  EXPECT_LT(last, first - 1);
}

TEST_F(SessionTest, WrongStatesAndBatchesAreNamed) {
  const auto session = create(host_driven());
  int32_t ids[32] = {};
  invar_batch batch = INVAR_BATCH_INIT;
  batch.sequences = 2;
  batch.sequence_length = 16;
  batch.ids = ids;
  EXPECT_EQ(code_of(invar_session_forward_backward(session.get(), &batch, nullptr)), INVAR_FAILED_PRECONDITION);
  EXPECT_EQ(code_of(invar_session_step(session.get(), nullptr)), INVAR_FAILED_PRECONDITION);
  EXPECT_EQ(code_of(invar_session_begin(session.get(), -1)), INVAR_INVALID_ARGUMENT);
  ASSERT_EQ(text_of(invar_session_begin(session.get(), 1)), "ok");
  ids[5] = 259;
  EXPECT_EQ(reason_of(invar_session_forward_backward(session.get(), &batch, nullptr)), "batch.id_out_of_range");
  ids[5] = -1;
  EXPECT_EQ(reason_of(invar_session_forward_backward(session.get(), &batch, nullptr)), "batch.id_out_of_range");
  ids[5] = 0;
  batch.sequences = 3;
  EXPECT_EQ(reason_of(invar_session_forward_backward(session.get(), &batch, nullptr)), "batch.shape");
  batch.sequences = INT64_MAX;
  EXPECT_EQ(reason_of(invar_session_forward_backward(session.get(), &batch, nullptr)), "batch.shape");
  batch.sequences = 2;
  batch.ids = nullptr;
  EXPECT_EQ(reason_of(invar_session_forward_backward(session.get(), &batch, nullptr)), "argument.null");
  EXPECT_EQ(code_of(invar_session_forward_backward(session.get(), nullptr, nullptr)), INVAR_INVALID_ARGUMENT);
  // Everything masked: there is nothing to average over.
  const uint8_t mask[32] = {};
  batch.ids = ids;
  batch.mask = mask;
  invar_loss loss = INVAR_LOSS_INIT;
  ASSERT_EQ(text_of(invar_session_forward_backward(session.get(), &batch, &loss)), "ok");
  EXPECT_EQ(loss.tokens, 0);
  EXPECT_NE(code_of(invar_session_step(session.get(), nullptr)), INVAR_OK);
  // Text needs data.
  invar_bytes* report = nullptr;
  EXPECT_EQ(code_of(invar_session_run(session.get(), nullptr, nullptr, &report)), INVAR_FAILED_PRECONDITION);
  EXPECT_EQ(code_of(invar_session_evaluate(session.get(), nullptr, 0, nullptr, nullptr, &report)),
            INVAR_FAILED_PRECONDITION);
  EXPECT_EQ(code_of(invar_session_save(session.get(), nullptr, 3)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_session_save(session.get(), "", 0)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_session_resume(session.get(), "/absent", 7)), INVAR_NOT_FOUND);
}

TEST_F(SessionTest, HostsOwnLearningRate) {
  const auto session = create(host_driven());
  const auto window = [&] {
    int32_t ids[32] = {};
    invar_batch batch = INVAR_BATCH_INIT;
    batch.sequences = 2;
    batch.sequence_length = 16;
    batch.ids = ids;
    EXPECT_EQ(text_of(invar_session_begin(session.get(), 1)), "ok");
    invar_loss loss = INVAR_LOSS_INIT;
    EXPECT_EQ(text_of(invar_session_forward_backward(session.get(), &batch, &loss)), "ok");
    return loss.sum;
  };
  const double first = window();
  for (const double wrong : {-0.1, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(reason_of(invar_session_step_with_lr(session.get(), wrong, nullptr)), "argument.lr");
  }
  invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
  ASSERT_EQ(text_of(invar_session_step_with_lr(session.get(), 0, &metrics)), "ok");
  EXPECT_EQ(metrics.lr, 0);
  EXPECT_EQ(window(), first) << "a rate of 0 changes nothing";
  ASSERT_EQ(text_of(invar_session_step_with_lr(session.get(), 0.005, &metrics)), "ok");
  EXPECT_EQ(metrics.lr, 0.005);
  EXPECT_EQ(metrics.step, 2);
  EXPECT_LT(window(), first);
}

TEST_F(SessionTest, SavedSessionsContinueWithTheSameBits) {
  const auto whole = create(host_driven()), begun = create(host_driven());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(whole.get()), step(begun.get()));
  const std::string path = (folder / "saved").string();
  ASSERT_EQ(text_of(invar_session_save(begun.get(), path.data(), path.size())), "ok");
  EXPECT_EQ(reason_of(invar_session_save(begun.get(), path.data(), path.size())), "output.not_empty");
  const auto resumed = create(host_driven());
  ASSERT_EQ(text_of(invar_session_resume(resumed.get(), path.data(), path.size())), "ok");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(whole.get()), step(resumed.get()));
}

TEST_F(SessionTest, RunsEvaluatesGeneratesExportsAndLoads) {
  const auto session =
      create(library_driven("run", R"(, "steps": 12, "eval_every": 6, "checkpoint": {"exports": ["fp8_block"]})"));
  struct Seen {
    int steps = 0, evals = 0, dropped = 0;
  } seen;
  invar_progress_callback callback = INVAR_PROGRESS_CALLBACK_INIT;
  callback.user = &seen;
  callback.call = [](void* user, const invar_progress* event) -> int32_t {
    auto* to = static_cast<Seen*>(user);
    EXPECT_EQ(to->dropped, 0);
    if (event->kind == INVAR_PROGRESS_STEP) {
      EXPECT_EQ(event->step->step, ++to->steps);
    }
    if (event->kind == INVAR_PROGRESS_EVAL) ++to->evals;
    return 0;
  };
  callback.drop = [](void* user) { ++static_cast<Seen*>(user)->dropped; };
  invar_bytes* bytes = nullptr;
  ASSERT_EQ(text_of(invar_session_run(session.get(), nullptr, &callback, &bytes)), "ok");
  const Owned<invar_bytes> report(bytes);
  EXPECT_EQ(seen.steps, 12);
  EXPECT_EQ(seen.evals, 2);
  EXPECT_EQ(seen.dropped, 1);
  EXPECT_NE(json(runtime.get(), "TrainReport", bytes).find("\"steps\":12"), std::string::npos);
  EXPECT_TRUE(fs::exists(folder / "run/export/fp8_block/config.json"));

  ASSERT_EQ(text_of(invar_session_evaluate(session.get(), nullptr, 0, nullptr, nullptr, &bytes)), "ok");
  const Owned<invar_bytes> eval(bytes);
  EXPECT_NE(json(runtime.get(), "EvalReport", bytes).find("\"perplexity\""), std::string::npos);

  const std::string request =
      message(runtime.get(), "export", R"({"destination": ")" + (folder / "out").string() + R"("})");
  ASSERT_EQ(text_of(invar_session_export(session.get(), request.data(), request.size(), nullptr, nullptr, &bytes)),
            "ok");
  const Owned<invar_bytes> exported(bytes);

  const std::string load = message(runtime.get(), "load", R"({"path": ")" + (folder / "out").string() + R"("})");
  invar_model* made = nullptr;
  ASSERT_EQ(text_of(invar_model_load(runtime.get(), load.data(), load.size(), nullptr, nullptr, &made)), "ok");
  const Owned<invar_model> model(made);
  ASSERT_EQ(text_of(invar_model_info(made, &bytes)), "ok");
  const Owned<invar_bytes> info(bytes);
  EXPECT_NE(json(runtime.get(), "ModelInfo", bytes).find("\"hidden_size\":32"), std::string::npos);

  // The model that was written says what the session's weights say.
  const std::string generation = message(runtime.get(), "generate", R"({"prompt": "line", "max_tokens": 12})");
  std::string from_session, from_model;
  for (const bool loaded : {false, true}) {
    std::string& text = loaded ? from_model : from_session;
    invar_token_callback token = INVAR_TOKEN_CALLBACK_INIT;
    token.user = &text;
    token.call = [](void* user, const invar_token* each) -> int32_t {
      static_cast<std::string*>(user)->append(each->text, each->text_size);
      return 0;
    };
    ASSERT_EQ(text_of(loaded ? invar_model_generate(made, generation.data(), generation.size(), nullptr, &token, &bytes)
                             : invar_session_generate(session.get(), generation.data(), generation.size(), nullptr,
                                                      &token, &bytes)),
              "ok");
    const Owned<invar_bytes> owner(bytes);
  }
  EXPECT_EQ(from_session, from_model);
}

TEST_F(SessionTest, CallbacksStopWithTheirValueAndExceptionsStayInside) {
  for (const bool throws : {false, true}) {
    const auto session = create(library_driven(throws ? "throws" : "stops", R"(, "steps": 50)"));
    struct State {
      bool throws;
      invar_session* session;
      int dropped = 0;
    } state{throws, session.get()};
    invar_progress_callback callback = INVAR_PROGRESS_CALLBACK_INIT;
    callback.user = &state;
    callback.call = [](void* user, const invar_progress* event) -> int32_t {
      auto* to = static_cast<State*>(user);
      if (event->kind != INVAR_PROGRESS_STEP || event->step->step < 3) return 0;
      // The handle is at work: calls on it fail, and do not hang.
      EXPECT_EQ(reason_of(invar_session_begin(to->session, 1)), "handle.busy");
      if (to->throws) throw std::runtime_error("host fault");
      return 42;
    };
    callback.drop = [](void* user) { ++static_cast<State*>(user)->dropped; };
    invar_bytes* report = nullptr;
    invar_status* status = invar_session_run(session.get(), nullptr, &callback, &report);
    EXPECT_EQ(invar_status_code(status), throws ? INVAR_INTERNAL : INVAR_ABORTED);
    EXPECT_EQ(invar_status_callback_value(status), throws ? 0 : 42);
    invar_status_release(status);
    EXPECT_EQ(report, nullptr);
    EXPECT_EQ(state.dropped, 1);
    // What was done is saved, and the session may go on.
    ASSERT_EQ(text_of(invar_session_report(session.get(), &report)), "ok");
    const Owned<invar_bytes> owner(report);
    EXPECT_NE(json(runtime.get(), "TrainReport", report).find("step-00000003"), std::string::npos);
  }
}

TEST_F(SessionTest, ExportsReportProgressAndStop) {
  const auto session = create(host_driven());
  const std::string path = (folder / "out").string();
  const std::string request =
      message(runtime.get(), "export", R"({"target": "fp8_block", "destination": ")" + path + R"("})");
  struct State {
    int32_t answer = 9;
    int notes = 0;
    int64_t done = 0, total = -1;  // of the last report of work
  } state;
  invar_progress_callback callback = INVAR_PROGRESS_CALLBACK_INIT;
  callback.user = &state;
  callback.call = [](void* user, const invar_progress* event) -> int32_t {
    auto* to = static_cast<State*>(user);
    EXPECT_STREQ(event->stage, "export");
    to->notes += event->kind == INVAR_PROGRESS_NOTE;
    if (event->kind == INVAR_PROGRESS_WORK) {
      EXPECT_STREQ(event->unit, "elements");
      EXPECT_LE(event->done, event->total);
      EXPECT_GT(event->done, to->done);
      to->done = event->done;
      to->total = event->total;
    }
    return to->answer;
  };
  invar_bytes* report = nullptr;
  invar_status* status =
      invar_session_export(session.get(), request.data(), request.size(), nullptr, &callback, &report);
  EXPECT_EQ(invar_status_code(status), INVAR_ABORTED);
  EXPECT_EQ(invar_status_callback_value(status), 9);
  invar_status_release(status);
  EXPECT_FALSE(fs::exists(path));

  invar_cancel* made = nullptr;
  ASSERT_EQ(text_of(invar_cancel_create(runtime.get(), &made)), "ok");
  const Owned<invar_cancel> cancel(made);
  invar_cancel_request(made);
  EXPECT_EQ(code_of(invar_session_export(session.get(), request.data(), request.size(), made, nullptr, &report)),
            INVAR_CANCELLED);
  EXPECT_FALSE(fs::exists(path));
  // A session that cannot be made because it is cancelled.
  const std::string text = library_driven("never");
  invar_session* none = session.get();
  EXPECT_EQ(code_of(invar_session_create(runtime.get(), text.data(), text.size(), made, nullptr, &none)),
            INVAR_CANCELLED);
  EXPECT_EQ(none, nullptr);

  state = {0, 0, 0, -1};
  ASSERT_EQ(text_of(invar_session_export(session.get(), request.data(), request.size(), nullptr, &callback, &report)),
            "ok");
  EXPECT_EQ(state.done, state.total) << "the last report was not heard, whichever thread had it";
  const Owned<invar_bytes> owner(report);
  EXPECT_EQ(state.notes, 1);
  EXPECT_TRUE(fs::exists(path + "/config.json"));
}

TEST_F(SessionTest, CancelledRunsSaveAndGoOn) {
  const auto session = create(library_driven("run", R"(, "steps": 400)"));
  invar_cancel* made = nullptr;
  ASSERT_EQ(text_of(invar_cancel_create(runtime.get(), &made)), "ok");
  const Owned<invar_cancel> cancel(made);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    invar_cancel_request(cancel.get());
  });
  invar_bytes* report = nullptr;
  EXPECT_EQ(code_of(invar_session_run(session.get(), cancel.get(), nullptr, &report)), INVAR_CANCELLED);
  other.join();
  EXPECT_TRUE(fs::exists(folder / "run/checkpoints"));
  // The flag stays set: the next call with it ends at once, one without it goes on.
  EXPECT_EQ(code_of(invar_session_run(session.get(), cancel.get(), nullptr, &report)), INVAR_CANCELLED);
}

TEST_F(SessionTest, TokenCallbacksEndTheTextAndExceptionsStayInside) {
  auto session = create(host_driven());
  const std::string generation =
      message(runtime.get(), "generate", R"({"prompt": "ab", "max_tokens": 10, "stop_at_end": false})");
  invar_token_callback token = INVAR_TOKEN_CALLBACK_INIT;
  token.call = [](void*, const invar_token* each) -> int32_t { return each->index == 2; };
  invar_bytes* report = nullptr;
  ASSERT_EQ(
      text_of(invar_session_generate(session.get(), generation.data(), generation.size(), nullptr, &token, &report)),
      "ok");
  const Owned<invar_bytes> owner(report);
  EXPECT_NE(json(runtime.get(), "GenerateReport", report).find("\"finish_reason\":\"callback\""), std::string::npos);
  token.call = [](void*, const invar_token*) -> int32_t { throw std::runtime_error("host fault"); };
  EXPECT_EQ(
      reason_of(invar_session_generate(session.get(), generation.data(), generation.size(), nullptr, &token, &report)),
      "callback.exception");
  // The runtime may go before its session.
  runtime.reset();
  EXPECT_GT(step(session.get()), 0);
}

TEST_F(SessionTest, UnknownFieldsAndMissingFilesAreNamed) {
  invar_session* session = nullptr;
  const std::string missing = config(R"(, "data": {"paths": ["/absent.txt"]})");
  EXPECT_EQ(code_of(invar_session_create(runtime.get(), missing.data(), missing.size(), nullptr, nullptr, &session)),
            INVAR_NOT_FOUND);
  const std::string range = config(R"(, "accumulation": 0)");
  EXPECT_EQ(text_of(invar_session_create(runtime.get(), range.data(), range.size(), nullptr, nullptr, &session)),
            "INVALID_ARGUMENT config.out_of_range: accumulation: 0 is not >= 1 and <= 1048576");
  EXPECT_EQ(session, nullptr);
}

}  // namespace
}  // namespace invar_test
