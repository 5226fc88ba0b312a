"""Conversions and quality gates as Bazel targets.

    load("@invar//tools/bazel:invar.bzl", "invar_convert", "invar_convert_test", "invar_diff_test",
         "invar_checkpoint_test", "invar_train_test")

    filegroup(name = "fp8", srcs = glob(["fp8/**"]))
    invar_convert(name = "bf16", src = ":fp8")
    invar_convert_test(name = "bf16_gate", src = ":fp8", calibration = ["heldout.txt"], max_loss_delta = "0.5%")

A checkpoint is a label whose files are one folder: a filegroup that holds config.json, or an invar_convert. Tests are
hermetic: files are copied next to the test first, because a checkpoint may not reach outside its folder by links.
Reports land in the test's undeclared outputs.
"""

_TOOL = Label("//tools/cli:invar")
_RUNNER = Label("//tools/bazel/gates:run.sh")

def _root_of(files, label):
    """The folder of a checkpoint, and its files."""
    if len(files) == 1 and files[0].is_directory:
        return files[0].path, files[0].short_path
    for file in files:
        if file.basename == "config.json" or len(files) == 1:
            return file.dirname, file.short_path.rpartition("/")[0]
    fail("%s: no config.json among the files of this checkpoint" % label)

def _convert_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    report = ctx.actions.declare_file(ctx.label.name + ".report.json")
    root, _ = _root_of(ctx.files.src, ctx.attr.src.label)
    ctx.actions.run_shell(
        mnemonic = "InvarConvert",
        progress_message = "Converting %s" % ctx.attr.src.label,
        inputs = ctx.files.src,
        tools = [ctx.executable._tool],
        outputs = [out, report],
        arguments = [ctx.executable._tool.path, root, out.path, report.path, "--to", ctx.attr.to] + ctx.attr.args_,
        command = """set -eu
tool=$1 source=$2 out=$3 report=$4
shift 4
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
cp -rL --reflink=auto "$source" "$staged/source"
rmdir "$out"
"$tool" convert "$staged/source" "$out" --quiet --report "$report" "$@" >"$staged/log" || { cat "$staged/log" >&2; exit 1; }
""",
    )
    return [DefaultInfo(files = depset([out])), OutputGroupInfo(report = depset([report]))]

_convert = rule(
    implementation = _convert_impl,
    attrs = {
        "src": attr.label(mandatory = True, allow_files = True),
        "to": attr.string(default = "bf16"),
        "args_": attr.string_list(),
        "_tool": attr.label(default = _TOOL, executable = True, cfg = "host"),
    },
)

def invar_convert(name, src, to = "bf16", args = [], **kwargs):
    """The checkpoint `src` converted; the target is one folder. Output group "report": the report as JSON.

    Args:
      name: of the target and of the folder.
      src: a checkpoint.
      to: as in `invar convert --to`.
      args: further arguments of `invar convert`.
      **kwargs: common attributes.
    """
    _convert(name = name, src = src, to = to, args_ = args, **kwargs)

def _gate_test_impl(ctx):
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    files = [ctx.executable._tool, ctx.file._runner] + ctx.files.data
    words = []
    for checkpoint in ctx.attr.checkpoints:
        inputs = checkpoint[DefaultInfo].files.to_list()
        files += inputs
        _, root = _root_of(inputs, checkpoint.label)
        words.append(root)
    command = [ctx.file._runner.short_path, ctx.executable._tool.short_path, ctx.attr.gate, str(len(words))] + words
    command += [str(len(ctx.files.data))] + [file.short_path for file in ctx.files.data] + ctx.attr.args_
    ctx.actions.write(
        script,
        "#!/bin/bash\nexec " + " ".join(["'%s'" % word for word in command]) + "\n",
        is_executable = True,
    )
    return [DefaultInfo(executable = script, runfiles = ctx.runfiles(files = files))]

_gate_test = rule(
    implementation = _gate_test_impl,
    test = True,
    attrs = {
        "gate": attr.string(mandatory = True),
        "checkpoints": attr.label_list(allow_files = True),
        "data": attr.label_list(allow_files = True),
        "args_": attr.string_list(),
        "_tool": attr.label(default = _TOOL, executable = True, cfg = "target"),
        "_runner": attr.label(default = _RUNNER, allow_single_file = True),
    },
)

def invar_convert_test(name, src, calibration = [], max_loss_delta = "0.5%", max_kl = None, to = "bf16", args = [], **kwargs):
    """Converts `src`, proves the result element by element, and holds the calibration against its gate.

    Args:
      name: of the test.
      src: a checkpoint.
      calibration: text or JSONL files to compare on; empty: no calibration.
      max_loss_delta: largest relative rise of the token loss.
      max_kl: largest mean KL divergence, nats.
      to: as in `invar convert --to`.
      args: further key=value arguments of `invar calibrate`.
      **kwargs: common attributes of tests.
    """
    gates = ["--max-loss-delta", max_loss_delta] + (["--max-kl", str(max_kl)] if max_kl else [])
    _gate_test(name = name, gate = "convert", checkpoints = [src], data = calibration, args_ = [to] + gates + args, **kwargs)

def invar_diff_test(name, a, b, tolerance = "0", args = [], **kwargs):
    """Two checkpoints hold the same tensors; `tolerance` as in `invar diff --tolerance`."""
    _gate_test(name = name, gate = "diff", checkpoints = [a, b], args_ = ["--tolerance", tolerance] + args, **kwargs)

def invar_checkpoint_test(name, src, pinned, **kwargs):
    """Names, dtypes and shapes of `src` are those in the file `pinned`: a line "NAME DTYPE [SHAPE]" for each tensor."""
    _gate_test(name = name, gate = "checkpoint", checkpoints = [src], data = [pinned], **kwargs)

def invar_train_test(name, config, data, max_final_loss, args = [], **kwargs):
    """A run ends with a mean loss of its last steps of at most max_final_loss (a string).

    Args:
      name: of the test.
      config: a training config file.
      data: text files, as data.paths.
      max_final_loss: "2.5".
      args: further key=value arguments of `invar train`.
      **kwargs: common attributes of tests.
    """
    _gate_test(name = name, gate = "train", data = [config] + data, args_ = [max_final_loss] + args, **kwargs)
