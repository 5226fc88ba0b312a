// The CPU's table of operations, compiled in.
#pragma once

#include "core/device/backend_abi.h"

namespace invar::cpu {

const invar_backend* cpu_backend();

}  // namespace invar::cpu
