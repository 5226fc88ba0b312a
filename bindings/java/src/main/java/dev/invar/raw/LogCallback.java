package dev.invar.raw;

import java.nio.charset.StandardCharsets;

/** What the native layer calls for each log message, from any of the runtime's threads. Not for users. */
public abstract class LogCallback {
  /** level: INVAR_LOG_*. */
  protected abstract void call(int level, String message);

  // Called by invar_java.h, found by name and signature. There is nobody to tell of a sink that throws.
  private void invoke(int level, byte[] message) {
    try {
      call(level, new String(message, StandardCharsets.UTF_8));
    } catch (Throwable ignored) {
      // The library's work goes on without the line.
    }
  }
}
