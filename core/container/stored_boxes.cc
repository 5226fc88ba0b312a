#include "core/container/stored_boxes.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "core/container/tensor_info.h"

namespace invar {
namespace {

constexpr int64_t kScratchBytes = 4 << 20;      // of a span that is read whole to pick elements from
constexpr int64_t kShortRunBytes = 512;         // shorter runs are picked from a span
constexpr int64_t kMaxComparisons = 1LL << 24;  // pairs of boxes looked at when a tiling is checked

bool multiply_add(int64_t a, int64_t b, int64_t* sum) {
  int64_t product;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(*sum, product, sum);
}

// Walks the indices of a box in row-major order and keeps the element offset they have in the file.
class Odometer {
 public:
  Odometer(const StoredBox& box, int64_t element) : box_(box), index_(box.sizes.size()) {
    for (size_t d = index_.size(); d-- > 0;) {
      index_[d] = element % box.sizes[d];
      element /= box.sizes[d];
      offset_ += index_[d] * box.strides[d];
    }
  }
  int64_t offset() const { return offset_; }
  const std::vector<int64_t>& index() const { return index_; }

  void next() {
    for (size_t d = index_.size(); d-- > 0;) {
      offset_ += box_.strides[d];
      if (++index_[d] < box_.sizes[d]) return;
      offset_ -= box_.strides[d] * box_.sizes[d];
      index_[d] = 0;
    }
  }

 private:
  const StoredBox& box_;
  std::vector<int64_t> index_;
  int64_t offset_ = 0;
};

// The first dimension from which the box is stored without gaps.
size_t packed_from(const StoredBox& box) {
  int64_t step = 1;
  size_t from = box.sizes.size();
  while (from > 0 && (box.sizes[from - 1] == 1 || box.strides[from - 1] == step)) step *= box.sizes[--from];
  return from;
}

bool overlap(const StoredBox& a, const StoredBox& b) {
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (a.origin[d] + a.sizes[d] <= b.origin[d] || b.origin[d] + b.sizes[d] <= a.origin[d]) return false;
  }
  return true;
}

// Sorted along the dimension that is cut most often, a box meets few others.
Status check_disjoint(const std::string& label, std::string_view reason, const std::vector<StoredBox>& boxes) {
  const size_t rank = boxes[0].sizes.size();
  size_t along = 0, most = 0;
  for (size_t d = 0; d < rank; ++d) {
    std::set<int64_t> places;
    for (const StoredBox& box : boxes) places.insert(box.origin[d]);
    if (places.size() > most) along = d, most = places.size();
  }
  std::vector<const StoredBox*> order;
  for (const StoredBox& box : boxes) order.push_back(&box);
  if (rank > 0) {
    std::sort(order.begin(), order.end(), [along](auto* a, auto* b) { return a->origin[along] < b->origin[along]; });
  }
  int64_t comparisons = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t k = i + 1; k < order.size(); ++k) {
      if (rank > 0 && order[k]->origin[along] >= order[i]->origin[along] + order[i]->sizes[along]) break;
      if (overlap(*order[i], *order[k])) {
        return Error(
            Code::kDataLoss, reason,
            cat(label, ": the pieces at ", shape_text(order[i]->origin), " of size ", shape_text(order[i]->sizes),
                " and at ", shape_text(order[k]->origin), " of size ", shape_text(order[k]->sizes), " overlap"));
      }
      if (++comparisons > kMaxComparisons) {
        return Error(Code::kDataLoss, reason, cat(label, ": is cut into ", boxes.size(), " pieces, more than can be"));
      }
    }
  }
  return {};
}

}  // namespace

std::vector<int64_t> packed_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0; step *= sizes[d]) strides[d] = step;
  return strides;
}

int64_t extent_bytes(const StoredBox& box, int64_t width) {
  int64_t last = 0;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    if (box.sizes[d] == 0) return 0;
    if (!multiply_add(box.sizes[d] - 1, box.strides[d], &last)) return -1;
  }
  int64_t bytes = width;
  return multiply_add(last, width, &bytes) ? bytes : -1;
}

