// Feeds bytes to the torch reader (zip, older stream and bare pickle) and to the pickle reader alone.
// What must hold for any bytes: no crash, an error with a reason, and what is accepted lies in the file, stays in
// proportion to it and can be read.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/memory_files.h"
#include "core/container/checkpoint_folder.h"
#include "core/container/pickle.h"
#include "core/container/zip_archive.h"

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s does not hold\n", what);
  std::abort();
}

void check_read(const invar::CheckpointFolder& folder) {
  int64_t budget = 1 << 20;  // of bytes to read, so that expanded views do not slow the run down
  for (const invar::TensorInfo& tensor : folder.tensors()) {
    const int64_t n = std::min<int64_t>({tensor.byte_size(), 4096, budget});
    std::vector<std::byte> bytes(static_cast<size_t>(n));
    require(folder.read(tensor, 0, bytes).ok(), "accepted tensors can be read");
    require(folder.read(tensor, tensor.byte_size() - n, bytes).ok(), "accepted tensors can be read to the end");
    budget -= n;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  invar::MemoryFiles files;
  files.put("/m/pytorch_model.bin", bytes);
  const auto folder = invar::CheckpointFolder::open(files, "/m");
  if (folder.ok()) {
    check_read(*folder);
  } else {
    require(folder.status().message().find("pytorch_model.bin") != std::string::npos, "an error names the file");
  }
  const auto pickle = invar::Pickle::read("fuzz.pkl", bytes);
  require(pickle.ok() || !pickle.status().reason().empty(), "an error has a reason");
  if (pickle.ok()) require(pickle->consumed() <= size, "a pickle ends in its bytes");
  return 0;
}
