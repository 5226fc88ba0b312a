// A software model of AMX's eight tile registers and of TDPBF16PS (Intel SDM volume 2), for tests.
//
// It keeps what can go wrong: tiles have the configured shape, using one that is not configured traps, and the
// arithmetic is the instruction's: even and odd elements of a pair sum up apart in FP32 with fused rounding to
// nearest even, the two sums are added, then to the destination; subnormal inputs and results are zero.
// Thread rule: tiles are each thread's own, as registers are.
#pragma once

namespace invar::cpu::amx_model {

void configure(const void* config);
void release();
bool is_configured();
void zero(int tile);
void load(int tile, const void* base, long stride);
void store(int tile, void* base, long stride);
void dot_bf16(int sum, int a, int b);

}  // namespace invar::cpu::amx_model
