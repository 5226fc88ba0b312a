#include "core/checkpoint/values.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/numerics/formats.h"

namespace invar {
namespace {

template <typename Stored>
double widen(const std::byte* at) {
  Stored value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

bool has_values(DType dtype) { return bits_of(dtype) >= 8 && dtype != DType::kC64 && dtype != DType::kUnspecified; }

double stored_value(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kF64: return widen<double>(at);
    case DType::kF32: return widen<float>(at);
    case DType::kBF16:
    case DType::kF16: {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      return decode(dtype, bits);
    }
    case DType::kBool:
    case DType::kU8: return widen<uint8_t>(at);
    case DType::kI8: return widen<int8_t>(at);
    case DType::kU16: return widen<uint16_t>(at);
    case DType::kI16: return widen<int16_t>(at);
    case DType::kU32: return widen<uint32_t>(at);
    case DType::kI32: return widen<int32_t>(at);
    case DType::kU64: return widen<uint64_t>(at);
    case DType::kI64: return widen<int64_t>(at);
    default: return decode(dtype, static_cast<uint8_t>(*at));
  }
}

}  // namespace

uint8_t ValueReader::code_at(const TensorPlan& plan, int64_t k) const {
  if (plan.coding != Coding::kPackedFp4) return static_cast<uint8_t>(bytes_[static_cast<size_t>(k)]);
  const auto pair = static_cast<uint8_t>(bytes_[static_cast<size_t>(k / 2)]);
  return k % 2 == 0 ? pair & 15 : pair >> 4;
}

template <typename Value>
Status ValueReader::read_any(const TensorPlan& plan, int64_t first, std::span<Value> out) {
  if (out.empty()) return {};
  const DType dtype = plan.source->dtype;
  if (!has_values(dtype)) {
    return Error(Code::kUnimplemented, "checkpoint.unsupported_layout",
                 cat(join_path(folder_.path(), folder_.file_name(*plan.source)), ": tensor ",
                     in_quotes(plan.source->name), " is stored as ", name_of(dtype), ", which is not read as numbers"));
  }
  const int64_t width = bits_of(dtype) / 8, n = static_cast<int64_t>(out.size());
  // Packed runs are read with the byte that holds their first element.
  const int64_t lead = plan.coding == Coding::kPackedFp4 ? first % 2 : 0;
  const int64_t begin = plan.stored_bytes(first - lead), end = plan.stored_bytes(first + n + (lead + n) % 2);
  bytes_.resize(static_cast<size_t>(plan.coding == Coding::kPackedFp4 ? end - begin : n * width));
  INVAR_TRY(folder_.read(*plan.source, begin, bytes_));
  if (!plan.quantized()) {
    for (int64_t i = 0; i < n; ++i) {
      out[static_cast<size_t>(i)] = static_cast<Value>(stored_value(dtype, bytes_.data() + i * width));
    }
    return {};
  }
  INVAR_TRY(scales_.load(folder_, plan, first, n));
  const float* table = decode_table(plan.code_dtype);
  for (int64_t i = 0; i < n;) {
    const int64_t run = scales_.run(first + i, n - i);
    const Value scale = scales_.at(first + i);
    for (int64_t k = i; k < i + run; ++k) {
      const Value value = table[code_at(plan, k + lead)];
      out[static_cast<size_t>(k)] = !scales_.divides() ? value * scale : scale == 0 ? value : value / scale;
    }
    i += run;
  }
  return {};
}

Status ValueReader::read(const TensorPlan& plan, int64_t first, std::span<double> out) {
  if (!plan.decodes()) return read_any(plan, first, out);
  std::array<float, 4096> run;
  for (size_t done = 0; done < out.size();) {
    const size_t here = std::min(run.size(), out.size() - done);
    INVAR_TRY(read(plan, first + static_cast<int64_t>(done), std::span(run).first(here)));
    std::copy_n(run.begin(), here, out.begin() + static_cast<int64_t>(done));
    done += here;
  }
  return {};
}
Status ValueReader::read(const TensorPlan& plan, int64_t first, std::span<float> out) {
  if (!plan.decodes()) return read_any(plan, first, out);
  return out.empty() ? Status() : plan.decoder->decode(folder_, first, out, scratch_);
}

Status ValueReader::read(const TensorInfo& tensor, int64_t first, std::span<float> out) {
  TensorPlan plan;
  plan.source = &tensor;
  plan.shape = tensor.shape;
  return read_any(plan, first, out);
}

}  // namespace invar
