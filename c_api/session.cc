// Sessions: thin handles over core/train.
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "c_api/internal/token_callback.h"
#include "c_api/internal/with_model.h"
#include "c_api/internal/work.h"
#include "core/train/session.h"

namespace v1 = invar::v1;
using invar::Code;
using invar::Error;
using invar::Result;
using invar::Session;
using invar::Status;
using invar::abi::entry;
using invar::abi::Outcome;
using invar::abi::Progress;

struct invar_session {
  std::shared_ptr<invar::abi::RuntimeState> runtime;
  std::unique_ptr<Session> session;
  std::optional<v1::TrainReport> last_run;  // of invar_session_run, until the session moves on
  std::atomic<int64_t> last_step{0};
  std::atomic<bool> busy{false};
};

namespace {

// What is not known is NaN.
double known(bool has, double value) { return has ? value : std::numeric_limits<double>::quiet_NaN(); }

invar_step_metrics metrics_of(const v1::StepMetrics& from) {
  invar_step_metrics to = INVAR_STEP_METRICS_INIT;
  to.recipe = from.recipe();
  to.step = from.step();
  to.loss = known(from.has_loss(), from.loss());
  to.lr = from.lr();
  to.grad_norm = known(from.has_grad_norm(), from.grad_norm());
  to.tokens = from.tokens();
  to.total_tokens = from.total_tokens();
  to.seconds = from.seconds();
  to.tokens_per_second = from.tokens_per_second();
  to.total_skipped = from.total_skipped();
  to.skipped = from.skipped();
  to.ladder_event = from.ladder_event() == "raised"      ? INVAR_LADDER_RAISED
                    : from.ladder_event() == "fell_back" ? INVAR_LADDER_FELL_BACK
                    : from.ladder_event() == "final"     ? INVAR_LADDER_FINAL
                                                         : INVAR_LADDER_NONE;
  return to;
}

invar_eval_metrics metrics_of(const v1::EvalMetrics& from) {
  invar_eval_metrics to = {};
  to.struct_size = sizeof(to);
  to.step = from.step();
  to.loss = from.loss();
  to.perplexity = from.perplexity();
  to.tokens = from.tokens();
  to.seconds = from.seconds();
  return to;
}

// The rows of a host's batch in the form the model takes.
struct Rows {
  std::vector<int32_t> ids, targets, offsets;
};

Status check_ids(const char* function, const char* what, const std::vector<int32_t>& ids, int32_t lowest,
                 int64_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= lowest && ids[i] < vocab) continue;
    return Error(Code::kInvalidArgument, "batch.id_out_of_range",
                 invar::cat(function, ": ", what, "[", i, "] is ", ids[i], ", expected a number below ", vocab));
  }
  return {};
}

Result<Rows> rows_of(const char* function, const invar_batch* given, const invar::Model& model) {
  invar_batch batch = INVAR_BATCH_INIT;
  INVAR_TRY(invar::abi::copy_struct(function, given, offsetof(invar_batch, mask) + sizeof(uint8_t*), &batch));
  if (batch.ids == nullptr) return invar::abi::null_argument(function, "batch->ids");
  const int64_t most = model.options().max_tokens, length = batch.sequence_length;
  if (batch.sequences < 1 || length < 1 || length > most || batch.sequences > most / length) {
    return Error(Code::kInvalidArgument, "batch.shape",
                 invar::cat(function, ": ", batch.sequences, " sequences of ", length, " tokens, expected 1 to ", most,
                            " tokens in all: micro_batch * data.sequence_length of the config"));
  }
  const int64_t tokens = batch.sequences * length;
  Rows rows;
  rows.ids.assign(batch.ids, batch.ids + tokens);
  rows.targets.resize(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i) {
    const bool at_end = (i + 1) % length == 0;
    int32_t target = batch.targets != nullptr ? batch.targets[i] : at_end ? -1 : batch.ids[i + 1];
    if (batch.mask != nullptr && batch.mask[i] == 0) target = -1;
    rows.targets[static_cast<size_t>(i)] = target;
  }
  for (int64_t i = 0; i <= batch.sequences; ++i) rows.offsets.push_back(static_cast<int32_t>(i * length));
  INVAR_TRY(check_ids(function, "ids", rows.ids, 0, model.shape().vocab));
  INVAR_TRY(check_ids(function, "targets", rows.targets, std::numeric_limits<int32_t>::min(), model.shape().vocab));
  return rows;
}

Result<const invar::Tokenizer*> tokenizer_of(const invar_session& session) {
  const invar::Tokenizer* tokenizer = session.session->tokenizer();
  if (tokenizer != nullptr) return tokenizer;
  return Error(Code::kFailedPrecondition, "tokenizer.unsupported",
               "the session's tokenizer is not supported: only batches of token ids can be used");
}

