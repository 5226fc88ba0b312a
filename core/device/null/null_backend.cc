#include "core/device/null/null_backend.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace invar {
namespace {

constexpr int32_t kInvalidArgument = 3;
constexpr int32_t kResourceExhausted = 8;
constexpr size_t kAlignment = 64;

struct NullContext {
  invar_backend_host host;
  NullRecorder recorder;
};

NullContext& of(invar_device_context* context) { return *reinterpret_cast<NullContext*>(context); }

int32_t record(invar_device_context* context, const char* operation, std::initializer_list<int64_t> sizes) {
  NullRecorder& recorder = of(context).recorder;
  try {
    recorder.calls.push_back({operation, sizes});
  } catch (const std::bad_alloc&) {
    return kResourceExhausted;
  }
  const bool fails = static_cast<int64_t>(recorder.calls.size()) - 1 == recorder.fail_at;
  return fails ? recorder.fail_code : 0;
}

int32_t device_count() { return 1; }
const char* describe(int32_t) { return "null: records calls, computes nothing"; }

int32_t open(const invar_backend_host* host, int32_t device, invar_device_context** context) {
  if (host == nullptr || context == nullptr || device != 0 || host->struct_size < sizeof(invar_backend_host)) {
    return kInvalidArgument;
  }
  auto* opened = new (std::nothrow) NullContext{*host, {}};
  if (opened == nullptr) return kResourceExhausted;
  opened->host.cpu_level_cap = nullptr;  // the host's string need not outlive this call
  *context = reinterpret_cast<invar_device_context*>(opened);
  return 0;
}

void close(invar_device_context* context) { delete reinterpret_cast<NullContext*>(context); }

int32_t allocate(invar_device_context* context, size_t bytes, void** memory) {
  const invar_backend_host& host = of(context).host;
  void* allocated = host.allocate(host.host, bytes, kAlignment);
  if (allocated == nullptr) return kResourceExhausted;
  std::memset(allocated, 0, bytes);
  *memory = allocated;
  return 0;
}

void release(invar_device_context* context, void* memory, size_t bytes) {
  const invar_backend_host& host = of(context).host;
  host.release(host.host, memory, bytes);
}

int32_t copy(invar_device_context*, void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return 0;
}

int32_t zero(invar_device_context*, void* memory, size_t bytes) {
  if (bytes > 0) std::memset(memory, 0, bytes);
  return 0;
}

int32_t synchronize(invar_device_context*) { return 0; }

int32_t cast(invar_device_context* context, void*, int32_t, const void*, int32_t, int64_t count) {
  return record(context, "cast", {count});
}

int32_t add(invar_device_context* context, void*, const void*, const void*, int32_t, int64_t count) {
  return record(context, "add", {count});
}

int32_t sum_squares(invar_device_context* context, const float*, int64_t count, double* sum) {
  *sum = 0;
  return record(context, "sum_squares", {count});
}

int32_t soft_cap(invar_device_context* context, float*, int64_t count, float) {
  return record(context, "soft_cap", {count});
}

int32_t all_finite(invar_device_context* context, const float*, int64_t count, int32_t* finite) {
  *finite = 1;
  return record(context, "all_finite", {count});
}

size_t matmul_packed_bytes(invar_device_context*, int32_t, int64_t inner, int64_t cols, int32_t) {
  return static_cast<size_t>(inner * cols) * sizeof(float);
}

int32_t matmul_pack(invar_device_context* context, void*, const void*, int32_t, int64_t inner, int64_t cols, int64_t,
                    int32_t) {
  return record(context, "matmul_pack", {inner, cols});
}

int32_t matmul(invar_device_context* context, const invar_matmul_args* args) {
  if (args->sum_squares != nullptr) *args->sum_squares = 0;
  return record(context, "matmul", {args->rows, args->cols, args->inner});
}

int32_t rmsnorm(invar_device_context* context, const invar_rmsnorm_args* args) {
  return record(context, "rmsnorm", {args->rows, args->cols});
}

int32_t rmsnorm_backward(invar_device_context* context, const invar_rmsnorm_backward_args* args) {
  return record(context, "rmsnorm_backward", {args->rows, args->cols});
}

int32_t rope(invar_device_context* context, const invar_rope_args* args) {
  return record(context, "rope", {args->tokens, args->heads, args->head_dim});
}

int32_t attention(invar_device_context* context, const invar_attention_args* args) {
  return record(context, "attention", {args->sequences, args->heads, args->kv_heads, args->head_dim});
}

int32_t attention_backward(invar_device_context* context, const invar_attention_backward_args* args) {
  const invar_attention_args& forward = args->forward;
  return record(context, "attention_backward", {forward.sequences, forward.heads, forward.kv_heads, forward.head_dim});
}

int32_t swiglu(invar_device_context* context, const invar_swiglu_args* args) {
  return record(context, "swiglu", {args->rows, args->cols});
}

int32_t swiglu_backward(invar_device_context* context, const invar_swiglu_backward_args* args) {
  return record(context, "swiglu_backward", {args->forward.rows, args->forward.cols});
}

int32_t embedding(invar_device_context* context, const invar_embedding_args* args) {
  return record(context, "embedding", {args->tokens, args->vocab, args->cols});
}

int32_t embedding_backward(invar_device_context* context, const invar_embedding_args* args) {
  return record(context, "embedding_backward", {args->tokens, args->vocab, args->cols});
}

int32_t head_loss(invar_device_context* context, const invar_head_loss_args* args) {
  *args->loss_sum = 0;
  *args->loss_count = std::count_if(args->targets, args->targets + args->tokens, [](int32_t id) { return id >= 0; });
  return record(context, "head_loss", {args->tokens, args->hidden, args->vocab});
}

int32_t adamw(invar_device_context* context, const invar_adamw_args* args) {
  int64_t elements = 0;
  for (int64_t i = 0; i < args->tensor_count; ++i) elements += args->tensors[i].count;
  return record(context, "adamw", {args->tensor_count, elements});
}

int32_t quantize(invar_device_context* context, const invar_quantize_args* args) {
  if (args->amax != nullptr) *args->amax = 0;
  if (args->scale_inv != nullptr && args->rows > 0 && args->cols > 0) {
    int64_t scales = args->granularity == INVAR_SCALE_PER_ROW ? args->rows : 1;
    if (args->granularity == INVAR_SCALE_BLOCK) {
      scales = (args->rows + args->block_rows - 1) / args->block_rows *
               ((args->cols + args->block_cols - 1) / args->block_cols);
    }
    std::fill(args->scale_inv, args->scale_inv + scales, 1.0f);
  }
  return record(context, "quantize", {args->rows, args->cols});
}

invar_backend make_table() {
  invar_backend table{};
  table.struct_size = sizeof table;
  table.abi = INVAR_BACKEND_ABI;
  table.name = "null";
  table.device_count = device_count;
  table.describe = describe;
  table.open = open;
  table.close = close;
  table.allocate = allocate;
  table.release = release;
  table.copy = copy;
  table.zero = zero;
  table.synchronize = synchronize;
  table.cast = cast;
  table.add = add;
  table.sum_squares = sum_squares;
  table.all_finite = all_finite;
  table.soft_cap = soft_cap;
  table.matmul_packed_bytes = matmul_packed_bytes;
  table.matmul_pack = matmul_pack;
  table.matmul = matmul;
  table.rmsnorm = rmsnorm;
  table.rmsnorm_backward = rmsnorm_backward;
  table.rope = rope;
  table.attention = attention;
  table.attention_backward = attention_backward;
  table.swiglu = swiglu;
  table.swiglu_backward = swiglu_backward;
  table.embedding = embedding;
  table.embedding_backward = embedding_backward;
  table.head_loss = head_loss;
  table.adamw = adamw;
  table.quantize = quantize;
  return table;
}

}  // namespace

std::string NullRecorder::operations() const {
  std::string all;
  for (const NullCall& call : calls) all += (all.empty() ? "" : " ") + call.operation;
  return all;
}

int64_t NullRecorder::count(const std::string& operation) const {
  return std::count_if(calls.begin(), calls.end(), [&](const NullCall& call) { return call.operation == operation; });
}

const invar_backend& null_backend() {
  static const invar_backend table = make_table();
  return table;
}

NullRecorder& null_recorder(invar_device_context* context) { return of(context).recorder; }

}  // namespace invar
