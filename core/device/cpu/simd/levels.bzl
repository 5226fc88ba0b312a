"""One kernel source compiled once for every instruction set.

    level_library(
        name = "norm_kernels",
        srcs = ["norm_kernels.cc"],
        hdrs = ["norm.h"],
        deps = [...],
    )

Inside, INVAR_LEVEL_NAME is the level's namespace. Where the processor is not x86-64 only `portable` is built.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")

_AVX2 = ["-mavx2", "-mfma", "-mf16c"]
# GCC 12 warns about its own intrinsics headers.
_AVX512 = _AVX2 + ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]

LEVEL_COPTS = {
    "portable": [],
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_bf16": _AVX512 + ["-mavx512bf16"],
}

ALL_LEVELS = ["portable", "avx2", "avx512", "avx512_bf16"]

def level_library(name, srcs, hdrs = [], deps = [], levels = ["portable", "avx2", "avx512"], testonly = 0, **kwargs):
    """Builds `srcs` for each of `levels`; depending on `name` brings them all."""
    for level in levels:
        is_portable = level == "portable"
        cc_library(
            name = name + "_" + level,
            srcs = srcs if is_portable else select({
                "//core/device/cpu/simd:x86_64": srcs,
                "//conditions:default": [],
            }),
            hdrs = hdrs,
            copts = ["-O3"] + (LEVEL_COPTS[level] if is_portable else select({
                "//core/device/cpu/simd:x86_64": LEVEL_COPTS[level],
                "//conditions:default": [],
            })),
            local_defines = ["INVAR_LEVEL_NAME=" + level],
            deps = deps + ["//core/device/cpu/simd"],
            testonly = testonly,
        )
    cc_library(
        name = name,
        hdrs = hdrs,
        deps = [":" + name + "_" + level for level in levels] + deps,
        testonly = testonly,
        **kwargs
    )
