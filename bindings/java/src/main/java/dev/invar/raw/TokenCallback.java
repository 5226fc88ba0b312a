package dev.invar.raw;

import java.nio.charset.StandardCharsets;

/** What the native layer calls for each generated token; it keeps what the listener throws. Not for users. */
public abstract class TokenCallback {
  private Throwable thrown;

  /** Returns 0 to go on. */
  protected abstract int call(int id, long index, String text);

  /** What the listener threw; null for nothing. */
  public final Throwable thrown() {
    return thrown;
  }

  // Called by invar_java.h, found by name and signature.
  private int invoke(int id, long index, byte[] text) {
    try {
      return call(id, index, new String(text, StandardCharsets.UTF_8));
    } catch (Throwable problem) {
      thrown = problem;
      return -1;
    }
  }
}
