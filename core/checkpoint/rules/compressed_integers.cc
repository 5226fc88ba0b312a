// compressed-tensors' integers: "pack-quantized" codes of 1 to 8 bits in I32 words ("weight_packed"), or I8 ("weight"
// of int-quantized and naive-quantized), one scale for a tensor, a row or a group of columns, with or without a zero
// point; "weight_g_idx" gives each column's group where columns were reordered. The value is (code - zero) * scale.
//
// Packed codes are unsigned (2^(bits-1) more than the code), the lowest bits first along the columns; zero points are
// packed alike along the rows. Newer writers let codes cross word borders, older ones leave the rest of a word unused:
// for widths that do not divide 32 the number of words tells which.
#include <algorithm>
#include <cstring>

#include "core/checkpoint/rules/rules.h"
#include "core/checkpoint/values.h"

namespace invar {
namespace {

constexpr char kLayout[] = "compressed-tensors-int";

// Where packed code `i` of a run of words begins.
struct Packing {
  int bits = 0;
  bool crosses_words = true;

  static int64_t words(int64_t count, int bits, bool crosses) {
    const int64_t each = 32 / bits;
    return crosses ? (count * bits + 31) / 32 : (count + each - 1) / each;
  }
  int64_t bit_of(int64_t i) const {
    const int64_t each = 32 / bits;
    return crosses_words ? i * bits : i / each * 32 + i % each * bits;
  }
  // The code at `i` with its offset taken off. `word(k)` gives word k.
  template <typename Word>
  int at(int64_t i, Word&& word) const {
    const int64_t bit = bit_of(i);
    uint64_t pair = word(bit / 32);
    if (bit % 32 + bits > 32) pair |= static_cast<uint64_t>(word(bit / 32 + 1)) << 32;
    return static_cast<int>(pair >> (bit % 32) & ((1u << bits) - 1)) - (1 << (bits - 1));
  }
};

struct Parts {
  const TensorInfo *codes = nullptr, *scale = nullptr, *zero = nullptr, *groups_of_columns = nullptr;
  bool packed = false;       // codes in words
  bool zero_packed = false;  // zero points in words
  Packing columns, rows;     // of the codes and of the zero points
  int64_t matrices = 1, rows_count = 0, cols = 0, row_words = 0, zero_words = 0;
  int64_t group = 0;                     // columns that share a scale
  int64_t grid_rows = 1, grid_cols = 1;  // scales of a matrix
};

uint32_t word_at(const std::vector<std::byte>& bytes, int64_t k) {
  uint32_t word;
  std::memcpy(&word, bytes.data() + k * 4, 4);
  return word;
}

class IntegerDecoder : public Decoder {
 public:
  explicit IntegerDecoder(const Parts& parts) : p_(parts) {}

  // Codes, and of each matrix that a call touches its scales, zero points and groups.
  int64_t scratch_bytes() const override { return (1 << 20) + p_.grid_rows * p_.grid_cols * 8 + p_.cols * 4; }

  Status decode(const CheckpointFolder& folder, int64_t first, std::span<float> values,
                DecoderScratch& scratch) const override {
    const int64_t end = first + static_cast<int64_t>(values.size());
    for (int64_t at = first; at < end;) {
      const int64_t matrix = at / (p_.rows_count * p_.cols);
      const int64_t until = std::min(end, (matrix + 1) * p_.rows_count * p_.cols);
      const auto part = values.subspan(static_cast<size_t>(at - first), static_cast<size_t>(until - at));
      INVAR_TRY(decode_matrix(folder, matrix, at - matrix * p_.rows_count * p_.cols, part, scratch));
      at = until;
    }
    return {};
  }

