// bitsandbytes: 4-bit codes (NF4 or FP4, two a byte, the high nibble first) into a stored code book, times one absmax
// for a run of `blocksize` elements counted over the whole tensor; the absmax may itself be 8-bit codes into a second
// book ("nested"). And INT8 rows times their absmax "SCB", divided by 127.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/checkpoint/rules/rules.h"
#include "core/checkpoint/values.h"

namespace invar {
namespace {

using Json = nlohmann::json;

constexpr char kLayout4[] = "bitsandbytes-4bit", kLayout8[] = "bitsandbytes-int8";
constexpr int64_t kMaxStateBytes = 1 << 16;
constexpr int64_t kMaxBlock = int64_t{1} << 31;
constexpr int kBook = 16, kNestedBook = 256;

struct FourBit {
  const TensorInfo *codes = nullptr, *absmax = nullptr, *book = nullptr;
  const TensorInfo *nested_absmax = nullptr, *nested_book = nullptr;  // null: absmax holds floats
  int64_t block = 0, nested_block = 0;
  float nested_offset = 0;
};

class FourBitDecoder : public Decoder {
 public:
  explicit FourBitDecoder(const FourBit& parts) : p_(parts) {}

  Status decode(const CheckpointFolder& folder, int64_t first, std::span<float> values,
                DecoderScratch& scratch) const override {
    const int64_t n = static_cast<int64_t>(values.size());
    ValueReader reader(folder);
    float book[kBook];
    INVAR_TRY(reader.read(*p_.book, 0, book));
    const int64_t begin = first / p_.block, end = (first + n + p_.block - 1) / p_.block;
    std::vector<float> absmax(static_cast<size_t>(end - begin));
    INVAR_TRY(reader.read(*p_.absmax, begin, absmax));
    if (p_.nested_book != nullptr) INVAR_TRY(unnest(reader, begin, absmax));
    const int64_t first_byte = first / 2, bytes = (first + n + 1) / 2 - first_byte;
    scratch.bytes.resize(static_cast<size_t>(bytes));
    INVAR_TRY(folder.read(*p_.codes, first_byte, scratch.bytes));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t element = first + i;
      const auto pair = static_cast<uint8_t>(scratch.bytes[static_cast<size_t>(element / 2 - first_byte)]);
      const int code = element % 2 == 0 ? pair >> 4 : pair & 15;
      values[static_cast<size_t>(i)] = book[code] * absmax[static_cast<size_t>(element / p_.block - begin)];
    }
    return {};
  }

 private:
  // The codes in `absmax`, from number `begin` on, become what they mean.
  Status unnest(ValueReader& reader, int64_t begin, std::vector<float>& absmax) const {
    float book[kNestedBook];
    INVAR_TRY(reader.read(*p_.nested_book, 0, book));
    const int64_t from = begin / p_.nested_block;
    const int64_t to = (begin + static_cast<int64_t>(absmax.size()) - 1) / p_.nested_block + 1;
    std::vector<float> outer(static_cast<size_t>(to - from));
    INVAR_TRY(reader.read(*p_.nested_absmax, from, outer));
    for (size_t i = 0; i < absmax.size(); ++i) {
      const int64_t block = (begin + static_cast<int64_t>(i)) / p_.nested_block;
      const float scaled = book[static_cast<uint8_t>(absmax[i])] * outer[static_cast<size_t>(block - from)];
      absmax[i] = scaled + p_.nested_offset;
    }
    return {};
  }

  FourBit p_;
};

class Int8Decoder : public Decoder {
 public:
  Int8Decoder(const TensorInfo& codes, const TensorInfo& absmax) : codes_(codes), absmax_(absmax) {}

