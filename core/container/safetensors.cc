#include "core/container/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/container/json_events.h"

namespace invar {
namespace {

// One entry of the header as it was written, before its meaning is checked.
struct Record {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Collects records; knows the header's grammar and nothing of sizes.
class HeaderEvents : public JsonEvents {
 public:
  explicit HeaderEvents(const SafetensorsLimits& limits) : limits_(limits) {}
  std::vector<Record> records;
  StringMap metadata;

 protected:
  bool on_object() override {
    switch (place_) {
      case Place::kDocument: return go(Place::kRoot);
      case Place::kRoot:
        if (!in_metadata_) records.push_back({std::move(entry_), {}, {}, {}});
        return go(in_metadata_ ? Place::kMetadata : Place::kRecord);
      default: return unexpected("an object");
    }
  }

  bool on_object_end() override {
    if (place_ == Place::kSkip) return leave_skip();
    if (place_ == Place::kMetadata || place_ == Place::kRecord) return go(Place::kRoot);
    return true;
  }

  bool on_array() override {
    if (place_ == Place::kRecord && field_ == "shape") return go(Place::kShape);
    if (place_ == Place::kRecord && field_ == "data_offsets") return go(Place::kOffsets);
    return unexpected("a list");
  }

  bool on_array_end() override {
    if (place_ == Place::kSkip) return leave_skip();
    return go(Place::kRecord);
  }

  bool on_key(std::string& key) override {
    if (place_ == Place::kRoot) return on_entry(key);
    if (place_ == Place::kMetadata) {
      const bool seen =
          std::any_of(metadata.begin(), metadata.end(), [&](const auto& pair) { return pair.first == key; });
      if (seen || metadata.size() >= 10000) {
        return bad("safetensors.bad_metadata", cat("__metadata__ holds ", in_quotes(key), " twice or too many keys"));
      }
      metadata.emplace_back(key, "");
    } else if (place_ == Place::kRecord) {
      field_ = key;
      Record& record = records.back();
      bool* seen = key == "dtype"          ? &record.has_dtype
                   : key == "shape"        ? &record.has_shape
                   : key == "data_offsets" ? &record.has_offsets
                                           : nullptr;
      if (seen != nullptr && std::exchange(*seen, true)) {
        return bad("safetensors.bad_header", cat("tensor ", in_quotes(record.name), " has ", in_quotes(key), " twice"));
      }
    }
    return true;
  }

  bool on_string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      metadata.back().second = std::move(value);
      return true;
    }
    if (place_ == Place::kRecord && field_ == "dtype") {
      records.back().dtype = std::move(value);
      return true;
    }
    return unexpected(in_quotes(value));
  }

  bool on_unsigned(uint64_t value) override {
    if (place_ == Place::kShape) {
      Record& record = records.back();
      if (static_cast<int>(record.shape.size()) >= limits_.rank) {
        return bad("safetensors.bad_shape",
                   cat("tensor ", in_quotes(record.name), " has more than ", limits_.rank, " dimensions"));
      }
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return bad("safetensors.size_overflow",
                   cat("tensor ", in_quotes(record.name), " has a dimension of ", value, ", more than 63 bits"));
      }
      record.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets && records.back().offsets.size() < 2) {
      records.back().offsets.push_back(value);
      return true;
    }
    return unexpected(std::to_string(value));
  }

  bool on_other(std::string_view text) override { return unexpected(text); }

 private:
  enum class Place { kDocument, kRoot, kMetadata, kRecord, kShape, kOffsets, kSkip };

  bool on_entry(std::string& key) {
    in_metadata_ = key == "__metadata__";
    if (in_metadata_) {
      if (std::exchange(has_metadata_, true)) return bad("safetensors.bad_metadata", "__metadata__ appears twice");
      return true;
    }
    if (static_cast<int64_t>(records.size()) >= limits_.tensors) {
      return bad("safetensors.too_many_tensors", cat("the header lists more than ", limits_.tensors, " tensors"));
    }
    if (static_cast<int64_t>(key.size()) > limits_.name_bytes) {
      return bad("safetensors.name_too_long",
                 cat("tensor ", in_quotes(key), " has a name of ", key.size(), " bytes; at most ", limits_.name_bytes));
    }
    entry_ = std::move(key);
    return true;
  }

  bool go(Place place) {
    place_ = place;
    return true;
  }

  // A field this format does not define: legal, carried by nobody; its value is passed over.
  bool leave_skip() {
    if (level() == skip_level_) place_ = Place::kRecord;
    return true;
  }

  bool bad(std::string_view reason, const std::string& what) {
    return fail(Error(Code::kDataLoss, reason, cat(label(), ": ", what)));
  }

