#!/bin/bash
# The crates' tests, offline, on a copy of the sources:
#   rust_test.sh tests   behaviour, layout, examples, documentation; rustfmt, clippy and rustdoc without warnings
#   rust_test.sh leaks   ten thousand calls of each kind
#   rust_test.sh drift   the declarations are what the header gives, and the messages are of these protos
#   rust_test.sh messages  the messages are what the protos give (builds the generator)
#   rust_test.sh linking messages when the library is missing or of another ABI
set -euo pipefail
root=$PWD
skip() { echo "SKIPPED: $*"; exit 0; }

command -v cargo >/dev/null || skip "no cargo; the crates need Rust 1.75 or newer"
rustc --version >/dev/null 2>&1 || skip "rustc does not run (rustup without a default?)"
version=$(rustc --version | cut -d' ' -f2)
[ "$(printf '%s\n' 1.75.0 "$version" | sort -V | head -n 1)" = 1.75.0 ] || skip "rustc $version is older than 1.75"

work=$TEST_TMPDIR/work
mkdir -p "$work/bindings"
cp -rL bindings/rust bindings/testdata "$work/bindings/"
cp -rL c_api proto tests "$work/"
export CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never RUST_BACKTRACE=0
export CARGO_TARGET_DIR=$TEST_TMPDIR/target TMPDIR=$TEST_TMPDIR
export INVAR_LIB_DIR=$root/c_api LD_LIBRARY_PATH=$root/c_api INVAR_INCLUDE_DIR=$root/c_api/include
export INVAR_CASES=$work/tests/cases
cd "$work/bindings/rust"

case "$1" in
  tests)
    cargo test --locked --all-targets -- --skip memory_is_flat
    cargo test --locked --doc
    if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; else echo "SKIPPED: no rustfmt"; fi
    if cargo clippy --version >/dev/null 2>&1; then
      cargo clippy --locked --all-targets -- -D warnings
    else
      echo "SKIPPED: no clippy"
    fi
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps
    ;;
  leaks) cargo test --locked --package invar --test leaks -- --nocapture ;;
  drift)
    command -v bindgen >/dev/null || skip "no bindgen"
    command -v rustfmt >/dev/null || skip "no rustfmt"
    ./generate sys "$root/c_api/include/invar/invar.h" "$TEST_TMPDIR/bindings.rs"
    diff -u invar-sys/src/bindings.rs "$TEST_TMPDIR/bindings.rs"
    grep -q "^// $(./generate digest "$work/proto")$" invar/src/v1.rs || {
      echo "invar/src/v1.rs was made from other protos: run bindings/rust/generate"
      exit 1
    }
    echo "the generated code is current"
    ;;
  messages)
    ./generate messages "$work/proto" "$TEST_TMPDIR/v1.rs"
    diff -u invar/src/v1.rs "$TEST_TMPDIR/v1.rs"
    ;;
  linking) ./linking_test.sh "$root" ;;
  *) exit 2 ;;
esac
