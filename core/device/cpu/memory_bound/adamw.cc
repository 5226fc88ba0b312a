// Clip, unscale, decay, moments, master and BF16 copy in one pass: 16 bytes read and 12 to 14 written an element.
#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/simd/math.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

struct Constants {
  explicit Constants(const invar_adamw_args& args)
      : grad_scale(set(args.grad_scale)),
        beta1(set(args.beta1)),
        beta2(set(args.beta2)),
        rest1(set(static_cast<float>(1 - static_cast<double>(args.beta1)))),
        rest2(set(static_cast<float>(1 - static_cast<double>(args.beta2)))),
        step(set(static_cast<float>(static_cast<double>(args.lr) / args.bias1))),
        inv_bias2(set(static_cast<float>(1 / args.bias2))),
        eps(set(args.eps)) {}

  F32 grad_scale, beta1, beta2, rest1, rest2, step, inv_bias2, eps;
};

void update(const invar_adamw_tensor& tensor, const Constants& constants, float decay, int64_t first, int64_t last) {
  // Locals: the compiler must not reload them after every store.
  float* master = tensor.master + first;
  const float* gradient = tensor.gradient + first;
  float* m_at = tensor.m + first;
  float* v_at = tensor.v + first;
  uint16_t* working = tensor.working == nullptr ? nullptr : static_cast<uint16_t*>(tensor.working) + first;
  const Constants c = constants;
  const F32 lr_decay = set(decay);
  for_vectors(last - first, [=](int64_t i, auto part) {
    const F32 g = load(gradient + i, part) * c.grad_scale;
    const F32 m = fma(c.beta1, load(m_at + i, part), c.rest1 * g);
    const F32 v = fma(c.beta2, load(v_at + i, part), c.rest2 * g * g);
    const F32 old = load(master + i, part);
    const F32 update = c.step * m / (sqrt(v * c.inv_bias2) + c.eps);
    const F32 updated = fnma(lr_decay, old, old) - update;
    store(m_at + i, m, part);
    store(v_at + i, v, part);
    store(master + i, updated, part);
    if (working != nullptr) store(working + i, updated, part);
  });
}

}  // namespace

int32_t adamw(Context& context, const invar_adamw_args& args) {
  // ends[i]: chunks of tensors [0, i]. A task finds its tensor by bisection.
  if (args.tensor_count == 0) return kOk;
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(args.tensor_count) * sizeof(int64_t))) {
    return kResourceExhausted;
  }
  int64_t* ends = static_cast<int64_t*>(shared_scratch(context, kScratchOperation));
  int64_t chunks = 0;
  for (int64_t i = 0; i < args.tensor_count; ++i) ends[i] = chunks += ceil_div(args.tensors[i].count, kChunk);
  const Constants constants(args);
  parallel_for(context, chunks, [&](int64_t chunk, int32_t) {
    int64_t low = 0, high = args.tensor_count - 1;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (ends[middle] > chunk) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const invar_adamw_tensor& tensor = args.tensors[low];
    const int64_t first = (chunk - (low == 0 ? 0 : ends[low - 1])) * kChunk;
    update(tensor, constants, args.lr * tensor.weight_decay, first, smaller(tensor.count, first + kChunk));
  });
  return kOk;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
