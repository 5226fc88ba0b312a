#include "core/container/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "core/numerics/ggml_blocks.h"

namespace invar {
namespace {

constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxKeyBytes = 65'535;
constexpr int64_t kMaxStringBytes = 64 << 20;  // chat templates and the like
constexpr int64_t kKeptStringBytes = 4096;     // of a value that metadata() keeps
constexpr int kMaxDimensions = 4;
constexpr int kMaxDepth = 3;  // of lists in lists
// The shortest record of each kind: a count beyond file size / these cannot be true.
constexpr int64_t kLeastPairBytes = 8 + 4 + 1, kLeastTensorBytes = 8 + 4 + 4 + 8;

enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
constexpr int kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::string_view kValueNames[] = {"u8",   "i8",     "u16",  "i16", "u32", "i32", "f32",
                                            "bool", "string", "list", "u64", "i64", "f64"};

std::string scalar_text(uint32_t type, uint64_t bits) {
  switch (type) {
    case kI8: return std::to_string(static_cast<int8_t>(bits));
    case kI16: return std::to_string(static_cast<int16_t>(bits));
    case kI32: return std::to_string(static_cast<int32_t>(bits));
    case kI64: return std::to_string(static_cast<int64_t>(bits));
    case kF32: return cat(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case kF64: return cat(std::bit_cast<double>(bits));
    case kBool: return bits != 0 ? "true" : "false";
    default: return std::to_string(bits);
  }
}

// "model-00002-of-00003.gguf" gives "model", 2 and 3; false for other names.
bool split_name(std::string_view name, std::string* stem, int* part, int* parts) {
  constexpr std::string_view kSuffix = "-00000-of-00000.gguf";
  if (name.size() <= kSuffix.size()) return false;
  const std::string_view tail = name.substr(name.size() - kSuffix.size());
  int numbers[2] = {0, 0};
  for (size_t i = 0; i < kSuffix.size(); ++i) {
    const bool digit = kSuffix[i] == '0';
    if (digit != (tail[i] >= '0' && tail[i] <= '9') || (!digit && tail[i] != kSuffix[i])) return false;
    if (digit) numbers[i > 6] = numbers[i > 6] * 10 + (tail[i] - '0');
  }
  *stem = std::string(name.substr(0, name.size() - kSuffix.size()));
  *part = numbers[0];
  *parts = numbers[1];
  return *part >= 1 && *part <= *parts;
}

std::string five_digits(int n) {
  std::string text = std::to_string(n);
  return std::string(5 - std::min<size_t>(5, text.size()), '0') + text;
}

}  // namespace

// Reads the description of one file from front to back, through a small window.
class GgufReader {
 public:
  GgufReader(FileSystem& files, const ContainerLimits& limits, int file_index)
      : files_(files), limits_(limits), file_index_(file_index), result_(new GgufFile) {}

  Result<std::unique_ptr<WeightFile>> run(const std::string& path) {
    INVAR_ASSIGN(result_->file_, files_.open(path));
    size_ = result_->file_->size();
    INVAR_TRY(read_preamble());
    for (int64_t i = 0; i < pairs_; ++i) INVAR_TRY(read_pair());
    for (int64_t i = 0; i < tensors_; ++i) INVAR_TRY(read_record());
    INVAR_TRY(place_tensors());
    INVAR_TRY(check_splits());
    return std::unique_ptr<WeightFile>(std::move(result_));
  }

 private:
  template <typename... Parts>
  Status bad(std::string_view reason, const Parts&... parts) const {
    return Error(Code::kDataLoss, reason, cat(result_->file_->path(), ": ", parts...));
  }