  bool unexpected(std::string_view value) {
    switch (place_) {
      case Place::kSkip: return true;
      case Place::kMetadata:
        return bad("safetensors.bad_metadata",
                   cat("__metadata__ ", in_quotes(metadata.empty() ? "" : metadata.back().first), " is ", value,
                       "; only strings are allowed"));
      case Place::kShape:
        return bad("safetensors.bad_shape", cat("tensor ", in_quotes(records.back().name), " has ", value,
                                                " in its shape; plain non-negative integers are expected"));
      case Place::kOffsets:
        return bad("safetensors.bad_offsets", cat("tensor ", in_quotes(records.back().name), " has ", value,
                                                  " in data_offsets; two plain non-negative integers are expected"));
      case Place::kRecord: {
        if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
          if (value == "an object" || value == "a list") {
            skip_level_ = level() - 1;
            place_ = Place::kSkip;
          }
          return true;
        }
        const std::string_view reason = field_ == "shape"          ? "safetensors.bad_shape"
                                        : field_ == "data_offsets" ? "safetensors.bad_offsets"
                                                                   : "safetensors.bad_header";
        return bad(reason, cat("tensor ", in_quotes(records.back().name), " has ", value, " for ", field_));
      }
      default:
        return bad(in_metadata_ ? "safetensors.bad_metadata" : "safetensors.bad_header",
                   cat(in_metadata_ ? std::string("__metadata__") : in_quotes(entry_), " is ", value,
                       "; an object is expected"));
    }
  }

  const SafetensorsLimits& limits_;
  Place place_ = Place::kDocument;
  std::string entry_;
  std::string field_;
  int skip_level_ = 0;
  bool in_metadata_ = false, has_metadata_ = false;
};

}  // namespace

// Turns a file into a header: length, text, records, then the layout of the data.
class SafetensorsHeaderReader {
 public:
  SafetensorsHeaderReader(const RandomAccessFile& file, const SafetensorsLimits& limits, int file_index)
      : file_(file), limits_(limits), file_index_(file_index) {}

  Result<SafetensorsHeader> run() {
    INVAR_ASSIGN(const std::string text, read_text());
    HeaderEvents events(limits_);
    INVAR_TRY(events.run(cat(file_.path(), ": header"), text, "safetensors.bad_header", /*depth=*/8));
    header_.metadata_ = std::move(events.metadata);
    INVAR_TRY(check_names(events.records));
    header_.tensors_.reserve(events.records.size());
    for (Record& record : events.records) {
      INVAR_ASSIGN(auto tensor, check_record(record));
      header_.tensors_.push_back(std::move(tensor));
    }
    INVAR_TRY(check_tiling());
    header_.by_name_.resize(header_.tensors_.size());
    std::iota(header_.by_name_.begin(), header_.by_name_.end(), 0u);
    std::sort(header_.by_name_.begin(), header_.by_name_.end(),
              [this](uint32_t a, uint32_t b) { return header_.tensors_[a].name < header_.tensors_[b].name; });
    return std::move(header_);
  }

 private:
  Status bad(std::string_view reason, const std::string& what) const {
    return Error(Code::kDataLoss, reason, cat(file_.path(), ": ", what));
  }

  Result<std::string> read_text() {
    const int64_t size = file_.size();
    if (size < 8) {
      return bad("safetensors.truncated", cat("the file has ", size, " bytes; a safetensors file has at least 8"));
    }
    unsigned char prefix[8];
    INVAR_TRY(file_.read_at(0, std::as_writable_bytes(std::span(prefix))));
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
    if (length > static_cast<uint64_t>(limits_.header_bytes)) {
      return bad("safetensors.header_too_large", cat("the header claims ", length, " bytes; at most ",
                                                     limits_.header_bytes, " are read: not a safetensors file?"));
    }
    if (length > static_cast<uint64_t>(size - 8)) {
      return bad("safetensors.header_too_long",
                 cat("the header claims ", length, " bytes of a file of ", size, ": file is truncated or damaged"));
    }
    header_.data_begin_ = 8 + static_cast<int64_t>(length);
    std::string text(static_cast<size_t>(length), '\0');
    INVAR_TRY(file_.read_at(8, std::as_writable_bytes(std::span(text))));
    return text;
  }

