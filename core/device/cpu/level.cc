#include "core/device/cpu/level.h"

#include <cstring>

#include "core/numerics/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace invar::cpu {
namespace {

constexpr const char* kNames[kLevels] = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};

// Linux 5.16 and later ask for this call once a process before the first tile instruction.
bool tile_data_is_permitted() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

Level usable_level() {
  static const Level level = [] {
    const auto found = static_cast<Level>(cpu_level());
    return found == Level::kAmx && !tile_data_is_permitted() ? Level::kAvx512Bf16 : found;
  }();
  return level;
}

const char* level_name(Level level) { return kNames[static_cast<int>(level)]; }

bool level_from_name(const char* name, Level* level) {
  for (int i = 0; i < kLevels; ++i) {
    if (std::strcmp(name, kNames[i]) == 0) {
      *level = static_cast<Level>(i);
      return true;
    }
  }
  return false;
}

bool pair_products_are_fast() {
#if defined(__x86_64__)
  // Asked once: under a hypervisor each CPUID costs as much as a small product.
  static const bool is_amd = [] {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return false;
    return ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
  }();
  return is_amd;
#else
  return false;
#endif
}

}  // namespace invar::cpu