  Status take(int64_t bytes, void* out) {
    auto* to = static_cast<std::byte*>(out);
    if (bytes > size_ - at_) {
      return bad("gguf.truncated", "the description needs ", bytes, " bytes at byte ", at_, " of ", size_,
                 ": file is truncated");
    }
    while (bytes > 0) {
      if (at_ < window_begin_ || at_ >= window_begin_ + static_cast<int64_t>(window_.size())) {
        window_begin_ = at_;
        window_.resize(static_cast<size_t>(std::min<int64_t>(1 << 16, size_ - at_)));
        INVAR_TRY(result_->file_->read_at(at_, window_));
      }
      const int64_t inside = at_ - window_begin_;
      const int64_t here = std::min(bytes, static_cast<int64_t>(window_.size()) - inside);
      std::memcpy(to, window_.data() + inside, static_cast<size_t>(here));
      to += here;
      at_ += here;
      bytes -= here;
    }
    return {};
  }

  template <typename Number>
  Status take(Number* out) {
    return take(sizeof(Number), out);
  }

  // A string of at most `limit` bytes; only the first `keep` of them are kept.
  Status take_string(std::string_view what, int64_t limit, int64_t keep, std::string* out) {
    uint64_t length = 0;
    INVAR_TRY(take(&length));
    if (length > static_cast<uint64_t>(limit)) {
      return bad("gguf.string_too_long", what, " claims ", length, " bytes at byte ", at_, "; the limit is ", limit);
    }
    const auto bytes = static_cast<int64_t>(length);
    if (bytes > size_ - at_) {
      return bad("gguf.truncated", what, " claims ", length, " bytes at byte ", at_, " of ", size_,
                 ": file is truncated");
    }
    out->resize(static_cast<size_t>(std::min(bytes, keep)));
    INVAR_TRY(take(static_cast<int64_t>(out->size()), out->data()));
    at_ += bytes - static_cast<int64_t>(out->size());
    return {};
  }

  Status read_preamble() {
    char magic[4];
    INVAR_TRY(take(4, magic));
    if (std::memcmp(magic, "GGUF", 4) != 0) {
      return bad("gguf.bad_magic", "begins with ", in_quotes(std::string_view(magic, 4)), "; expected \"GGUF\"");
    }
    uint32_t version = 0;
    INVAR_TRY(take(&version));
    if (version != 2 && version != 3) {
      const bool swapped = version == 0x02000000u || version == 0x03000000u;
      return bad("gguf.unsupported_version", "is of version ", version,
                 swapped ? " (big-endian, which is not read)" : "; versions 2 and 3 are read");
    }
    uint64_t tensors = 0, pairs = 0;
    INVAR_TRY(take(&tensors));
    INVAR_TRY(take(&pairs));
    INVAR_TRY(check_count("tensors", tensors, kLeastTensorBytes));
    INVAR_TRY(check_count("key-value pairs", pairs, kLeastPairBytes));
    tensors_ = static_cast<int64_t>(tensors);
    pairs_ = static_cast<int64_t>(pairs);
    return {};
  }

  Status check_count(std::string_view what, uint64_t count, int64_t least_bytes) const {
    const int64_t possible = std::min(limits_.tensors, (size_ - at_) / least_bytes);
    if (count <= static_cast<uint64_t>(possible)) return {};
    return bad("gguf.count_too_large", "claims ", count, " ", what, "; a file of ", size_, " bytes holds at most ",
               possible);
  }

  Status read_pair() {
    std::string key;
    INVAR_TRY(take_string("a key", kMaxKeyBytes, kMaxKeyBytes, &key));
    if (!is_utf8(key)) return bad("gguf.bad_value", "key ", in_quotes(key), " is not UTF-8");
    if (!keys_.insert(key).second) return bad("gguf.duplicate_key", "key ", in_quotes(key), " stands there twice");
    uint32_t type = 0;
    INVAR_TRY(take(&type));
    std::string text;
    INVAR_TRY(read_value(key, type, 0, &text));
    if (key == "general.alignment") {
      if (type != kU32 || !std::has_single_bit(last_) || last_ > (1u << 20)) {
        return bad("gguf.bad_alignment", "general.alignment is ", text, "; expected a power of two up to 1048576");
      }
      alignment_ = static_cast<int64_t>(last_);
    }
    if (key == "split.count" && type != kString && type != kArray) splits_ = last_;
    result_->metadata_.emplace_back(std::move(key), std::move(text));
    return {};
  }