  Status check_names(const std::vector<Record>& records) const {
    std::vector<std::string_view> names;
    names.reserve(records.size());
    for (const Record& record : records) names.push_back(record.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return {};
    return bad("safetensors.duplicate_tensor", cat("tensor ", in_quotes(*twice), " appears twice in the header"));
  }

  Result<TensorInfo> check_record(Record& record) const {
    const std::string who = cat("tensor ", in_quotes(record.name));
    if (!record.has_dtype || !record.has_shape || !record.has_offsets) {
      const char* missing = !record.has_dtype ? "dtype" : !record.has_shape ? "shape" : "data_offsets";
      return bad("safetensors.bad_header", cat(who, " has no ", missing));
    }
    const DType dtype = dtype_from_name(record.dtype);
    if (dtype == DType::kUnspecified) {
      return bad("safetensors.unknown_dtype",
                 cat(who, " has dtype ", in_quotes(record.dtype), unknown_hint(record.dtype)));
    }
    if (record.offsets.size() != 2 || record.offsets[0] > record.offsets[1]) {
      return bad("safetensors.bad_offsets",
                 record.offsets.size() != 2
                     ? cat(who, " has ", record.offsets.size(), " data_offsets; two are expected")
                     : cat(who, " begins at ", record.offsets[0], " and ends at ", record.offsets[1]));
    }
    if (record.offsets[1] > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - header_.data_begin_)) {
      return bad("safetensors.bad_offsets", cat(who, " ends at ", record.offsets[1], ", more than 63 bits"));
    }
    int64_t bytes = 0;
    const SizeCheck check = checked_byte_size(dtype, record.shape, &bytes);
    if (check == SizeCheck::kOverflow) {
      return bad("safetensors.size_overflow", cat(who, " of shape ", shape_text(record.shape), " overflows 63 bits"));
    }
    const auto stored = static_cast<int64_t>(record.offsets[1] - record.offsets[0]);
    if (check == SizeCheck::kPartialByte || bytes != stored) {
      return bad("safetensors.size_mismatch",
                 cat(who, " of dtype ", record.dtype, " and shape ", shape_text(record.shape),
                     check == SizeCheck::kPartialByte ? cat(" is not a whole number of bytes")
                                                      : cat(" needs ", bytes, " bytes but its offsets span ", stored)));
    }
    TensorInfo tensor;
    tensor.name = std::move(record.name);
    tensor.dtype = dtype;
    tensor.shape = std::move(record.shape);
    tensor.file = file_index_;
    tensor.begin = header_.data_begin_ + static_cast<int64_t>(record.offsets[0]);
    tensor.end = header_.data_begin_ + static_cast<int64_t>(record.offsets[1]);
    return tensor;
  }

  // Two spellings that other tools have written by mistake.
  static std::string unknown_hint(std::string_view dtype) {
    if (dtype == "F8_E4M3FN") return ", which is no safetensors dtype (did the writer mean \"F8_E4M3\"?)";
    if (dtype == "F8_E8M0FNU") return ", which is no safetensors dtype (did the writer mean \"F8_E8M0\"?)";
    return ", which is no safetensors dtype";
  }

  Status check_tiling() {
    auto& tensors = header_.tensors_;
    std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    int64_t at = header_.data_begin_;
    for (const TensorInfo& tensor : tensors) {
      if (tensor.begin != at) {
        const bool hole = tensor.begin > at;
        return bad(hole ? "safetensors.hole" : "safetensors.overlap",
                   cat("tensor ", in_quotes(tensor.name), " begins at byte ", tensor.begin, ", ",
                       hole ? "leaving a hole after byte " : "inside the tensor that ends at byte ", at));
      }
      at = tensor.end;
      if (at > file_.size()) {
        return bad("safetensors.truncated", cat("tensor ", in_quotes(tensor.name), " ends at byte ", at, " of ",
                                                file_.size(), ": file is truncated"));
      }
    }
    if (at != file_.size()) {
      return bad("safetensors.trailing_data",
                 cat("the tensors end at byte ", at, " but the file has ", file_.size(), " bytes"));
    }
    return {};
  }

  const RandomAccessFile& file_;
  const SafetensorsLimits& limits_;
  int file_index_;
  SafetensorsHeader header_;
};

Result<SafetensorsHeader> SafetensorsHeader::read(const RandomAccessFile& file, const SafetensorsLimits& limits,
                                                  int file_index) {
  return SafetensorsHeaderReader(file, limits, file_index).run();
}

const TensorInfo* SafetensorsHeader::find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](uint32_t index, std::string_view n) { return tensors_[index].name < n; });
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

Result<SafetensorsFile> SafetensorsFile::open(FileSystem& files, const std::string& path,
                                              const SafetensorsLimits& limits, int file_index) {
  INVAR_ASSIGN(auto file, files.open(path));
  INVAR_ASSIGN(auto header, SafetensorsHeader::read(*file, limits, file_index));
  return SafetensorsFile(std::move(file), std::move(header));
}

Status SafetensorsFile::read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const {
  INVAR_TRY(check_range(tensor, offset, out.size()));
  return file_->read_at(tensor.begin + offset, out);
}

}  // namespace invar
