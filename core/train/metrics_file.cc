#include "core/train/metrics_file.h"

#include "core/config/config.h"

namespace invar {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 31;

// The lines of `text` about steps up to `keep_steps`, up to the first that does not read.
std::string kept_lines(std::string_view text, int64_t keep_steps) {
  std::string kept;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // cut off by a kill
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const auto parsed = config::from_json<v1::MetricsLine>(line);
    if (!parsed.ok()) break;
    const int64_t step = parsed->has_step() ? parsed->step().step() : parsed->eval().step();
    if (step <= keep_steps) kept.append(line).push_back('\n');
  }
  return kept;
}

}  // namespace

Result<MetricsFile> MetricsFile::open(FileSystem& files, const std::string& path, int64_t keep_steps) {
  std::string kept;
  if (keep_steps > 0 && files.exists(path)) {
    INVAR_ASSIGN(const std::string before, read_text(files, path, kMaxBytes));
    kept = kept_lines(before, keep_steps);
  }
  // Under another name until the kept lines are in it, so that a kill here loses none.
  const std::string beside = path + ".partial";
  INVAR_ASSIGN(auto file, files.create(beside));
  if (!kept.empty()) INVAR_TRY(file->append(std::as_bytes(std::span(kept))));
  INVAR_TRY(files.rename(beside, path));
  return MetricsFile(std::move(file));
}

Status MetricsFile::write_line(const v1::MetricsLine& line) {
  const std::string text = config::to_json(line, /*pretty=*/false) + "\n";
  return file_->append(std::as_bytes(std::span(text)));
}

Status MetricsFile::write(const v1::StepMetrics& metrics) {
  v1::MetricsLine line;
  *line.mutable_step() = metrics;
  return write_line(line);
}

Status MetricsFile::write(const v1::EvalMetrics& metrics) {
  v1::MetricsLine line;
  *line.mutable_eval() = metrics;
  return write_line(line);
}

Status MetricsFile::close() { return file_->close(/*durable=*/false); }

}  // namespace invar