  Status read_value(const std::string& key, uint32_t type, int depth, std::string* text) {
    if (type > kF64) return bad("gguf.bad_value", "key ", in_quotes(key), " has the unknown value type ", type);
    if (type == kString) {
      INVAR_TRY(take_string(cat("the value of ", in_quotes(key)), kMaxStringBytes, kKeptStringBytes, text));
      return {};
    }
    if (type != kArray) {
      last_ = 0;
      INVAR_TRY(take(kValueBytes[type], &last_));
      *text = scalar_text(type, last_);
      return {};
    }
    uint32_t inner = 0;
    uint64_t count = 0;
    INVAR_TRY(take(&inner));
    INVAR_TRY(take(&count));
    if (inner > kF64 || depth >= kMaxDepth) {
      return bad("gguf.bad_value", "key ", in_quotes(key), " is a list of ",
                 inner > kF64 ? "an unknown type" : "lists nested too deep");
    }
    const int64_t least = inner == kString ? 8 : inner == kArray ? 12 : kValueBytes[inner];
    if (count > static_cast<uint64_t>((size_ - at_) / least)) {
      return bad("gguf.count_too_large", "key ", in_quotes(key), " claims a list of ", count, " values; ", size_ - at_,
                 " bytes are left");
    }
    if (inner == kString || inner == kArray) {
      std::string ignored;
      for (uint64_t i = 0; i < count; ++i) {
        if (inner == kString) {
          INVAR_TRY(take_string(cat("a value of ", in_quotes(key)), kMaxStringBytes, 0, &ignored));
        } else {
          INVAR_TRY(read_value(key, inner, depth + 1, &ignored));
        }
      }
    } else {
      at_ += static_cast<int64_t>(count) * least;
    }
    *text = cat("list of ", count, " ", kValueNames[inner]);
    return {};
  }

  Status read_record() {
    TensorInfo tensor;
    tensor.file = file_index_;
    INVAR_TRY(take_string("a tensor's name", limits_.name_bytes, limits_.name_bytes, &tensor.name));
    if (!is_utf8(tensor.name)) return bad("gguf.bad_value", "tensor ", in_quotes(tensor.name), " is not UTF-8");
    const auto wrong = [&](std::string_view reason, const auto&... parts) {
      return bad(reason, "tensor ", in_quotes(tensor.name), " ", parts...);
    };
    if (!names_.insert(tensor.name).second) return wrong("gguf.duplicate_tensor", "stands there twice");
    uint32_t dimensions = 0;
    INVAR_TRY(take(&dimensions));
    if (dimensions > kMaxDimensions) return wrong("gguf.bad_shape", "has ", dimensions, " dimensions; at most 4 exist");
    int64_t elements = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
      uint64_t size = 0;
      INVAR_TRY(take(&size));
      if (size > INT64_MAX || (size != 0 && elements > INT64_MAX / static_cast<int64_t>(size))) {
        return wrong("gguf.size_overflow", "has more elements than 64 bits count: dimension ", i, " is ", size);
      }
      elements *= static_cast<int64_t>(size);
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    uint32_t id = 0;
    uint64_t offset = 0;
    INVAR_TRY(take(&id));
    INVAR_TRY(take(&offset));
    const GgmlType* type = ggml_type(id);
    if (type == nullptr) return wrong("gguf.unknown_type", "has the type ", id, ", which is unknown or was removed");
    if (elements > INT64_MAX / 64) return wrong("gguf.size_overflow", "has ", elements, " elements");
    int64_t bytes = elements * type->block_bytes;
    if (type->is_plain()) {
      tensor.dtype = type->dtype;
    } else {
      if (tensor.shape.empty() || tensor.shape.back() % type->block_elements != 0) {
        return wrong("gguf.bad_shape", "has rows of ", tensor.shape.empty() ? 1 : tensor.shape.back(), " elements; ",
                     type->name, " comes in blocks of ", type->block_elements);
      }
      bytes = elements / type->block_elements * type->block_bytes;
      tensor.dtype = DType::kU8;
      tensor.encoding = type->name;
      tensor.shape.back() = tensor.shape.back() / type->block_elements * type->block_bytes;
    }
    if (offset > static_cast<uint64_t>(size_) || bytes > size_ - static_cast<int64_t>(offset)) {
      return wrong("gguf.tensor_out_of_range", "has ", bytes, " bytes at offset ", offset, "; the file has ", size_);
    }
    tensor.begin = static_cast<int64_t>(offset);
    tensor.end = tensor.begin + bytes;
    result_->tensors_.push_back(std::move(tensor));
    return {};
  }

