#include "core/device/cpu/cpu_backend.h"

#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

#include "core/device/cpu/check_args.h"
#include "core/device/cpu/kernels.h"
#include "core/device/cpu/level.h"
#include "core/device/cpu/matmul/matmul.h"

// An opened CPU: the Context that kernels see, plus the table it uses.
struct invar_device_context {
  invar::cpu::Context context{};
  invar::cpu::Kernels kernels{};
};

namespace invar::cpu {
namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kZeroBlock = int64_t{1} << 22;
constexpr int32_t kNotFound = 5;
constexpr int32_t kLogError = 4;

int32_t refuse(Context& context, const char* why) {
  if (context.host.log != nullptr) context.host.log(context.host.host, kLogError, why);
  return kInvalidArgument;
}

int32_t device_count() { return 1; }

struct Description {
  char text[96];
  Description() {
    std::snprintf(text, sizeof(text), "cpu: %u processors, kernels for %s", std::thread::hardware_concurrency(),
                  level_name(usable_level()));
  }
};

const char* describe(int32_t) {
  static const Description description;
  return description.text;
}

void close(invar_device_context* opened) {
  if (opened == nullptr) return;
  Context& context = opened->context;
  const auto release = [&](const ScratchMemory& scratch) {
    if (scratch.memory != nullptr) context.host.release(context.host.host, scratch.memory, scratch.bytes);
  };
  for (int32_t i = 0; context.worker_scratch != nullptr && i < kScratchSlots * context.threads; ++i) {
    release(context.worker_scratch[i]);
  }
  for (const ScratchMemory& scratch : context.shared_scratch) release(scratch);
  delete[] context.worker_scratch;
  delete opened;
}

int32_t open(const invar_backend_host* host, int32_t device, invar_device_context** out) {
  if (host == nullptr || out == nullptr || host->struct_size < sizeof(invar_backend_host) || host->threads < 1 ||
      host->parallel_for == nullptr || host->allocate == nullptr || host->release == nullptr) {
    return kInvalidArgument;
  }
  if (device != 0) return kNotFound;
  Level level = usable_level();
  if (host->cpu_level_cap != nullptr) {
    Level cap;
    if (!level_from_name(host->cpu_level_cap, &cap)) return kInvalidArgument;
    if (cap < level) level = cap;
  }
  auto* opened = new (std::nothrow) invar_device_context;
  if (opened == nullptr) return kResourceExhausted;
  Context& context = opened->context;
  context.host = *host;
  context.host.cpu_level_cap = nullptr;  // the host's string need not outlive this call
  context.level = level;
  context.threads = host->threads;
  context.kernels = &opened->kernels;
  context.worker_scratch = new (std::nothrow) ScratchMemory[kScratchSlots * static_cast<size_t>(host->threads)]();
  if (context.worker_scratch == nullptr) {
    close(opened);
    return kResourceExhausted;
  }
  opened->kernels = select_kernels(level);
  *out = opened;
  return kOk;
}

int32_t zero(invar_device_context* opened, void* memory, size_t bytes) {
  const int64_t count = static_cast<int64_t>(bytes);
  parallel_for(opened->context, (count + kZeroBlock - 1) / kZeroBlock, [&](int64_t block, int32_t) {
    const int64_t begin = block * kZeroBlock;
    const int64_t length = count - begin < kZeroBlock ? count - begin : kZeroBlock;
    std::memset(static_cast<char*>(memory) + begin, 0, static_cast<size_t>(length));
  });
  return kOk;
}

int32_t allocate(invar_device_context* opened, size_t bytes, void** memory) {
  const invar_backend_host& host = opened->context.host;
  void* result = host.allocate(host.host, bytes, kAlignment);
  if (result == nullptr) return kResourceExhausted;
  // Pages that the system zeroes anyway are not touched before they are needed.
  if (host.zeroed_from == 0 || bytes < host.zeroed_from) zero(opened, result, bytes);
  *memory = result;
  return kOk;
}

void release(invar_device_context* opened, void* memory, size_t bytes) {
  const invar_backend_host& host = opened->context.host;
  if (memory != nullptr) host.release(host.host, memory, bytes);
}

int32_t copy(invar_device_context* opened, void* to, const void* from, size_t bytes) {
  const int64_t count = static_cast<int64_t>(bytes);
  parallel_for(opened->context, (count + kZeroBlock - 1) / kZeroBlock, [&](int64_t block, int32_t) {
    const int64_t begin = block * kZeroBlock;
    const int64_t length = count - begin < kZeroBlock ? count - begin : kZeroBlock;
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, static_cast<size_t>(length));
  });
  return kOk;
}

int32_t synchronize(invar_device_context*) { return kOk; }

int32_t cast(invar_device_context* opened, void* to, int32_t to_dtype, const void* from, int32_t from_dtype,
             int64_t count) {
  const char* wrong = check_cast(to, to_dtype, from, from_dtype, count);
  if (wrong != nullptr) return refuse(opened->context, wrong);
  return opened->kernels.cast(opened->context, to, to_dtype, from, from_dtype, count);
}

