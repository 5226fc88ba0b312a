#include "core/container/pieces_file.h"

#include <algorithm>
#include <numeric>

namespace invar {
namespace {

// Tied weights and expanded masks repeat some bytes; more than this is not a checkpoint.
constexpr int64_t kMostRepeats = 8, kFreeBytes = 64 << 20;

}  // namespace

Status PiecesFile::add(TensorSpec spec, std::vector<StoredBox> boxes, bool flat) {
  const std::string label = cat(path_, ": tensor ", in_quotes(spec.name));
  const auto bad = [&](const std::string& what) {
    return Error(Code::kDataLoss, reason("bad_tensor"), cat(label, ": ", what));
  };
  if (static_cast<int64_t>(tensors_.size()) >= limits_.tensors) {
    return bad(cat("is one of more than ", limits_.tensors, " tensors"));
  }
  if (static_cast<int64_t>(spec.name.size()) > limits_.name_bytes) {
    return bad(cat("has a name of ", spec.name.size(), " bytes; ", limits_.name_bytes, " are allowed"));
  }
  if (!is_utf8(spec.name)) return bad("has a name that is not UTF-8");
  if (spec.shape.size() > static_cast<size_t>(limits_.rank)) {
    return bad(cat("has ", spec.shape.size(), " dimensions; ", limits_.rank, " are allowed"));
  }
  int64_t bytes = 0;
  const SizeCheck check = checked_byte_size(spec.dtype, spec.shape, &bytes);
  if (check != SizeCheck::kOk) {
    return bad(cat("of dtype ", name_of(spec.dtype), " and shape ", shape_text(spec.shape),
                   check == SizeCheck::kOverflow ? " overflows 63 bits" : " is not a whole number of bytes"));
  }
  std::vector<int64_t> stored = spec.shape;
  const int64_t width = bytes_of(spec.dtype, 1);
  if (bits_of(spec.dtype) < 8 && !stored.empty()) stored.back() = bytes_of(spec.dtype, stored.back());
  if (flat) stored = {element_count(stored)};
  INVAR_ASSIGN(auto made, StoredBoxes::make(label, reason("bad_tensor"), std::move(stored), width, std::move(boxes)));
  TensorInfo info;
  static_cast<TensorSpec&>(info) = std::move(spec);
  info.file = file_index_;
  info.begin = made.boxes().empty() ? 0 : made.boxes()[0].begin;
  if (__builtin_add_overflow(info.begin, bytes, &info.end)) return bad("overflows 63 bits");
  tensors_.push_back(std::move(info));
  boxes_.push_back(std::move(made));
  return {};
}

void PiecesFile::add_part(const std::shared_ptr<const RandomAccessFile>& file) {
  parts_.push_back(file->path());
  size_ += file->size();
}

Status PiecesFile::finish() {
  if (tensors_.empty()) return Error(Code::kDataLoss, reason("no_tensors"), cat(path_, ": holds no tensor"));
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
  std::vector<TensorInfo> tensors;
  std::vector<StoredBoxes> boxes;
  int64_t bytes = 0;
  const int64_t most = kFreeBytes + (size_ > INT64_MAX / 16 ? INT64_MAX / 2 : kMostRepeats * size_);
  for (const size_t i : order) {
    if (!tensors.empty() && tensors.back().name == tensors_[i].name) {
      return Error(Code::kDataLoss, reason("duplicate_tensor"),
                   cat(path_, ": tensor ", in_quotes(tensors_[i].name), " appears twice"));
    }
    if (tensors_[i].byte_size() > most - bytes) {
      return Error(Code::kDataLoss, reason("expands"),
                   cat(path_, ": tensor ", in_quotes(tensors_[i].name), " of shape ", shape_text(tensors_[i].shape),
                       " and those before it stand for more than ", most, " bytes, but the files have only ", size_));
    }
    bytes += tensors_[i].byte_size();
    tensors.push_back(std::move(tensors_[i]));
    boxes.push_back(std::move(boxes_[i]));
  }
  tensors_ = std::move(tensors);
  boxes_ = std::move(boxes);
  return {};
}

Status PiecesFile::read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const {
  INVAR_TRY(check_range(tensor, offset, out.size()));
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), tensor.name,
                                   [](const TensorInfo& a, const std::string& name) { return a.name < name; });
  return boxes_[static_cast<size_t>(it - tensors_.begin())].read(offset, out);
}

}  // namespace invar
