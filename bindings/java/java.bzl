"""Jars by the system's javac: Debian's protobuf-java and JUnit 5 in /usr/share/java, without network."""

PROTOBUF = "/usr/share/java/protobuf.jar"

def javac_jar(name, srcs, srcjars = [], deps = [], classpath = [PROTOBUF], visibility = None):
    """NAME.jar: compiled classes, every warning of our own sources an error.

    Args:
      name: the jar's name without suffix.
      srcs: Java sources of our own.
      srcjars: jars of generated sources.
      deps: jars built here.
      classpath: jars of the system.
      visibility: of the jar.
    """
    native.genrule(
        name = name + "_jar",
        srcs = srcs + srcjars + deps,
        outs = [name + ".jar"],
        cmd = """
set -e
out=$(@D)/{name}.classes && rm -rf $$out && mkdir -p $$out/src $$out/generated $$out/classes
for jar in {srcjars}; do unzip -q -o $$jar -d $$out/src; done
path={classpath}; for jar in {deps}; do path=$$path:$$jar; done
generated=$$(find $$out/src -name '*.java' | sort)
[ -z "$$generated" ] || javac -J-XX:-UsePerfData -J-XX:TieredStopAtLevel=1 --release 17 -nowarn -proc:none -encoding UTF-8 \\
  -cp $$path -d $$out/classes -implicit:none -sourcepath $$out/src:{sourcepath} $$generated
javac -J-XX:-UsePerfData -J-XX:TieredStopAtLevel=1 --release 17 -Xlint:all,-serial -Werror -proc:none -encoding UTF-8 -cp $$path:$$out/classes \\
  -d $$out/classes {srcs}
printf 'Automatic-Module-Name: dev.invar\\n' >$$out/manifest
jar -J-XX:-UsePerfData --create --date=2020-01-01T00:00:00Z --file $@ --manifest $$out/manifest -C $$out/classes . && rm -rf $$out
""".format(
            name = name,
            srcs = " ".join(["$(locations %s)" % src for src in srcs]),
            srcjars = " ".join(["$(location %s)" % jar for jar in srcjars]),
            deps = " ".join(["$(location %s)" % dep for dep in deps]),
            classpath = ":".join(classpath),
            sourcepath = native.package_name() + "/src/main/java",
        ),
        visibility = visibility,
    )
