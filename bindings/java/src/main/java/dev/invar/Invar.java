package dev.invar;

import dev.invar.raw.Native;
import dev.invar.v1.DType;
import java.nio.charset.StandardCharsets;

/**
 * The loaded library: its version and what it can do.
 *
 * <p>The native library is loaded at the first use of this package. It is taken from the folder or file that the system
 * property {@code invar.library.path} names; without the property from the jar (unpacked to {@code java.io.tmpdir} and
 * removed at once), or from {@code java.library.path}. Nothing is downloaded. When none works, an
 * {@link InvarException} with the reason "library.missing" lists what was tried and what the system said; a library of
 * another ABI is refused with "library.abi".
 */
public final class Invar {
  private Invar() {}

  /**
   * The library's version.
   *
   * @return "0.1.0"
   */
  public static String version() {
    NativeLibrary.load();
    return Native.versionString();
  }

  /**
   * The library's version as a number.
   *
   * @return major * 1000000 + minor * 1000 + patch
   */
  public static int versionNumber() {
    NativeLibrary.load();
    return Native.versionNumber();
  }

  /**
   * The ABI number; loading fails when it is not the one these classes were made for.
   *
   * @return the number
   */
  public static int abiVersion() {
    NativeLibrary.load();
    return Native.abiVersion();
  }

  /**
   * Version, compiler and build options.
   *
   * @return a few lines for bug reports
   */
  public static String buildInfo() {
    NativeLibrary.load();
    return Native.buildInfo();
  }

  /**
   * Whether the library can do something.
   *
   * @param name "cpu", "cuda", "bf16", "fp8_e4m3", "safetensors", "generate", ...
   * @return false for unknown names too
   */
  public static boolean hasFeature(String name) {
    NativeLibrary.load();
    return Native.featureQuery(name.getBytes(StandardCharsets.UTF_8));
  }

  /**
   * The library's name of a status code.
   *
   * @param code a code
   * @return "INVALID_ARGUMENT"
   */
  public static String nameOf(Code code) {
    NativeLibrary.load();
    return Native.codeName(code.number());
  }

  /**
   * The short name of a number format.
   *
   * @param dtype a format
   * @return "bf16"
   */
  public static String nameOf(DType dtype) {
    NativeLibrary.load();
    return Native.dtypeName(dtype.getNumber());
  }

  /**
   * The size of a number format.
   *
   * @param dtype a format
   * @return bits of one element
   */
  public static int bitsOf(DType dtype) {
    NativeLibrary.load();
    return Native.dtypeBits(dtype.getNumber());
  }
}
