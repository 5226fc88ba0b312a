// An open container of named tensors, whatever its format: a file, or a folder whose files belong together.
//
// Role: what CheckpointFolder is made of. A format is one subclass (or one function that fills PiecesFile) and one line
// in containers.cc.
// Invariant: names are unique within one container, every TensorInfo in tensors() was checked against the bytes that
// exist, and read() gives a tensor's bytes in row-major order wherever and however they are stored.
// Thread rule: immutable once open; read() from any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/container/tensor_info.h"

namespace invar {

using StringMap = std::vector<std::pair<std::string, std::string>>;  // in file order, keys unique

// Something a report should mention. `reason` is a stable dotted word, `message` is for people.
struct Finding {
  std::string reason;
  std::string message;
};

// What a container may claim before it is refused. Counts are also held against the size of the file.
struct ContainerLimits {
  int64_t header_bytes = 100'000'000;  // of a header
  int64_t pickle_bytes = 500'000'000;  // of a pickle that describes tensors
  int64_t tensors = 1'000'000;
  int64_t name_bytes = 4096;
  int rank = 8;
};

class WeightFile {
 public:
  virtual ~WeightFile() = default;
  virtual std::string_view format() const = 0;  // "safetensors"
  virtual const std::string& path() const = 0;  // of the file, or of the folder when several files make it up
  virtual int64_t size() const = 0;             // bytes of the file, of all files together
  virtual std::vector<std::string> parts() const { return {path()}; }  // paths of the files that hold the bytes
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual const StringMap& metadata() const = 0;  // of the file as a whole; empty where the format has none
  virtual const std::vector<Finding>& findings() const = 0;
  // Fills `out` from byte `offset` of the tensor; the range must lie inside it (OUT_OF_RANGE otherwise).
  virtual Status read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const = 0;

  Result<std::vector<std::byte>> read_all(const TensorInfo& tensor) const;

 protected:
  // OUT_OF_RANGE ("tensor.out_of_range") unless [offset, offset + bytes) lies in the tensor.
  Status check_range(const TensorInfo& tensor, int64_t offset, size_t bytes) const;
};

}  // namespace invar
