// A backend that computes nothing and records every call: for tests of what runs, in which order and on which sizes,
// and of what happens when an operation fails.
//
//   INVAR_ASSIGN(auto device, Device::open(null_backend(), 0, pool));
//   ... run a layer ...
//   EXPECT_EQ(null_recorder(*device).calls[0].operation, "rmsnorm");
//
// Memory is the host's and zeroed; copy and zero really copy and zero. Results that callers branch on are fixed: sums
// and losses are 0, everything is finite, a loss counts its unmasked tokens, a quantiser's scale is 1. Other outputs
// are left as they are.
// Thread rule: as every backend, one thread at a time a context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device/backend_abi.h"

namespace invar {

struct NullCall {
  std::string operation;       // the table entry's name
  std::vector<int64_t> sizes;  // in the order of the operation's fields, "rows, cols, inner" for matmul
};

struct NullRecorder {
  std::vector<NullCall> calls;
  // The call with this number (from 0, memory calls not counted) returns fail_code instead; -1: none.
  int64_t fail_at = -1;
  int32_t fail_code = 13;

  // "rmsnorm matmul matmul", for comparing a whole sequence at once.
  std::string operations() const;
  int64_t count(const std::string& operation) const;
};

const invar_backend& null_backend();
// The recorder of a context that null_backend() opened.
NullRecorder& null_recorder(invar_device_context* context);

}  // namespace invar
