"""What a workspace that uses invar declares: load and call it after the repository @invar itself.

    local_repository(name = "invar", path = "/path/to/invar")
    load("@invar//tools/bazel:repositories.bzl", "invar_repositories")
    invar_repositories()

Its .bazelrc imports invar's, which holds the language level and the options that hide symbols.
"""

load("//tools/bazel:fetched.bzl", "fetched_repository")

def _inner_impl(ctx):
    root = ctx.path(ctx.attr.anchor).dirname
    for entry in root.readdir():
        ctx.symlink(entry, entry.basename)

_inner_repository = repository_rule(
    doc = "A folder of invar as a repository of its own; `anchor` is a file in it.",
    implementation = _inner_impl,
    attrs = {"anchor": attr.label(mandatory = True, allow_single_file = True)},
    local = True,
)

def invar_repositories():
    """Declares what invar needs and the workspace has not declared itself."""
    for name in ["rules_cc", "rules_java", "remote_coverage_tools"]:
        if not native.existing_rule(name):
            _inner_repository(name = name, anchor = Label("//tools/bazel/third_party:%s/WORKSPACE" % name))
    if not native.existing_rule("protobuf_lite"):
        fetched_repository(
            name = "protobuf_lite",
            build_file = "@invar//tools/bazel/third_party:protobuf/BUILD.protobuf",
            subdir = "protobuf-3.21.12",
        )
