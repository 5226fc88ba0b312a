#include "core/numerics/cpu_features.h"

#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace invar {
namespace {

constexpr struct {
  CpuLevel level;
  std::string_view name;
} kNames[] = {
    {CpuLevel::kPortable, "portable"},      {CpuLevel::kAvx2, "avx2"}, {CpuLevel::kAvx512, "avx512"},
    {CpuLevel::kAvx512Bf16, "avx512_bf16"}, {CpuLevel::kAmx, "amx"},
};

#if defined(__x86_64__)

bool bit(uint32_t word, int index) { return (word >> index & 1u) != 0; }

// The register states that the operating system saves (XCR0).
uint64_t saved_states() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

CpuFeatures detect() {
  CpuFeatures found;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return found;
  const bool osxsave = bit(ecx, 27), avx = bit(ecx, 28), fma = bit(ecx, 12), f16c = bit(ecx, 29);
  if (!osxsave || !avx) return found;
  const uint64_t states = saved_states();
  const bool ymm = (states & 0x06) == 0x06, zmm = (states & 0xE6) == 0xE6;
  const bool tiles = (states & 0x60000) == 0x60000;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return found;
  const uint32_t subleaves = eax;
  found.avx2 = ymm && fma && f16c && bit(ebx, 5);
  found.avx512 = found.avx2 && zmm && bit(ebx, 16) && bit(ebx, 17) && bit(ebx, 28) && bit(ebx, 30) &&
                 bit(ebx, 31);  // F DQ CD BW VL
  found.avx512_vbmi = found.avx512 && bit(ecx, 1);
  found.avx512_vnni = found.avx512 && bit(ecx, 11);
  found.avx512_fp16 = found.avx512 && bit(edx, 23);
  found.amx_tile = tiles && bit(edx, 24);
  found.amx_bf16 = found.amx_tile && bit(edx, 22);
  found.amx_int8 = found.amx_tile && bit(edx, 25);
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
    found.avx512_bf16 = found.avx512 && bit(eax, 5);
  }
  return found;
}

#else

CpuFeatures detect() { return {}; }

#endif

}  // namespace

CpuLevel level_of(const CpuFeatures& features) {
  if (!features.avx2) return CpuLevel::kPortable;
  if (!features.avx512) return CpuLevel::kAvx2;
  if (!features.avx512_bf16) return CpuLevel::kAvx512;
  if (!features.amx_tile || !features.amx_bf16) return CpuLevel::kAvx512Bf16;
  return CpuLevel::kAmx;
}

CpuFeatures capped(CpuFeatures features, CpuLevel cap) {
  if (cap < CpuLevel::kAmx) features.amx_tile = features.amx_bf16 = features.amx_int8 = false;
  if (cap < CpuLevel::kAvx512Bf16) features.avx512_bf16 = features.avx512_fp16 = false;
  if (cap < CpuLevel::kAvx512) features.avx512 = features.avx512_vbmi = features.avx512_vnni = false;
  if (cap < CpuLevel::kAvx2) features.avx2 = false;
  return features;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = [] {
    const char* cap = std::getenv("INVAR_CPU_LEVEL");
    return capped(detect(), cap == nullptr ? CpuLevel::kAmx : cpu_level_from_name(cap));
  }();
  return features;
}

CpuLevel cpu_level() {
  static const CpuLevel level = level_of(cpu_features());
  return level;
}

std::string_view cpu_level_name(CpuLevel level) {
  for (const auto& entry : kNames) {
    if (entry.level == level) return entry.name;
  }
  return "?";
}

CpuLevel cpu_level_from_name(std::string_view name) {
  for (const auto& entry : kNames) {
    if (entry.name == name) return entry.level;
  }
  return CpuLevel::kAmx;
}

std::vector<CpuLevel> usable_cpu_levels() {
  std::vector<CpuLevel> levels;
  for (const auto& entry : kNames) {
    if (entry.level <= cpu_level()) levels.push_back(entry.level);
  }
  return levels;
}

std::string describe(const CpuFeatures& features) {
  std::string text;
  const auto add = [&text](bool present, std::string_view name) {
    if (present) text.append(text.empty() ? "" : " ").append(name);
  };
  add(features.avx2, "avx2");
  add(features.avx512, "avx512");
  add(features.avx512_vbmi, "avx512_vbmi");
  add(features.avx512_vnni, "avx512_vnni");
  add(features.avx512_bf16, "avx512_bf16");
  add(features.avx512_fp16, "avx512_fp16");
  add(features.amx_tile, "amx_tile");
  add(features.amx_bf16, "amx_bf16");
  add(features.amx_int8, "amx_int8");
  return text.empty() ? "portable" : text;
}

}  // namespace invar
