#include "core/device/cpu/check_args.h"

#include <initializer_list>

#include "core/device/cpu/kernels.h"

// Returns the message when the condition does not hold.
#define REQUIRE(condition, message)     \
  do {                                  \
    if (!(condition)) return (message); \
  } while (0)

namespace invar::cpu {
namespace {

constexpr int64_t kLargest = int64_t{1} << 40;
constexpr int32_t kF16 = 2;
constexpr const char* kSize = "struct_size is smaller than this library's";
constexpr const char* kDType = "dtype must be F32 or BF16";
constexpr const char* kExtent = "a size is negative or above 2^40";
constexpr const char* kNull = "a required pointer is NULL";
constexpr const char* kStride = "a leading dimension is shorter than its row";

bool is_act(int32_t dtype) { return dtype == kF32 || dtype == kBF16; }
bool is_cast(int32_t dtype) { return is_act(dtype) || dtype == kF16; }

template <typename... Sizes>
bool are_sizes(Sizes... sizes) {
  return ((sizes >= 0 && sizes <= kLargest) && ...);
}

}  // namespace

const char* check_cast(const void* to, int32_t to_dtype, const void* from, int32_t from_dtype, int64_t count) {
  REQUIRE(is_cast(to_dtype) && is_cast(from_dtype), "dtype must be F32, F16 or BF16");
  REQUIRE(are_sizes(count), kExtent);
  REQUIRE(count == 0 || (to != nullptr && from != nullptr), kNull);
  return nullptr;
}

const char* check_add(const void* out, const void* a, const void* b, int32_t dtype, int64_t count) {
  REQUIRE(is_act(dtype), kDType);
  REQUIRE(are_sizes(count), kExtent);
  REQUIRE(count == 0 || (out != nullptr && a != nullptr && b != nullptr), kNull);
  return nullptr;
}

const char* check_vector(const float* x, int64_t count, const void* result) {
  REQUIRE(are_sizes(count), kExtent);
  REQUIRE(result != nullptr && (count == 0 || x != nullptr), kNull);
  return nullptr;
}

const char* check_pack(const void* packed, const void* b, int32_t dtype, int64_t inner, int64_t cols, int64_t ldb,
                       int32_t transpose_b) {
  REQUIRE(is_act(dtype), kDType);
  REQUIRE(are_sizes(inner, cols), kExtent);
  REQUIRE(inner == 0 || cols == 0 || (packed != nullptr && b != nullptr), kNull);
  REQUIRE(ldb >= (transpose_b != 0 ? inner : cols), kStride);
  return nullptr;
}

const char* check_args(const invar_matmul_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(is_act(args.a_dtype) && is_act(args.c_dtype), kDType);
  REQUIRE(args.a_dtype == args.b_dtype, "a and b must have one dtype");
  REQUIRE(are_sizes(args.rows, args.cols, args.inner), kExtent);
  REQUIRE(args.accumulate == 0 || args.c_dtype == kF32, "accumulate needs an F32 result");
  if (args.rows == 0 || args.cols == 0) return nullptr;
  REQUIRE(args.c != nullptr, kNull);
  REQUIRE(args.ldc >= args.cols, kStride);
  if (args.add != nullptr) {
    REQUIRE(is_act(args.add_dtype), "add_dtype must be F32 or BF16");
    REQUIRE(args.ld_add >= args.cols || args.ld_add == 0, kStride);
    REQUIRE(args.add != args.c || (args.add_dtype == args.c_dtype && args.ld_add == args.ldc && args.accumulate == 0),
            "add may equal c only with its dtype and ld, and without accumulate");
  }
  if (args.inner == 0) return nullptr;
  REQUIRE(args.a != nullptr && (args.b != nullptr || args.packed_b != nullptr), kNull);
  REQUIRE(args.lda >= (args.transpose_a != 0 ? args.rows : args.inner), kStride);
  REQUIRE(args.packed_b != nullptr || args.ldb >= (args.transpose_b != 0 ? args.inner : args.cols), kStride);
  return nullptr;
}

namespace {

const char* check_groups(int64_t rows, int64_t cols, int64_t groups, std::initializer_list<int64_t> strides,
                         bool has_sum) {
  if (groups == 0) return nullptr;
  REQUIRE(groups > 0 && rows % groups == 0 && !has_sum, "groups must divide rows, without add and sum_out");
  for (int64_t ld : strides) REQUIRE(ld >= groups * cols, kStride);
  return nullptr;
}

}  // namespace

const char* check_args(const invar_rmsnorm_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(is_act(args.x_dtype) && is_act(args.y_dtype), kDType);
  REQUIRE(are_sizes(args.rows, args.cols), kExtent);
  REQUIRE(args.rows == 0 || args.cols > 0, "cols must be positive");
  REQUIRE(args.rows == 0 || (args.x != nullptr && args.gain != nullptr && args.y != nullptr), kNull);
  if (args.add != nullptr) {
    REQUIRE(is_act(args.add_dtype), "add_dtype must be F32 or BF16");
    REQUIRE(args.sum_out != nullptr, "sum_out must be given with add");
  }
  return check_groups(args.rows, args.cols, args.groups, {args.ldx, args.ldy}, args.sum_out != nullptr);
}

const char* check_args(const invar_rmsnorm_backward_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(is_act(args.dy_dtype) && is_act(args.x_dtype), kDType);
  REQUIRE(are_sizes(args.rows, args.cols), kExtent);
  REQUIRE(args.rows == 0 || args.cols > 0, "cols must be positive");
  REQUIRE(
      args.rows == 0 || (args.dy != nullptr && args.x != nullptr && args.gain != nullptr && args.inv_rms != nullptr),
      kNull);
  REQUIRE(args.rows == 0 || args.dx != nullptr || (args.dx_copy != nullptr && args.accumulate_dx == 0), kNull);
  return check_groups(args.rows, args.cols, args.groups, {args.ldx, args.lddy, args.lddx}, false);
}

const char* check_args(const invar_rope_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(is_act(args.dtype), kDType);
  REQUIRE(are_sizes(args.tokens, args.heads, args.head_dim), kExtent);
  REQUIRE(args.head_dim % 2 == 0, "head_dim must be even");
  REQUIRE(args.ld >= args.heads * args.head_dim, kStride);
  REQUIRE(args.tokens == 0 ||
              (args.x != nullptr && args.cos != nullptr && args.sin != nullptr && args.positions != nullptr),
          kNull);
  return nullptr;
}

namespace {

const char* check_attention(const invar_attention_args& args) {
  REQUIRE(is_act(args.dtype), kDType);
  REQUIRE(are_sizes(args.sequences, args.heads, args.kv_heads, args.head_dim, args.window), kExtent);
  REQUIRE(args.heads > 0 && args.kv_heads > 0 && args.head_dim > 0, "heads, kv_heads and head_dim must be positive");
  REQUIRE(args.heads % args.kv_heads == 0, "heads must be a multiple of kv_heads");
  if (args.sequences == 0) return nullptr;
  REQUIRE(args.q_offsets != nullptr && args.k_offsets != nullptr, kNull);
  for (int64_t s = 0; s < args.sequences; ++s) {
    const int64_t queries = int64_t{args.q_offsets[s + 1]} - args.q_offsets[s];
    const int64_t keys = int64_t{args.k_offsets[s + 1]} - args.k_offsets[s];
    REQUIRE(queries >= 0 && keys >= queries, "a sequence has negative length or fewer keys than queries");
  }
  REQUIRE(args.q_offsets[0] >= 0 && args.k_offsets[0] >= 0, "an offset is negative");
  if (args.q_offsets[args.sequences] == 0) return nullptr;
  REQUIRE(args.q != nullptr && args.k != nullptr && args.v != nullptr && args.out != nullptr, kNull);
  REQUIRE(args.ldq >= args.heads * args.head_dim && args.ldo >= args.heads * args.head_dim &&
              args.ldk >= args.kv_heads * args.head_dim && args.ldv >= args.kv_heads * args.head_dim,
          kStride);
  return nullptr;
}

}  // namespace

const char* check_args(const invar_attention_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  return check_attention(args);
}

const char* check_args(const invar_attention_backward_args& args) {
  REQUIRE(args.forward.struct_size >= sizeof(args), kSize);
  const char* wrong = check_attention(args.forward);
  if (wrong != nullptr || args.forward.sequences == 0) return wrong;
  REQUIRE(args.forward.lse != nullptr && args.d_out != nullptr && args.d_q != nullptr && args.d_k != nullptr &&
              args.d_v != nullptr,
          kNull);
  return nullptr;
}

namespace {

const char* check_swiglu(const invar_swiglu_args& args) {
  REQUIRE(is_act(args.dtype), kDType);
  REQUIRE(are_sizes(args.rows, args.cols), kExtent);
  REQUIRE(args.ld_in >= args.cols && args.ld_out >= args.cols, kStride);
  REQUIRE(args.function == INVAR_GATE_SILU || args.function == INVAR_GATE_GELU_TANH, "unknown gate function");
  REQUIRE(args.rows == 0 || args.cols == 0 || (args.gate != nullptr && args.up != nullptr), kNull);
  return nullptr;
}

}  // namespace

const char* check_args(const invar_swiglu_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(args.rows == 0 || args.cols == 0 || args.out != nullptr, kNull);
  return check_swiglu(args);
}

const char* check_args(const invar_swiglu_backward_args& args) {
  REQUIRE(args.forward.struct_size >= sizeof(args), kSize);
  REQUIRE(args.forward.rows == 0 || args.forward.cols == 0 ||
              (args.d_out != nullptr && args.d_gate != nullptr && args.d_up != nullptr),
          kNull);
  return check_swiglu(args.forward);
}

namespace {

const char* check_embedding(const invar_embedding_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(is_act(args.out_dtype), kDType);
  REQUIRE(are_sizes(args.tokens, args.vocab, args.cols), kExtent);
  if (args.tokens == 0) return nullptr;
  REQUIRE(args.ids != nullptr && args.out != nullptr, kNull);
  for (int64_t t = 0; t < args.tokens; ++t) {
    REQUIRE(args.ids[t] >= 0 && args.ids[t] < args.vocab, "a token id is outside the vocabulary");
  }
  return nullptr;
}

}  // namespace

const char* check_forward(const invar_embedding_args& args) {
  REQUIRE(is_act(args.table_dtype), kDType);
  REQUIRE(args.tokens == 0 || args.table != nullptr, kNull);
  return check_embedding(args);
}

const char* check_backward(const invar_embedding_args& args) {
  REQUIRE(args.tokens == 0 || args.d_table != nullptr, kNull);
  return check_embedding(args);
}

const char* check_args(const invar_head_loss_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(is_act(args.dtype), kDType);
  REQUIRE(are_sizes(args.tokens, args.hidden, args.vocab, args.valid_vocab), kExtent);
  REQUIRE(args.hidden > 0 && args.vocab > 0 && args.vocab <= INT32_MAX, "hidden and vocab must be positive");
  REQUIRE(args.valid_vocab <= args.vocab, "valid_vocab is above vocab");
  REQUIRE(args.loss_sum != nullptr && args.loss_count != nullptr, kNull);
  REQUIRE((args.d_x == nullptr) == (args.d_weight == nullptr), "d_x and d_weight must be given together");
  if (args.tokens == 0) return nullptr;
  REQUIRE(args.x != nullptr && args.weight != nullptr && args.targets != nullptr, kNull);
  const int64_t limit = args.valid_vocab != 0 ? args.valid_vocab : args.vocab;
  for (int64_t t = 0; t < args.tokens; ++t) {
    REQUIRE(args.targets[t] < limit, "a target is outside the valid vocabulary");
  }
  return nullptr;
}

const char* check_args(const invar_adamw_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(args.tensor_count >= 0 && (args.tensor_count == 0 || args.tensors != nullptr), kNull);
  REQUIRE(args.bias1 > 0 && args.bias2 > 0, "bias corrections must be positive");
  for (int64_t i = 0; i < args.tensor_count; ++i) {
    const invar_adamw_tensor& tensor = args.tensors[i];
    REQUIRE(are_sizes(tensor.count), kExtent);
    REQUIRE(tensor.count == 0 ||
                (tensor.master != nullptr && tensor.gradient != nullptr && tensor.m != nullptr && tensor.v != nullptr),
            kNull);
  }
  return nullptr;
}

const char* check_args(const invar_quantize_args& args) {
  REQUIRE(args.struct_size >= sizeof(args), kSize);
  REQUIRE(is_act(args.x_dtype), kDType);
  REQUIRE(are_sizes(args.rows, args.cols), kExtent);
  REQUIRE(args.granularity >= INVAR_SCALE_PER_TENSOR && args.granularity <= INVAR_SCALE_BLOCK,
          "granularity must be per tensor, per row or block");
  REQUIRE(args.granularity != INVAR_SCALE_BLOCK ||
              (args.block_rows > 0 && args.block_cols > 0 && are_sizes(args.block_rows, args.block_cols)),
          "block sizes must be positive");
  REQUIRE(args.dequantized_dtype == 0 || is_act(args.dequantized_dtype), kDType);
  REQUIRE(args.fixed_scale_inv == 0 || (args.fixed_scale_inv > 0 && args.granularity == INVAR_SCALE_PER_TENSOR),
          "a fixed scale must be positive and per tensor");
  REQUIRE(args.rows == 0 || args.cols == 0 || args.x != nullptr, kNull);
  REQUIRE(args.ldx >= args.cols && (args.dequantized == nullptr || args.ld_dequantized >= args.cols), kStride);
  return nullptr;
}

}  // namespace invar::cpu
