// The JSON lines file of a run: one MetricsLine a line, written as the run goes.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/file.h"
#include "core/base/status.h"
#include "proto/invar/v1/metrics.pb.h"

namespace invar {

class MetricsFile {
 public:
  // keep_steps: lines of an existing file about steps up to this one stay, later ones and whatever a kill cut off go.
  static Result<MetricsFile> open(FileSystem& files, const std::string& path, int64_t keep_steps);

  Status write(const v1::StepMetrics& metrics);
  Status write(const v1::EvalMetrics& metrics);
  Status close();

 private:
  explicit MetricsFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  Status write_line(const v1::MetricsLine& line);
  std::unique_ptr<WritableFile> file_;
};

}  // namespace invar
