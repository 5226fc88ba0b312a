// A file that torch.save wrote: a pickle that describes tensors, and the storages they are views of.
//
// Three forms are told apart by their first bytes: the zip archive (data.pkl, data/<key>), the older stream of pickles
// that begins with a magic number, and a bare pickle, which is read only far enough to say what is wrong with it.
// reasons, all with DATA_LOSS, beside those of zip_archive.h and pickle.h:
//   torch.not_a_checkpoint  torch.torchscript  torch.big_endian  torch.missing_storage  torch.bad_tensor
// Thread rule: immutable once open.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/base/file.h"
#include "core/container/pickle.h"
#include "core/container/stored_boxes.h"
#include "core/container/weight_file.h"

namespace invar {

// A tensor as the pickle describes it: a view of a storage.
struct TorchTensor {
  DType dtype = DType::kUnspecified;
  std::vector<int64_t> shape;  // elements, also where two share a byte
  StoredBox box;
};

class TorchArchive {
 public:
  // `file` may be a part of a larger one.
  static Result<TorchArchive> open(std::shared_ptr<const RandomAccessFile> file, const ContainerLimits& limits);

  PickleValue root() const { return pickle_->root(); }
  const Pickle& pickle() const { return *pickle_; }
  const std::shared_ptr<const RandomAccessFile>& file() const { return file_; }

  // The tensor a value stands for (through parameters and wrappers); nothing when it is something else. `name` is for
  // messages. A tensor that does not fit its storage is an error.
  Result<std::optional<TorchTensor>> tensor(PickleValue value, std::string_view name) const;

 private:
  friend class TorchArchiveReader;
  struct Storage {
    int64_t begin = 0, bytes = 0;
  };
  TorchArchive() = default;
  Status view(PickleValue arguments, bool has_dtype, const std::string& label, TorchTensor* made) const;

  std::shared_ptr<const RandomAccessFile> file_;
  std::unique_ptr<Pickle> pickle_;  // values point to it
  std::map<std::string, Storage, std::less<>> storages_;
};

// From torch's name, "torch.float8_e4m3fn"; kUnspecified for anything else.
DType torch_dtype(std::string_view name);

}  // namespace invar
