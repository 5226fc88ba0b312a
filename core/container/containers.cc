#include "core/container/containers.h"

#include <algorithm>
#include <array>

#include "core/container/gguf.h"
#include "core/container/safetensors.h"
#include "core/container/torch_formats.h"

namespace invar {
namespace {

constexpr std::array<std::string_view, 1> kSafetensors = {".safetensors"};
constexpr std::array<std::string_view, 4> kTorch = {".bin", ".pt", ".pth", ".ckpt"};
constexpr std::array<std::string_view, 1> kGguf = {".gguf"};

Result<std::unique_ptr<WeightFile>> open_safetensors(FileSystem& files, const std::string& path,
                                                     const ContainerLimits& limits, int file_index) {
  INVAR_ASSIGN(auto file, SafetensorsFile::open(files, path, limits, file_index));
  return std::unique_ptr<WeightFile>(std::make_unique<SafetensorsFile>(std::move(file)));
}

// In the order of preference.
constexpr FileFormat kFileFormats[] = {
    {"safetensors", kSafetensors, ".safetensors.index.json", nullptr, open_safetensors},
    {"torch", kTorch, ".bin.index.json", is_torch_weights, open_torch_file},
    {"gguf", kGguf, "", nullptr, GgufFile::open},
};

constexpr FolderFormat kFolderFormats[] = {
    {"dcp", find_dcp, open_dcp},
    {"universal", find_universal, open_universal},
    {"deepspeed", find_deepspeed, open_deepspeed},
};

}  // namespace

std::span<const FileFormat> file_formats() { return kFileFormats; }
std::span<const FolderFormat> folder_formats() { return kFolderFormats; }

const FileFormat* file_format_of(std::string_view file_name) {
  for (const FileFormat& format : kFileFormats) {
    if (std::any_of(format.endings.begin(), format.endings.end(),
                    [&](std::string_view ending) { return file_name.ends_with(ending); })) {
      return &format;
    }
  }
  return nullptr;
}

}  // namespace invar
