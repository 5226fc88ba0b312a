#include "core/container/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/container/containers.h"

namespace invar {
namespace {

// Weights in formats that are not read here, and what training leaves beside weights: never copied as side files.
constexpr std::string_view kOtherWeights[] = {".h5", ".msgpack", ".onnx", ".npz",  ".ggml",   ".ckpt",
                                              ".pt", ".pth",     ".bin",  ".gguf", ".distcp", ".index.json"};
constexpr std::string_view kLeftOut[] = {".metadata", "latest", "latest_universal", "zero_to_fp32.py"};

// The files that belong to a model when only one weight file was named.
constexpr std::array<std::string_view, 15> kModelFiles = {
    "added_tokens.json",        "chat_template.jinja",     "chat_template.json", "config.json",
    "generation_config.json",   "hf_quant_config.json",    "merges.txt",         "params.json",
    "preprocessor_config.json", "special_tokens_map.json", "tekken.json",        "tokenizer.json",
    "tokenizer.model",          "tokenizer_config.json",   "vocab.json"};

bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

// "a, b and 3 more".
std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == 3 && names.size() > 4) return cat(text, " and ", names.size() - i, " more");
    text += cat(i == 0 ? "" : ", ", names[i]);
  }
  return text;
}

bool is_inside(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) &&
         (folder.ends_with('/') || path[folder.size()] == '/');
}

}  // namespace

// Builds a CheckpointFolder: list, choose, check links, read headers, compare with the index.
class CheckpointFolderReader {
 public:
  CheckpointFolderReader(FileSystem& system, const CheckpointFolder::Options& options)
      : system_(system), options_(options) {
    folder_.system_ = &system;
  }

  Result<CheckpointFolder> run(const std::string& path) {
    if (!system_.exists(path)) {
      return Error(Code::kNotFound, "file.not_found", cat(path, ": no such file or folder"));
    }
    folder_.is_single_file_ = !system_.is_directory(path);
    folder_.path_ = folder_.is_single_file_ ? parent_path(path) : path;
    if (folder_.is_single_file_) {
      list_beside(path);
    } else {
      INVAR_TRY(list_folder());
    }
    if (format_ == nullptr) {
      INVAR_TRY(read_folder_format());
      INVAR_TRY(merge_tensors());
      return std::move(folder_);
    }
    folder_.format_ = format_->name;
    choose_between_consolidated_and_shards();
    INVAR_TRY(read_indexes());
    INVAR_TRY(read_headers());
    INVAR_TRY(merge_tensors());
    INVAR_TRY(compare_with_indexes());
    return std::move(folder_);
  }

 private:
  Status bad(std::string_view reason, const std::string& what) const { return Error(Code::kDataLoss, reason, what); }
  std::string in_folder(std::string_view name) const { return join_path(folder_.path_, name); }
  void find(std::string_view reason, std::string message) {
    folder_.findings_.push_back({std::string(reason), std::move(message)});
  }

  Status list_folder() {
    INVAR_ASSIGN(const auto entries, system_.list(folder_.path_));
    std::vector<std::string> names;
    for (const DirEntry& entry : entries) {
      if (entry.is_directory || entry.name.ends_with(".partial")) continue;  // of a run that was killed
      if (entry.is_symlink) INVAR_TRY(check_link(entry.name));
      names.push_back(entry.name);
    }
    for (const FileFormat& format : file_formats()) {
      const auto claimed = [&format](const std::string& name) { return is_index(format, name) || holds(format, name); };
      if (std::none_of(names.begin(), names.end(), claimed)) continue;
      format_ = &format;
      break;
    }
    for (std::string& name : names) {
      if (format_ != nullptr && is_index(*format_, name)) {
        index_names_.push_back(std::move(name));
      } else if (format_ != nullptr && holds(*format_, name)) {
        weight_names_.push_back(std::move(name));
      } else if (const FileFormat* other = file_format_of(name); other != nullptr) {
        if (holds(*other, name)) other_weights_.push_back(std::move(name));
      } else if (ends_with_any(name, kOtherWeights)) {
        if (!name.ends_with(".index.json") && !name.ends_with(".distcp")) other_weights_.push_back(std::move(name));
      } else if (std::find(std::begin(kLeftOut), std::end(kLeftOut), name) == std::end(kLeftOut)) {
        folder_.side_files_.push_back(std::move(name));
      }
    }
    if (!other_weights_.empty()) {
      find("folder.other_weights",
           cat(folder_.path_, ": weights in other formats are not read: ", some_of(other_weights_)));
    }
    return {};
  }

  static bool is_index(const FileFormat& format, const std::string& name) {
    return !format.index_ending.empty() && name.ends_with(format.index_ending);
  }
  static bool holds(const FileFormat& format, const std::string& name) {
    return ends_with_any(name, format.endings) && (format.is_weights == nullptr || format.is_weights(name));
  }