 private:
  Status decode_matrix(const CheckpointFolder& folder, int64_t matrix, int64_t first, std::span<float> values,
                       DecoderScratch& scratch) const {
    const int64_t n = static_cast<int64_t>(values.size());
    const int64_t row_begin = first / p_.cols, row_end = (first + n - 1) / p_.cols + 1;
    ValueReader reader(folder);
    // Scales and zero points of these rows.
    const int64_t grid_begin = p_.grid_rows == 1 ? 0 : row_begin, grid_end = p_.grid_rows == 1 ? 1 : row_end;
    std::vector<float> scales(static_cast<size_t>((grid_end - grid_begin) * p_.grid_cols)), zeros;
    INVAR_TRY(reader.read(*p_.scale, (matrix * p_.grid_rows + grid_begin) * p_.grid_cols, scales));
    if (p_.zero != nullptr) INVAR_TRY(read_zeros(folder, matrix, grid_begin, grid_end, scratch, &zeros));
    std::vector<float> group_of;
    if (p_.groups_of_columns != nullptr) {
      group_of.resize(static_cast<size_t>(p_.cols));
      INVAR_TRY(reader.read(*p_.groups_of_columns, 0, group_of));
      INVAR_TRY(check_groups(folder, group_of));
    }
    const int64_t row_bytes = p_.packed ? p_.row_words * 4 : p_.cols;
    scratch.bytes.resize(static_cast<size_t>((row_end - row_begin) * row_bytes));
    INVAR_TRY(folder.read(*p_.codes, (matrix * p_.rows_count + row_begin) * row_bytes, scratch.bytes));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = (first + i) / p_.cols, col = (first + i) % p_.cols, local = row - row_begin;
      int code;
      if (p_.packed) {
        code = p_.columns.at(col, [&](int64_t k) { return word_at(scratch.bytes, local * p_.row_words + k); });
      } else {
        code = static_cast<int8_t>(scratch.bytes[static_cast<size_t>(local * p_.cols + col)]);
      }
      const int64_t group =
          group_of.empty() ? col / p_.group : static_cast<int64_t>(group_of[static_cast<size_t>(col)]);
      const auto at = static_cast<size_t>((p_.grid_rows == 1 ? 0 : local) * p_.grid_cols + group);
      const float zero = zeros.empty() ? 0.0f : zeros[at];
      values[static_cast<size_t>(i)] = (static_cast<float>(code) - zero) * scales[at];
    }
    return {};
  }

  Status read_zeros(const CheckpointFolder& folder, int64_t matrix, int64_t begin, int64_t end, DecoderScratch& scratch,
                    std::vector<float>* zeros) const {
    zeros->resize(static_cast<size_t>((end - begin) * p_.grid_cols));
    if (!p_.zero_packed) {
      return ValueReader(folder).read(*p_.zero, (matrix * p_.grid_rows + begin) * p_.grid_cols, *zeros);
    }
    // Words of rows; each row of words is grid_cols wide.
    const int64_t first_word = p_.rows.bit_of(begin) / 32;
    const int64_t last_word = (p_.rows.bit_of(end - 1) + p_.rows.bits - 1) / 32;
    scratch.more.resize(static_cast<size_t>((last_word - first_word + 1) * p_.grid_cols * 4));
    INVAR_TRY(folder.read(*p_.zero, (matrix * p_.zero_words + first_word) * p_.grid_cols * 4, scratch.more));
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < p_.grid_cols; ++col) {
        const int zero =
            p_.rows.at(row, [&](int64_t k) { return word_at(scratch.more, (k - first_word) * p_.grid_cols + col); });
        (*zeros)[static_cast<size_t>((row - begin) * p_.grid_cols + col)] = static_cast<float>(zero);
      }
    }
    return {};
  }

  // Some writers store -1 everywhere where nothing was reordered.
  Status check_groups(const CheckpointFolder& folder, std::vector<float>& group_of) const {
    if (std::all_of(group_of.begin(), group_of.end(), [](float g) { return g == -1; })) {
      group_of.clear();
      return {};
    }
    for (size_t col = 0; col < group_of.size(); ++col) {
      if (group_of[col] >= 0 && group_of[col] < static_cast<float>(p_.grid_cols)) continue;
      return Error(Code::kDataLoss, "checkpoint.bad_group",
                   cat(join_path(folder.path(), folder.file_name(*p_.groups_of_columns)), ": tensor ",
                       in_quotes(p_.groups_of_columns->name), " gives column ", col, " the group ", group_of[col],
                       "; there are ", p_.grid_cols));
    }
    return {};
  }

  Parts p_;
};

