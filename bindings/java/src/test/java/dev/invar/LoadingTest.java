package dev.invar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** How the native library is found, each time in a Java of its own. */
class LoadingTest {
  @TempDir Path folder;

  /** What the child runs: version and ABI, or why not. */
  public static final class Child {
    private Child() {}

    /** Prints "ok VERSION", or code, reason and message. */
    public static void main(String[] arguments) {
      try {
        System.out.println("ok " + Invar.version());
      } catch (InvarException failure) {
        System.out.println(failure.code() + " " + failure.reason() + " " + failure.getMessage());
      }
    }
  }

  /** Everything that the child prints. */
  private String child(String classes, String... options) throws IOException, InterruptedException {
    String classpath =
        Stream.of(System.getProperty("java.class.path").split(":"))
            .map(part -> part.endsWith("/classes.jar") ? classes : part)
            .reduce((a, b) -> a + ":" + b)
            .orElseThrow();
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin/java").toString());
    command.addAll(List.of("-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-Xcheck:jni", "-Djava.io.tmpdir=" + folder));
    command.addAll(List.of(options));
    command.addAll(List.of("-cp", classpath, Child.class.getName()));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes());
    assertTrue(process.waitFor(60, TimeUnit.SECONDS));
    return output;
  }

  private static String classesJar() {
    return Stream.of(System.getProperty("java.class.path").split(":"))
        .filter(part -> part.endsWith("/classes.jar"))
        .findFirst()
        .orElseThrow();
  }

  private static Path nativeFolder() {
    return Path.of(System.getProperty("invar.library.path"));
  }

  @Test
  void fromTheJarWithoutALeftover() throws Exception {
    String output = child(System.getProperty("invar.jar"));
    assertEquals("ok " + Invar.version(), output.strip());
    try (Stream<Path> left = Files.list(folder)) {
      assertEquals(List.of(), left.toList());
    }
  }

  @Test
  void fromAFolderOrAFileThatTheHostNames() throws Exception {
    assertEquals("ok " + Invar.version(), child(classesJar(), "-Dinvar.library.path=" + nativeFolder()).strip());
    assertEquals(
        "ok " + Invar.version(),
        child(classesJar(), "-Dinvar.library.path=" + nativeFolder().resolve("libinvar_jni.so")).strip());
    assertEquals("ok " + Invar.version(), child(classesJar(), "-Djava.library.path=" + nativeFolder()).strip());
  }

  @Test
  void aMissingLibraryListsWhatWasTriedAndWhy() throws Exception {
    String output = child(classesJar(), "-Djava.library.path=" + folder);
    assertTrue(output.startsWith("UNAVAILABLE library.missing "), output);
    assertTrue(output.contains("jar:/META-INF/native/" + NativeLibrary.platform() + "/libinvar_jni.so: not in the jar"), output);
    assertTrue(output.contains("java.library.path: no invar_jni in java.library.path: " + folder), output);
    assertTrue(output.contains("-Dinvar.library.path="), output);

    // The property is the only place when it is set.
    output = child(System.getProperty("invar.jar"), "-Dinvar.library.path=/absent");
    assertTrue(output.contains("invar.library.path=/absent: /absent does not exist"), output);
    assertTrue(!output.contains("jar:"), output);

    // The loader's reason: the library beside is missing.
    Files.copy(nativeFolder().resolve("libinvar_jni.so"), folder.resolve("libinvar_jni.so"));
    output = child(classesJar(), "-Dinvar.library.path=" + folder);
    assertTrue(output.contains("libinvar.so.0: cannot open shared object file"), output);
  }

  @Test
  void aLibraryOfAnotherAbiIsToldByBothNumbers() throws Exception {
    Files.copy(nativeFolder().resolve("libinvar_jni.so"), folder.resolve("libinvar_jni.so"));
    Files.copy(
        Path.of(System.getProperty("invar.other")), folder.resolve("libinvar.so.0"), StandardCopyOption.REPLACE_EXISTING);
    String output = child(classesJar(), "-Dinvar.library.path=" + folder);
    assertTrue(output.startsWith("FAILED_PRECONDITION library.abi "), output);
    assertTrue(output.contains("the native library 7.8.9 has ABI 7; these classes were made for ABI 0"), output);
  }
}
