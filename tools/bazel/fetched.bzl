"""Repositories whose sources tools/setup has put into the user's cache."""

def _fetched_impl(ctx):
    env = ctx.os.environ
    cache = env.get("INVAR_DEPS", "") or (env.get("HOME", "") + "/.cache/invar/deps")
    root = ctx.path(cache + "/" + ctx.attr.subdir)
    if not root.exists:
        fail("%s is missing: run tools/setup first" % root)
    for entry in root.readdir():
        ctx.symlink(entry, entry.basename)
    ctx.symlink(ctx.attr.build_file, "BUILD")

fetched_repository = repository_rule(
    implementation = _fetched_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "subdir": attr.string(mandatory = True),
    },
    environ = ["HOME", "INVAR_DEPS"],
    local = True,
)
