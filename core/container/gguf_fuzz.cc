// Feeds bytes to the GGUF reader.
// What must hold for any bytes: no crash, an error that names the file, and every accepted tensor lies in the file and
// can be read from end to end.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/memory_files.h"
#include "core/container/gguf.h"

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s does not hold\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  invar::MemoryFiles files;
  files.put("/m/model.gguf", std::string(reinterpret_cast<const char*>(data), size));
  const auto opened = invar::GgufFile::open(files, "/m/model.gguf", {}, 0);
  if (!opened.ok()) {
    require(!opened.status().reason().empty(), "an error has a reason");
    require(opened.status().message().find("model.gguf") != std::string::npos, "an error names the file");
    return 0;
  }
  for (const invar::TensorInfo& tensor : opened.value()->tensors()) {
    require(tensor.begin >= 0 && tensor.begin <= tensor.end && tensor.end <= static_cast<int64_t>(size),
            "accepted tensors lie in the file");
    const int64_t n = std::min<int64_t>(tensor.byte_size(), 4096);
    std::vector<std::byte> bytes(static_cast<size_t>(n));
    require(opened.value()->read(tensor, 0, bytes).ok(), "accepted tensors can be read");
    require(opened.value()->read(tensor, tensor.byte_size() - n, bytes).ok(),
            "accepted tensors can be read to the end");
  }
  return 0;
}
