#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/simd/math.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

constexpr int32_t kF16 = 2;

template <typename To, typename From>
void convert(Context& context, void* to, const void* from, int64_t count) {
  To* out = static_cast<To*>(to);
  const From* in = static_cast<const From*>(from);
  for_pieces(context, count, kChunk, [&](int64_t first, int64_t last) {
    for_vectors(last - first, [&](int64_t i, auto part) { store(out + first + i, load(in + first + i, part), part); });
  });
}

template <typename Element>
void copy(Context& context, void* to, const void* from, int64_t count) {
  Element* out = static_cast<Element*>(to);
  const Element* in = static_cast<const Element*>(from);
  for_pieces(context, count, kChunk, [&](int64_t first, int64_t last) {
    memcpy(out + first, in + first, static_cast<size_t>(last - first) * sizeof(Element));
  });
}

template <typename Element>
void add_vectors(Context& context, void* out, const void* a, const void* b, int64_t count) {
  Element* sum = static_cast<Element*>(out);
  const Element* left = static_cast<const Element*>(a);
  const Element* right = static_cast<const Element*>(b);
  for_pieces(context, count, kChunk, [&](int64_t first, int64_t last) {
    for_vectors(last - first, [&](int64_t i, auto part) {
      store_act(sum + first + i, load(left + first + i, part) + load(right + first + i, part), part);
    });
  });
}

#if defined(__AVX2__)
// A whole vector of FP16.
INVAR_INLINE F32 load_f16(const uint16_t* from) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#endif
}
INVAR_INLINE void store_f16(uint16_t* to, F32 value) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
#else
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
#endif
}

// Between FP16 and FP32; the last few elements go to the scalar code, which gives the same bits.
int32_t convert_f16(Context& context, void* to, int32_t to_dtype, const void* from, int64_t count) {
  const int64_t whole = count / kLanes * kLanes;
  for_pieces(context, whole, kChunk, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i += kLanes) {
      if (to_dtype == kF16) {
        store_f16(static_cast<uint16_t*>(to) + i, load(static_cast<const float*>(from) + i));
      } else {
        store(static_cast<float*>(to) + i, load_f16(static_cast<const uint16_t*>(from) + i));
      }
    }
  });
  if (to_dtype == kF16) {
    return reference::cast(context, static_cast<uint16_t*>(to) + whole, kF16, static_cast<const float*>(from) + whole,
                           kF32, count - whole);
  }
  return reference::cast(context, static_cast<float*>(to) + whole, kF32, static_cast<const uint16_t*>(from) + whole,
                         kF16, count - whole);
}
#endif

}  // namespace

int32_t cast(Context& context, void* to, int32_t to_dtype, const void* from, int32_t from_dtype, int64_t count) {
  if (to_dtype == from_dtype && to_dtype == kF32) {
    copy<float>(context, to, from, count);
  } else if (to_dtype == from_dtype && (to_dtype == kBF16 || to_dtype == kF16)) {
    copy<uint16_t>(context, to, from, count);
  } else if (to_dtype == kBF16 && from_dtype == kF32) {
    convert<uint16_t, float>(context, to, from, count);
  } else if (to_dtype == kF32 && from_dtype == kBF16) {
    convert<float, uint16_t>(context, to, from, count);
#if defined(__AVX2__)
  } else if ((to_dtype == kF16 && from_dtype == kF32) || (to_dtype == kF32 && from_dtype == kF16)) {
    return convert_f16(context, to, to_dtype, from, count);
#endif
  } else {
    return reference::cast(context, to, to_dtype, from, from_dtype, count);
  }
  return kOk;
}

int32_t add(Context& context, void* out, const void* a, const void* b, int32_t dtype, int64_t count) {
  if (dtype == kF32) {
    add_vectors<float>(context, out, a, b, count);
  } else {
    add_vectors<uint16_t>(context, out, a, b, count);
  }
  return kOk;
}

int32_t soft_cap(Context& context, float* x, int64_t count, float cap) {
  const F32 by = set(cap), inverse = set(1 / cap);
  for_pieces(context, count, kChunk, [&](int64_t first, int64_t last) {
    for_vectors(last - first, [&](int64_t i, auto part) {
      store(x + first + i, by * tanh(load(x + first + i, part) * inverse), part);
    });
  });
  return kOk;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
