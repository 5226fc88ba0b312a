#include "core/checkpoint/diff.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>

#include "core/base/glob.h"
#include "core/checkpoint/layout.h"
#include "core/checkpoint/tile.h"
#include "core/checkpoint/tile_runner.h"
#include "core/checkpoint/values.h"
#include "core/config/config.h"

namespace invar {
namespace {

// What two runs of values have between them. Sums are added in the order of the runs.
struct Distance {
  int64_t different = 0;
  double max_abs = 0, max_rel = 0, amax = 0, signal = 0, noise = 0;

  void add(const Distance& other) {
    different += other.different;
    max_abs = std::max(max_abs, other.max_abs);
    max_rel = std::max(max_rel, other.max_rel);
    amax = std::max(amax, other.amax);
    signal += other.signal;
    noise += other.noise;
  }
};

// One side of the comparison.
struct Side {
  std::unique_ptr<CheckpointFolder> folder;  // layout points into it
  std::vector<TensorPlan> plans;             // sorted by name
  std::vector<std::string> warnings;

  static Result<Side> open(FileSystem& files, const std::string& path, const Assumptions& assume, bool decode) {
    Side side;
    INVAR_ASSIGN(auto opened, CheckpointFolder::open(files, path));
    side.folder = std::make_unique<CheckpointFolder>(std::move(opened));
    if (!decode) {
      for (const TensorInfo& tensor : side.folder->tensors()) {
        TensorPlan plan;
        plan.source = &tensor;
        plan.name = tensor.name;
        plan.shape = tensor.shape;
        side.plans.push_back(std::move(plan));
      }
      return side;
    }
    INVAR_ASSIGN(Layout layout, classify(*side.folder, assume));
    side.plans = std::move(layout.tensors);
    for (const Finding& finding : layout.findings) side.warnings.push_back(cat(finding.reason, ": ", finding.message));
    std::sort(side.plans.begin(), side.plans.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return side;
  }
};

struct Pair {
  const TensorPlan *a, *b;
  bool by_bytes = false;
  std::vector<Distance> parts;
};

struct Piece {
  Pair* pair;
  size_t index;
  int64_t first, count;
};

struct Buffers {
  Buffers(const CheckpointFolder& a, const CheckpointFolder& b) : reader_a(a), reader_b(b) {}
  ValueReader reader_a, reader_b;
  std::vector<double> a, b;
  std::vector<std::byte> bytes_a, bytes_b;
};

class Difference {
 public:
  Difference(v1::DiffConfig config, const WorkContext& context) : config_(std::move(config)), context_(context) {}

  Result<v1::DiffReport> run() {
    const auto begin = std::chrono::steady_clock::now();
    const Assumptions assume(config_.assume().begin(), config_.assume().end());
    INVAR_ASSIGN(a_, Side::open(context_.files, config_.a(), assume, config_.decode()));
    INVAR_ASSIGN(b_, Side::open(context_.files, config_.b(), assume, config_.decode()));
    report_.set_a(config_.a());
    report_.set_b(config_.b());
    for (const Side* side : {&a_, &b_}) {
      for (const std::string& warning : side->warnings) report_.add_warnings(warning);
    }
    match();
    INVAR_TRY(compare());
    summarise();
    report_.set_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return std::move(report_);
  }

 private:
  bool wanted(const TensorPlan& plan) const {
    return config_.names().empty() || glob_match(config_.names(), plan.name);
  }

  void match() {
    size_t i = 0, k = 0;
    while (i < a_.plans.size() || k < b_.plans.size()) {
      const TensorPlan* a = i < a_.plans.size() ? &a_.plans[i] : nullptr;
      const TensorPlan* b = k < b_.plans.size() ? &b_.plans[k] : nullptr;
      if (b == nullptr || (a != nullptr && a->name < b->name)) {
        if (wanted(*a)) report_.add_only_in_a(a->name);
        ++i;
      } else if (a == nullptr || b->name < a->name) {
        if (wanted(*b)) report_.add_only_in_b(b->name);
        ++k;
      } else {
        if (wanted(*a)) pairs_.push_back(Pair{a, b, false, {}});
        ++i;
        ++k;
      }
    }
  }

  Status compare() {
    std::vector<Piece> pieces;
    for (Pair& pair : pairs_) {
      if (pair.a->shape != pair.b->shape) continue;
      const DType da = pair.a->source->dtype, db = pair.b->source->dtype;
      if (!config_.decode() && da != db) continue;
      // Numbers where both have them; bytes for packed formats.
      const bool numbers = bits_of(da) >= 8 && bits_of(db) >= 8 && da != DType::kC64 && db != DType::kC64;
      pair.by_bytes = !config_.decode() || !numbers;
      if (pair.by_bytes && da != db) continue;
      const int64_t units = pair.by_bytes ? pair.a->source->byte_size() : element_count(pair.a->shape);
      for (int64_t first = 0; first < units; first += kTileElements) {
        pieces.push_back({&pair, pair.parts.size(), first, std::min(kTileElements, units - first)});
        pair.parts.emplace_back();
      }
    }
    int workers = context_.pool.threads();
    if (config_.threads() > 0) workers = static_cast<int>(std::min<int64_t>(workers, config_.threads()));
    workers = static_cast<int>(std::clamp<int64_t>(config_.memory_bytes() / (kTileElements * 32), 1, workers));
    std::vector<std::unique_ptr<Buffers>> buffers;
    for (int i = 0; i < workers; ++i) buffers.push_back(std::make_unique<Buffers>(*a_.folder, *b_.folder));
    std::mutex mutex;
    int64_t done = 0, total = 0;
    for (const Piece& piece : pieces) total += piece_bytes(piece);
    return run_pieces(context_.pool, workers, static_cast<int64_t>(pieces.size()), context_.cancel,
                      [&](int64_t index, int worker) -> Status {
                        const Piece& piece = pieces[static_cast<size_t>(index)];
                        Buffers& own = *buffers[static_cast<size_t>(worker)];
                        INVAR_TRY(piece.pair->by_bytes ? compare_bytes(piece, own) : compare_values(piece, own));
                        if (!context_.progress) return {};
                        std::lock_guard lock(mutex);
                        context_.progress(done += piece_bytes(piece), total);
                        return {};
                      });
  }

