#include "core/container/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace invar {
namespace {

// The order of dtypes in files of the reference writer, narrow to wide: the same tensors give the same bytes.
constexpr DType kWriteOrder[] = {DType::kBool,     DType::kE2M1, DType::kE2M3,   DType::kE3M2, DType::kU8,
                                 DType::kI8,       DType::kE5M2, DType::kE4M3FN, DType::kE8M0, DType::kE4M3FNUZ,
                                 DType::kE5M2FNUZ, DType::kI16,  DType::kU16,    DType::kF16,  DType::kBF16,
                                 DType::kI32,      DType::kU32,  DType::kF32,    DType::kC64,  DType::kF64,
                                 DType::kI64,      DType::kU64};

int write_rank(DType dtype) {
  const auto* const at = std::find(std::begin(kWriteOrder), std::end(kWriteOrder), dtype);
  return static_cast<int>(at - std::begin(kWriteOrder));
}

// JSON text of a string that is known to be UTF-8.
std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status refuse(const std::string& path, const std::string& what) {
  return Error(Code::kInvalidArgument, "safetensors.bad_tensor", cat(path, ": ", what));
}

Status check_spec(const std::string& path, const TensorSpec& spec, int64_t* bytes) {
  const SafetensorsLimits limits;
  const std::string who = cat("tensor ", in_quotes(spec.name));
  if (!is_utf8(spec.name) || spec.name == "__metadata__" ||
      static_cast<int64_t>(spec.name.size()) > limits.name_bytes) {
    return refuse(path, cat(who, " cannot be a tensor's name"));
  }
  if (spec.dtype == DType::kUnspecified) return refuse(path, cat(who, " has no dtype"));
  const bool negative = std::any_of(spec.shape.begin(), spec.shape.end(), [](int64_t size) { return size < 0; });
  if (negative || static_cast<int>(spec.shape.size()) > limits.rank ||
      checked_byte_size(spec.dtype, spec.shape, bytes) != SizeCheck::kOk) {
    return refuse(path, cat(who, " of dtype ", name_of(spec.dtype), " cannot have shape ", shape_text(spec.shape)));
  }
  return {};
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(FileSystem& files, const std::string& path,
                                                    std::vector<TensorSpec> specs, const StringMap& metadata) {
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const int rank_a = write_rank(a.dtype), rank_b = write_rank(b.dtype);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  SafetensorsWriter writer;
  writer.tensors_.reserve(specs.size());
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (!is_utf8(key) || !is_utf8(value)) return refuse(path, cat("metadata ", in_quotes(key), " is not UTF-8"));
      header += cat(header.ends_with('{') ? "" : ",", json_string(key), ":", json_string(value));
    }
    header += "}";
  }
  int64_t at = 0;
  for (TensorSpec& spec : specs) {
    int64_t bytes = 0, end = 0;
    INVAR_TRY(check_spec(path, spec, &bytes));
    if (__builtin_add_overflow(at, bytes, &end)) return refuse(path, "the tensors overflow 63 bits");
    header += cat(header.size() > 1 ? "," : "", json_string(spec.name), ":{\"dtype\":\"", name_of(spec.dtype),
                  "\",\"shape\":[");
    for (size_t i = 0; i < spec.shape.size(); ++i) header += cat(i > 0 ? "," : "", spec.shape[i]);
    header += cat("],\"data_offsets\":[", at, ",", end, "]}");
    TensorInfo info;
    static_cast<TensorSpec&>(info) = std::move(spec);
    info.begin = at;
    info.end = end;
    writer.tensors_.push_back(std::move(info));
    at = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(header.size()) > SafetensorsLimits().header_bytes) {
    return refuse(path, cat("a header of ", header.size(), " bytes is more than readers accept; use more shards"));
  }
  const int64_t data_begin = 8 + static_cast<int64_t>(header.size());
  if (__builtin_add_overflow(at, data_begin, &writer.file_size_)) return refuse(path, "the tensors overflow 63 bits");
  for (TensorInfo& info : writer.tensors_) {
    info.begin += data_begin;
    info.end += data_begin;
  }

  writer.by_name_.resize(writer.tensors_.size());
  std::iota(writer.by_name_.begin(), writer.by_name_.end(), 0u);
  const auto& tensors = writer.tensors_;
  std::sort(writer.by_name_.begin(), writer.by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  const auto twice = std::adjacent_find(writer.by_name_.begin(), writer.by_name_.end(),
                                        [&](uint32_t a, uint32_t b) { return tensors[a].name == tensors[b].name; });
  if (twice != writer.by_name_.end()) {
    return refuse(path, cat("tensor ", in_quotes(tensors[*twice].name), " is declared twice"));
  }
  writer.written_ = std::make_unique<std::atomic<int64_t>[]>(tensors.size());

  std::string prefix(8, '\0');
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 0xff);
  INVAR_ASSIGN(writer.file_, files.create(path));
  prefix += header;
  INVAR_TRY(writer.file_->write_at(0, std::as_bytes(std::span(prefix))));
  return writer;
}

const TensorInfo* SafetensorsWriter::find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](uint32_t index, std::string_view n) { return tensors_[index].name < n; });
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

Status SafetensorsWriter::write(std::string_view name, int64_t offset, std::span<const std::byte> bytes) {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    return Error(Code::kInvalidArgument, "safetensors.bad_tensor",
                 cat(path(), ": tensor ", in_quotes(name), " was not declared"));
  }
  return write(*tensor, offset, bytes);
}

Status SafetensorsWriter::write(const TensorInfo& tensor, int64_t offset, std::span<const std::byte> bytes) {
  if (offset < 0 || offset > tensor.byte_size() || static_cast<int64_t>(bytes.size()) > tensor.byte_size() - offset) {
    return Error(Code::kOutOfRange, "tensor.out_of_range",
                 cat(path(), ": tensor ", in_quotes(tensor.name), " has ", tensor.byte_size(), " bytes; ", bytes.size(),
                     " were written at byte ", offset));
  }
  INVAR_TRY(file_->write_at(tensor.begin + offset, bytes));
  written_[&tensor - tensors_.data()].fetch_add(static_cast<int64_t>(bytes.size()), std::memory_order_relaxed);
  return {};
}

Status SafetensorsWriter::close(bool durable) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int64_t written = written_[i].load();
    if (written != tensors_[i].byte_size()) {
      return Error(Code::kFailedPrecondition, "safetensors.incomplete",
                   cat(path(), ": tensor ", in_quotes(tensors_[i].name), " has ", tensors_[i].byte_size(),
                       " bytes but ", written, " were written"));
    }
  }
  return file_->close(durable);
}

}  // namespace invar