  Status decode(const CheckpointFolder& folder, int64_t first, std::span<float> values,
                DecoderScratch&) const override {
    constexpr float kOver127 = 7.874015718698502e-3f;  // the reader multiplies by this, in this order
    ValueReader reader(folder);
    INVAR_TRY(reader.read(codes_, first, values));
    const int64_t cols = codes_.shape.back(), n = static_cast<int64_t>(values.size());
    const int64_t begin = first / cols, end = (first + n - 1) / cols + 1;
    std::vector<float> absmax(static_cast<size_t>(end - begin));
    INVAR_TRY(reader.read(absmax_, begin, absmax));
    for (int64_t i = 0; i < n; ++i) {
      float& value = values[static_cast<size_t>(i)];
      value = value * absmax[static_cast<size_t>((first + i) / cols - begin)] * kOver127;
    }
    return {};
  }

 private:
  const TensorInfo &codes_, &absmax_;
};

const TensorInfo* find_state(const LayoutSource& source, const TensorInfo& weight) {
  for (const char* kind : {"nf4", "fp4"}) {
    if (const auto* state = source.folder.find(cat(weight.name, ".quant_state.bitsandbytes__", kind))) return state;
  }
  return nullptr;
}

int64_t pieces(int64_t size, int64_t block) { return size / block + (size % block != 0 ? 1 : 0); }

// What the JSON text in the state tensor says; `parts` and `shape` are filled.
Status read_state(const LayoutSource& source, const TensorInfo& state, FourBit* parts, std::vector<int64_t>* shape) {
  const auto bad = [&](std::string_view what) {
    return Error(Code::kDataLoss, "checkpoint.bad_quant_state", cat(source.label(state), ": ", what));
  };
  if (state.byte_size() > kMaxStateBytes) return bad("is too long to be a quantisation state");
  INVAR_ASSIGN(const auto bytes, source.folder.read_all(state));
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const Json json = Json::parse(text, text + bytes.size(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return bad("does not hold a JSON object");
  const auto number = [&json](const char* key, int64_t* out) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number_integer()) return false;
    *out = it->get<int64_t>();
    return *out >= 1 && *out <= kMaxBlock;
  };
  if (!number("blocksize", &parts->block)) return bad("gives no blocksize");
  const auto sizes = json.find("shape");
  if (sizes == json.end() || !sizes->is_array() || sizes->empty() || sizes->size() > 8) return bad("gives no shape");
  int64_t elements = 1;
  for (const Json& size : *sizes) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(kMaxBlock))
      return bad("has a bad shape");
    shape->push_back(size.get<int64_t>());
    if (shape->back() != 0 && elements > INT64_MAX / 64 / shape->back()) return bad("has a shape that overflows");
    elements *= shape->back();
  }
  if (parts->nested_absmax == nullptr) return {};
  if (!number("nested_blocksize", &parts->nested_block)) return bad("gives no nested_blocksize");
  const auto offset = json.find("nested_offset");
  if (offset == json.end() || !offset->is_number()) return bad("gives no nested_offset");
  parts->nested_offset = static_cast<float>(offset->get<double>());
  return {};
}

// The sizes of all parts agree with the shape.
Status check_sizes(const LayoutSource& source, const FourBit& parts, const std::vector<int64_t>& shape) {
  const auto expect = [&](const TensorInfo& tensor, std::initializer_list<DType> dtypes, int64_t count) -> Status {
    const bool right = std::find(dtypes.begin(), dtypes.end(), tensor.dtype) != dtypes.end();
    if (right && element_count(tensor.shape) == count) return {};
    return Error(Code::kDataLoss, "checkpoint.scale_shape",
                 cat(source.label(tensor), " is ", name_of(tensor.dtype), " ", shape_text(tensor.shape), "; weight ",
                     in_quotes(parts.codes->name), " of ", shape_text(shape), " in runs of ", parts.block, " needs ",
                     count, " of ", name_of(*dtypes.begin())));
  };
  const int64_t elements = element_count(shape), blocks = pieces(elements, parts.block);
  if (parts.codes->byte_size() != (elements + 1) / 2) {
    return Error(Code::kDataLoss, "checkpoint.scale_shape",
                 cat(source.label(*parts.codes), " has ", parts.codes->byte_size(), " bytes; its shape ",
                     shape_text(shape), " needs ", (elements + 1) / 2));
  }
  INVAR_TRY(expect(*parts.book, {DType::kF32}, kBook));
  if (parts.nested_absmax == nullptr) return expect(*parts.absmax, {DType::kF32, DType::kBF16, DType::kF16}, blocks);
  INVAR_TRY(expect(*parts.absmax, {DType::kU8}, blocks));
  INVAR_TRY(expect(*parts.nested_book, {DType::kF32}, kNestedBook));
  return expect(*parts.nested_absmax, {DType::kF32}, pieces(blocks, parts.nested_block));
}

