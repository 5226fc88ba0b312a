#include "tools/cli/progress_line.h"

#include <unistd.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace cli {

namespace {

constexpr auto kLiveInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(2);

const char* recipe_text(invar_recipe recipe) {
  switch (recipe) {
    case INVAR_RECIPE_FP32: return "fp32";
    case INVAR_RECIPE_BF16: return "bf16";
    case INVAR_RECIPE_FP8_TENSOR: return "fp8_tensor";
    case INVAR_RECIPE_FP8_BLOCK: return "fp8_block";
    default: return "?";
  }
}

const char* ladder_text(int32_t event) {
  switch (event) {
    case INVAR_LADDER_RAISED: return "ladder: the recipe starts";
    case INVAR_LADDER_FELL_BACK: return "ladder: anomaly, back to bf16";
    case INVAR_LADDER_FINAL: return "ladder: final steps in bf16";
    default: return "";
  }
}

}  // namespace

std::string format(const char* pattern, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
  va_end(arguments);
  return buffer;
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) bytes /= 1000, ++unit;
  return format(unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
}

std::string duration_text(double seconds) {
  if (!(seconds < 1e9)) return "?";
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 60) return format("%llds", whole);
  if (whole < 3600) return format("%lldm%02llds", whole / 60, whole % 60);
  return format("%lldh%02lldm", whole / 3600, whole / 60 % 60);
}

std::string count_text(long long count) {
  std::string digits = std::to_string(count);
  for (int at = static_cast<int>(digits.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

ProgressLine::ProgressLine(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

invar_progress_callback ProgressLine::callback() {
  invar_progress_callback callback = INVAR_PROGRESS_CALLBACK_INIT;
  callback.user = this;
  callback.call = [](void* user, const invar_progress* event) -> int32_t {
    static_cast<ProgressLine*>(user)->on_event(*event);
    return 0;
  };
  return callback;
}

void ProgressLine::finish() {
  if (live_) std::fputs("\r\033[K", stderr);
  live_ = false;
}

void ProgressLine::line(const std::string& text) {
  finish();
  std::fprintf(stderr, "%s\n", text.c_str());
}

void ProgressLine::update(const std::string& text, bool last) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_ && !last) return;
  next_ = now + (terminal_ ? std::chrono::steady_clock::duration(kLiveInterval)
                           : std::chrono::steady_clock::duration(kPlainInterval));
  if (!terminal_) return line(text);
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  live_ = true;
}

void ProgressLine::on_event(const invar_progress& event) {
  if (quiet_) return;
  if (event.kind == INVAR_PROGRESS_STEP) on_step(event);
  if (event.kind == INVAR_PROGRESS_WORK) on_work(event);
  if (event.kind == INVAR_PROGRESS_EVAL) {
    line(format("eval at step %lld: loss %.4f, perplexity %.3f, %s tokens", static_cast<long long>(event.eval->step),
                event.eval->loss, event.eval->perplexity, count_text(event.eval->tokens).c_str()));
  }
  if (event.kind == INVAR_PROGRESS_NOTE) line(std::string(event.stage) + ": " + event.detail);
}

void ProgressLine::on_step(const invar_progress& event) {
  const invar_step_metrics& step = *event.step;
  if (step.ladder_event != INVAR_LADDER_NONE) {
    line(format("step %lld: %s", static_cast<long long>(step.step), ladder_text(step.ladder_event)));
  }
  if (step.skipped != 0) {
    line(format("step %lld: gradients are not finite, update skipped (%lld so far)", static_cast<long long>(step.step),
                static_cast<long long>(step.total_skipped)));
  }
  const double left = event.total > step.step ? static_cast<double>(event.total - step.step) * step.seconds : 0;
  update(format("step %lld/%lld  loss %.4f  lr %.3g  grad norm %.3f  %.0f tokens/s  %s  ETA %s",
                static_cast<long long>(step.step), static_cast<long long>(event.total), step.loss, step.lr,
                step.grad_norm, step.tokens_per_second, recipe_text(step.recipe), duration_text(left).c_str()),
         step.step == 1 || step.step == event.total);
}

void ProgressLine::on_work(const invar_progress& event) {
  const bool in_bytes = std::string(event.unit) == "bytes";
  const auto amount = [&](int64_t value) {
    return in_bytes ? bytes_text(static_cast<double>(value)) : count_text(value) + " " + event.unit;
  };
  std::string text = std::string(event.stage) + "  " + amount(event.done);
  if (event.total > 0) {
    text += " of " + amount(event.total) +
            format("  %.0f%%", 100 * static_cast<double>(event.done) / static_cast<double>(event.total));
    if (event.done > 0 && event.done < event.total) {
      text += "  ETA " + duration_text(event.seconds * static_cast<double>(event.total - event.done) /
                                       static_cast<double>(event.done));
    }
  }
  // Work that ends before the first line is due needs none.
  if (!terminal_ && event.seconds < 2) return;
  update(text, false);
}

}  // namespace cli
