// What memory gives at best: plain passes over arrays with the widest loads and streaming stores the processor has.
// Thread rule: any thread.
#pragma once

#include <stdint.h>

namespace invar::cpu {

// Counts are multiples of kStreamUnit elements; pointers are 64-byte aligned.
constexpr int64_t kStreamUnit = 64;

// a = b + 3 c with stores that bypass the caches (McCalpin's STREAM triad): 12 bytes an element.
void stream_triad(float* a, const float* b, const float* c, int64_t count);
// The sum, so that reading is not left out: 4 bytes an element.
float stream_read(const float* a, int64_t count);
// Stores that bypass the caches: 4 bytes an element.
void stream_write(float* a, int64_t count);

}  // namespace invar::cpu
