// A checkpoint (a folder of weight files in any format of containers.h, or a single file) seen as one set of named
// tensors, with the files beside them.
//
//   INVAR_ASSIGN(auto folder, CheckpointFolder::open(posix_files(), "SmolLM2-135M"));
//   for (const TensorInfo& tensor : folder.tensors()) ...
//   INVAR_TRY(folder.read(*folder.find("lm_head.weight"), 0, bytes));
//
// The union of the files' headers is the truth; `*.index.json` is checked against it. A folder that holds weights in
// several formats is read in the first of the table (safetensors before the rest). What only looks odd (a shard the
// index does not know, a tensor it omits, Mistral's consolidated files beside the sharded ones) is a Finding for
// reports; what cannot be trusted is an error:
//   index.bad             the index is not the JSON it should be
//   index.unsafe_path     it names a file outside the folder, or a file is a symbolic link that leaves it
//   index.missing_shard   it names a file that is not there
//   index.missing_tensor  it names a tensor its shard does not hold
//   folder.duplicate_tensor  two files hold the same tensor
//   folder.no_weights     there is nothing to read
// Invariant: tensors() is sorted by name, names are unique, and every TensorInfo::file is an index into files().
// Thread rule: immutable once open; read() from any number of threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/container/weight_file.h"

namespace invar {

class CheckpointFolder {
 public:
  struct Options {
    ContainerLimits limits;
    int64_t index_bytes = 100'000'000;  // of an index file
    // Symbolic links may leave the folder. Links into the blobs folder of a Hugging Face cache are always followed.
    bool follow_links = false;
  };

  static Result<CheckpointFolder> open(FileSystem& files, const std::string& path) { return open(files, path, {}); }
  static Result<CheckpointFolder> open(FileSystem& files, const std::string& path, const Options& options);

  const std::string& path() const { return path_; }        // the folder, also when a file was opened
  bool is_single_file() const { return is_single_file_; }  // a file was opened, not a folder
  std::string_view format() const { return format_; }      // "safetensors"
  const std::vector<std::unique_ptr<WeightFile>>& files() const { return files_; }  // sorted by name
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;    // null when absent
  std::string file_name(const TensorInfo& tensor) const;  // below path(): "model-00001-of-00002.safetensors"

  Status read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const;
  Result<std::vector<std::byte>> read_all(const TensorInfo& tensor) const;

  // Names of the plain files that are not weights or indexes: config, tokenizer, code. For a single file only the
  // names that belong to models.
  const std::vector<std::string>& side_files() const { return side_files_; }
  bool has_side_file(std::string_view name) const;
  // NOT_FOUND ("file.not_found") when there is none.
  Result<std::string> side_text(std::string_view name, int64_t max_bytes = 256'000'000) const;

  const std::vector<Finding>& findings() const { return findings_; }
  FileSystem& file_system() const { return *system_; }

 private:
  friend class CheckpointFolderReader;
  FileSystem* system_ = nullptr;
  std::string path_;
  bool is_single_file_ = false;
  std::string_view format_;
  std::vector<std::unique_ptr<WeightFile>> files_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> side_files_;
  std::vector<Finding> findings_;
};

// What `*.index.json` says, as far as it can be believed without the shards.
struct ShardIndex {
  StringMap weight_map;  // tensor to file, sorted by tensor
  int64_t total_size = -1;

  // `label` names the file in messages. Refuses repeated tensors and file names that are not plain names.
  static Result<ShardIndex> parse(std::string_view label, std::string_view text);
};

}  // namespace invar