  void list_beside(const std::string& path) {
    weight_names_.push_back(base_name(path));
    format_ = file_format_of(weight_names_[0]);
    if (format_ == nullptr) format_ = &file_formats()[0];
    for (const std::string_view name : kModelFiles) {
      if (system_.exists(in_folder(name))) folder_.side_files_.emplace_back(name);
    }
  }

  // No weight files: the folder may be a container as a whole, or lead to one.
  Status read_folder_format() {
    for (const FolderFormat& format : folder_formats()) {
      INVAR_ASSIGN(const std::string found, format.find(system_, folder_.path_));
      if (found.empty()) continue;
      INVAR_TRY(check_links_below(found));
      folder_.format_ = format.name;
      INVAR_ASSIGN(auto file, format.open(system_, found, options_.limits, 0));
      add(std::move(file));
      return {};
    }
    return bad("folder.no_weights",
               cat(folder_.path_, ": holds no weights in a known format",
                   other_weights_.empty() ? std::string() : cat(", only ", some_of(other_weights_))));
  }

  // The folder that was found and everything in it stay inside the one that was named.
  Status check_links_below(const std::string& found) {
    if (options_.follow_links) return {};
    INVAR_ASSIGN(const std::string home, system_.canonical(folder_.path_));
    std::vector<std::string> waiting = {found};
    while (!waiting.empty()) {
      const std::string path = std::move(waiting.back());
      waiting.pop_back();
      INVAR_ASSIGN(const std::string target, system_.canonical(path));
      if (target != home && !is_inside(target, home)) return leaves(path, target);
      if (!system_.is_directory(path)) continue;
      INVAR_ASSIGN(const auto entries, system_.list(path));
      for (const DirEntry& entry : entries) {
        const std::string below = join_path(path, entry.name);
        if (entry.is_symlink && entry.is_directory) return leaves(below, "a folder");  // could lead in a circle
        if (entry.is_symlink || entry.is_directory) waiting.push_back(below);
      }
    }
    return {};
  }

  Status leaves(const std::string& path, const std::string& target) const {
    return bad("index.unsafe_path", cat(path, ": is a symbolic link that leaves the folder, to ", in_quotes(target),
                                        "; copy the file here or allow links"));
  }

  void add(std::unique_ptr<WeightFile> file) {
    for (const Finding& finding : file->findings()) folder_.findings_.push_back(finding);
    folder_.files_.push_back(std::move(file));
  }

  // A Hugging Face cache stores snapshots/<revision>/<name> as links to blobs/<hash> two folders up.
  Status check_link(const std::string& name) {
    if (options_.follow_links) return {};
    INVAR_ASSIGN(const std::string home, system_.canonical(folder_.path_));
    INVAR_ASSIGN(const std::string target, system_.canonical(in_folder(name)));
    const std::string snapshots = parent_path(home);
    const bool cached =
        base_name(snapshots) == "snapshots" && parent_path(target) == join_path(parent_path(snapshots), "blobs");
    if (cached || is_inside(target, home)) return {};
    return leaves(in_folder(name), target);
  }

  // Mistral's releases hold the same weights twice, under other names.
  void choose_between_consolidated_and_shards() {
    const auto is_consolidated = [](const std::string& name) { return name.starts_with("consolidated"); };
    const auto first = std::stable_partition(weight_names_.begin(), weight_names_.end(),
                                             [&](const std::string& name) { return !is_consolidated(name); });
    if (first == weight_names_.begin() || first == weight_names_.end()) {
      return;
    }
    find("folder.consolidated_skipped",
         cat(folder_.path_, ": the consolidated files hold the same weights under other names and were not read: ",
             some_of({first, weight_names_.end()}), "; name the file to read it alone"));
    weight_names_.erase(first, weight_names_.end());
    std::erase_if(index_names_, is_consolidated);
  }

  Status read_indexes() {
    for (const std::string& name : index_names_) {
      const std::string path = in_folder(name);
      INVAR_ASSIGN(const std::string text, read_text(system_, path, options_.index_bytes));
      INVAR_ASSIGN(auto index, ShardIndex::parse(path, text));
      for (const auto& [tensor, file] : index.weight_map) {
        if (!std::binary_search(weight_names_.begin(), weight_names_.end(), file)) {
          return bad("index.missing_shard", cat(path, ": tensor ", in_quotes(tensor), " lies in ", in_quotes(file),
                                                ", which is not in the folder: download is incomplete?"));
        }
      }
      indexes_.push_back(std::move(index));
    }
    return {};
  }

  Status read_headers() {
    std::sort(weight_names_.begin(), weight_names_.end());
    for (const std::string& name : weight_names_) {
      const int number = static_cast<int>(folder_.files_.size());
      INVAR_ASSIGN(auto file, format_->open(system_, in_folder(name), options_.limits, number));
      add(std::move(file));
    }
    return {};
  }

