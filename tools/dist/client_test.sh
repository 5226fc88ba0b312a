#!/bin/bash
# client_test.sh ROUTE: the project in clients/ROUTE, built with that route's ordinary commands against the release, which is
# unpacked into a fresh folder and moved once. It must convert a checkpoint. Nothing of this source tree is used.
set -euo pipefail
route=$1
export LC_ALL=C
skip() { echo "SKIPPED: $*"; exit 0; }
has() { command -v "$1" >/dev/null || skip "no $1"; }
at_least() { [ "$(printf '%s\n' "$2" "$3" | sort -V | head -n 1)" = "$2" ] || skip "$1 $3 is older than $2"; }

root=$PWD dist=$PWD/tools/dist/dist
unpack() { tar -xzf "$dist"/$1 -C "$2"; }
mkdir -p "$TEST_TMPDIR/first" "$TEST_TMPDIR/at last"
unpack 'invar-[0-9]*.tar.gz' "$TEST_TMPDIR/first"
# A name with a space, where the route's tools can take one.
case $route in pkg_config | bazel | go | cargo) prefix=$TEST_TMPDIR/moved ;; *) prefix="$TEST_TMPDIR/at last/moved" ;; esac
mv "$TEST_TMPDIR"/first/invar-* "$prefix"
cp -rL "tools/dist/clients/$route" "$TEST_TMPDIR/client"
cp -rL tests/cases/autofp8-static-llama/input "$TEST_TMPDIR/fp8"
chmod -R u+w "$TEST_TMPDIR/client" "$TEST_TMPDIR/fp8"
cd "$TEST_TMPDIR/client"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig TMPDIR=$TEST_TMPDIR
# convert PROGRAM...: runs it on the case.
convert() {
  "$@" "$TEST_TMPDIR/fp8" "$TEST_TMPDIR/bf16" | tee "$TEST_TMPDIR/out"
  grep -q '^tensors_written: 20' "$TEST_TMPDIR/out"
  "$prefix/bin/invar" verify "$TEST_TMPDIR/fp8" "$TEST_TMPDIR/bf16" --quiet
}

case $route in
  pkg_config)
    has pkg-config
    has make
    [ "$(pkg-config --modversion invar)" = "$("$prefix/bin/invar" --version | grep -o '[0-9.]*' | head -n 1)" ]
    make -s convert CC=cc
    LD_LIBRARY_PATH=$prefix/lib convert ./convert
    ;;
  cmake)
    has cmake
    has make
    cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >log || { cat log; exit 1; }
    cmake --build build >log || { cat log; exit 1; }
    convert build/convert
    # Another series is refused.
    sed 's/invar 0.1 REQUIRED/invar 0.2 REQUIRED/' CMakeLists.txt >changed && mv changed CMakeLists.txt
    ! cmake -S . -B other -DCMAKE_PREFIX_PATH="$prefix" >log 2>&1
    grep -q 'version: 0.1.0' log
    ;;
  bazel)
    has bazel
    stubs=$(dirname "$(dirname "$(readlink -f "$root/tools/bazel/third_party/rules_cc/WORKSPACE")")")
    sed "s|@PREFIX@|$prefix|; s|@STUBS@|$stubs|" WORKSPACE.in >WORKSPACE
    mv BUILD.in BUILD
    cp -L "$root/tools/dist/clients/cmake/convert.cc" .
    bazel=(bazel --output_user_root="$TEST_TMPDIR/bazel" --max_idle_secs=5 --nohome_rc)
    trap '"${bazel[@]}" shutdown' EXIT
    "${bazel[@]}" build --noshow_progress //:convert //:version
    convert bazel-bin/convert
    grep -q '[0-9]' bazel-bin/version.txt
    ;;
  go)
    has go
    has pkg-config
    at_least go 1.23 "$(go env GOVERSION | sed 's/^go//')"
    unpack 'invar-go-*.tar.gz' "$TEST_TMPDIR"
    # The module from the release, its dependencies from what was downloaded before; into a module cache of its own.
    known=$(go env GOMODCACHE)/cache/download
    [ -d "$known/google.golang.org/protobuf" ] || skip "the modules of bindings/go are not in the module cache: run tools/setup"
    export GOPROXY="file://$(echo "$TEST_TMPDIR"/invar-go-*),file://$known,off" GOMODCACHE=$TEST_TMPDIR/modules
    export GOSUMDB=off GOTOOLCHAIN=local GOFLAGS='-mod=mod -modcacherw' CGO_ENABLED=1 GOCACHE=${HOME:?}/.cache/invar/go
    # Go takes a version's files for unchanging, and would find those of an earlier run in its index.
    export GODEBUG=goindex=0
    go get invar.dev/invar@v0.1.0
    go build -o convert .
    LD_LIBRARY_PATH=$prefix/lib convert ./convert
    ;;
  maven)
    has javac
    jar=$(echo "$dist"/invar-*.jar) pom=$(echo "$dist"/invar-*.pom)
    protobuf=/usr/share/java/protobuf.jar
    # The user's local repository, for reading: what a build adds stays here.
    repository=$TEST_TMPDIR/repository
    mkdir "$repository"
    [ ! -d "${HOME:?}/.m2/repository" ] || cp -rs "$HOME/.m2/repository/." "$repository"
    rm -rf "$repository/dev/invar"
    mvn=(mvn -B -q -o -Dmaven.repo.local="$repository")
    if ! command -v mvn >/dev/null; then
      echo "SKIPPED: no mvn; the client is built by javac"
    elif ! { "${mvn[@]}" install:install-file -Dfile="$jar" -DpomFile="$pom" && "${mvn[@]}" compile; } >log 2>&1; then
      grep -q -i -E 'offline mode|has not been downloaded|no plugin found for prefix' log || { cat log; exit 1; }
      echo "SKIPPED: Maven's plugins are not in the local repository; the client is built by javac"
    else
      jar=$(echo "$repository"/dev/invar/invar/*/invar-*.jar)
      protobuf=$(echo "$repository"/com/google/protobuf/protobuf-java/3.21.12/*.jar)
    fi
    [ -d target/classes ] || javac --release 17 -Xlint:all -Werror -proc:none -cp "$jar:$protobuf" -d target/classes $(find src -name '*.java')
    convert java -XX:-UsePerfData -Djava.io.tmpdir="$TEST_TMPDIR" -cp "target/classes:$jar:$protobuf" example.Convert
    ;;
  cargo)
    has cargo
    has pkg-config
    rustc --version >/dev/null 2>&1 || skip "rustc does not run (rustup without a default?)"
    at_least rustc 1.75 "$(rustc --version | cut -d' ' -f2)"
    unpack 'invar-rust-*.tar.gz' "$TEST_TMPDIR"
    crates=$(echo "$TEST_TMPDIR"/invar-rust-*)
    sed "s|@CRATES@|$crates|" Cargo.toml.in >Cargo.toml
    # The dependencies that the release was tested with, which tools/setup has fetched.
    cp "$crates/Cargo.lock" Cargo.lock
    export CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never CARGO_TARGET_DIR=$TEST_TMPDIR/target
    cargo build --quiet
    LD_LIBRARY_PATH=$prefix/lib convert "$CARGO_TARGET_DIR/debug/convert"
    ;;
  *) exit 2 ;;
esac
