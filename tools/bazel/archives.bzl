"""The static archives of our own components that a library is linked from, for tests that look at symbols."""

def _archives_impl(ctx):
    files = []
    for label_input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        owner = label_input.owner
        if owner.workspace_name or owner.package.split("/")[0] not in ["core", "c_api"]:
            continue
        for each in label_input.libraries:
            archive = each.pic_static_library or each.static_library
            if archive:
                files.append(archive)
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files = files))]

archives = rule(
    implementation = _archives_impl,
    attrs = {"library": attr.label(providers = [CcInfo])},
)
