// Folders of torch.distributed.checkpoint. `.metadata` is a pickle with, for each tensor, its shape, dtype and chunks,
// and for each chunk the file, byte and length of a torch.save blob that holds it.
//
// reasons beside those of the blobs: dcp.bad_metadata  dcp.unsafe_path  dcp.missing_chunk  dcp.transformed  dcp.expands
#include <map>

#include "core/container/file_parts.h"
#include "core/container/pieces_file.h"
#include "core/container/torch_archive.h"
#include "core/container/torch_formats.h"

namespace invar {
namespace {

constexpr std::string_view kMetadata = ".metadata";
constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata.";

// Where a chunk lies, by tensor name and offset in the tensor.
struct ChunkKey {
  std::string_view name;
  std::vector<int64_t> offset;
  auto operator<=>(const ChunkKey&) const = default;
};

struct ChunkPlace {
  std::string_view file;
  int64_t offset = 0, length = 0;
};

class DcpReader {
 public:
  DcpReader(FileSystem& system, std::string folder, const ContainerLimits& limits, int file_index)
      : system_(system),
        folder_(std::move(folder)),
        limits_(limits),
        made_(std::make_unique<PiecesFile>("dcp", folder_, limits, file_index)) {}

  Result<std::unique_ptr<WeightFile>> run() {
    const std::string path = join_path(folder_, kMetadata);
    INVAR_ASSIGN(std::string bytes, read_text(system_, path, limits_.pickle_bytes));
    INVAR_ASSIGN(const Pickle pickle, Pickle::read(path, std::move(bytes)));
    const PickleValue root = pickle.root();
    if (root.callee() != cat(kModule, "Metadata")) return bad("is no checkpoint's metadata");
    INVAR_TRY(read_places(root.find("storage_data")));
    const PickleValue tensors = root.find("state_dict_metadata");
    if (!tensors.is(PickleKind::kDict)) return bad("has no \"state_dict_metadata\"");
    std::string_view other;
    size_t others = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string_view name = tensors.key(i).text();
      if (!tensors.key(i).is(PickleKind::kText)) return bad("names an entry by something that is no text");
      const std::string_view kind = tensors.value(i).callee();
      if (kind == cat(kModule, "BytesStorageMetadata")) {
        if (others++ == 0) other = name;
      } else if (kind == cat(kModule, "TensorStorageMetadata")) {
        INVAR_TRY(read_tensor(name, tensors.value(i)));
      } else {
        return bad(cat("describes ", in_quotes(name), " by something that is no tensor"));
      }
    }
    if (others > 0) {
      made_->find("other_values",
                  cat(path, ": ", others, " values that are no tensors were left out, ", in_quotes(other), " first"));
    }
    INVAR_TRY(made_->finish());
    return std::unique_ptr<WeightFile>(std::move(made_));
  }

 private:
  Status bad(const std::string& what) const {
    return Error(Code::kDataLoss, "dcp.bad_metadata", cat(join_path(folder_, kMetadata), ": ", what));
  }
  Status bad_tensor(std::string_view reason, std::string_view name, const std::string& what) const {
    return Error(Code::kDataLoss, reason, cat(join_path(folder_, kMetadata), ": tensor ", in_quotes(name), ": ", what));
  }

  Status read_places(PickleValue places) {
    if (!places.is(PickleKind::kDict)) return bad("has no \"storage_data\"");
    for (size_t i = 0; i < places.size(); ++i) {
      const PickleValue key = places.key(i), place = places.value(i);
      const auto offset = key.find("offset").sizes();
      const auto begin = place.find("offset").integer(), length = place.find("length").integer();
      const PickleValue path = place.find("relative_path"), transforms = place.find("transform_descriptors");
      if (!key.find("fqn").is(PickleKind::kText) || !path.is(PickleKind::kText) || !begin || !length || *begin < 0 ||
          *length < 0) {
        return bad(cat("entry ", i, " of its storage data is damaged"));
      }
      if (!offset) continue;  // bytes, not a tensor
      if (static_cast<int64_t>(key.find("fqn").text().size()) > limits_.name_bytes) {
        return bad(cat("entry ", i, " of its storage data has a name of ", key.find("fqn").text().size(), " bytes"));
      }
      if (transforms.size() > 0) {
        return bad_tensor(
            "dcp.transformed", key.find("fqn").text(),
            cat("is stored through ", in_quotes(transforms.item(0).text()), ", which is not undone here"));
      }
      places_[{key.find("fqn").text(), *offset}] = {path.text(), *begin, *length};
    }
    return {};
  }

