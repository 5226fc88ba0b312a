"""What the released files share."""

# As in invar.h; a test compares them.
VERSION = "0.1.0"

# Linker options of released binaries: no libstdc++ or libgcc of the host is needed. Bazel adds -lstdc++ after them: the
# static one comes first, and the shared one is then not needed.
STATIC_RUNTIME = [
    "-static-libgcc",
    "-l:libstdc++.a",
    "-Wl,--as-needed",
]
