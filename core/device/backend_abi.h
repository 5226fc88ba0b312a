/* The backend table: what a device must do for a training step, as plain C.
 *
 * A backend is one sized const table. Nothing C++ crosses this boundary, so that a backend can be a
 * shared object of its own (core/device/cpu is compiled in). Operations are coarse and fused: about
 * 25, each bound by either arithmetic or memory, never by call overhead.
 *
 * Common rules
 *  - Matrices are row-major; `ld*` is the distance of two rows in elements. Sizes are in elements.
 *  - dtypes are invar::DType numbers (core/numerics/dtype.h). "act" means F32 or BF16.
 *  - Everything inside an operation is FP32 (FP64 where stated), whatever the storage.
 *  - Reductions are cut at fixed element boundaries: the same bits at any number of threads.
 *  - Inputs never overlap outputs unless the field says "may equal".
 *  - Return 0, or a canonical status code (3 INVALID_ARGUMENT: unsupported dtype or shape;
 *    8 RESOURCE_EXHAUSTED: scratch memory). Nothing is written after a failed argument check.
 *  - One context is used by one thread at a time; it runs its work on the host's parallel_for.
 */
#ifndef INVAR_CORE_DEVICE_BACKEND_ABI_H_
#define INVAR_CORE_DEVICE_BACKEND_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INVAR_BACKEND_ABI 1

/* What the host gives a backend. All pointers stay valid as long as a context lives. */
typedef struct invar_backend_host {
  uint32_t struct_size;
  void* host;
  int32_t threads; /* parallel_for's worker numbers are below this */
  void (*parallel_for)(void* host, int64_t count, void (*task)(void* user, int64_t item, int32_t worker), void* user);
  void* (*allocate)(void* host, size_t bytes, size_t alignment); /* NULL when out of memory */
  void (*release)(void* host, void* memory, size_t bytes);
  /* Levels as invar::LogLevel. Level 4 (error) says why the running operation fails. */
  void (*log)(void* host, int32_t level, const char* message);
  /* NULL, or the highest instruction set to use ("portable", "avx2", "avx512", "avx512_bf16", "amx"), for tests. */
  const char* cpu_level_cap;
  size_t zeroed_from; /* 0, or: allocate gives zeroed memory for blocks of at least so many bytes */
} invar_backend_host;

typedef struct invar_device_context invar_device_context;

/* C[rows, cols] = alpha * op(A)[rows, inner] * op(B)[inner, cols] (+ C when accumulate != 0).
 * transpose_a: A is stored [inner, rows]. transpose_b: B is stored [cols, inner] (a linear layer's weight).
 * A, B: both F32 or both BF16 (C is then F32 or BF16). C: act; accumulate needs C F32.
 * packed_b: from matmul_pack with the same inner, cols, transpose_b and dtype; B is then not read.
 * add: NULL, or F32 or BF16 [rows, cols] of dtype add_dtype with ld_add, added in FP32 before C is rounded; may equal
 * C; ld_add 0: one row [cols] for all, a bias. sum_squares: NULL, or receives the FP64 sum of squares of the final C.
 */
typedef struct invar_matmul_args {
  uint32_t struct_size;
  int32_t a_dtype, b_dtype, c_dtype, add_dtype;
  int32_t transpose_a, transpose_b, accumulate;
  int64_t rows, cols, inner;
  const void* a;
  const void* b;
  const void* packed_b;
  const void* add;
  void* c;
  int64_t lda, ldb, ldc, ld_add;
  float alpha;
  double* sum_squares;
} invar_matmul_args;

/* sum[r] = x[r] + add[r] (add NULL: x itself), y = sum * inv_rms * (gain + gain_offset),
 * inv_rms[r] = 1 / sqrt(mean(sum^2) + eps). x, sum_out: x_dtype; may be equal; sum_out may be NULL without add.
 * add: add_dtype act. gain: F32 [cols]. y: y_dtype act. inv_rms: F32 [rows] or NULL. Zhang and Sennrich 2019.
 * groups: 0, or so many rows lie side by side (the heads of a token): row r begins at element (r / groups) * ldx +
 * (r % groups) * cols of x, and of y with ldy. Without add and sum_out only. */
