// Loaded models: thin handles over core/train/inference.
#include "c_api/internal/token_callback.h"
#include "c_api/internal/with_model.h"
#include "c_api/internal/work.h"
#include "core/train/inference/inference.h"
#include "invar/v1/model.pb.h"
#include "invar/v1/report.pb.h"

namespace v1 = invar::v1;
using invar::LoadedModel;
using invar::Result;
using invar::abi::entry;
using invar::abi::Outcome;
using invar::abi::Progress;
using invar::abi::TokenStream;

struct invar_model {
  std::shared_ptr<invar::abi::RuntimeState> runtime;
  std::unique_ptr<LoadedModel> loaded;
  std::atomic<bool> busy{false};
};

namespace {

// A model and data for a call: `model` of the config is for callers that have none loaded.
template <typename Config>
Result<Config> config_without_model(const char* function, const void* config, size_t size) {
  if (config == nullptr && size > 0) return invar::abi::null_argument(function, "config");
  INVAR_ASSIGN(auto given, (invar::config::parse<Config>(
                               std::string_view(static_cast<const char*>(config == nullptr ? "" : config), size))));
  given.clear_model();
  auto checkable = given;
  checkable.mutable_model()->set_path("loaded");  // required in general, not here
  INVAR_TRY(invar::config::check(checkable));
  return invar::config::with_defaults(given);
}

}  // namespace

namespace invar::abi {

Outcome evaluate_with(const char* function, Model& model, const Tokenizer& tokenizer, RuntimeState& state,
                      const void* config, size_t config_size, invar_cancel* cancel,
                      const invar_progress_callback* callback, invar_bytes** report) {
  INVAR_ASSIGN(const auto progress, Progress::create(function, callback, cancel));
  INVAR_REQUIRE(report);
  INVAR_ASSIGN(const auto checked, config_without_model<v1::EvalConfig>(function, config, config_size));
  auto made = evaluate_text(model, tokenizer, checked, state.files(),
                            {.cancel = progress->flag(), .progress = [&](int64_t tokens, int64_t total) {
                               progress->work("eval", "", "tokens", tokens, total);
                             }});
  const Outcome outcome = progress->call().finish(made.ok() ? Status() : made.status());
  if (!outcome.status.ok()) return outcome;
  INVAR_ASSIGN(*report, make_bytes(made->SerializeAsString()));
  return {};
}

Outcome generate_with(const char* function, Model& model, const Tokenizer& tokenizer, const void* config,
                      size_t config_size, invar_cancel* cancel, const invar_token_callback* token,
                      invar_bytes** report) {
  INVAR_ASSIGN(const auto stream, TokenStream::create(function, token, cancel));
  INVAR_REQUIRE(report);
  INVAR_ASSIGN(const auto checked, config_without_model<v1::GenerateConfig>(function, config, config_size));
  auto made = generate_text(model, tokenizer, checked, stream->hooks());
  const Outcome outcome = stream->finish(made.ok() ? Status() : made.status());
  if (!outcome.status.ok()) return outcome;
  INVAR_ASSIGN(*report, make_bytes(made->SerializeAsString()));
  return {};
}

}  // namespace invar::abi

invar_status* invar_model_load(invar_runtime* runtime, const void* config, size_t config_size, invar_cancel* cancel,
                               const invar_progress_callback* callback, invar_model** model) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (model != nullptr) *model = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_ASSIGN(const auto progress, Progress::create(function, callback, cancel));
    INVAR_REQUIRE(model);
    INVAR_ASSIGN(const auto checked, invar::abi::config_from<v1::LoadConfig>(function, config, config_size));
    auto& state = *runtime->runtime;
    progress->note("load", checked.path());
    auto loaded = LoadedModel::load(
        checked,
        {.pool = state.pool, .files = &state.files(), .device = state.device_options, .cancel = progress->flag()});
    const Outcome outcome = progress->call().finish(loaded.ok() ? invar::Status() : loaded.status());
    if (!outcome.status.ok()) return outcome;
    auto made = std::make_unique<invar_model>();
    made->runtime = runtime->runtime;
    made->loaded = std::move(loaded).value();
    *model = made.release();
    return {};
  });
}

invar_status* invar_model_info(invar_model* model, invar_bytes** info) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (info != nullptr) *info = nullptr;
    INVAR_TURN(model);
    INVAR_REQUIRE(info);
    INVAR_ASSIGN(*info, invar::abi::make_bytes(model->loaded->info().SerializeAsString()));
    return {};
  });
}

invar_status* invar_model_evaluate(invar_model* model, const void* config, size_t config_size, invar_cancel* cancel,
                                   const invar_progress_callback* progress, invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_TURN(model);
    return invar::abi::evaluate_with(function, model->loaded->model(), model->loaded->tokenizer(), *model->runtime,
                                     config, config_size, cancel, progress, report);
  });
}

invar_status* invar_model_generate(invar_model* model, const void* config, size_t config_size, invar_cancel* cancel,
                                   const invar_token_callback* token, invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_TURN(model);
    return invar::abi::generate_with(function, model->loaded->model(), model->loaded->tokenizer(), config, config_size,
                                     cancel, token, report);
  });
}

void invar_model_release(invar_model* model) noexcept { invar::abi::release_handle(model); }