  Status merge_tensors() {
    size_t count = 0;
    for (const auto& file : folder_.files_) count += file->tensors().size();
    auto& tensors = folder_.tensors_;
    tensors.reserve(count);
    for (const auto& file : folder_.files_) {
      tensors.insert(tensors.end(), file->tensors().begin(), file->tensors().end());
    }
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return a.name != b.name ? a.name < b.name : a.file < b.file;
    });
    const auto twice = std::adjacent_find(tensors.begin(), tensors.end(),
                                          [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
    if (twice == tensors.end()) return {};
    return bad("folder.duplicate_tensor",
               cat(folder_.path_, ": tensor ", in_quotes(twice->name), " lies in both ", folder_.file_name(twice[0]),
                   " and ", folder_.file_name(twice[1]), "; remove the file that does not belong"));
  }

  Status compare_with_indexes() {
    if (indexes_.empty()) return {};
    std::set<std::string_view> known_files, known_tensors;
    for (size_t i = 0; i < indexes_.size(); ++i) {
      const std::string path = in_folder(index_names_[i]);
      INVAR_TRY(compare_with_index(path, indexes_[i]));
      for (const auto& [tensor, file] : indexes_[i].weight_map) {
        known_tensors.insert(tensor);
        known_files.insert(file);
      }
    }
    std::vector<std::string> strays, omitted;
    for (const std::string& name : weight_names_) {
      if (!known_files.contains(name)) strays.push_back(name);
    }
    for (const TensorInfo& tensor : folder_.tensors_) {
      if (!known_tensors.contains(tensor.name)) omitted.push_back(tensor.name);
    }
    if (!strays.empty()) {
      find("index.stray_shard",
           cat(folder_.path_, ": the index does not know these files; their tensors were read: ", some_of(strays)));
    }
    if (!omitted.empty()) {
      find("index.omits_tensors",
           cat(folder_.path_, ": the index omits ", omitted.size(), " tensors that exist: ", some_of(omitted)));
    }
    return {};
  }

  Status compare_with_index(const std::string& path, const ShardIndex& index) {
    std::vector<std::string> elsewhere;
    int64_t tensor_bytes = 0, file_bytes = 0;
    for (const auto& [name, file] : index.weight_map) {
      const TensorInfo* tensor = folder_.find(name);
      if (tensor == nullptr) {
        return bad("index.missing_tensor", cat(path, ": tensor ", in_quotes(name), " should lie in ", in_quotes(file),
                                               ", which does not hold it: index is stale or file incomplete"));
      }
      if (folder_.file_name(*tensor) != file) elsewhere.push_back(name);
    }
    for (const TensorInfo& tensor : folder_.tensors_) tensor_bytes += tensor.byte_size();
    for (const auto& file : folder_.files_) file_bytes += file->size();
    if (!elsewhere.empty()) {
      find("index.wrong_shard",
           cat(path, ": ", elsewhere.size(), " tensors lie in another file than the index says: ", some_of(elsewhere)));
    }
    // Some writers sum the files instead of the tensors.
    if (index.total_size >= 0 && index.total_size != tensor_bytes && index.total_size != file_bytes) {
      find("index.total_size",
           cat(path, ": total_size is ", index.total_size, " but the tensors have ", tensor_bytes, " bytes"));
    }
    return {};
  }

  FileSystem& system_;
  const CheckpointFolder::Options& options_;
  CheckpointFolder folder_;
  const FileFormat* format_ = nullptr;  // of the weight files; null when the folder is the container
  std::vector<std::string> weight_names_, index_names_, other_weights_;
  std::vector<ShardIndex> indexes_;
};

Result<CheckpointFolder> CheckpointFolder::open(FileSystem& files, const std::string& path, const Options& options) {
  return CheckpointFolderReader(files, options).run(path);
}

const TensorInfo* CheckpointFolder::find(std::string_view name) const {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const TensorInfo& tensor, std::string_view n) { return tensor.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

std::string CheckpointFolder::file_name(const TensorInfo& tensor) const {
  const std::string& path = files_[static_cast<size_t>(tensor.file)]->path();
  return is_inside(path, path_) ? path.substr(path.find_first_not_of('/', path_.size())) : base_name(path);
}

Status CheckpointFolder::read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const {
  return files_[static_cast<size_t>(tensor.file)]->read(tensor, offset, out);
}

Result<std::vector<std::byte>> CheckpointFolder::read_all(const TensorInfo& tensor) const {
  return files_[static_cast<size_t>(tensor.file)]->read_all(tensor);
}

bool CheckpointFolder::has_side_file(std::string_view name) const {
  return std::find(side_files_.begin(), side_files_.end(), name) != side_files_.end();
}

Result<std::string> CheckpointFolder::side_text(std::string_view name, int64_t max_bytes) const {
  if (!has_side_file(name)) {
    return Error(Code::kNotFound, "file.not_found", cat(join_path(path_, name), ": no such file"));
  }
  return read_text(*system_, join_path(path_, name), max_bytes);
}

}  // namespace invar
