#include "core/train/session.h"

#include "core/config/config.h"
#include "core/train/evaluate.h"
#include "core/train/session_state.h"

namespace invar {
namespace {

// Fields that change what a resumed run computes from here on. Others (steps, output, threads) may differ freely.
std::vector<std::string> differences(const v1::TrainConfig& saved, const v1::TrainConfig& now) {
  std::vector<std::string> names;
  const auto compare = [&](std::string_view name, const auto& a, const auto& b) {
    if (config::to_json(a, false) != config::to_json(b, false)) {
      names.push_back(cat("the checkpoint was written with another \"", name, "\": ", config::to_json(a, false),
                          ", now ", config::to_json(b, false)));
    }
  };
  compare("precision", saved.precision(), now.precision());
  compare("optimizer", saved.optimizer(), now.optimizer());
  compare("schedule", saved.schedule(), now.schedule());
  if (saved.micro_batch() != now.micro_batch() || saved.accumulation() != now.accumulation()) {
    names.push_back(cat("the checkpoint was written with ", saved.accumulation(), " micro-batches of ",
                        saved.micro_batch(), ", now ", now.accumulation(), " of ", now.micro_batch()));
  }
  return names;
}

Result<std::unique_ptr<Learner>> make_learner(const v1::TrainConfig& config, const ModelShape& shape,
                                              std::shared_ptr<ThreadPool> pool, const SessionEnvironment& environment) {
  ModelOptions options;
  INVAR_ASSIGN(options.precision, precision_plan_of(config.precision()));
  if (config.precision().has_ladder() && recipe_uses_fp8(options.precision.recipe)) {
    options.other_recipes = {Recipe::kBf16};
  }
  options.max_tokens = config.micro_batch() * config.data().sequence_length();
  INVAR_ASSIGN(auto device, Device::open(config.device(), std::move(pool),
                                         DeviceOptions{.log = environment.log,
                                                       .allocator = environment.allocator,
                                                       .cpu_level_cap = {},
                                                       .keep_alive = environment.keep_alive}));
  INVAR_ASSIGN(auto model, Model::create(std::move(device), shape, options));
  return Learner::create(std::move(model),
                         {.adamw = adamw_options_of(config.optimizer()), .clip_norm = config.optimizer().clip_norm()});
}

Status check_lengths(const v1::TrainConfig& config, const ModelShape& shape) {
  if (config.data().sequence_length() > shape.max_positions) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat("data.sequence_length: ", config.data().sequence_length(), " is longer than the model's ",
                     shape.max_positions, " positions"));
  }
  return {};
}

}  // namespace

Session::Session() : state_(std::make_unique<State>()) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const v1::TrainConfig& given, const SessionEnvironment& environment,
                                                 const CancelFlag* cancel) {
  INVAR_TRY(config::check(given));
  auto session = std::unique_ptr<Session>(new Session);
  State& state = *session->state_;
  state.config = config::with_defaults(given);
  const v1::TrainConfig& config = state.config;
  state.files = environment.files != nullptr ? environment.files : &posix_files();
  state.log = environment.log;
  state.pool = environment.pool;
  if (state.pool == nullptr || (config.threads() > 0 && config.threads() != state.pool->threads())) {
    state.pool = std::make_shared<ThreadPool>(static_cast<int>(config.threads()));
  }
  const bool library_driven = config.data().paths_size() > 0;

  auto tokenizer = tokenizer_of(config.data().tokenizer(), config.model().path(), *state.files);
  if (tokenizer.ok()) {
    state.tokenizer = *std::move(tokenizer);
  } else if (library_driven || tokenizer.status().reason() != "tokenizer.unsupported") {
    return tokenizer.status();
  }
  INVAR_ASSIGN(const ModelShape shape, shape_of(config.model(), state.tokenizer.get(), *state.files));
  INVAR_TRY(check_lengths(config, shape));
  std::string checkpoint;
  if (!config.output().empty()) INVAR_TRY(state.open_output(&checkpoint));
  if (library_driven) {
    INVAR_ASSIGN(state.data, training_data_of(config.data(), *state.tokenizer, shape.vocab, *state.files, cancel));
    state.source.emplace(state.data.training,
                         OrderOptions{.shuffle = config.data().shuffle(), .seed = config.data().shuffle_seed()});
    state.progress.data_digest = state.data.digest;
    state.warnings.insert(state.warnings.end(), state.data.warnings.begin(), state.data.warnings.end());
  }
  INVAR_TRY(check_cancel(cancel));
  INVAR_ASSIGN(state.learner, make_learner(config, shape, state.pool, environment));
  state.schedule = schedule_of(config.optimizer(), config.schedule(), config.steps());
  state.ladder = std::make_unique<PrecisionLadder>(ladder_options_of(config.precision(), config.steps()));
  if (!checkpoint.empty()) {
    INVAR_TRY(state.resume_from(checkpoint, cancel));
  } else {
    INVAR_TRY(load_first_weights(config.model(), config.seed(), state.pool, *state.files, state.learner.get(), cancel));
    state.progress.spans.push_back({state.ladder->recipe(), 1, 0, "start"});
  }
  INVAR_TRY(state.learner->model().use_recipe(state.ladder->recipe()));
  if (state.folder) {
    INVAR_TRY(write_text_atomically(*state.files, state.folder->config_path(), config::to_json(config) + "\n"));
    const std::string path = config.metrics_file().empty() ? state.folder->metrics_path() : config.metrics_file();
    INVAR_ASSIGN(state.metrics, MetricsFile::open(*state.files, path, state.resumed_from));
  } else if (!config.metrics_file().empty()) {
    INVAR_ASSIGN(state.metrics, MetricsFile::open(*state.files, config.metrics_file(), 0));
  }
  return session;
}