void four_bit(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  const auto find = [&](const char* ending) { return source.folder.find(cat(weight.name, ending)); };
  FourBit parts;
  parts.codes = &weight;
  parts.absmax = find(".absmax");
  if (parts.absmax == nullptr) return;
  parts.book = find(".quant_map");
  parts.nested_absmax = find(".nested_absmax");
  parts.nested_book = find(".nested_quant_map");
  const TensorInfo* state = find_state(source, weight);
  if (state == nullptr || parts.book == nullptr || (parts.nested_absmax == nullptr) != (parts.nested_book == nullptr)) {
    readings->push_back(
        failed_reading(weight, kLayout4, true,
                       Error(Code::kDataLoss, "checkpoint.missing_scale",
                             cat(source.label(weight), " has an absmax and lacks ",
                                 state == nullptr        ? "quant_state.bitsandbytes__nf4 or __fp4"
                                 : parts.book == nullptr ? "quant_map"
                                                         : "one of nested_absmax and nested_quant_map"))));
    return;
  }
  std::vector<int64_t> shape;
  Status status = read_state(source, *state, &parts, &shape);
  if (status.ok()) status = check_sizes(source, parts, shape);
  if (!status.ok()) {
    readings->push_back(failed_reading(weight, kLayout4, true, std::move(status)));
    return;
  }
  const bool nf4 = state->name.ends_with("nf4");
  Reading reading = decoder_reading(weight, "code_book", nf4 ? "bitsandbytes-nf4" : "bitsandbytes-fp4", weight.name,
                                    std::move(shape), std::make_shared<FourBitDecoder>(parts));
  reading.plan.helpers = {parts.absmax, parts.book, state};
  if (parts.nested_absmax != nullptr) {
    reading.plan.helpers.push_back(parts.nested_absmax);
    reading.plan.helpers.push_back(parts.nested_book);
  }
  readings->push_back(std::move(reading));
}

}  // namespace

void bitsandbytes_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  if (!weight.name.ends_with(".weight")) return;
  four_bit(source, weight, readings);
  const TensorInfo* absmax = source.folder.find(cat(module_of(weight.name), ".SCB"));
  if (weight.dtype != DType::kI8 || absmax == nullptr || weight.shape.size() != 2) return;
  if (!is_float(absmax->dtype) || element_count(absmax->shape) != weight.shape[0]) {
    readings->push_back(failed_reading(
        weight, kLayout8, true, scale_shape_error(source, weight, *absmax, row_grid(weight), "one absmax a row")));
    return;
  }
  Reading reading = decoder_reading(weight, "row_scale", kLayout8, weight.name, weight.shape,
                                    std::make_shared<Int8Decoder>(weight, *absmax));
  reading.plan.helpers.push_back(absmax);
  if (const TensorInfo* order = source.folder.find(cat(weight.name, "_format"))) {
    // 0: rows as they are; other numbers are the tiled orders of older graphics cards.
    std::vector<float> number(1, 0.0f);
    if (is_single(*order)) reading.status = ValueReader(source.folder).read(*order, 0, number);
    if (reading.status.ok() && (!is_single(*order) || number[0] != 0)) {
      reading.status = Error(Code::kUnimplemented, "checkpoint.unsupported_layout",
                             cat(source.label(weight), " is stored in a tiled order (", in_quotes(order->name),
                                 " is not 0), which cannot be read"));
    }
    reading.plan.helpers.push_back(order);
  }
  readings->push_back(std::move(reading));
}

}  // namespace invar
