"""protoc (Debian's protobuf-compiler) to C++ sources for the lite runtime, and to the field table of core/config."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_TOOL = "//proto/tool:descriptor_tool"

def cc_lite_protos(name, srcs, options, include_prefix, visibility = None):
    """A cc_library of the messages in SRCS, and the descriptor set they come from.

    The options of OPTIONS are stripped before C++ is generated: with them the headers would include the full
    runtime's descriptor.pb.h.

    Args:
      name: the library; NAME_descriptors is the whole set, NAME_table the field table (table.inc).
      srcs: the .proto files of this package, without OPTIONS.
      options: the file that declares the field options.
      include_prefix: the folder that imports are relative to.
      visibility: of all three.
    """
    package = native.package_name()
    folder = package[len(include_prefix) + 1:]
    native.genrule(
        name = name + "_descriptors",
        srcs = srcs + [options],
        outs = [name + ".descriptors"],
        cmd = "protoc --proto_path=%s --include_imports --include_source_info --descriptor_set_out=$@ $(SRCS)" % include_prefix,
        visibility = visibility,
    )
    native.genrule(
        name = name + "_table",
        srcs = [name + ".descriptors"],
        outs = [name + "_table.inc"],
        cmd = "$(location %s) table $< $@" % _TOOL,
        exec_tools = [_TOOL],
        visibility = visibility,
    )
    bases = [src[:-len(".proto")] for src in srcs]
    native.genrule(
        name = name + "_sources",
        srcs = [name + ".descriptors"],
        outs = [base + ".pb.h" for base in bases] + [base + ".pb.cc" for base in bases],
        cmd = " && ".join([
            "$(location %s) strip $< $(@D)/stripped.descriptors" % _TOOL,
            "protoc --descriptor_set_in=$(@D)/stripped.descriptors --cpp_out=lite:$(GENDIR)/%s %s" % (
                include_prefix,
                " ".join([folder + "/" + src for src in srcs]),
            ),
            "rm $(@D)/stripped.descriptors",
        ]),
        exec_tools = [_TOOL],
    )
    cc_library(
        name = name,
        srcs = [base + ".pb.cc" for base in bases],
        hdrs = [base + ".pb.h" for base in bases],
        copts = ["-w"],
        strip_include_prefix = "/" + include_prefix,
        visibility = visibility,
        deps = ["@protobuf_lite//:protobuf_lite"],
    )
