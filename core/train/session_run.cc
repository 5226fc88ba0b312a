#include <cmath>

#include "core/config/config.h"
#include "core/train/evaluate.h"
#include "core/train/session_state.h"

namespace invar {
namespace {

std::string_view ladder_event(LadderCause cause) {
  switch (cause) {
    case LadderCause::kWarmupDone:
    case LadderCause::kCooldownDone: return "raised";
    case LadderCause::kAnomaly: return "fell_back";
    case LadderCause::kFinal: return "final";
    case LadderCause::kNone: break;
  }
  return "";
}

}  // namespace

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Result<v1::StepMetrics> Session::State::finish_step(std::optional<double> lr) {
  const Recipe recipe = ladder->recipe();
  INVAR_ASSIGN(const StepOutcome outcome, learner->step(lr ? *lr : schedule.lr_at(learner->steps())));
  const int64_t step = learner->steps() + (outcome.skipped ? 1 : 0);  // the step it is, or was to be
  progress.steps = learner->steps();
  progress.total_tokens += outcome.tokens;
  if (outcome.skipped) {
    ++progress.total_skipped;
    ++progress.skipped_in_a_row;
    log.warning(cat("step ", step, " skipped: ", outcome.first_bad, " is not finite"));
  } else {
    progress.skipped_in_a_row = 0;
    progress.add_loss(outcome.loss);
  }
  progress.spans.back().last_step = step;
  const LadderDecision decision =
      ladder->observe({.finite = !outcome.skipped, .loss = outcome.loss, .grad_norm = outcome.grad_norm});
  if (decision.changed()) {
    log.info(cat("step ", step, ": ", decision.reason));
    if (ladder->recipe() != recipe) {
      INVAR_TRY(learner->model().use_recipe(ladder->recipe()));
      progress.spans.push_back(
          {ladder->recipe(), learner->steps() + 1, learner->steps(), std::string(ladder_cause_name(decision.cause))});
    }
  }
  const double seconds = seconds_since(window_start);
  progress.seconds += seconds;

  v1::StepMetrics metrics;
  metrics.set_step(step);
  if (std::isfinite(outcome.loss)) metrics.set_loss(outcome.loss);
  metrics.set_lr(outcome.lr);
  if (std::isfinite(outcome.grad_norm)) metrics.set_grad_norm(outcome.grad_norm);
  metrics.set_tokens(outcome.tokens);
  metrics.set_total_tokens(progress.total_tokens);
  metrics.set_seconds(seconds);
  metrics.set_tokens_per_second(seconds > 0 ? static_cast<double>(outcome.tokens) / seconds : 0);
  metrics.set_recipe(static_cast<v1::Recipe>(recipe));
  metrics.set_skipped(outcome.skipped);
  metrics.set_total_skipped(progress.total_skipped);
  metrics.set_clip_factor(outcome.clip_factor);
  if (decision.changed()) metrics.set_ladder_event(std::string(ladder_event(decision.cause)));
  if (this->metrics) INVAR_TRY(this->metrics->write(metrics));

  if (progress.skipped_in_a_row >= config.precision().max_skipped_steps()) {
    return Error(Code::kAborted, "train.not_finite",
                 cat(progress.skipped_in_a_row, " steps in a row were skipped for non-finite numbers; in step ", step,
                     " the first is in ", outcome.first_bad, ": lower optimizer.lr, or look at the data and weights"));
  }
  return metrics;
}

Result<v1::EvalMetrics> Session::State::evaluate(const CancelFlag* cancel) {
  const auto start = Clock::now();
  const bool own_files = data.evaluation != nullptr;
  const auto& sequences = own_files ? data.evaluation : data.training;
  if (sequences == nullptr || (!own_files && sequences->heldout() == 0)) {
    return Error(Code::kFailedPrecondition, "train.nothing_to_evaluate",
                 "no text is held out: set data.heldout_fraction or data.eval_paths");
  }
  INVAR_ASSIGN(const LossSum loss, evaluate_sequences(learner->model(), *sequences,
                                                      own_files ? SequencePart::kTraining : SequencePart::kHeldout,
                                                      config.eval_sequences(), config.micro_batch(), cancel));
  const double mean = loss.sum / static_cast<double>(std::max<int64_t>(loss.count, 1));
  v1::EvalMetrics metrics;
  metrics.set_step(learner->steps());
  metrics.set_loss(mean);
  metrics.set_perplexity(std::exp(mean));
  metrics.set_tokens(loss.count);
  metrics.set_seconds(seconds_since(start));
  if (!progress.best_eval_loss || mean < *progress.best_eval_loss) progress.best_eval_loss = mean;
  if (this->metrics) INVAR_TRY(this->metrics->write(metrics));
  return metrics;
}

std::vector<SideFile> Session::State::side_files() const {
  std::vector<SideFile> side_files;
  if (tokenizer != nullptr) {
    for (TokenizerFile& file : tokenizer->files())
      side_files.push_back({std::move(file.name), std::move(file.text), ""});
    const std::string generation = join_path(config.model().path(), "generation_config.json");
    if (!config.model().path().empty() && files->exists(generation)) {
      side_files.push_back({"generation_config.json", "", generation});
    }
    return side_files;
  }
  // A tokenizer that is not supported travels as it is.
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model",
                           "vocab.json", "merges.txt", "generation_config.json"}) {
    std::string path = join_path(config.model().path(), name);
    if (!config.model().path().empty() && files->exists(path)) side_files.push_back({name, "", std::move(path)});
  }
  return side_files;
}

