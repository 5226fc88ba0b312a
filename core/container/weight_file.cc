#include "core/container/weight_file.h"

namespace invar {

Status WeightFile::check_range(const TensorInfo& tensor, int64_t offset, size_t bytes) const {
  if (offset >= 0 && offset <= tensor.byte_size() && static_cast<int64_t>(bytes) <= tensor.byte_size() - offset) {
    return {};
  }
  return Error(Code::kOutOfRange, "tensor.out_of_range",
               cat(path(), ": tensor ", in_quotes(tensor.name), " has ", tensor.byte_size(), " bytes; ", bytes,
                   " were asked for at byte ", offset));
}

Result<std::vector<std::byte>> WeightFile::read_all(const TensorInfo& tensor) const {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.byte_size()));
  INVAR_TRY(read(tensor, 0, bytes));
  return bytes;
}

}  // namespace invar
