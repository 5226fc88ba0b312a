#include "core/device/cpu/kernels.h"

namespace invar::cpu {
namespace {

constexpr size_t kAlignment = 64;

bool grow(Context& context, ScratchMemory& scratch, size_t bytes) {
  if (scratch.bytes >= bytes) return true;
  // A quarter more: sizes that creep up do not move the memory each time.
  const size_t wanted = (bytes + bytes / 4 + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = context.host.allocate(context.host.host, wanted, kAlignment);
  if (memory == nullptr) return false;
  if (scratch.memory != nullptr) context.host.release(context.host.host, scratch.memory, scratch.bytes);
  scratch = {memory, wanted};
  return true;
}

}  // namespace

bool reserve_worker_scratch(Context& context, ScratchSlot slot, size_t bytes) {
  for (int32_t worker = 0; worker < context.threads; ++worker) {
    if (!grow(context, context.worker_scratch[slot * context.threads + worker], bytes)) return false;
  }
  return true;
}

bool reserve_shared_scratch(Context& context, ScratchSlot slot, size_t bytes) {
  return grow(context, context.shared_scratch[slot], bytes);
}

}  // namespace invar::cpu
