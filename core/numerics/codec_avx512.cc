// The AVX-512 codecs for CPUs without its BF16 instructions.
#if defined(__x86_64__)

#include "core/numerics/codec_avx512.inl.h"

namespace invar {
const CodecKernels kCodecAvx512 = kKernels;
}  // namespace invar

#endif
