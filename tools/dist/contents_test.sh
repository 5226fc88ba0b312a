#!/bin/bash
# What is released asks little of a host, says so in CONTENTS.txt, and is the same bytes when it is made again:
#   contents_test.sh VERSION LIBRARY TOOL JNI CLASSES FILE...   (as pack.sh)
set -euo pipefail
readonly GLIBC=2.35 LARGEST=10000000
readonly SYSTEM='ld-linux-x86-64.so.2 libc.so.6 libm.so.6'
version=$1 dist=$PWD/tools/dist/dist
failed=0
fail() { echo "$*"; failed=1; }
value() { sed -n "s|^$1: ||p" "$dist/CONTENTS.txt" | grep .; }
sed '/^$/q' "$dist/CONTENTS.txt"

# The stated limits; README.md names them to users.
floor=$(value glibc)
[ "$(printf '%s\n' "$floor" "$GLIBC" | sort -V | tail -n 1)" = "$GLIBC" ] || fail "needs glibc $floor; stated: $GLIBC"
for binary in libinvar.so.0 bin/invar libinvar_jni.so; do
  needs=$(value "$binary needs")
  for library in $needs; do
    case " $SYSTEM libinvar.so.0 " in *" $library "*) ;; *) fail "$binary needs $library; stated: $SYSTEM" ;; esac
  done
done
size=$(value 'libinvar.so.0 stripped' | cut -d' ' -f1)
[ "$size" -le "$LARGEST" ] || fail "libinvar.so.0 has $size bytes stripped, limit $LARGEST"

# One version everywhere.
header=$(sed -n 's/^#define INVAR_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' c_api/include/invar/invar.h | paste -sd.)
[ "$header" = "$version" ] || fail "invar.h says $header, tools/dist/dist.bzl $version"
grep -q "^  <version>$version</version>" bindings/java/pom.xml || fail "bindings/java/pom.xml: not version $version"
grep -q "^version = \"$version\"" bindings/rust/Cargo.toml || fail "bindings/rust/Cargo.toml: not version $version"

# The prefix: links, run paths, nothing of this machine.
mkdir -p "$TEST_TMPDIR/prefix"
tar -xzf "$dist/invar-$version-linux-x86_64.tar.gz" -C "$TEST_TMPDIR/prefix"
prefix=$TEST_TMPDIR/prefix/invar-$version
[ "$(readlink "$prefix/lib/libinvar.so")" = libinvar.so.0 ] || fail "lib/libinvar.so is no link to libinvar.so.0"
[ "$(readlink "$prefix/lib/libinvar.so.0")" = "libinvar.so.$version" ] || fail "lib/libinvar.so.0 is no link to libinvar.so.$version"
paths() { readelf -d "$1" | sed -n 's/.*R\(UN\)\?PATH.*\[\(.*\)\]/\2/p'; }
[ -z "$(paths "$prefix/lib/libinvar.so.0")" ] || fail "libinvar.so.0 has a run path"
[ "$(paths "$prefix/bin/invar")" = "\$ORIGIN/../lib" ] || fail "bin/invar looks for libraries in $(paths "$prefix/bin/invar")"
! grep -r -l -F -e "@VERSION@" -e "$HOME/" "$prefix" || fail "the files above were not filled in, or name this machine"
listed=$(tar --numeric-owner --full-time --utc -tvzf "$dist/invar-$version-linux-x86_64.tar.gz" | awk '{print $2, $4, $5}' | sort -u)
[ "$listed" = "0/0 1970-01-01 00:00:00" ] || fail "owners and times in the archive: $listed"

# Again, with other times, modes and umask.
mkdir -p "$TEST_TMPDIR/copy"
cp -rL . "$TEST_TMPDIR/copy/"
cd "$TEST_TMPDIR/copy"
chmod -R u+w,go-r . && find . -type f -exec touch -d 2001-02-03 {} +
umask 077
tools/dist/pack.sh "$TEST_TMPDIR/again" "$@"
diff -r "$dist" "$TEST_TMPDIR/again" || fail "a second run gives other bytes"
exit $failed