Result<TrainingSnapshot> Session::State::snapshot() {
  if (source) progress.data = source->position();
  progress.ladder = ladder->save();
  return snapshot_of(*learner, progress, config, side_files());
}

Status Session::State::save_to(const std::string& path) {
  INVAR_ASSIGN(const TrainingSnapshot now, snapshot());
  return save_training_checkpoint_as(*files, path, now, {.durable = config.checkpoint().durable(), .pool = pool.get()});
}

Result<std::string> Session::State::save() {
  if (!folder) {
    return Error(Code::kFailedPrecondition, "train.no_output",
                 "the session has no output folder: set output, or save to a folder of your choice");
  }
  if (saved_step == learner->steps() && saved_skipped == progress.total_skipped) return saved_path;
  INVAR_ASSIGN(const TrainingSnapshot now, snapshot());
  const TrainingSaveOptions options{.keep = config.checkpoint().keep(),
                                    .write = {.durable = config.checkpoint().durable(), .pool = pool.get()}};
  INVAR_ASSIGN(const SavedCheckpoint saved, save_training_checkpoint(*files, folder->checkpoints_path(), now, options));
  for (const Finding& finding : saved.findings) log.warning(finding.message);
  saved_path = saved.path;
  saved_step = learner->steps();
  saved_skipped = progress.total_skipped;
  return saved_path;
}

Result<std::vector<std::string>> Session::State::write_exports(const CancelFlag* cancel) {
  std::vector<std::string> paths;
  for (const int target : config.checkpoint().exports()) {
    v1::ExportConfig wanted;
    wanted.set_target(static_cast<v1::TargetFormat>(target));
    wanted.set_bf16_copy(config.checkpoint().bf16_copy() && target_name(wanted.target()).rfind("fp8", 0) == 0);
    wanted.set_destination(folder->export_path(target_name(wanted.target())));
    // A run that was continued replaces what its shorter self exported.
    INVAR_TRY(files->remove_all(wanted.destination()));
    if (wanted.bf16_copy()) INVAR_TRY(files->remove_all(wanted.destination() + "-bf16"));
    for (const std::string& pattern : config.precision().keep_bf16()) wanted.add_keep_bf16(pattern);
    INVAR_ASSIGN(const v1::ExportReport made, export_learner(*learner, side_files(), config::with_defaults(wanted),
                                                             {.files = files, .pool = pool.get(), .cancel = cancel}));
    for (const std::string& warning : made.warnings()) warnings.push_back(cat(wanted.destination(), ": ", warning));
    paths.push_back(wanted.destination());
  }
  return paths;
}

