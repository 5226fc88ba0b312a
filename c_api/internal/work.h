// The shape that all long calls share: a config in, progress and cancel on the way, a report out.
#pragma once

#include <memory>
#include <utility>

#include "c_api/internal/callbacks.h"

namespace invar::abi {

inline Status unimplemented(const char* function) {
  return Error(Code::kUnimplemented, "unimplemented", cat(function, ": not in this version of the library"));
}

// work(checked config, progress) -> Result<Report message>. `report` is set to NULL before anything else.
template <typename Config, typename Work>
Outcome run_work(const char* function, const void* config, size_t config_size, invar_cancel* cancel,
                 const invar_progress_callback* callback, invar_bytes** report, Work&& work) {
  INVAR_ASSIGN(const std::unique_ptr<Progress> progress, Progress::create(function, callback, cancel));
  INVAR_REQUIRE(report);
  INVAR_ASSIGN(const Config checked, config_from<Config>(function, config, config_size));
  auto made = work(checked, *progress);
  if (made.ok()) progress->finish_work();
  const Outcome outcome = progress->call().finish(made.ok() ? Status() : made.status());
  if (!outcome.status.ok()) return outcome;
  INVAR_ASSIGN(*report, make_bytes(made.value().SerializeAsString()));
  return {};
}

}  // namespace invar::abi