typedef struct invar_rmsnorm_args {
  uint32_t struct_size;
  int32_t x_dtype, add_dtype, y_dtype;
  int64_t rows, cols;
  const void* x;
  const void* add;
  void* sum_out;
  const float* gain;
  float gain_offset, eps;
  void* y;
  float* inv_rms;
  int64_t groups, ldx, ldy;
} invar_rmsnorm_args;

/* dx (+)= gradient through y; dgain += per-column sums. x is what the forward normalised (sum_out).
 * dy: dy_dtype act; x: x_dtype act; dx: F32, added to when accumulate_dx != 0; dx_copy: NULL or BF16 [rows, cols]
 * copy of the final dx. dgain: F32 [cols], added to, or NULL. dx may be NULL when accumulate_dx is 0 and dx_copy is
 * given. groups as in the forward, with ldx for x, lddy for dy, lddx for dx and dx_copy. */
typedef struct invar_rmsnorm_backward_args {
  uint32_t struct_size;
  int32_t dy_dtype, x_dtype, accumulate_dx;
  int64_t rows, cols;
  const void* dy;
  const void* x;
  const float* gain;
  float gain_offset;
  const float* inv_rms;
  float* dx;
  void* dx_copy;
  float* dgain;
  int64_t groups, ldx, lddy, lddx;
} invar_rmsnorm_backward_args;

/* Rotates pairs (i, i + head_dim/2) of each head in place ("rotate half"). x: act [tokens, heads*head_dim] at ld.
 * cos, sin: F32 [positions, head_dim/2]; positions: I32 [tokens]. inverse != 0 rotates back (the backward pass). */
typedef struct invar_rope_args {
  uint32_t struct_size;
  int32_t dtype, inverse;
  int64_t tokens, heads, head_dim, ld;
  void* x;
  const float* cos;
  const float* sin;
  const int32_t* positions;
} invar_rope_args;

/* Causal attention over packed sequences, without the full score matrix.
 * Sequence s has queries [q_offsets[s], q_offsets[s+1]) and keys [k_offsets[s], k_offsets[s+1]), aligned at
 * their ends (a cache may hold more keys than there are queries). Query head h reads key head h / (heads/kv_heads).
 * score = scale * q.k, soft_cap > 0: soft_cap * tanh(score / soft_cap); window > 0: the last `window` keys.
 * q, k, v, out: dtype act [tokens, heads*head_dim] at their ld. lse: F32 [heads, q tokens], log-sum-exp, or NULL. */
typedef struct invar_attention_args {
  uint32_t struct_size;
  int32_t dtype;
  int64_t sequences, heads, kv_heads, head_dim;
  const int32_t* q_offsets; /* [sequences + 1] */
  const int32_t* k_offsets; /* [sequences + 1] */
  const void* q;
  const void* k;
  const void* v;
  void* out;
  int64_t ldq, ldk, ldv, ldo;
  float* lse;
  float scale, soft_cap;
  int64_t window;
} invar_attention_args;

/* Gradients of the above; out, lse as the forward left them; d_* have the dtype and ld of their originals (ldo for
 * d_out). */
typedef struct invar_attention_backward_args {
  invar_attention_args forward;
  const void* d_out;
  void* d_q;
  void* d_k;
  void* d_v;
} invar_attention_backward_args;

/* The gate's function: g * sigmoid(g), or GELU by tanh (Hendrycks and Gimpel 2016). */
enum { INVAR_GATE_SILU = 0, INVAR_GATE_GELU_TANH = 1 };

/* out = f(gate) * up. gate, up: act [rows, cols] at ld_in; out at ld_out. function: INVAR_GATE_*. Shazeer 2020. */
typedef struct invar_swiglu_args {
  uint32_t struct_size;
  int32_t dtype;
  int64_t rows, cols, ld_in, ld_out;
  const void* gate;
  const void* up;
  void* out;
  int32_t function;
} invar_swiglu_args;

/* d_gate, d_up at ld_in (may equal gate, up); d_out at ld_out. act_out: NULL, or the forward's result made again, at
 * ld_out. */