  // Offsets count from the data part, which begins at the next multiple of the alignment.
  Status place_tensors() {
    const int64_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
    for (TensorInfo& tensor : result_->tensors_) {
      if (tensor.begin % alignment_ != 0) {
        return bad("gguf.bad_offset", "tensor ", in_quotes(tensor.name), " lies at offset ", tensor.begin,
                   "; expected a multiple of ", alignment_);
      }
      if (tensor.end > size_ - data) {
        return bad("gguf.tensor_out_of_range", "tensor ", in_quotes(tensor.name), " ends at byte ", data + tensor.end,
                   " of ", size_, ": file is truncated");
      }
      tensor.begin += data;
      tensor.end += data;
    }
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& tensor : result_->tensors_) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
      return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i]->begin >= order[i - 1]->end) continue;
      return bad("gguf.overlap", "tensors ", in_quotes(order[i - 1]->name), " and ", in_quotes(order[i]->name),
                 " overlap at byte ", order[i]->begin);
    }
    return {};
  }

  // Of a model in several files all must be there: a part alone looks like a smaller model.
  Status check_splits() {
    if (splits_ <= 1) return {};
    std::string stem;
    int part = 0, parts = 0;
    const std::string& path = result_->file_->path();
    if (!split_name(base_name(path), &stem, &part, &parts) || static_cast<uint64_t>(parts) != splits_) {
      result_->findings_.push_back(
          {"gguf.split",
           cat(path, ": is one of ", splits_, " files by its split.count; the others cannot be found by name")});
      return {};
    }
    for (int i = 1; i <= parts; ++i) {
      const std::string name = cat(stem, "-", five_digits(i), "-of-", five_digits(parts), ".gguf");
      if (!files_.exists(join_path(parent_path(path), name))) {
        return bad("gguf.missing_split", "is part ", part, " of ", parts, " and ", in_quotes(name),
                   " is not in the folder: download is incomplete?");
      }
    }
    return {};
  }

  FileSystem& files_;
  const ContainerLimits& limits_;
  int file_index_;
  std::unique_ptr<GgufFile> result_;
  std::vector<std::byte> window_;
  int64_t window_begin_ = 0, at_ = 0, size_ = 0;
  int64_t tensors_ = 0, pairs_ = 0, alignment_ = kDefaultAlignment;
  uint64_t last_ = 0;    // bits of the last single value
  uint64_t splits_ = 1;  // files of the model
  std::set<std::string> keys_, names_;
};

Result<std::unique_ptr<WeightFile>> GgufFile::open(FileSystem& files, const std::string& path,
                                                   const ContainerLimits& limits, int file_index) {
  return GgufReader(files, limits, file_index).run(path);
}

Status GgufFile::read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const {
  INVAR_TRY(check_range(tensor, offset, out.size()));
  return file_->read_at(tensor.begin + offset, out);
}

}  // namespace invar