// Builds the reading of one weight, or the error that tells what does not fit.
class Builder {
 public:
  Builder(const LayoutSource& source, const TensorInfo& codes) : source_(source), codes_(codes) {}

  Result<Reading> run() {
    p_.codes = &codes_;
    p_.packed = codes_.name.ends_with("_packed");
    stem_ = p_.packed ? codes_.name.substr(0, codes_.name.size() - std::string_view("_packed").size()) : codes_.name;
    p_.scale = source_.folder.find(stem_ + "_scale");
    p_.zero = source_.folder.find(stem_ + "_zero_point");
    p_.groups_of_columns = source_.folder.find(stem_ + "_g_idx");
    const WeightGroup* group = source_.declared.group_of(module_of(stem_));
    if (group != nullptr && group->weights) weights_ = *group->weights;
    INVAR_TRY(find_shape());
    INVAR_TRY(find_grid());
    if (p_.zero != nullptr) INVAR_TRY(find_zeros());
    if (p_.groups_of_columns != nullptr && element_count(p_.groups_of_columns->shape) != p_.cols) {
      return shape_error(*p_.groups_of_columns, {p_.cols});
    }
    Reading reading = decoder_reading(codes_, "integers", kLayout, stem_, shape_, std::make_shared<IntegerDecoder>(p_));
    reading.plan.helpers = {p_.scale};
    for (const TensorInfo* helper : {p_.zero, p_.groups_of_columns, source_.folder.find(stem_ + "_shape")}) {
      if (helper != nullptr) reading.plan.helpers.push_back(helper);
    }
    return reading;
  }

 private:
  Status shape_error(const TensorInfo& tensor, const std::vector<int64_t>& wanted) const {
    return Error(Code::kDataLoss, "checkpoint.scale_shape",
                 cat(source_.label(tensor), " is ", name_of(tensor.dtype), " ", shape_text(tensor.shape), "; weight ",
                     in_quotes(stem_), " of ", shape_text(shape_), " needs ", shape_text(wanted)));
  }
  Status ambiguous(std::string_view what) const {
    return Error(Code::kDataLoss, "checkpoint.ambiguous_scale", cat(source_.label(codes_), ": ", what));
  }

  // The logical shape and the width of the codes.
  Status find_shape() {
    shape_ = codes_.shape;
    if (shape_.size() < 2) return ambiguous("integers of one dimension are not read");
    if (p_.packed) {
      const std::string stated = source_.assumed("bits");
      const int bits = !stated.empty() ? std::stoi(stated) : weights_.bits;
      if (bits < 1 || bits > 8) {
        return ambiguous(
            cat("no config says how many bits its codes have (found ", bits, "); state --assume bits=4 or =8"));
      }
      INVAR_TRY(read_packed_shape(bits));
    }
    p_.rows_count = shape_[shape_.size() - 2];
    p_.cols = shape_.back();
    for (size_t i = 0; i + 2 < shape_.size(); ++i) p_.matrices *= shape_[i];
    return {};
  }

  Status read_packed_shape(int bits) {
    const TensorInfo* stored = source_.folder.find(stem_ + "_shape");
    p_.row_words = shape_.back();
    p_.columns.bits = p_.rows.bits = bits;
    if (stored == nullptr) {
      if (p_.row_words > INT64_MAX / 32 * bits) return ambiguous("its shape overflows");
      shape_.back() = p_.row_words * 32 / bits;
    } else {
      if (element_count(stored->shape) != static_cast<int64_t>(shape_.size())) {
        return shape_error(*stored, {static_cast<int64_t>(shape_.size())});
      }
      std::vector<double> sizes(shape_.size());
      TensorPlan plan;
      plan.source = stored;
      plan.shape = stored->shape;
      INVAR_TRY(ValueReader(source_.folder).read(plan, 0, std::span(sizes)));
      std::vector<int64_t> logical;
      for (double size : sizes) logical.push_back(size >= 0 && size < 1e15 ? static_cast<int64_t>(size) : -1);
      if (!std::equal(logical.begin(), logical.end() - 1, shape_.begin())) {
        return Error(
            Code::kDataLoss, "checkpoint.scale_shape",
            cat(source_.label(*stored), " says ", shape_text(logical), "; the codes are ", shape_text(codes_.shape)));
      }
      shape_ = logical;
    }
    for (const bool crosses : {true, false}) {
      p_.columns.crosses_words = p_.rows.crosses_words = crosses;
      if (shape_.back() > 0 && Packing::words(shape_.back(), bits, crosses) == p_.row_words) return {};
    }
    return Error(Code::kDataLoss, "checkpoint.scale_shape",
                 cat(source_.label(codes_), " has rows of ", p_.row_words, " words; ", shape_.back(), " codes of ",
                     bits, " bits need ", Packing::words(shape_.back(), bits, true)));
  }

