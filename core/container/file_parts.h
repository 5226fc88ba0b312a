// Files that are seen through another: a part of a file, and a file that is only open while it is read.
#pragma once

#include <memory>
#include <string>

#include "core/base/file.h"

namespace invar {

// [begin, begin + size) of `file` as a file of its own, under the same path. The range must lie inside.
std::shared_ptr<const RandomAccessFile> slice_of(std::shared_ptr<const RandomAccessFile> file, int64_t begin,
                                                 int64_t size);

// Holds no descriptor between reads, for checkpoints of thousands of files. `files` must outlive it. A file that was
// replaced or changed its size since is refused ("file.changed").
Result<std::shared_ptr<const RandomAccessFile>> open_on_demand(FileSystem& files, const std::string& path);

}  // namespace invar
