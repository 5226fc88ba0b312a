"""A fuzz target as two tests: a short one of a fixed number of mutations, and one in the soak tier."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def fuzz_test(name, srcs, deps, corpus, data, mutations = 20000, tags = []):
    """Runs LLVMFuzzerTestOneInput of `srcs` over `corpus` (paths in the runfiles) and mutations of it.

    NAME runs a fixed number of mutations from a fixed seed. NAME_soak runs for INVAR_SOAK_SECONDS (60 by default) from
    a seed of the clock: bazel test --config=full --test_tag_filters=soak --test_env=INVAR_SOAK_SECONDS=3600 ...
    """
    cc_test(
        name = name,
        size = "small",
        srcs = srcs,
        args = ["--mutations %d" % mutations] + corpus,
        data = data,
        tags = tags,
        deps = deps + ["//core/container:fuzz_driver"],
    )
    cc_test(
        name = name + "_soak",
        size = "enormous",
        srcs = srcs,
        args = ["--seconds 60"] + corpus,
        data = data,
        tags = tags + ["soak"],
        deps = deps + ["//core/container:fuzz_driver"],
    )
