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
  int64_t different = 0, first = -1;  // first: the lowest differing element
  double first_a = 0, first_b = 0;
  double max_abs = 0, max_rel = 0, amax = 0, signal = 0, noise = 0;

  void note(int64_t element, double a, double b) {
    if (different++ > 0) return;
    first = element;
    first_a = a;
    first_b = b;
  }
  void add(const Distance& other) {
    if (first < 0) {
      first = other.first;
      first_a = other.first_a;
      first_b = other.first_b;
    }
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

// How a tensor of both is compared.
enum class Way { kNone, kBytes, kValues };  // none: shapes or dtypes do not allow it

struct Pair {
  const TensorPlan *a, *b;
  Way way = Way::kNone;
  std::vector<Distance> parts;

  bool same_shape() const { return a->shape == b->shape; }
  bool same_dtype() const { return a->source->dtype == b->source->dtype; }
};

bool has_numbers(const TensorPlan& plan) {
  const DType dtype = plan.source->dtype;
  return bits_of(dtype) >= 8 && dtype != DType::kC64;
}

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

  // Numbers where both have them; the stored elements of packed formats, and of everything when nothing is decoded.
  Way way_of(const TensorPlan& a, const TensorPlan& b) const {
    if (a.shape != b.shape) return Way::kNone;
    if (config_.decode() && has_numbers(a) && has_numbers(b)) return Way::kValues;
    return a.source->dtype == b.source->dtype ? Way::kBytes : Way::kNone;
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
        if (wanted(*a)) pairs_.push_back(Pair{a, b, way_of(*a, *b), {}});
        ++i;
        ++k;
      }
    }
  }

  Status compare() {
    std::vector<Piece> pieces;
    for (Pair& pair : pairs_) {
      if (pair.way == Way::kNone) continue;
      const int64_t elements = element_count(pair.a->shape);
      for (int64_t first = 0; first < elements; first += kTileElements) {
        pieces.push_back({&pair, pair.parts.size(), first, std::min(kTileElements, elements - first)});
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
    return run_pieces(
        context_.pool, workers, static_cast<int64_t>(pieces.size()), context_.cancel,
        [&](int64_t index, int worker) -> Status {
          const Piece& piece = pieces[static_cast<size_t>(index)];
          Buffers& own = *buffers[static_cast<size_t>(worker)];
          INVAR_TRY(piece.pair->way == Way::kBytes ? compare_bytes(piece, own) : compare_values(piece, own));
          if (!context_.progress) return {};
          std::lock_guard lock(mutex);
          context_.progress(done += piece_bytes(piece), total);
          return {};
        });
  }

  // Of the first checkpoint.
  static int64_t piece_bytes(const Piece& piece) { return piece.pair->a->stored_bytes(piece.count); }

  // Elements of one dtype, bit for bit; pieces begin on whole bytes.
  Status compare_bytes(const Piece& piece, Buffers& buffers) {
    const DType dtype = piece.pair->a->source->dtype;
    const int64_t bits = bits_of(dtype), begin = bytes_of(dtype, piece.first);
    buffers.bytes_a.resize(static_cast<size_t>(bytes_of(dtype, piece.count)));
    buffers.bytes_b.resize(buffers.bytes_a.size());
    INVAR_TRY(a_.folder->read(*piece.pair->a->source, begin, buffers.bytes_a));
    INVAR_TRY(b_.folder->read(*piece.pair->b->source, begin, buffers.bytes_b));
    Distance& part = piece.pair->parts[piece.index];
    int64_t counted = -1;  // an element is counted once, however many of its bytes differ
    for (int64_t i = 0; i < static_cast<int64_t>(buffers.bytes_a.size()); ++i) {
      const auto changed =
          static_cast<uint8_t>(buffers.bytes_a[static_cast<size_t>(i)] ^ buffers.bytes_b[static_cast<size_t>(i)]);
      for (int bit = 0; changed >> bit != 0; ++bit) {
        const int64_t element = (8 * i + bit) / bits;
        if ((changed >> bit & 1) == 0 || element == counted) continue;
        counted = element;
        part.note(piece.first + element, 0, 0);
      }
    }
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
      part.note(piece.first + static_cast<int64_t>(i), x, y);
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

  // The word of TensorDiff.difference; empty when nothing differs.
  std::string difference_of(const Pair& pair, const Distance& all) const {
    if (!pair.same_shape()) return "shape";
    if (pair.way == Way::kNone) return "dtype";
    if (all.different == 0) return pair.same_dtype() ? "" : "stored_as";
    const bool within =
        pair.way == Way::kValues && config_.tolerance() > 0 && all.max_abs <= config_.tolerance() * all.amax;
    return within ? "within_tolerance" : "value";
  }

  void summarise() {
    // Both lists of single tensors are sorted, as the pairs are.
    std::string first;
    const auto note_different = [&](const std::string& name) {
      if (first.empty() || name < first) first = name;
    };
    if (report_.only_in_a_size() > 0) note_different(report_.only_in_a(0));
    if (report_.only_in_b_size() > 0) note_different(report_.only_in_b(0));
    bool identical = first.empty();
    int64_t equal = 0;
    for (const Pair& pair : pairs_) {
      Distance all;
      for (const Distance& part : pair.parts) all.add(part);
      const std::string difference = difference_of(pair, all);
      const bool same = difference.empty() || difference == "stored_as" || difference == "within_tolerance";
      equal += same;
      if (!same) {
        identical = false;
        note_different(pair.a->name);
      }
      if (!difference.empty()) list(pair, difference, all);
    }
    report_.set_compared(static_cast<int64_t>(pairs_.size()));
    report_.set_equal(equal);
    report_.set_identical(identical);
    if (!identical) report_.set_first_different(first);
  }

  void list(const Pair& pair, const std::string& difference, const Distance& all) {
    v1::TensorDiff& line = *report_.add_tensors();
    line.set_name(pair.a->name);
    line.set_difference(difference);
    line.set_dtype_a(static_cast<v1::DType>(pair.a->source->dtype));
    line.set_dtype_b(static_cast<v1::DType>(pair.b->source->dtype));
    for (int64_t size : pair.a->shape) line.add_shape_a(size);
    for (int64_t size : pair.b->shape) line.add_shape_b(size);
    line.set_elements(element_count(pair.a->shape));
    if (pair.way == Way::kNone) return;
    line.set_different(all.different);
    if (all.first >= 0) {
      for (int64_t index : position_of(pair.a->shape, all.first)) line.add_first_at(index);
    }
    if (pair.way == Way::kBytes) return;
    if (all.first >= 0) {
      line.set_first_a(all.first_a);
      line.set_first_b(all.first_b);
    }
    line.set_max_abs(all.max_abs);
    line.set_max_rel(all.max_rel);
    line.set_sqnr_db(all.noise == 0 ? std::numeric_limits<double>::infinity()
                                    : 10 * std::log10(all.signal / all.noise));
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