  Status read_tensor(std::string_view name, PickleValue value) {
    // (dtype, layout, requires_grad, memory format, pinned[, strides])
    const DType dtype = torch_dtype(value.find("properties").state().item(0).text());
    const auto shape = value.find("size").sizes();
    const PickleValue chunks = value.find("chunks");
    if (!shape || !chunks.is(PickleKind::kList)) return bad_tensor("dcp.bad_metadata", name, "has no size and chunks");
    if (dtype == DType::kUnspecified) {
      return bad_tensor(
          "dcp.bad_metadata", name,
          cat("has dtype ", in_quotes(value.find("properties").state().item(0).text()), ", which cannot be read"));
    }
    std::vector<StoredBox> boxes;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto origin = chunks.item(i).find("offsets").sizes(), sizes = chunks.item(i).find("sizes").sizes();
      if (!origin || !sizes) return bad_tensor("dcp.bad_metadata", name, cat("chunk ", i, " has no offsets and sizes"));
      const auto place = places_.find({name, *origin});
      if (place == places_.end()) {
        return bad_tensor("dcp.missing_chunk", name, cat("the chunk at ", shape_text(*origin), " lies nowhere"));
      }
      INVAR_ASSIGN(StoredBox box, read_chunk(name, place->second, dtype, *sizes));
      box.origin = *origin;
      boxes.push_back(std::move(box));
    }
    std::vector<int64_t> logical = *shape;
    if (dtype == DType::kE2M1 && !logical.empty() &&
        __builtin_mul_overflow(logical.back(), int64_t{2}, &logical.back())) {
      return bad_tensor("dcp.bad_metadata", name, "overflows 63 bits");
    }
    return made_->add({std::string(name), dtype, std::move(logical)}, std::move(boxes));
  }

  Result<StoredBox> read_chunk(std::string_view name, const ChunkPlace& place, DType dtype,
                               const std::vector<int64_t>& sizes) {
    INVAR_ASSIGN(auto file, open_part(name, std::string(place.file)));
    if (place.offset > file->size() || place.length > file->size() - place.offset) {
      return bad_tensor("dcp.missing_chunk", name,
                        cat("a chunk of ", place.length, " bytes from byte ", place.offset, " leaves ", file->path(),
                            ", which has ", file->size(), ": file is truncated"));
    }
    INVAR_ASSIGN(const TorchArchive archive, TorchArchive::open(slice_of(file, place.offset, place.length), limits_));
    INVAR_ASSIGN(auto tensor, archive.tensor(archive.root(), name));
    if (!tensor || tensor->dtype != dtype || tensor->box.sizes != sizes) {
      return bad_tensor("dcp.missing_chunk", name,
                        cat("the chunk at byte ", place.offset, " of ", file->path(), " is not the ", name_of(dtype),
                            " tensor of size ", shape_text(sizes), " that it should be"));
    }
    return std::move(tensor->box);
  }

  Result<std::shared_ptr<const RandomAccessFile>> open_part(std::string_view tensor, const std::string& name) {
    auto& file = parts_[name];
    if (file != nullptr) return file;
    if (name.empty() || name == "." || name == ".." || name.find_first_of(std::string_view("/\\\0", 3)) != name.npos) {
      return bad_tensor("dcp.unsafe_path", tensor,
                        cat("lies in ", in_quotes(name), "; only files in the same folder are followed"));
    }
    const std::string path = join_path(folder_, name);
    if (!system_.exists(path)) {
      return bad_tensor("dcp.missing_chunk", tensor,
                        cat("lies in ", in_quotes(name), ", which is not in the folder: download is incomplete?"));
    }
    INVAR_ASSIGN(file, open_on_demand(system_, path));
    made_->add_part(file);
    return file;
  }

  FileSystem& system_;
  std::string folder_;
  const ContainerLimits& limits_;
  std::unique_ptr<PiecesFile> made_;
  std::map<ChunkKey, ChunkPlace> places_;
  std::map<std::string, std::shared_ptr<const RandomAccessFile>> parts_;
};

}  // namespace

// The folder itself, or the only one in it that is a checkpoint.
Result<std::string> find_dcp(FileSystem& files, const std::string& folder) {
  if (files.exists(join_path(folder, kMetadata))) return folder;
  INVAR_ASSIGN(const auto entries, files.list(folder));
  std::vector<std::string> found;
  for (const DirEntry& entry : entries) {
    const std::string inside = join_path(folder, entry.name);
    if (entry.is_directory && files.exists(join_path(inside, kMetadata))) found.push_back(inside);
  }
  if (found.size() <= 1) return found.empty() ? std::string() : found[0];
  return Error(
      Code::kDataLoss, "folder.several_checkpoints",
      cat(folder, ": holds ", found.size(), " checkpoints, ", found[0], " and ", found[1], " among them; name one"));
}

Result<std::unique_ptr<WeightFile>> open_dcp(FileSystem& files, const std::string& folder,
                                             const ContainerLimits& limits, int file_index) {
  return DcpReader(files, folder, limits, file_index).run();
}

}  // namespace invar