Status Session::State::open_output(std::string* checkpoint) {
  folder.emplace(*files, config.output());
  INVAR_ASSIGN(*checkpoint, folder->prepare(config.resume()));
  return {};
}

Status Session::State::resume_from(const std::string& checkpoint, const CancelFlag* cancel) {
  INVAR_ASSIGN(const RestoredRun run, restore_checkpoint(*files, checkpoint, learner.get(), cancel));
  const uint64_t digest = progress.data_digest;
  progress = run.progress;
  if (source) {
    if (progress.data_digest != digest) {
      return Error(Code::kFailedPrecondition, "text.data_changed",
                   cat(checkpoint,
                       ": the run was trained on other data than data.paths holds now; start a new run "
                       "from model.path to train on new data"));
    }
    INVAR_TRY(source->seek(progress.data));
  }
  INVAR_TRY(ladder->restore(progress.ladder));
  warnings = differences(run.config, config);
  for (const std::string& warning : warnings) log.warning(warning);
  resumed_from = progress.steps;
  return {};
}

Status Session::begin_window(int64_t micro_batches) {
  state_->window_start = Clock::now();
  return state_->learner->begin_window(micro_batches);
}

Result<LossSum> Session::forward_backward(const MicroBatch& batch) { return state_->learner->forward_backward(batch); }

Result<v1::StepMetrics> Session::step(std::optional<double> lr) { return state_->finish_step(lr); }

Result<v1::EvalMetrics> Session::evaluate(const CancelFlag* cancel) { return state_->evaluate(cancel); }

Result<LossSum> Session::evaluate_batch(const MicroBatch& batch, const TokenResults& results) {
  return model().evaluate(batch, results);
}

Result<std::string> Session::save() { return state_->save(); }
Status Session::save_to(const std::string& folder) { return state_->save_to(folder); }

Status Session::resume(const std::string& folder) {
  INVAR_ASSIGN(const std::string checkpoint, resolve_checkpoint(*state_->files, folder));
  INVAR_TRY(state_->resume_from(checkpoint, nullptr));
  return model().use_recipe(state_->ladder->recipe());
}

Result<v1::ExportReport> Session::export_to(const v1::ExportConfig& given, const CancelFlag* cancel,
                                            const std::function<void(int64_t done, int64_t total)>& progress) {
  State& state = *state_;
  return export_learner(*state.learner, state.side_files(), config::with_defaults(given),
                        {.files = state.files, .pool = state.pool.get(), .cancel = cancel, .progress = progress});
}

v1::TrainReport Session::report() const { return state_->report(/*cancelled=*/false); }

const v1::TrainConfig& Session::config() const { return state_->config; }
Model& Session::model() { return state_->learner->model(); }
const Tokenizer* Session::tokenizer() const { return state_->tokenizer.get(); }
int64_t Session::steps() const { return state_->learner->steps(); }
int64_t Session::resumed_from_step() const { return state_->resumed_from; }
const std::vector<std::string>& Session::warnings() const { return state_->warnings; }

}  // namespace invar
