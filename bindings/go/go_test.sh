#!/bin/bash
# The Go module's tests, offline, on a copy of the sources beside a staged install that pkg-config finds:
#   go_test.sh tests     the package: gofmt, vet, tests and examples
#   go_test.sh lint      vet and staticcheck of everything
#   go_test.sh service   the service, by an HTTP client
#   go_test.sh readme    the README's commands and program, against the release and a clone
#   go_test.sh race      everything under the race detector
#   go_test.sh pointers  the tests with the complete checks of pointers that pass to C
#   go_test.sh leaks     ten thousand calls of each kind
#   go_test.sh drift     the generated code is what the interface and the protos give
set -euo pipefail
root=$PWD
skip() { echo "SKIPPED: $*"; exit 0; }

command -v go >/dev/null || skip "no go; the module needs Go 1.23 or newer"
version=$(go env GOVERSION | sed 's/^go//')
[ "$(printf '%s\n' 1.23 "$version" | sort -V | head -n 1)" = 1.23 ] || skip "go $version is older than 1.23"
command -v pkg-config >/dev/null || skip "no pkg-config"

work=$TEST_TMPDIR/work
mkdir -p "$work"
cp -rL bindings c_api proto tests tools "$work/"
chmod -R u+w "$work"
prefix=$TEST_TMPDIR/prefix
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include/invar"
cp "$work/c_api/include/invar/invar.h" "$prefix/include/invar/"
cp "$work/c_api/libinvar.so.0" "$prefix/lib/"
ln -s libinvar.so.0 "$prefix/lib/libinvar.so"
sed 's/@VERSION@/0.1.0/' "$work/c_api/invar.pc.in" >"$prefix/lib/pkgconfig/invar.pc"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib INVAR_TEST_ROOT=$work
export INVAR_TEST_OTHER_ABI=$work/bindings/testdata/libother_abi.so
export GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-mod=readonly CGO_ENABLED=1 TMPDIR=$TEST_TMPDIR
# Go's standard library takes most of a cold build: its objects outlive the test.
export GOCACHE=${HOME:?}/.cache/invar/go
cd "$work/bindings/go"
go mod verify >/dev/null || skip "the modules of go.sum are not in the module cache: run tools/setup"

case "$1" in
  tests)
    unformatted=$(gofmt -l .)
    [ -z "$unformatted" ] || { echo "gofmt would change: $unformatted"; exit 1; }
    # Without inlining the packages below compile in two thirds of the time, which is most of a cold run.
    go test -count=1 -vet=all -gcflags=all=-l .
    ;;
  lint)
    go vet ./...
    [ "$(printf '%s\n' 1.25 "$version" | sort -V | head -n 1)" = 1.25 ] || skip "staticcheck needs Go 1.25, this is $version"
    cd "$work/tools/checks/staticcheck"
    go mod verify >/dev/null || skip "staticcheck is not in the module cache: run tools/setup"
    go build -o "$TEST_TMPDIR/staticcheck" honnef.co/go/tools/cmd/staticcheck
    cd "$work/bindings/go"
    "$TEST_TMPDIR/staticcheck" $(go list ./... | grep -v /internal/raw$)
    ;;
  service) go test -count=1 ./examples/... ;;
  readme)
    # The README's own words; only where modules come from is this machine's: what was downloaded before.
    awk '/^```go$/ {on = 1; next} /^```$/ {on = 0} on' README.md | diff - examples/hello/main.go
    known=$(go env GOMODCACHE)/cache/download
    export GOMODCACHE=$TEST_TMPDIR/modules GOPROXY="file://$known,off" GOSUMDB=off GOFLAGS=-modcacherw
    # Go takes a version's files for unchanging, and would find those of an earlier run in its index.
    export GODEBUG=goindex=0
    awk '/^```sh$/ {on = 1; next} /^```$/ {on = 0} on' README.md >"$TEST_TMPDIR/commands"
    unset PKG_CONFIG_PATH LD_LIBRARY_PATH
    mkdir "$TEST_TMPDIR/hello"
    cp examples/hello/main.go "$TEST_TMPDIR/hello"
    cd "$TEST_TMPDIR/hello"
    export RELEASE=$root/tools/dist/dist
    written() { grep -q '^step 200 loss' "$1" && sed '1,/^step 200 /d' "$1" | grep -E 'sum|line|says'; }
    (. "$TEST_TMPDIR/commands") | tee out | tail -n 5
    written out
    # The same with a replaced module.
    rm -r go.mod go.sum run
    (
      export PKG_CONFIG_PATH=$PWD/invar-0.1.0/lib/pkgconfig LD_LIBRARY_PATH=$PWD/invar-0.1.0/lib
      go mod init hello
      go mod edit -replace "invar.dev/invar=$work/bindings/go"
      go get invar.dev/invar@v0.1.0
      go run . text.txt
    ) >out
    written out
    ;;
  race) go test -count=1 -race ./... ;;
  pointers) GOEXPERIMENT=cgocheck2 go test -count=1 -vet=off . ;;
  leaks) INVAR_LEAKS=1 go test -count=1 -run 'Leak|Overhead' -v . ;;
  drift)
    command -v swig >/dev/null || skip "no swig"
    swig -version | grep -q 'Version 4\.1\.0' || skip "the committed code is that of SWIG 4.1.0"
    command -v protoc >/dev/null || skip "no protoc"
    mkdir "$TEST_TMPDIR/fresh"
    ./generate "$TEST_TMPDIR/fresh"
    for part in internal/raw/raw.go internal/raw/raw_wrap.inc invarv1; do
      diff -r -I '^// *protoc' "$part" "$TEST_TMPDIR/fresh/$part" || { echo "run bindings/go/generate and commit what it writes"; exit 1; }
    done
    echo "the generated code is current"
    ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
