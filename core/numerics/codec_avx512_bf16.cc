// The AVX-512 codecs for CPUs with AVX512_BF16.
#if defined(__x86_64__)

#define INVAR_CODEC_BF16
#include "core/numerics/codec_avx512.inl.h"

namespace invar {
const CodecKernels kCodecAvx512Bf16 = kKernels;
}  // namespace invar

#endif
