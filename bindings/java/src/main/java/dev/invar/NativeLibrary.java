package dev.invar;

import dev.invar.raw.Native;
import dev.invar.raw.NativeConstants;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Loads libinvar_jni.so, which needs libinvar.so.0 beside it, once for the process. Three places, in this order; the
 * property is the only one when it is set. See {@link Invar} for what users are told.
 */
final class NativeLibrary {
  static final String PROPERTY = "invar.library.path";
  static final String JNI = "libinvar_jni.so";
  static final String CORE = "libinvar.so.0";

  private static boolean loaded;

  private NativeLibrary() {}

  /** Does nothing after the first success; a failure is tried anew. */
  static synchronized void load() {
    if (loaded) return;
    List<String> tried = new ArrayList<>();
    if (!loadAny(tried)) {
      throw new InvarException(
          Code.UNAVAILABLE,
          "library.missing",
          "the native library could not be loaded; tried:\n  "
              + String.join("\n  ", tried)
              + "\nset -D" + PROPERTY + "=FOLDER to the folder of " + JNI + " and " + CORE,
          null);
    }
    checkAbi();
    loaded = true;
  }

  private static boolean loadAny(List<String> tried) {
    String named = System.getProperty(PROPERTY);
    if (named != null) {
      Path path = Path.of(named).toAbsolutePath();
      return loadFile(Files.isDirectory(path) ? path.resolve(JNI) : path, PROPERTY + "=" + named + ": ", tried);
    }
    return loadResource(tried) || loadByName(tried);
  }

  private static boolean loadFile(Path file, String label, List<String> tried) {
    try {
      System.load(file.toString());
      return true;
    } catch (UnsatisfiedLinkError | SecurityException problem) {
      tried.add(label + (Files.exists(file) ? problem.getMessage() : file + " does not exist"));
      return false;
    }
  }

  private static boolean loadByName(List<String> tried) {
    try {
      System.loadLibrary("invar_jni");
      return true;
    } catch (UnsatisfiedLinkError | SecurityException problem) {
      tried.add("java.library.path: " + problem.getMessage());
      return false;
    }
  }

  /** Unpacks both libraries into a new folder, loads them, and removes the files: the mappings stay. */
  private static boolean loadResource(List<String> tried) {
    String folder = "/META-INF/native/" + platform() + "/";
    if (NativeLibrary.class.getResource(folder + JNI) == null) {
      tried.add("jar:" + folder + JNI + ": not in the jar");
      return false;
    }
    Path directory = null;
    try {
      directory = Files.createTempDirectory("invar-");
      for (String name : new String[] {CORE, JNI}) {
        try (InputStream in = NativeLibrary.class.getResourceAsStream(folder + name)) {
          if (in == null) throw new IOException("not in the jar");
          Files.copy(in, directory.resolve(name));
        } catch (IOException problem) {
          tried.add("jar:" + folder + name + ": " + problem + " (unpacking to " + directory + ")");
          return false;
        }
      }
      return loadFile(directory.resolve(JNI), "jar:" + folder + JNI + ": ", tried);
    } catch (IOException problem) {
      tried.add("jar:" + folder + ": no folder for unpacking: " + problem);
      return false;
    } finally {
      remove(directory);
    }
  }

  private static void remove(Path directory) {
    if (directory == null) return;
    for (Path file : new Path[] {directory.resolve(CORE), directory.resolve(JNI), directory}) {
      try {
        Files.deleteIfExists(file);
      } catch (IOException ignored) {
        // A file that stays in the temporary folder harms nobody.
      }
    }
  }

  /** "linux-x86_64": the folder of a platform inside the jar. */
  static String platform() {
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String arch = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
    if (arch.equals("amd64") || arch.equals("x64")) arch = "x86_64";
    if (arch.equals("arm64")) arch = "aarch64";
    return os.split(" ")[0] + "-" + arch;
  }

  private static void checkAbi() {
    int abi = Native.abiVersion();
    if (abi != NativeConstants.INVAR_ABI_VERSION) {
      throw new InvarException(
          Code.FAILED_PRECONDITION,
          "library.abi",
          "the native library " + Native.versionString() + " has ABI " + abi + "; these classes were made for ABI "
              + NativeConstants.INVAR_ABI_VERSION + ": use the jar of the same release",
          null);
    }
  }
}
