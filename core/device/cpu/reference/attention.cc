#include <algorithm>
#include <cmath>
#include <limits>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/reference/values.h"

namespace invar::cpu::reference {
namespace {

// One sequence: its first token in q and k, its lengths, and which keys a query sees.
struct Sequence {
  Sequence(const invar_attention_args& args, int64_t s)
      : first_query(args.q_offsets[s]),
        queries(args.q_offsets[s + 1] - args.q_offsets[s]),
        first_key(args.k_offsets[s]),
        keys(args.k_offsets[s + 1] - args.k_offsets[s]),
        window(args.window) {}

  // Query i sees keys [first_visible(i), end_visible(i)): both ends are aligned.
  int64_t end_visible(int64_t i) const { return keys - queries + i + 1; }
  int64_t first_visible(int64_t i) const { return window > 0 ? std::max<int64_t>(0, end_visible(i) - window) : 0; }

  int64_t first_query, queries, first_key, keys, window;
};

int64_t longest_sequence(const invar_attention_args& args) {
  int64_t longest = 0;
  for (int64_t s = 0; s < args.sequences; ++s) {
    longest = std::max<int64_t>(longest, args.k_offsets[s + 1] - args.k_offsets[s]);
  }
  return longest;
}

double dot(const void* a, int64_t a_at, const void* b, int64_t b_at, int32_t dtype, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += load(a, dtype, a_at + i) * load(b, dtype, b_at + i);
  return sum;
}

// The score of a raw product, and with the cap its derivative by scale * q.k.
double cap_score(const invar_attention_args& args, double product) {
  const double score = args.scale * product;
  return args.soft_cap > 0 ? args.soft_cap * std::tanh(score / args.soft_cap) : score;
}
double cap_slope(const invar_attention_args& args, double score) {
  if (args.soft_cap <= 0) return 1;
  const double ratio = score / args.soft_cap;
  return 1 - ratio * ratio;
}

}  // namespace

int32_t attention(Context& context, const invar_attention_args& args) {
  const int64_t dim = args.head_dim, group = args.heads / args.kv_heads;
  if (!reserve_worker_scratch(context, kScratchOperation, (longest_sequence(args) + dim) * sizeof(double))) {
    return kResourceExhausted;
  }
  const int64_t tokens = args.sequences == 0 ? 0 : args.q_offsets[args.sequences];
  parallel_for(context, args.sequences * args.heads, [&](int64_t item, int32_t worker) {
    const Sequence sequence(args, item / args.heads);
    const int64_t head = item % args.heads, kv_head = head / group;
    double* out = static_cast<double*>(worker_scratch(context, kScratchOperation, worker));
    double* weights = out + dim;
    for (int64_t i = 0; i < sequence.queries; ++i) {
      const int64_t token = sequence.first_query + i;
      const int64_t first = sequence.first_visible(i), end = sequence.end_visible(i);
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t j = first; j < end; ++j) {
        const int64_t key_at = (sequence.first_key + j) * args.ldk + kv_head * dim;
        weights[j] = cap_score(args, dot(args.q, token * args.ldq + head * dim, args.k, key_at, args.dtype, dim));
        largest = std::max(largest, weights[j]);
      }
      double sum = 0;
      std::fill(out, out + dim, 0.0);
      for (int64_t j = first; j < end; ++j) {
        const double weight = std::exp(weights[j] - largest);
        const int64_t value_at = (sequence.first_key + j) * args.ldv + kv_head * dim;
        sum += weight;
        for (int64_t c = 0; c < dim; ++c) out[c] += weight * load(args.v, args.dtype, value_at + c);
      }
      for (int64_t c = 0; c < dim; ++c) store(args.out, args.dtype, token * args.ldo + head * dim + c, out[c] / sum);
      if (args.lse != nullptr) args.lse[head * tokens + token] = static_cast<float>(largest + std::log(sum));
    }
  });
  return kOk;
}

// With p = exp(score - lse), dv_j = sum_i p_ij do_i and, as in Dao et al. 2022,
// d_score_ij = p_ij (do_i.v_j - do_i.out_i).
int32_t attention_backward(Context& context, const invar_attention_backward_args& args) {
  const invar_attention_args& forward = args.forward;
  const int32_t dtype = forward.dtype;
  const int64_t dim = forward.head_dim, group = forward.heads / forward.kv_heads;
  const int64_t longest = longest_sequence(forward);
  if (!reserve_worker_scratch(context, kScratchOperation, (2 * longest + 1) * dim * sizeof(double))) {
    return kResourceExhausted;
  }
  const int64_t tokens = forward.sequences == 0 ? 0 : forward.q_offsets[forward.sequences];
  parallel_for(context, forward.sequences * forward.kv_heads, [&](int64_t item, int32_t worker) {
    const Sequence sequence(forward, item / forward.kv_heads);
    const int64_t kv_head = item % forward.kv_heads;
    double* d_q = static_cast<double*>(worker_scratch(context, kScratchOperation, worker));
    double* d_k = d_q + dim;
    double* d_v = d_k + sequence.keys * dim;
    std::fill(d_k, d_v + sequence.keys * dim, 0.0);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int64_t i = 0; i < sequence.queries; ++i) {
        const int64_t token = sequence.first_query + i;
        const int64_t q_at = token * forward.ldq + head * dim, out_at = token * forward.ldo + head * dim;
        const double lse = forward.lse[head * tokens + token];
        const double delta = dot(args.d_out, out_at, forward.out, out_at, dtype, dim);
        std::fill(d_q, d_q + dim, 0.0);
        for (int64_t j = sequence.first_visible(i); j < sequence.end_visible(i); ++j) {
          const int64_t k_at = (sequence.first_key + j) * forward.ldk + kv_head * dim;
          const int64_t v_at = (sequence.first_key + j) * forward.ldv + kv_head * dim;
          const double score = cap_score(forward, dot(forward.q, q_at, forward.k, k_at, dtype, dim));
          const double p = std::exp(score - lse);
          const double d_score = p * (dot(args.d_out, out_at, forward.v, v_at, dtype, dim) - delta);
          const double d_product = d_score * cap_slope(forward, score) * forward.scale;
          for (int64_t c = 0; c < dim; ++c) {
            d_q[c] += d_product * load(forward.k, dtype, k_at + c);
            d_k[j * dim + c] += d_product * load(forward.q, dtype, q_at + c);
            d_v[j * dim + c] += p * load(args.d_out, dtype, out_at + c);
          }
        }
        for (int64_t c = 0; c < dim; ++c) store(args.d_q, dtype, q_at + c, d_q[c]);
      }
    }
    for (int64_t j = 0; j < sequence.keys; ++j) {
      for (int64_t c = 0; c < dim; ++c) {
        const int64_t token = sequence.first_key + j;
        store(args.d_k, dtype, token * forward.ldk + kv_head * dim + c, d_k[j * dim + c]);
        store(args.d_v, dtype, token * forward.ldv + kv_head * dim + c, d_v[j * dim + c]);
      }
    }
  });
  return kOk;
}

}  // namespace invar::cpu::reference