typedef struct invar_swiglu_backward_args {
  invar_swiglu_args forward;
  const void* d_out;
  void* d_gate;
  void* d_up;
  void* act_out;
} invar_swiglu_backward_args;

/* forward: out[t] = scale * table[ids[t]]; table: act [vocab, cols], out: out_dtype act.
 * backward: d_table F32 [vocab, cols] += scale * d_out[t] (d_out: out_dtype), summed in token order. */
typedef struct invar_embedding_args {
  uint32_t struct_size;
  int32_t table_dtype, out_dtype;
  int64_t tokens, vocab, cols;
  const int32_t* ids;
  const void* table;
  void* out;
  float* d_table;
  float scale;
} invar_embedding_args;

/* Output head and cross-entropy in chunks; the logits are never stored whole.
 * x: act [tokens, hidden]; weight: same dtype [vocab, hidden]; packed_weight: from matmul_pack (inner = hidden,
 * cols = vocab, transpose_b = 1), packed_weight_dgrad (inner = vocab, cols = hidden, transpose_b = 0), each or NULL.
 * targets: I32 [tokens]; negative: no loss there. logits = x weight^T, soft_cap as in attention; columns >= valid_vocab
 * are -inf (valid_vocab 0: all count). loss_sum: FP64 sum of token losses; loss_count: how many. token_loss: F32
 * [tokens] (0 where masked) or NULL. top1: I32 [tokens], the arg max, or NULL. With gradients (d_x not NULL): d_x
 * [tokens, hidden] of x's dtype = grad_scale * gradient of the loss sum; d_weight: F32 [vocab, hidden], added to when
 * accumulate_d_weight != 0, else written. */
typedef struct invar_head_loss_args {
  uint32_t struct_size;
  int32_t dtype, accumulate_d_weight;
  int64_t tokens, hidden, vocab, valid_vocab;
  const void* x;
  const void* weight;
  const void* packed_weight;
  const void* packed_weight_dgrad;
  const int32_t* targets;
  float soft_cap, grad_scale;
  double* loss_sum;
  int64_t* loss_count;
  float* token_loss;
  int32_t* top1;
  void* d_x;
  float* d_weight;
} invar_head_loss_args;

/* One parameter for the optimizer. Pointers may be NULL where said. Elements are [0, count). */
typedef struct invar_adamw_tensor {
  float* master;         /* F32 */
  const float* gradient; /* F32, the sum over the window */
  float* m;
  float* v;
  void* working; /* BF16 copy written back, or NULL */
  int64_t count;
  float weight_decay; /* 0 for gains and biases */
} invar_adamw_tensor;

/* g = gradient * grad_scale (unscale, 1/tokens and the clip factor in one);
 * master -= lr*wd*master; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 * master -= lr * (m/bias1) / (sqrt(v/bias2) + eps). Loshchilov and Hutter 2019. One pass over memory. */
typedef struct invar_adamw_args {
  uint32_t struct_size;
  const invar_adamw_tensor* tensors;
  int64_t tensor_count;
  float lr, beta1, beta2, eps;
  double bias1, bias2; /* 1 - beta^step */
  float grad_scale;
} invar_adamw_args;

/* How a tensor's scales lie. */
enum {
  INVAR_SCALE_PER_TENSOR = 1,
  INVAR_SCALE_PER_ROW = 2,
  INVAR_SCALE_BLOCK = 3 /* block_rows x block_cols tiles, ragged at the ends */
};

/* Quantises x [rows, cols] (act, at ldx). scale_inv = amax / format max per unit (1 where amax is 0), raised to a power
 * of two when power_of_two != 0. codes: NULL or one byte an element [rows, cols]; scale_inv: F32 grid [ceil, ceil] or
 * NULL. dequantized: NULL or BF16 [rows, cols] at ld_dequantized: the decoded codes, times scale_inv when power_of_two
 * or apply_scale != 0 (exact for powers of two), else unscaled. amax: F32, NULL or the tensor's.
 * dequantized_dtype: 0 or BF16, or F32, then dequantized is F32. fixed_scale_inv: 0, or, per tensor, the scale_inv to
 * take instead of the one that follows from amax. */