  Status find_grid() {
    const std::string& strategy = weights_.strategy;
    std::vector<int64_t> wanted(shape_.begin(), shape_.end() - 2);
    if (strategy == "tensor" || (strategy.empty() && is_single(*p_.scale))) {
      p_.group = p_.cols;
      return is_single(*p_.scale) ? Status() : shape_error(*p_.scale, {1});
    }
    p_.grid_rows = p_.rows_count;
    if (strategy == "channel") {
      p_.group = p_.cols;
    } else if (strategy == "group") {
      p_.group = weights_.group_size;
    } else if (const auto block = source_.block(); block && block->rows == 1) {
      p_.group = block->cols;
    }
    if (p_.group < 1) {
      return ambiguous(cat("no config says over how many columns its scales ", shape_text(p_.scale->shape),
                           " lie; state --assume block=1xCOLS"));
    }
    p_.group = std::min(p_.group, p_.cols);
    p_.grid_cols = (p_.cols + p_.group - 1) / p_.group;
    wanted.push_back(p_.grid_rows);
    wanted.push_back(p_.grid_cols);
    const bool flat = p_.grid_cols == 1 && element_count(p_.scale->shape) == p_.matrices * p_.grid_rows;
    return p_.scale->shape == wanted || flat ? Status() : shape_error(*p_.scale, wanted);
  }

  Status find_zeros() {
    const int64_t scales = p_.grid_rows * p_.grid_cols * p_.matrices;
    if (p_.zero->dtype != DType::kI32 || !p_.packed || p_.grid_rows == 1) {
      if (element_count(p_.zero->shape) == scales) return {};
      return shape_error(*p_.zero, p_.scale->shape);
    }
    p_.zero_packed = true;
    p_.zero_words = Packing::words(p_.grid_rows, p_.rows.bits, p_.rows.crosses_words);
    std::vector<int64_t> wanted(shape_.begin(), shape_.end() - 2);
    wanted.push_back(p_.zero_words);
    wanted.push_back(p_.grid_cols);
    return p_.zero->shape == wanted ? Status() : shape_error(*p_.zero, wanted);
  }

  const LayoutSource& source_;
  const TensorInfo& codes_;
  std::string stem_;
  DeclaredQuantizer weights_;
  std::vector<int64_t> shape_;
  Parts p_;
};

}  // namespace

void compressed_integer_rule(const LayoutSource& source, const TensorInfo& codes, std::vector<Reading>* readings) {
  const bool packed = codes.dtype == DType::kI32 && codes.name.ends_with(".weight_packed");
  const bool bytes =
      codes.dtype == DType::kI8 && codes.name.ends_with(".weight") && source.declared.method == "compressed-tensors";
  if (!packed && !bytes) return;
  const std::string stem =
      packed ? codes.name.substr(0, codes.name.size() - std::string_view("_packed").size()) : codes.name;
  const TensorInfo* scale = source.folder.find(stem + "_scale");
  if (scale == nullptr) {
    readings->push_back(failed_reading(
        codes, kLayout, true,
        Error(Code::kDataLoss, "checkpoint.missing_scale",
              cat(source.label(codes), " holds packed integers and has no ", in_quotes(stem + "_scale")))));
    if (!packed) readings->pop_back();  // plain integers may stand alone
    return;
  }
  auto reading = Builder(source, codes).run();
  readings->push_back(reading.ok() ? std::move(*reading) : failed_reading(codes, kLayout, true, reading.status()));
}

}  // namespace invar