Result<StoredBoxes> StoredBoxes::make(const std::string& label, std::string_view reason, std::vector<int64_t> shape,
                                      int64_t width, std::vector<StoredBox> boxes) {
  const auto bad = [&](const std::string& what) { return Error(Code::kDataLoss, reason, cat(label, ": ", what)); };
  const int64_t elements = element_count(shape);
  int64_t covered = 0;
  std::erase_if(
      boxes, [](const StoredBox& box) { return std::find(box.sizes.begin(), box.sizes.end(), 0) != box.sizes.end(); });
  for (const StoredBox& box : boxes) {
    if (box.sizes.size() != shape.size() || box.origin.size() != shape.size() || box.strides.size() != shape.size()) {
      return bad(cat("a piece of size ", shape_text(box.sizes), " does not fit the shape ", shape_text(shape)));
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      if (box.origin[d] < 0 || box.sizes[d] < 0 || box.sizes[d] > shape[d] || box.origin[d] > shape[d] - box.sizes[d]) {
        return bad(cat("the piece at ", shape_text(box.origin), " of size ", shape_text(box.sizes),
                       " leaves the shape ", shape_text(shape)));
      }
      if (box.strides[d] < 0) return bad(cat("has the stride ", box.strides[d], "; none may be negative"));
    }
    const int64_t extent = extent_bytes(box, width);
    if (box.begin < 0 || extent < 0 || box.begin > box.file->size() || extent > box.file->size() - box.begin) {
      return bad(cat("needs ", extent < 0 ? std::string("more than 63 bits of") : cat(extent), " bytes from byte ",
                     box.begin, " of ", box.file->path(), ", which has ", box.file->size()));
    }
    covered += element_count(box.sizes);  // each at most `elements`
    if (covered > elements) return bad(cat("its pieces hold more than the ", elements, " elements of the shape"));
  }
  if (covered != elements) {
    return bad(cat("its pieces hold ", covered, " of the ", elements, " elements of shape ", shape_text(shape)));
  }
  if (boxes.size() > 1) INVAR_TRY(check_disjoint(label, reason, boxes));

  StoredBoxes made;
  made.width_ = width;
  if (elements == 0) return made;  // nothing is ever read
  made.shape_strides_ = packed_strides(shape);
  const auto first_of = [&](const StoredBox& box) {
    return std::inner_product(box.origin.begin(), box.origin.end(), made.shape_strides_.begin(), int64_t{0});
  };
  std::sort(boxes.begin(), boxes.end(), [&](const auto& a, const auto& b) { return first_of(a) < first_of(b); });
  for (const StoredBox& box : boxes) {
    Runs runs;
    runs.length = runs.count = 1;
    size_t k = shape.size();
    while (k > 0) {
      --k;
      runs.length *= box.sizes[k];
      if (box.sizes[k] != shape[k]) break;
    }
    runs.outer = k;
    for (size_t d = 0; d < k; ++d) runs.count *= box.sizes[d];
    made.runs_.push_back(runs);
  }
  made.shape_ = std::move(shape);
  made.boxes_ = std::move(boxes);
  for (size_t i = 0; i < made.boxes_.size(); ++i) {
    made.runs_[i].first = made.run_begin(i, 0);
    made.runs_[i].end = made.run_begin(i, made.runs_[i].count - 1) + made.runs_[i].length;
  }
  return made;
}

int64_t StoredBoxes::run_begin(size_t box, int64_t run) const {
  const StoredBox& at = boxes_[box];
  int64_t element = 0;
  for (size_t d = runs_[box].outer; d < shape_.size(); ++d) element += at.origin[d] * shape_strides_[d];
  for (size_t d = runs_[box].outer; d-- > 0; run /= at.sizes[d]) {
    element += (at.origin[d] + run % at.sizes[d]) * shape_strides_[d];
  }
  return element;
}

Status StoredBoxes::read(int64_t offset, std::span<std::byte> out) const {
  const auto bytes = static_cast<int64_t>(out.size());
  if (bytes == 0) return {};
  const int64_t first = offset / width_, end = (offset + bytes + width_ - 1) / width_;
  if (offset % width_ == 0 && bytes % width_ == 0) return read_elements(first, end - first, out.data());
  std::vector<std::byte> whole(static_cast<size_t>((end - first) * width_));
  INVAR_TRY(read_elements(first, end - first, whole.data()));
  std::memcpy(out.data(), whole.data() + (offset - first * width_), out.size());
  return {};
}

