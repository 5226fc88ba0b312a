#!/bin/bash
# Writes what is released to a folder, the same bytes for the same inputs:
#   pack.sh OUT VERSION LIBRARY TOOL JNI CLASSES FILE...
# LIBRARY, TOOL, JNI: libinvar.so.0, bin/invar and libinvar_jni.so as linked; CLASSES: the jar without native libraries.
# FILE: the sources that go along, by their paths in the project.
set -euo pipefail
out=$1 version=$2 library=$3 tool=$4 jni=$5 classes=$6
shift 6
platform=linux-$(uname -m)
umask 022
rm -rf "$out/stage"
mkdir -p "$out/stage"
stage=$(cd "$out/stage" && pwd)
out=$(cd "$out" && pwd)

# copy FILE TO: plain and writable, whatever the source was.
copy() { install -D -m "${3:-644}" "$1" "$2"; }
# archive NAME FOLDER: the folder of the stage as a tar file without names, times or order of this machine.
archive() {
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -C "$stage" -cf - "$2" | gzip -n -9 >"$out/$1"
}
# zip_of FILE FOLDER: the files of a folder, without entries for folders.
zip_of() {
  local list
  list=$stage/list
  (cd "$2" && find . -type f | LC_ALL=C sort | sed "s|^\./|-C $2 |") >"$list"
  jar -J-XX:-UsePerfData --create --no-manifest --date=2020-01-01T00:00:00Z --file "$1" "@$list"
  rm "$list"
}

# The prefix: library, headers, package descriptions, command line tool.
prefix=$stage/invar-$version
copy "$library" "$prefix/lib/libinvar.so.$version" 755
strip "$prefix/lib/libinvar.so.$version"
ln -s "libinvar.so.$version" "$prefix/lib/libinvar.so.0"
ln -s libinvar.so.0 "$prefix/lib/libinvar.so"
copy "$tool" "$prefix/bin/invar" 755
strip "$prefix/bin/invar"
for file in c_api/include/invar/*; do copy "$file" "$prefix/include/invar/${file##*/}"; done
for file in proto/invar/v1/*.proto; do copy "$file" "$prefix/share/invar/$file"; done
fill() { sed "s/@VERSION@/$version/g" "$1" >"$stage/filled" && copy "$stage/filled" "$2" && rm "$stage/filled"; }
fill c_api/invar.pc.in "$prefix/lib/pkgconfig/invar.pc"
fill tools/dist/cmake/invar-config.cmake.in "$prefix/lib/cmake/invar/invar-config.cmake"
fill tools/dist/cmake/invar-config-version.cmake.in "$prefix/lib/cmake/invar/invar-config-version.cmake"
copy tools/dist/prefix.BUILD.in "$prefix/BUILD.bazel"
fill tools/dist/prefix.MODULE.in "$prefix/MODULE.bazel"
: >"$prefix/WORKSPACE"
copy LICENSE "$prefix/LICENSE"
copy tools/dist/README.md "$prefix/README.md"
archive "invar-$version-$platform.tar.gz" "invar-$version"

# The jar: classes, and the native libraries of this platform.
native=$stage/jar/META-INF/native/$platform
copy "$prefix/lib/libinvar.so.0" "$native/libinvar.so.0" 755
copy "$jni" "$native/libinvar_jni.so" 755
strip "$native/libinvar_jni.so"
copy LICENSE "$stage/jar/META-INF/LICENSE"
copy "$classes" "$out/invar-$version.jar"
jar -J-XX:-UsePerfData --update --date=2020-01-01T00:00:00Z --file "$out/invar-$version.jar" -C "$stage/jar" .
copy bindings/java/pom.xml "$out/invar-$version.pom"

# The Go module as a folder that GOPROXY=file://... reads.
module=invar.dev/invar
proxy=$stage/invar-go-$version/$module/@v
tree=$stage/go/$module@v$version
for file in "$@"; do
  case $file in bindings/go/*) copy "$file" "$tree/${file#bindings/go/}" ;; esac
done
copy LICENSE "$tree/LICENSE"
mkdir -p "$proxy"
echo "v$version" >"$proxy/list"
echo "{\"Version\":\"v$version\",\"Time\":\"2020-01-01T00:00:00Z\"}" >"$proxy/v$version.info"
copy bindings/go/go.mod "$proxy/v$version.mod"
zip_of "$proxy/v$version.zip" "$stage/go"
archive "invar-go-$version.tar.gz" "invar-go-$version"

# The crates as one workspace.
crates=$stage/invar-rust-$version
for file in "$@"; do
  case $file in
    bindings/rust/codegen/* | bindings/rust/generate | bindings/rust/.*) ;;
    bindings/rust/*) copy "$file" "$crates/${file#bindings/rust/}" ;;
  esac
done
copy LICENSE "$crates/LICENSE"
archive "invar-rust-$version.tar.gz" "invar-rust-$version"

# CONTENTS.txt: what the binaries ask of a host, and every file.
glibc() { nm -D "$@" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1; }
needed() { readelf -d "$1" | awk '/NEEDED/ {gsub(/[][]/, ""); print $5}' | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//'; }
size() { stat -L -c %s "$1"; }
{
  echo "invar $version $platform"
  echo "glibc: $(glibc "$prefix/lib/libinvar.so.0" "$prefix/bin/invar" "$native/libinvar_jni.so")"
  echo "libinvar.so.0 needs: $(needed "$prefix/lib/libinvar.so.0")"
  echo "bin/invar needs: $(needed "$prefix/bin/invar")"
  echo "libinvar_jni.so needs: $(needed "$native/libinvar_jni.so")"
  echo "libinvar.so.0 stripped: $(size "$prefix/lib/libinvar.so.0") bytes"
  echo
  for name in "invar-$version-$platform.tar.gz" "invar-$version.jar" "invar-$version.pom" "invar-go-$version.tar.gz" \
    "invar-rust-$version.tar.gz"; do
    echo "$(sha256sum <"$out/$name" | cut -d' ' -f1)  $(size "$out/$name")  $name"
  done
  echo
  tar -tzf "$out/invar-$version-$platform.tar.gz" | grep -v '/$'
} >"$out/CONTENTS.txt"
rm -rf "$stage"
