// DeepSpeed's universal checkpoints: `zero/<parameter>/fp32.pt` holds each parameter whole, with its optimizer states
// beside it, so that any number of ranks can load it.
//
// reasons: universal.missing_parameter  universal.bad_parameter, and those of torch_archive.h
#include "core/container/file_parts.h"
#include "core/container/pieces_file.h"
#include "core/container/torch_archive.h"
#include "core/container/torch_formats.h"

namespace invar {
namespace {

constexpr std::string_view kParameters = "zero", kWeights = "fp32.pt";

}  // namespace

Result<std::string> find_universal(FileSystem& files, const std::string& folder) {
  for (const std::string_view pointer : {"latest_universal", "latest"}) {
    INVAR_ASSIGN(const std::string inside, follow_tag(files, folder, pointer));
    if (files.is_directory(join_path(inside, kParameters))) return inside;
  }
  return std::string();
}

Result<std::unique_ptr<WeightFile>> open_universal(FileSystem& files, const std::string& folder,
                                                   const ContainerLimits& limits, int file_index) {
  auto made = std::make_unique<PiecesFile>("universal", folder, limits, file_index);
  const std::string parameters = join_path(folder, kParameters);
  INVAR_ASSIGN(const auto entries, files.list(parameters));
  for (const DirEntry& entry : entries) {
    if (!entry.is_directory) continue;
    const std::string path = join_path(join_path(parameters, entry.name), kWeights);
    if (!files.exists(path)) {
      return Error(Code::kDataLoss, "universal.missing_parameter", cat(path, ": no such file: folder is incomplete?"));
    }
    INVAR_ASSIGN(auto file, open_on_demand(files, path));
    INVAR_ASSIGN(const TorchArchive archive, TorchArchive::open(file, limits));
    const PickleValue root = archive.root();
    INVAR_ASSIGN(auto tensor, archive.tensor(root.is(PickleKind::kDict) ? root.find("param") : root, entry.name));
    if (!tensor) {
      return Error(Code::kDataLoss, "universal.bad_parameter", cat(path, ": holds no tensor \"param\""));
    }
    made->add_part(file);
    INVAR_TRY(made->add({entry.name, tensor->dtype, tensor->shape}, {tensor->box}));
  }
  INVAR_TRY(made->finish());
  return std::unique_ptr<WeightFile>(std::move(made));
}

}  // namespace invar
