#include "core/container/torch_archive.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/container/tensor_info.h"
#include "core/container/zip_archive.h"

namespace invar {
namespace {

struct TorchType {
  std::string_view name;  // storage class or dtype, without "torch."
  DType dtype;
};

constexpr auto kStorages = std::to_array<TorchType>({{"DoubleStorage", DType::kF64},
                                                     {"FloatStorage", DType::kF32},
                                                     {"HalfStorage", DType::kF16},
                                                     {"BFloat16Storage", DType::kBF16},
                                                     {"LongStorage", DType::kI64},
                                                     {"IntStorage", DType::kI32},
                                                     {"ShortStorage", DType::kI16},
                                                     {"CharStorage", DType::kI8},
                                                     {"ByteStorage", DType::kU8},
                                                     {"BoolStorage", DType::kBool},
                                                     {"ComplexFloatStorage", DType::kC64},
                                                     {"UntypedStorage", DType::kU8},
                                                     {"storage.UntypedStorage", DType::kU8}});

constexpr auto kDTypes = std::to_array<TorchType>({{"float64", DType::kF64},
                                                   {"float32", DType::kF32},
                                                   {"float16", DType::kF16},
                                                   {"bfloat16", DType::kBF16},
                                                   {"int64", DType::kI64},
                                                   {"int32", DType::kI32},
                                                   {"int16", DType::kI16},
                                                   {"int8", DType::kI8},
                                                   {"uint64", DType::kU64},
                                                   {"uint32", DType::kU32},
                                                   {"uint16", DType::kU16},
                                                   {"uint8", DType::kU8},
                                                   {"bool", DType::kBool},
                                                   {"complex64", DType::kC64},
                                                   {"float8_e4m3fn", DType::kE4M3FN},
                                                   {"float8_e5m2", DType::kE5M2},
                                                   {"float8_e4m3fnuz", DType::kE4M3FNUZ},
                                                   {"float8_e5m2fnuz", DType::kE5M2FNUZ},
                                                   {"float8_e8m0fnu", DType::kE8M0},
                                                   {"float4_e2m1fn_x2", DType::kE2M1}});

template <size_t kCount>
DType find_type(const std::array<TorchType, kCount>& types, std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  if (!name.starts_with(kPrefix)) return DType::kUnspecified;
  const auto it = std::find_if(types.begin(), types.end(),
                               [&](const TorchType& type) { return type.name == name.substr(kPrefix.size()); });
  return it == types.end() ? DType::kUnspecified : it->dtype;
}

// What a persistent reference says: ("storage", class, key, location, elements[, view]).
struct StorageReference {
  std::string_view key;
  DType dtype = DType::kUnspecified;
  int64_t bytes = 0;
};

Result<StorageReference> storage_reference(PickleValue value, const std::string& label) {
  const auto bad = [&](const std::string& what) {
    return Error(Code::kDataLoss, "torch.bad_tensor", cat(label, ": ", what));
  };
  const PickleValue tuple = value.arguments();
  if (!value.is(PickleKind::kPersistent) || !tuple.is(PickleKind::kTuple) || tuple.size() < 5 ||
      tuple.item(0).text() != "storage") {
    return bad("does not refer to a storage");
  }
  if (tuple.size() > 5 && !tuple.item(5).is(PickleKind::kNone)) return bad("refers to a view of a storage");
  StorageReference reference;
  constexpr size_t kLongestKey = 4096;  // keys are compared often
  reference.key = tuple.item(2).text();
  if (reference.key.size() > kLongestKey) return bad("refers to a storage by a key of many bytes");
  reference.dtype = find_type(kStorages, tuple.item(1).text());
  if (reference.dtype == DType::kUnspecified) {
    return bad(cat("lies in a ", in_quotes(tuple.item(1).text()), ", whose dtype cannot be read"));
  }
  const auto elements = tuple.item(4).integer();
  if (!elements || *elements < 0 || __builtin_mul_overflow(*elements, bytes_of(reference.dtype, 1), &reference.bytes)) {
    return bad("refers to a storage without a size");
  }
  return reference;
}

}  // namespace

DType torch_dtype(std::string_view name) { return find_type(kDTypes, name); }

class TorchArchiveReader {
 public:
  TorchArchiveReader(std::shared_ptr<const RandomAccessFile> file, const ContainerLimits& limits)
      : file_(*file), limits_(limits) {
    archive_.file_ = std::move(file);
  }

  Result<TorchArchive> run() {
    std::array<std::byte, 4> head{};
    const auto bytes = static_cast<size_t>(std::min<int64_t>(4, file_.size()));
    INVAR_TRY(file_.read_at(0, std::span(head).first(bytes)));
    if (ZipArchive::is_zip(std::span(head).first(bytes))) {
      INVAR_TRY(read_zip());
    } else {
      INVAR_TRY(read_stream());
    }
    return std::move(archive_);
  }

 private:
  Status bad(std::string_view reason, const std::string& what) const {
    return Error(Code::kDataLoss, reason, cat(file_.path(), ": ", what));
  }

