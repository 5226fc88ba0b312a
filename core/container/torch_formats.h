// The openers of the formats that PyTorch and DeepSpeed write, for the table in containers.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/file.h"
#include "core/container/weight_file.h"

namespace invar {

// torch_file.cc: a state dict in one file. Nested dicts become names joined by dots; where the file holds more than
// weights ({"state_dict": ..., "optimizer": ...}) only the weights are read and a finding says so.
Result<std::unique_ptr<WeightFile>> open_torch_file(FileSystem& files, const std::string& path,
                                                    const ContainerLimits& limits, int file_index);
// False for what training leaves beside weights under the same endings: training_args.bin, optimizer.pt.
bool is_torch_weights(std::string_view file_name);

// dcp.cc: a folder of torch.distributed.checkpoint: `.metadata` and the files it names.
Result<std::string> find_dcp(FileSystem& files, const std::string& folder);
Result<std::unique_ptr<WeightFile>> open_dcp(FileSystem& files, const std::string& folder,
                                             const ContainerLimits& limits, int file_index);

// deepspeed.cc: a folder of ZeRO partitions (stages 1 to 3), put together to the FP32 master weights.
Result<std::string> find_deepspeed(FileSystem& files, const std::string& folder);
Result<std::unique_ptr<WeightFile>> open_deepspeed(FileSystem& files, const std::string& folder,
                                                   const ContainerLimits& limits, int file_index);

// deepspeed_universal.cc: a folder with one file for each parameter, in `zero/`.
Result<std::string> find_universal(FileSystem& files, const std::string& folder);
Result<std::unique_ptr<WeightFile>> open_universal(FileSystem& files, const std::string& folder,
                                                   const ContainerLimits& limits, int file_index);

// The folder that the text file `pointer` in `folder` names, when it is there and names a folder inside; else `folder`.
Result<std::string> follow_tag(FileSystem& files, const std::string& folder, std::string_view pointer);

}  // namespace invar