Status StoredBoxes::read_elements(int64_t first, int64_t count, std::byte* out) const {
  const int64_t end = first + count;
  std::vector<std::byte> scratch;
  for (size_t i = 0; i < boxes_.size(); ++i) {
    const Runs& runs = runs_[i];
    if (runs.first >= end) break;  // sorted
    if (runs.end <= first) continue;
    // The first run that ends behind `first`, and the first that begins at or behind `end`.
    int64_t low = 0, high = runs.count;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      run_begin(i, middle) + runs.length <= first ? low = middle + 1 : high = middle;
    }
    const int64_t from = low;
    for (high = runs.count; low < high;) {
      const int64_t middle = low + (high - low) / 2;
      run_begin(i, middle) < end ? low = middle + 1 : high = middle;
    }
    const int64_t to = low;
    if (from == to) continue;
    const int64_t begin = from * runs.length + std::max<int64_t>(0, first - run_begin(i, from));
    const int64_t stop = to * runs.length - std::max<int64_t>(0, run_begin(i, to - 1) + runs.length - end);
    if (to - from == 1) {
      const int64_t at = run_begin(i, from) + begin - from * runs.length;
      INVAR_TRY(read_box(boxes_[i], begin, stop - begin, out + (at - first) * width_));
      continue;
    }
    scratch.resize(static_cast<size_t>((stop - begin) * width_));
    INVAR_TRY(read_box(boxes_[i], begin, stop - begin, scratch.data()));
    for (int64_t run = from; run < to; ++run) {
      const int64_t a = std::max(begin, run * runs.length), b = std::min(stop, (run + 1) * runs.length);
      const int64_t at = run_begin(i, run) + a - run * runs.length;
      std::memcpy(out + (at - first) * width_, scratch.data() + (a - begin) * width_,
                  static_cast<size_t>((b - a) * width_));
    }
  }
  return {};
}

// Elements [first, first + count) of the box itself, in row-major order.
Status StoredBoxes::read_box(const StoredBox& box, int64_t first, int64_t count, std::byte* out) const {
  const size_t packed = packed_from(box);
  if (packed == 0) {
    return box.file->read_at(box.begin + first * width_, {out, static_cast<size_t>(count * width_)});
  }
  int64_t length = 1;
  for (size_t d = packed; d < box.sizes.size(); ++d) length *= box.sizes[d];
  if (length * width_ < kShortRunBytes) return read_across(box, first, count, out);
  for (const int64_t end = first + count; first < end;) {
    const int64_t n = std::min(length - first % length, end - first);
    const int64_t at = box.begin + Odometer(box, first).offset() * width_;
    INVAR_TRY(box.file->read_at(at, {out, static_cast<size_t>(n * width_)}));
    out += n * width_;
    first += n;
  }
  return {};
}

// Single elements far from each other: from one span of the file when they lie close together; along the dimension that
// is packed in the file when there is one (a transposed matrix); else half by half.
Status StoredBoxes::read_across(const StoredBox& box, int64_t first, int64_t count, std::byte* out) const {
  const Odometer begin(box, first), last(box, first + count - 1);
  size_t differs = 0;
  while (differs < box.sizes.size() && begin.index()[differs] == last.index()[differs]) ++differs;
  int64_t low = 0, high = 0;  // element offsets that bound the range
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    low += d <= differs ? begin.index()[d] * box.strides[d] : 0;
    high += (d <= differs ? last.index()[d] : box.sizes[d] - 1) * box.strides[d];
  }
  if ((high - low + 1) * width_ <= std::max(kScratchBytes, width_)) {
    std::vector<std::byte> span(static_cast<size_t>((high - low + 1) * width_));
    INVAR_TRY(box.file->read_at(box.begin + low * width_, span));
    Odometer at = begin;
    for (int64_t i = 0; i < count; ++i, at.next(), out += width_) {
      std::memcpy(out, span.data() + (at.offset() - low) * width_, static_cast<size_t>(width_));
    }
    return {};
  }
  if (differs + 1 < box.sizes.size() && box.strides[differs] == 1) {
    int64_t inner = 1;
    for (size_t d = differs + 1; d < box.sizes.size(); ++d) inner *= box.sizes[d];
    const int64_t block = first - first % inner;  // where the first row of this dimension begins
    std::vector<std::byte> run;
    for (int64_t t = 0; t < inner; ++t) {
      // Rows whose element t lies in the range: row r has it at block + r * inner + t.
      const int64_t from = block + t < first ? 1 : 0;
      const int64_t to = (first + count - 1 - t - block + inner) / inner;
      if (from >= to) continue;
      run.resize(static_cast<size_t>((to - from) * width_));
      INVAR_TRY(box.file->read_at(box.begin + Odometer(box, block + from * inner + t).offset() * width_, run));
      for (int64_t r = from; r < to; ++r) {
        std::memcpy(out + (block + r * inner + t - first) * width_, run.data() + (r - from) * width_,
                    static_cast<size_t>(width_));
      }
    }
    return {};
  }
  const int64_t half = count / 2;
  INVAR_TRY(read_across(box, first, half, out));
  return read_across(box, first + half, count - half, out + half * width_);
}

}  // namespace invar
