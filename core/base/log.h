// The log sink: a function the host sets. Without one nothing is written anywhere.
// Thread rule: the sink may be called from any thread; the host's function must allow that.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace invar {

enum class LogLevel : int { kDebug = 1, kInfo = 2, kWarning = 3, kError = 4 };

class Logger {
 public:
  using Sink = std::function<void(LogLevel, std::string_view message)>;

  Logger() = default;
  explicit Logger(Sink sink) : sink_(std::move(sink)) {}

  void log(LogLevel level, std::string_view message) const {
    if (sink_) sink_(level, message);
  }
  void info(std::string_view message) const { log(LogLevel::kInfo, message); }
  void warning(std::string_view message) const { log(LogLevel::kWarning, message); }

 private:
  Sink sink_;
};

}  // namespace invar
