// Files that the host fetches itself, under a path prefix; every other path is the operating system's.
// Thread rule: as FileSystem; the host's functions may be called from several threads.
#pragma once

#include <memory>
#include <string>

#include "c_api/internal/handles.h"

namespace invar::abi {

// The host's functions for read-only files.
struct HostFileFunctions {
  std::string prefix;
  invar_file_size_fn size = nullptr;
  invar_file_read_at_fn read_at = nullptr;
  invar_file_list_fn list = nullptr;
  void* user = nullptr;
};

std::unique_ptr<FileSystem> make_host_files(HostFileFunctions functions, std::shared_ptr<Dropper> dropper);

}  // namespace invar::abi