Result<std::string> path_from(const char* function, const char* path, size_t size) {
  if (path == nullptr) return invar::abi::null_argument(function, "path");
  if (size == 0) return Error(Code::kInvalidArgument, "argument.path", invar::cat(function, ": path is empty"));
  return std::string(path, size);
}

Status step_with(const char* function, invar_session& session, std::optional<double> lr, invar_step_metrics* metrics) {
  INVAR_TRY(invar::abi::check_struct(function, metrics, offsetof(invar_step_metrics, ladder_event) + sizeof(int32_t)));
  INVAR_ASSIGN(const v1::StepMetrics done, session.session->step(lr));
  session.last_run.reset();
  session.last_step = done.step();
  if (metrics != nullptr) invar::abi::fill_struct(metrics_of(done), metrics);
  return {};
}

}  // namespace

invar_status* invar_session_create(invar_runtime* runtime, const void* config, size_t config_size, invar_cancel* cancel,
                                   const invar_progress_callback* callback, invar_session** session) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (session != nullptr) *session = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_ASSIGN(const auto progress, Progress::create(function, callback, cancel));
    INVAR_REQUIRE(session);
    INVAR_ASSIGN(const auto checked, invar::abi::config_from<v1::TrainConfig>(function, config, config_size));
    auto& state = *runtime->runtime;
    progress->note("prepare", checked.output());
    INVAR_TRY(progress->call().finish(invar::check_cancel(progress->flag())).status);
    auto created = Session::create(checked,
                                   {.pool = state.pool_for(checked.threads()),
                                    .files = &state.files(),
                                    .log = state.log,
                                    .allocator = state.device_options.allocator,
                                    .keep_alive = state.device_options.keep_alive},
                                   progress->flag());
    const Outcome outcome = progress->call().finish(created.ok() ? Status() : created.status());
    if (!outcome.status.ok()) return outcome;
    auto made = std::make_unique<invar_session>();
    made->runtime = runtime->runtime;
    made->session = std::move(created).value();
    made->last_step = made->session->report().steps();
    *session = made.release();
    return {};
  });
}

invar_status* invar_session_run(invar_session* session, invar_cancel* cancel, const invar_progress_callback* callback,
                                invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_TURN(session);
    INVAR_ASSIGN(const auto progress, Progress::create(function, callback, cancel));
    INVAR_REQUIRE(report);
    const int64_t steps = session->session->config().steps();
    session->last_run.reset();
    auto done = session->session->train(
        {.on_step =
             [&](const v1::StepMetrics& metrics) {
               session->last_step = metrics.step();
               progress->step(metrics_of(metrics), steps);
             },
         .on_eval = [&](const v1::EvalMetrics& metrics) { progress->eval(metrics_of(metrics), steps); },
         .on_checkpoint = [&](std::string_view path) { progress->note("save", std::string(path)); }},
        progress->flag());
    Status status = done.ok() ? Status() : done.status();
    if (done.ok()) {
      session->last_run = done.value();
      if (done->cancelled()) {
        status = Error(Code::kCancelled, "cancelled",
                       invar::cat("cancelled after step ", done->steps(), " of ", steps,
                                  done->checkpoint().empty() ? "" : invar::cat(", saved in ", done->checkpoint())));
      }
    }
    const Outcome outcome = progress->call().finish(status);
    if (!outcome.status.ok()) return outcome;
    INVAR_ASSIGN(*report, invar::abi::make_bytes(done->SerializeAsString()));
    return {};
  });
}

invar_status* invar_session_report(invar_session* session, invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_TURN(session);
    INVAR_REQUIRE(report);
    const v1::TrainReport now = session->last_run ? *session->last_run : session->session->report();
    INVAR_ASSIGN(*report, invar::abi::make_bytes(now.SerializeAsString()));
    return {};
  });
}

invar_status* invar_session_info(invar_session* session, invar_bytes** info) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (info != nullptr) *info = nullptr;
    INVAR_TURN(session);
    INVAR_REQUIRE(info);
    const v1::ModelInfo now = invar::describe_model(session->session->model(), session->session->tokenizer(),
                                                    session->session->config().model().path());
    INVAR_ASSIGN(*info, invar::abi::make_bytes(now.SerializeAsString()));
    return {};
  });
}

invar_status* invar_session_begin(invar_session* session, int64_t micro_batches) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(session);
    if (micro_batches < 0) {
      return Error(Code::kInvalidArgument, "argument.micro_batches",
                   invar::cat(function, ": micro_batches ", micro_batches, " is not >= 0"));
    }
    return session->session->begin_window(micro_batches);
  });
}