typedef struct invar_quantize_args {
  uint32_t struct_size;
  int32_t x_dtype, format, granularity, power_of_two, apply_scale;
  int64_t rows, cols, block_rows, block_cols, ldx, ld_dequantized;
  const void* x;
  uint8_t* codes;
  float* scale_inv;
  void* dequantized;
  float* amax;
  int32_t dequantized_dtype;
  float fixed_scale_inv;
} invar_quantize_args;

typedef struct invar_backend {
  uint32_t struct_size;
  uint32_t abi;     /* INVAR_BACKEND_ABI */
  const char* name; /* "cpu" */
  int32_t (*device_count)(void);
  /* Free text for people: kind, instruction sets or compute capability, memory. */
  const char* (*describe)(int32_t device);
  int32_t (*open)(const invar_backend_host* host, int32_t device, invar_device_context** context);
  void (*close)(invar_device_context* context);

  int32_t (*allocate)(invar_device_context*, size_t bytes, void** memory); /* 64-byte aligned, zeroed on first use */
  void (*release)(invar_device_context*, void* memory, size_t bytes);
  int32_t (*copy)(invar_device_context*, void* to, const void* from, size_t bytes);
  int32_t (*zero)(invar_device_context*, void* memory, size_t bytes);
  int32_t (*synchronize)(invar_device_context*);

  int32_t (*cast)(invar_device_context*, void* to, int32_t to_dtype, const void* from, int32_t from_dtype,
                  int64_t count);
  int32_t (*add)(invar_device_context*, void* out, const void* a, const void* b, int32_t dtype,
                 int64_t count); /* may be equal */
  int32_t (*sum_squares)(invar_device_context*, const float* x, int64_t count, double* sum);
  int32_t (*all_finite)(invar_device_context*, const float* x, int64_t count, int32_t* finite);

  /* Bytes of op(B) [inner, cols] packed for matmul; pack copies B's values. */
  size_t (*matmul_packed_bytes)(invar_device_context*, int32_t dtype, int64_t inner, int64_t cols, int32_t transpose_b);
  int32_t (*matmul_pack)(invar_device_context*, void* packed, const void* b, int32_t dtype, int64_t inner, int64_t cols,
                         int64_t ldb, int32_t transpose_b);
  int32_t (*matmul)(invar_device_context*, const invar_matmul_args*);

  int32_t (*rmsnorm)(invar_device_context*, const invar_rmsnorm_args*);
  int32_t (*rmsnorm_backward)(invar_device_context*, const invar_rmsnorm_backward_args*);
  int32_t (*rope)(invar_device_context*, const invar_rope_args*);
  int32_t (*attention)(invar_device_context*, const invar_attention_args*);
  int32_t (*attention_backward)(invar_device_context*, const invar_attention_backward_args*);
  int32_t (*swiglu)(invar_device_context*, const invar_swiglu_args*);
  int32_t (*swiglu_backward)(invar_device_context*, const invar_swiglu_backward_args*);
  int32_t (*embedding)(invar_device_context*, const invar_embedding_args*);
  int32_t (*embedding_backward)(invar_device_context*, const invar_embedding_args*);
  int32_t (*head_loss)(invar_device_context*, const invar_head_loss_args*);
  int32_t (*adamw)(invar_device_context*, const invar_adamw_args*);
  int32_t (*quantize)(invar_device_context*, const invar_quantize_args*);

  /* Nonzero where a product with packed_b is faster than one that reads b. Where it is 0 a packed copy that would
   * hold nothing but b is a waste of memory and time. */
  int32_t (*matmul_gains_from_packing)(invar_device_context*, int32_t dtype, int32_t transpose_b);

  /* x = cap * tanh(x / cap), in place; cap > 0. */
  int32_t (*soft_cap)(invar_device_context*, float* x, int64_t count, float cap);
} invar_backend;

#ifdef __cplusplus
}
#endif

#endif /* INVAR_CORE_DEVICE_BACKEND_ABI_H_ */
