// Feeds bytes as `.metadata` of a torch.distributed.checkpoint folder whose other files are whole.
// What must hold for any bytes: no crash, no file outside the folder, and what is accepted can be read.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/memory_files.h"
#include "core/container/checkpoint_folder.h"

namespace {

constexpr char kParts[] = "core/container/testdata/grid/";

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s does not hold\n", what);
  std::abort();
}

std::string part(const char* name) {
  const auto text = invar::read_text(invar::posix_files(), std::string(kParts) + name, 1 << 20);
  require(text.ok(), "the parts of the seed are there");
  return *text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string first = part("__0_0.distcp"), second = part("__1_0.distcp");
  invar::MemoryFiles files;
  files.put("/d/.metadata", std::string(reinterpret_cast<const char*>(data), size));
  files.put("/d/__0_0.distcp", first);
  files.put("/d/__1_0.distcp", second);
  const auto folder = invar::CheckpointFolder::open(files, "/d");
  if (!folder.ok()) {
    require(folder.status().message().find("/d") != std::string::npos, "an error names the folder");
    return 0;
  }
  for (const invar::TensorInfo& tensor : folder->tensors()) {
    std::vector<std::byte> bytes(static_cast<size_t>(std::min<int64_t>(tensor.byte_size(), 4096)));
    require(folder->read(tensor, 0, bytes).ok(), "accepted tensors can be read");
  }
  for (const auto& file : folder->files()) {
    for (const std::string& path : file->parts()) {
      require(path.rfind("/d/__", 0) == 0 && path.find('/', 3) == std::string::npos, "files stay in the folder");
    }
  }
  return 0;
}
