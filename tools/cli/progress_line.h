// Progress on standard error: one live line on a terminal, a plain line now and then otherwise.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <string>

#include "invar/invar.h"

namespace cli {

class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // For the library; valid while this object lives.
  invar_progress_callback callback();
  // Clears the live line, so that other text can follow.
  void finish();

 private:
  void on_event(const invar_progress& event);
  void on_step(const invar_progress& event);
  void on_work(const invar_progress& event);
  // A line that stays.
  void line(const std::string& text);
  // The live line, or a plain one when it is due.
  void update(const std::string& text, bool last);

  bool quiet_;
  bool terminal_;
  bool live_ = false;  // a live line stands on the terminal
  std::chrono::steady_clock::time_point next_{};
};

// "1.2 GB", "3m20s", "12,345": for people.
std::string bytes_text(double bytes);
std::string duration_text(double seconds);
std::string count_text(long long count);
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

}  // namespace cli