int32_t add(invar_device_context* opened, void* out, const void* a, const void* b, int32_t dtype, int64_t count) {
  const char* wrong = check_add(out, a, b, dtype, count);
  if (wrong != nullptr) return refuse(opened->context, wrong);
  return opened->kernels.add(opened->context, out, a, b, dtype, count);
}

int32_t sum_squares(invar_device_context* opened, const float* x, int64_t count, double* sum) {
  const char* wrong = check_vector(x, count, sum);
  if (wrong != nullptr) return refuse(opened->context, wrong);
  return opened->kernels.sum_squares(opened->context, x, count, sum);
}

int32_t all_finite(invar_device_context* opened, const float* x, int64_t count, int32_t* finite) {
  const char* wrong = check_vector(x, count, finite);
  if (wrong != nullptr) return refuse(opened->context, wrong);
  return opened->kernels.all_finite(opened->context, x, count, finite);
}

int32_t soft_cap(invar_device_context* opened, float* x, int64_t count, float cap) {
  const char* wrong = check_vector(x, count, x);
  if (wrong == nullptr && !(cap > 0)) wrong = "cap must be positive";
  if (wrong != nullptr) return refuse(opened->context, wrong);
  return opened->kernels.soft_cap(opened->context, x, count, cap);
}

size_t matmul_packed_bytes(invar_device_context* opened, int32_t dtype, int64_t inner, int64_t cols,
                           int32_t transpose_b) {
  return opened->kernels.matmul_packed_bytes(opened->context, dtype, inner, cols, transpose_b);
}

int32_t matmul_pack(invar_device_context* opened, void* packed, const void* b, int32_t dtype, int64_t inner,
                    int64_t cols, int64_t ldb, int32_t transpose_b) {
  const char* wrong = check_pack(packed, b, dtype, inner, cols, ldb, transpose_b);
  if (wrong != nullptr) return refuse(opened->context, wrong);
  return opened->kernels.matmul_pack(opened->context, packed, b, dtype, inner, cols, ldb, transpose_b);
}

// FP32 engines read a straight B as fast as a packed one: they copy its rows either way. A transposed one costs a
// transposition in every task. Pair engines gain in both.
int32_t matmul_gains_from_packing(invar_device_context* opened, int32_t dtype, int32_t transpose_b) {
  return transpose_b != 0 || engine_for(opened->context.level, dtype).prepared_bytes != sizeof(float) ? 1 : 0;
}

// The table's entry for an operation that takes one struct: check, then the kernel.
template <auto Member, typename Args, const char* (*Check)(const Args&)>
int32_t entry(invar_device_context* opened, const Args* args) {
  const char* wrong = args == nullptr ? "args is NULL" : Check(*args);
  if (wrong != nullptr) return refuse(opened->context, wrong);
  return (opened->kernels.*Member)(opened->context, *args);
}

constexpr invar_backend kBackend = {
    .struct_size = sizeof(invar_backend),
    .abi = INVAR_BACKEND_ABI,
    .name = "cpu",
    .device_count = device_count,
    .describe = describe,
    .open = open,
    .close = close,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .zero = zero,
    .synchronize = synchronize,
    .cast = cast,
    .add = add,
    .sum_squares = sum_squares,
    .all_finite = all_finite,
    .matmul_packed_bytes = matmul_packed_bytes,
    .matmul_pack = matmul_pack,
    .matmul = entry<&Kernels::matmul, invar_matmul_args, check_args>,
    .rmsnorm = entry<&Kernels::rmsnorm, invar_rmsnorm_args, check_args>,
    .rmsnorm_backward = entry<&Kernels::rmsnorm_backward, invar_rmsnorm_backward_args, check_args>,
    .rope = entry<&Kernels::rope, invar_rope_args, check_args>,
    .attention = entry<&Kernels::attention, invar_attention_args, check_args>,
    .attention_backward = entry<&Kernels::attention_backward, invar_attention_backward_args, check_args>,
    .swiglu = entry<&Kernels::swiglu, invar_swiglu_args, check_args>,
    .swiglu_backward = entry<&Kernels::swiglu_backward, invar_swiglu_backward_args, check_args>,
    .embedding = entry<&Kernels::embedding, invar_embedding_args, check_forward>,
    .embedding_backward = entry<&Kernels::embedding_backward, invar_embedding_args, check_backward>,
    .head_loss = entry<&Kernels::head_loss, invar_head_loss_args, check_args>,
    .adamw = entry<&Kernels::adamw, invar_adamw_args, check_args>,
    .quantize = entry<&Kernels::quantize, invar_quantize_args, check_args>,
    .matmul_gains_from_packing = matmul_gains_from_packing,
    .soft_cap = soft_cap,
};

}  // namespace

const invar_backend* cpu_backend() { return &kBackend; }

}  // namespace invar::cpu