  Result<std::string> text_at(int64_t begin, int64_t bytes) const {
    std::string text(static_cast<size_t>(bytes), '\0');
    INVAR_TRY(file_.read_at(begin, std::as_writable_bytes(std::span(text))));
    return text;
  }

  Status read_zip() {
    INVAR_ASSIGN(const ZipArchive zip, ZipArchive::read(file_, limits_.header_bytes));
    constexpr std::string_view kPickle = "/data.pkl", kStorage = "data/";
    const ZipEntry* description = nullptr;
    for (const ZipEntry& entry : zip.entries()) {
      const size_t slash = entry.name.find('/');
      if (slash == std::string::npos) continue;
      const std::string_view inside = std::string_view(entry.name).substr(slash);
      if (inside == "/constants.pkl" || inside.starts_with("/code/")) {
        return bad("torch.torchscript", "is a TorchScript program, which holds code beside weights and is not read");
      }
      if (inside != kPickle) continue;
      if (description != nullptr) {
        return bad("torch.not_a_checkpoint",
                   cat("holds both ", in_quotes(description->name), " and ", in_quotes(entry.name)));
      }
      description = &entry;
    }
    if (description == nullptr) {
      return bad("torch.not_a_checkpoint", "is a zip file without data.pkl: torch.save did not write it");
    }
    const std::string top = description->name.substr(0, description->name.size() - kPickle.size() + 1);
    if (const ZipEntry* order = zip.find(top + "byteorder"); order != nullptr) {
      INVAR_ASSIGN(const std::string text, text_at(order->begin, std::min<int64_t>(order->size, 16)));
      if (!text.starts_with("little")) {
        return bad("torch.big_endian", cat("has byte order ", in_quotes(text), "; only \"little\" is read"));
      }
    }
    if (description->size > limits_.pickle_bytes) {
      return bad("torch.not_a_checkpoint",
                 cat("has a data.pkl of ", description->size, " bytes; ", limits_.pickle_bytes, " are allowed"));
    }
    INVAR_ASSIGN(std::string bytes, text_at(description->begin, description->size));
    INVAR_ASSIGN(auto pickle, Pickle::read(file_.path(), std::move(bytes)));
    archive_.pickle_ = std::make_unique<Pickle>(std::move(pickle));
    const std::string prefix = cat(top, kStorage);
    for (const ZipEntry& entry : zip.entries()) {
      if (!entry.name.starts_with(prefix)) continue;
      archive_.storages_[entry.name.substr(prefix.size())] = {entry.begin, entry.size};
    }
    return {};
  }

  // Magic number, protocol version, the writer's sizes, the object, the storages' keys; then the storages, each with
  // its number of elements in front.
  Status read_stream() {
    constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    constexpr int64_t kFirstTry = 1 << 20;
    const int64_t most = std::min(file_.size(), limits_.pickle_bytes);
    for (int64_t tried = std::min(kFirstTry, most);; tried = std::min(tried * 8, most)) {
      INVAR_ASSIGN(const std::string text, text_at(0, tried));
      Status status = read_pickles(text, kMagic);
      if (status.ok() || status.reason() != "pickle.truncated" || tried == most) return status;
    }
  }

  Status read_pickles(const std::string& text, std::string_view magic) {
    size_t at = 0;
    const auto next = [&]() -> Result<Pickle> {
      auto pickle = Pickle::read(file_.path(), text.substr(at));
      if (pickle.ok()) at += pickle->consumed();
      return pickle;
    };
    INVAR_ASSIGN(const Pickle first, next());
    if (first.root().text() != magic) {
      return bad("torch.not_a_checkpoint", "is a pickle, but torch.save did not write it");
    }
    INVAR_ASSIGN(const Pickle version, next());
    if (version.root().integer() != 1001) return bad("torch.not_a_checkpoint", "has an unknown version");
    INVAR_ASSIGN(const Pickle system, next());
    if (system.root().find("little_endian").integer() == 0) {
      return bad("torch.big_endian", "was written on a big-endian machine");
    }
    INVAR_ASSIGN(auto object, next());
    archive_.pickle_ = std::make_unique<Pickle>(std::move(object));
    INVAR_ASSIGN(const Pickle keys, next());
    return read_storages(keys.root(), static_cast<int64_t>(at));
  }

  Status read_storages(PickleValue keys, int64_t at) {
    std::map<std::string_view, StorageReference> references;
    for (const PickleValue value : archive_.pickle_->persistent()) {
      INVAR_ASSIGN(const StorageReference reference, storage_reference(value, file_.path()));
      references.emplace(reference.key, reference);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::string_view key = keys.item(i).text();
      const auto it = references.find(key);
      if (it == references.end()) {
        return bad("torch.missing_storage", cat("lists a storage ", in_quotes(key), " that no tensor uses"));
      }
      std::array<std::byte, 8> count_bytes{};
      INVAR_TRY(file_.read_at(at, count_bytes));
      uint64_t count;
      std::memcpy(&count, count_bytes.data(), sizeof(count));
      at += 8;
      const int64_t width = bytes_of(it->second.dtype, 1);
      if (count > static_cast<uint64_t>((file_.size() - at) / width)) {
        return bad("torch.missing_storage", cat("storage ", in_quotes(key), " of ", count, " elements from byte ", at,
                                                " does not fit the file of ", file_.size(), ": file is truncated"));
      }
      const int64_t bytes = static_cast<int64_t>(count) * width;
      archive_.storages_[std::string(key)] = {at, bytes};
      at += bytes;
    }
    if (at != file_.size()) {
      return bad("torch.not_a_checkpoint", cat("ends at byte ", file_.size(), " but its storages at byte ", at));
    }
    return {};
  }

