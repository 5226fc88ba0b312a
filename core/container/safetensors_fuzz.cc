// Feeds bytes to the safetensors reader and the index reader. With libFuzzer (-fsanitize=fuzzer) the entry point is
// LLVMFuzzerTestOneInput; the plain driver is fuzz_driver.cc.
// What must hold for any bytes: no crash, no allocation beyond the input's size by more than the limits allow, and
// what is accepted tiles the file and can be read and written again to a file that is accepted.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/memory_files.h"
#include "core/container/checkpoint_folder.h"
#include "core/container/safetensors.h"
#include "core/container/safetensors_writer.h"

namespace {

using invar::TensorInfo;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s does not hold\n", what);
  std::abort();
}

void check_accepted(const invar::RandomAccessFile& file, const invar::SafetensorsHeader& header) {
  int64_t at = header.data_begin();
  std::vector<invar::TensorSpec> specs;
  for (const TensorInfo& tensor : header.tensors()) {
    require(tensor.begin == at && tensor.end >= at, "tensors follow each other");
    require(header.find(tensor.name) == &tensor, "tensors are found by name");
    at = tensor.end;
    specs.push_back(tensor);
  }
  require(at == file.size(), "tensors end with the file");

  invar::MemoryFiles disk;
  auto writer = invar::SafetensorsWriter::create(disk, "/copy.safetensors", specs, header.metadata());
  require(writer.ok(), "an accepted header can be written");
  for (const TensorInfo& tensor : header.tensors()) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.byte_size()));
    require(file.read_at(tensor.begin, bytes).ok(), "accepted tensors can be read");
    require(writer->write(tensor.name, 0, bytes).ok(), "accepted tensors can be written");
  }
  require(writer->close(false).ok(), "a complete file closes");
  const auto copy = invar::SafetensorsFile::open(disk, "/copy.safetensors");
  require(copy.ok() && copy->header().tensors().size() == specs.size(), "what is written is read back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto file = invar::memory_file("fuzz.safetensors", bytes);
  const auto header = invar::SafetensorsHeader::read(*file);
  if (header.ok()) {
    check_accepted(*file, *header);
  } else {
    require(!header.status().reason().empty() && !header.status().message().empty(), "an error says why");
  }
  const auto index = invar::ShardIndex::parse("fuzz.index.json", bytes);
  if (index.ok()) {
    for (const auto& [tensor, name] : index->weight_map) {
      require(name.find('/') == std::string::npos && name != "..", "file names stay in the folder");
    }
  }
  return 0;
}
