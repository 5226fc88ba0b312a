// What this CPU and its operating system let us execute, found once by CPUID and XGETBV.
//
//   if (cpu_level() >= CpuLevel::kAvx512) ...
//
// Kernels come in levels; each level includes the ones below it. Kernels take a level as an argument
// (default: cpu_level()), so that a test can run every level the machine has in one process.
// The environment variable INVAR_CPU_LEVEL=portable|avx2|avx512|avx512_bf16|amx, read once, caps what
// cpu_level() and cpu_features() report: for tests of a whole process and for hunting faults.
//
// Invariant: a reported feature is usable, its registers included (AMX still needs the kernel's
// permission call, which may be refused). Thread rule: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace invar {

enum class CpuLevel : int {
  kPortable = 0,    // plain C++
  kAvx2 = 1,        // AVX2, FMA, F16C
  kAvx512 = 2,      // AVX-512 F, BW, DQ, VL, CD
  kAvx512Bf16 = 3,  // the above and AVX512_BF16
  kAmx = 4,         // the above and AMX-TILE, AMX-BF16
};

struct CpuFeatures {
  bool avx2 = false;  // with FMA and F16C
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool avx512_vbmi = false;
  bool avx512_vnni = false;
  bool amx_tile = false;
  bool amx_bf16 = false;
  bool amx_int8 = false;
};

// Of this machine, capped by INVAR_CPU_LEVEL.
const CpuFeatures& cpu_features();
CpuLevel cpu_level();

// Pure parts of the above, for tests: the level that features allow, and features without anything above `cap`.
CpuLevel level_of(const CpuFeatures& features);
CpuFeatures capped(CpuFeatures features, CpuLevel cap);

// "avx512_bf16"; and back (kAmx, i.e. no cap, for an unknown or empty name).
std::string_view cpu_level_name(CpuLevel level);
CpuLevel cpu_level_from_name(std::string_view name);

// Every level usable here, kPortable first: what a test loops over.
std::vector<CpuLevel> usable_cpu_levels();

// "avx2 avx512 avx512_bf16 avx512_fp16", for people.
std::string describe(const CpuFeatures& features);

}  // namespace invar