  // Of the first checkpoint.
  static int64_t piece_bytes(const Piece& piece) {
    return piece.pair->by_bytes ? piece.count : piece.pair->a->stored_bytes(piece.count);
  }

  Status compare_bytes(const Piece& piece, Buffers& buffers) {
    buffers.bytes_a.resize(static_cast<size_t>(piece.count));
    buffers.bytes_b.resize(static_cast<size_t>(piece.count));
    INVAR_TRY(a_.folder->read(*piece.pair->a->source, piece.first, buffers.bytes_a));
    INVAR_TRY(b_.folder->read(*piece.pair->b->source, piece.first, buffers.bytes_b));
    Distance& part = piece.pair->parts[piece.index];
    for (size_t i = 0; i < buffers.bytes_a.size(); ++i) part.different += buffers.bytes_a[i] != buffers.bytes_b[i];
    return {};
  }

  Status compare_values(const Piece& piece, Buffers& buffers) {
    buffers.a.resize(static_cast<size_t>(piece.count));
    buffers.b.resize(static_cast<size_t>(piece.count));
    INVAR_TRY(buffers.reader_a.read(*piece.pair->a, piece.first, std::span(buffers.a)));
    INVAR_TRY(buffers.reader_b.read(*piece.pair->b, piece.first, std::span(buffers.b)));
    Distance part;
    for (size_t i = 0; i < buffers.a.size(); ++i) {
      const double x = buffers.a[i], y = buffers.b[i];
      if (x == y || (std::isnan(x) && std::isnan(y))) {
        if (std::isfinite(x)) {
          part.amax = std::max(part.amax, std::fabs(x));
          part.signal += x * x;
        }
        continue;
      }
      ++part.different;
      const double error = std::fabs(x - y);
      if (!std::isfinite(error)) {
        part.max_abs = part.max_rel = part.noise = std::numeric_limits<double>::infinity();
        continue;
      }
      part.amax = std::max(part.amax, std::fabs(x));
      part.max_abs = std::max(part.max_abs, error);
      part.max_rel = std::max(part.max_rel, x == 0 ? std::numeric_limits<double>::infinity() : error / std::fabs(x));
      part.signal += x * x;
      part.noise += error * error;
    }
    piece.pair->parts[piece.index] = part;
    return {};
  }

  void summarise() {
    bool identical = report_.only_in_a_size() == 0 && report_.only_in_b_size() == 0;
    int64_t equal = 0;
    for (const Pair& pair : pairs_) {
      Distance all;
      for (const Distance& part : pair.parts) all.add(part);
      const bool same_shape = pair.a->shape == pair.b->shape;
      const DType da = pair.a->source->dtype, db = pair.b->source->dtype;
      const bool compared = same_shape && (da == db || (config_.decode() && !pair.by_bytes));
      const bool within = compared && (all.different == 0 || (!pair.by_bytes && config_.tolerance() > 0 &&
                                                              all.max_abs <= config_.tolerance() * all.amax));
      identical = identical && within;
      equal += within;
      if (within && all.different == 0 && da == db) continue;
      v1::TensorDiff& line = *report_.add_tensors();
      line.set_name(pair.a->name);
      line.set_dtype_a(static_cast<v1::DType>(da));
      line.set_dtype_b(static_cast<v1::DType>(db));
      for (int64_t size : pair.a->shape) line.add_shape_a(size);
      for (int64_t size : pair.b->shape) line.add_shape_b(size);
      line.set_elements(element_count(pair.a->shape));
      if (!compared) continue;
      line.set_different(all.different);
      if (pair.by_bytes) continue;
      line.set_max_abs(all.max_abs);
      line.set_max_rel(all.max_rel);
      line.set_sqnr_db(all.noise == 0 ? std::numeric_limits<double>::infinity()
                                      : 10 * std::log10(all.signal / all.noise));
    }
    report_.set_compared(static_cast<int64_t>(pairs_.size()));
    report_.set_equal(equal);
    report_.set_identical(identical);
  }

  v1::DiffConfig config_;
  const WorkContext& context_;
  Side a_, b_;
  std::vector<Pair> pairs_;
  v1::DiffReport report_;
};

}  // namespace

Result<v1::DiffReport> diff(const v1::DiffConfig& config, const WorkContext& context) {
  INVAR_TRY(config::check(config));
  return Difference(config::with_defaults(config), context).run();
}

}  // namespace invar