invar_status* invar_session_forward_backward(invar_session* session, const invar_batch* batch,
                                             invar_loss* loss) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(session);
    INVAR_REQUIRE(batch);
    INVAR_TRY(invar::abi::check_struct(function, loss, offsetof(invar_loss, tokens) + sizeof(int64_t)));
    INVAR_ASSIGN(const Rows rows, rows_of(function, batch, session->session->model()));
    INVAR_ASSIGN(const invar::LossSum sum,
                 session->session->forward_backward(
                     {.ids = rows.ids, .targets = rows.targets, .offsets = rows.offsets, .positions = {}}));
    if (loss != nullptr) {
      invar_loss filled = INVAR_LOSS_INIT;
      filled.sum = sum.sum;
      filled.tokens = sum.count;
      invar::abi::fill_struct(filled, loss);
    }
    return {};
  });
}

invar_status* invar_session_step(invar_session* session, invar_step_metrics* metrics) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(session);
    return step_with(function, *session, std::nullopt, metrics);
  });
}

invar_status* invar_session_step_with_lr(invar_session* session, double lr, invar_step_metrics* metrics) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(session);
    if (!std::isfinite(lr) || lr < 0) {
      return Error(Code::kInvalidArgument, "argument.lr", invar::cat(function, ": lr ", lr, " is not finite and >= 0"));
    }
    return step_with(function, *session, lr, metrics);
  });
}

invar_status* invar_session_evaluate(invar_session* session, const void* config, size_t config_size,
                                     invar_cancel* cancel, const invar_progress_callback* callback,
                                     invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_TURN(session);
    if (config != nullptr) {
      INVAR_ASSIGN(const invar::Tokenizer* tokenizer, tokenizer_of(*session));
      return invar::abi::evaluate_with(function, session->session->model(), *tokenizer, *session->runtime, config,
                                       config_size, cancel, callback, report);
    }
    INVAR_ASSIGN(const auto progress, Progress::create(function, callback, cancel));
    INVAR_REQUIRE(report);
    auto done = session->session->evaluate(progress->flag());
    const Outcome outcome = progress->call().finish(done.ok() ? Status() : done.status());
    if (!outcome.status.ok()) return outcome;
    v1::EvalReport filled;
    filled.set_loss(done->loss());
    filled.set_perplexity(done->perplexity());
    filled.set_tokens(done->tokens());
    filled.set_seconds(done->seconds());
    INVAR_ASSIGN(*report, invar::abi::make_bytes(filled.SerializeAsString()));
    return {};
  });
}

invar_status* invar_session_generate(invar_session* session, const void* config, size_t config_size,
                                     invar_cancel* cancel, const invar_token_callback* token,
                                     invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_TURN(session);
    INVAR_ASSIGN(const invar::Tokenizer* tokenizer, tokenizer_of(*session));
    return invar::abi::generate_with(function, session->session->model(), *tokenizer, config, config_size, cancel,
                                     token, report);
  });
}

invar_status* invar_session_save(invar_session* session, const char* path, size_t path_size) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(session);
    INVAR_ASSIGN(const std::string folder, path_from(function, path, path_size));
    return session->session->save_to(folder);
  });
}

invar_status* invar_session_resume(invar_session* session, const char* path, size_t path_size) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(session);
    INVAR_ASSIGN(const std::string folder, path_from(function, path, path_size));
    session->last_run.reset();
    INVAR_TRY(session->session->resume(folder));
    session->last_step = session->session->report().steps();
    return {};
  });
}

invar_status* invar_session_export(invar_session* session, const void* config, size_t config_size, invar_cancel* cancel,
                                   const invar_progress_callback* callback, invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_TURN(session);
    INVAR_ASSIGN(const auto progress, Progress::create(function, callback, cancel));
    INVAR_REQUIRE(report);
    if (config == nullptr && config_size > 0) return invar::abi::null_argument(function, "config");
    INVAR_ASSIGN(auto request, invar::config::parse<v1::ExportConfig>(std::string_view(
                                   static_cast<const char*>(config == nullptr ? "" : config), config_size)));
    request.set_source("session");  // required in general, not read here
    INVAR_TRY(invar::config::check(request));
    progress->note("export", request.destination());
    const auto written = [&](int64_t done, int64_t total) { progress->work("export", "", "elements", done, total); };
    auto done = session->session->export_to(invar::config::with_defaults(request), progress->flag(), written);
    const Outcome outcome = progress->call().finish(done.ok() ? Status() : done.status());
    if (!outcome.status.ok()) return outcome;
    INVAR_ASSIGN(*report, invar::abi::make_bytes(done->SerializeAsString()));
    return {};
  });
}

void invar_session_release(invar_session* session) noexcept { invar::abi::release_handle(session); }

invar_status* invar_session_last_step(const invar_session* session, int64_t* step) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_HANDLE(session);
    INVAR_REQUIRE(step);
    *step = session->last_step.load();
    return {};
  });
}