v1::TrainReport Session::State::report(bool cancelled) const {
  v1::TrainReport report;
  report.set_output(config.output());
  report.set_steps(progress.steps);
  report.set_resumed_from_step(resumed_from);
  report.set_total_tokens(progress.total_tokens);
  report.set_parameters(learner->parameter_count());
  if (progress.first_loss) report.set_first_loss(*progress.first_loss);
  if (!progress.recent_losses.empty()) {
    report.set_last_loss(progress.recent_losses.back());
    report.set_tail_loss(progress.tail_loss());
  }
  if (progress.best_eval_loss) report.set_best_eval_loss(*progress.best_eval_loss);
  report.set_seconds(progress.seconds);
  report.set_tokens_per_second(progress.seconds > 0 ? static_cast<double>(progress.total_tokens) / progress.seconds
                                                    : 0);
  report.set_skipped_steps(progress.total_skipped);
  for (const RecipeSpanState& span : progress.spans) {
    if (span.last_step < span.first_step) continue;  // no step ran in it yet
    v1::RecipeSpan* out = report.add_recipes();
    out->set_recipe(static_cast<v1::Recipe>(span.recipe));
    out->set_first_step(span.first_step);
    out->set_last_step(span.last_step);
    out->set_reason(span.reason);
  }
  if (folder) report.set_metrics_file(config.metrics_file().empty() ? folder->metrics_path() : config.metrics_file());
  report.set_cancelled(cancelled);
  for (const std::string& warning : warnings) report.add_warnings(warning);
  return report;
}

Result<v1::TrainReport> Session::train(const TrainCallbacks& callbacks, const CancelFlag* cancel) {
  State& state = *state_;
  const v1::TrainConfig& config = state.config;
  if (!state.source) {
    return Error(Code::kFailedPrecondition, "train.no_data",
                 "the session has no text: set data.paths, or drive it micro-batch by micro-batch");
  }
  const auto is_cancelled = [&] { return cancel != nullptr && cancel->cancelled(); };
  const auto save = [&]() -> Result<std::string> {
    INVAR_ASSIGN(std::string path, state.save());
    if (callbacks.on_checkpoint) callbacks.on_checkpoint(path);
    return path;
  };
  const bool may_evaluate = state.data.evaluation != nullptr || state.data.training->heldout() > 0;
  std::optional<v1::EvalMetrics> last_eval;
  const auto evaluate = [&]() -> Status {
    INVAR_ASSIGN(last_eval, state.evaluate(cancel));
    if (callbacks.on_eval) callbacks.on_eval(*last_eval);
    return {};
  };
  TokenBatch batch;
  while (state.learner->steps() < config.steps() && !is_cancelled()) {
    INVAR_TRY(begin_window(config.accumulation()));
    for (int64_t i = 0; i < config.accumulation(); ++i) {
      INVAR_TRY(state.source->next(config.micro_batch(), &batch));
      INVAR_TRY(forward_backward(micro_batch_of(batch)).status());
    }
    INVAR_ASSIGN(const v1::StepMetrics metrics, state.finish_step());
    if (callbacks.on_step) callbacks.on_step(metrics);
    const int64_t done = state.learner->steps();
    if (metrics.skipped() || done == config.steps()) continue;
    const auto due = [&](int64_t every) { return every > 0 && done % every == 0; };
    if (may_evaluate && due(config.eval_every())) {
      const Status status = evaluate();
      if (status.code() != Code::kCancelled) INVAR_TRY(status);  // cancelled: the loop ends and saves
    }
    if (state.folder && due(config.checkpoint().save_every())) INVAR_TRY(save().status());
  }
  const bool cancelled = state.learner->steps() < config.steps();
  std::string checkpoint;
  if (state.folder && (cancelled || config.checkpoint().save_final())) {
    INVAR_ASSIGN(checkpoint, save());
  }
  if (!cancelled && may_evaluate) {
    const Status status = evaluate();
    if (status.code() != Code::kCancelled) INVAR_TRY(status);
  }
  std::vector<std::string> exports;
  if (!cancelled && state.folder) {
    INVAR_ASSIGN(exports, state.write_exports(cancel));
  }
  v1::TrainReport report = state.report(cancelled);
  for (const std::string& path : exports) report.add_exports(path);
  if (last_eval && last_eval->step() == state.learner->steps()) *report.mutable_final_eval() = *last_eval;
  report.set_checkpoint(checkpoint);
  return report;
}

}  // namespace invar