  const RandomAccessFile& file_;
  const ContainerLimits& limits_;
  TorchArchive archive_;
};

Result<TorchArchive> TorchArchive::open(std::shared_ptr<const RandomAccessFile> file, const ContainerLimits& limits) {
  return TorchArchiveReader(std::move(file), limits).run();
}

Result<std::optional<TorchTensor>> TorchArchive::tensor(PickleValue value, std::string_view name) const {
  const std::string label = cat(file_->path(), ": tensor ", in_quotes(name));
  constexpr int kMostWrappers = 4;
  for (int depth = 0; depth < kMostWrappers; ++depth) {
    const std::string_view callee = value.callee();
    PickleValue arguments = value.arguments();
    if (!value.is(PickleKind::kCall)) return std::optional<TorchTensor>();
    if (callee == "torch._utils._rebuild_parameter" || callee == "torch._utils._rebuild_parameter_with_state") {
      value = arguments.item(0);
      continue;
    }
    std::string_view function = callee;
    if (callee == "torch._tensor._rebuild_from_type_v2") {  // (function, type, arguments, state)
      const std::string_view type = arguments.item(1).text();
      if (type != "torch.Tensor" && type != "torch.nn.parameter.Parameter" && type != "torch.nn.parameter.Buffer") {
        return Error(Code::kDataLoss, "torch.bad_tensor", cat(label, ": is of the class ", in_quotes(type)));
      }
      function = arguments.item(0).text();
      arguments = arguments.item(2);
      if (function.starts_with("torch._utils._rebuild_parameter")) {
        value = arguments.item(0);
        continue;
      }
    }
    if (!function.starts_with("torch._utils._rebuild_tensor")) return std::optional<TorchTensor>();
    TorchTensor made;
    INVAR_TRY(view(arguments, function.ends_with("_v3"), label, &made));
    return std::optional<TorchTensor>(std::move(made));
  }
  return Error(Code::kDataLoss, "torch.bad_tensor", cat(label, ": is wrapped more than ", kMostWrappers, " times"));
}

// (storage, offset in elements, size, stride[, requires_grad, hooks[, dtype in version 3]]).
Status TorchArchive::view(PickleValue arguments, bool has_dtype, const std::string& label, TorchTensor* made) const {
  const auto bad = [&](const std::string& what) {
    return Error(Code::kDataLoss, "torch.bad_tensor", cat(label, ": ", what));
  };
  INVAR_ASSIGN(const StorageReference reference, storage_reference(arguments.item(0), label));
  const auto storage = storages_.find(reference.key);
  if (storage == storages_.end()) {
    return Error(Code::kDataLoss, "torch.missing_storage",
                 cat(label, ": its storage ", in_quotes(reference.key), " is not in the file"));
  }
  if (storage->second.bytes < reference.bytes) {
    return bad(cat("its storage ", in_quotes(reference.key), " has ", storage->second.bytes, " bytes of ",
                   reference.bytes, ": file is truncated"));
  }
  made->dtype = reference.dtype;
  if (has_dtype) {
    made->dtype = torch_dtype(arguments.item(6).text());
    if (made->dtype == DType::kUnspecified) {
      return bad(cat("has dtype ", in_quotes(arguments.item(6).text()), ", which cannot be read"));
    }
  }
  const auto offset = arguments.item(1).integer();
  const auto sizes = arguments.item(2).sizes(), strides = arguments.item(3).sizes();
  if (!offset || *offset < 0 || !sizes || !strides || sizes->size() != strides->size()) {
    return bad("has no offset, size and stride that fit each other");
  }
  const int64_t width = bytes_of(made->dtype, 1);
  StoredBox& box = made->box;
  box.file = file_;
  box.origin.assign(sizes->size(), 0);
  box.sizes = *sizes;
  box.strides = *strides;
  const int64_t extent = extent_bytes(box, width), limit = reference.bytes;
  if (extent < 0 || *offset > limit / width || extent > limit - *offset * width) {
    return bad(cat("of shape ", shape_text(*sizes), " and strides ", shape_text(*strides), " from element ", *offset,
                   " leaves its storage of ", limit, " bytes"));
  }
  box.begin = storage->second.begin + *offset * width;
  made->shape = *sizes;
  if (made->dtype == DType::kE2M1) {  // two elements a byte, counted as one
    if (made->shape.empty() || __builtin_mul_overflow(made->shape.back(), int64_t{2}, &made->shape.back())) {
      return bad("holds pairs and has no dimension to spread them over");
    }
  }
  return {};
}

}  // namespace invar
