package dev.invar.raw;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** What the native layer calls to read files that the host holds, from any of the runtime's threads. Not for users. */
public abstract class FileCallback {
  private static final int INTERNAL = 13;

  /** The size, or a negated status code. */
  protected abstract long size(String path);

  /** Fills the buffer, which ends with the call; returns a status code. */
  protected abstract int readAt(String path, long offset, ByteBuffer buffer);

  /** Calls {@link Names#add} for each name; returns a status code. */
  protected abstract int list(String directory, Names names);

  /** Where a listing goes. */
  public interface Names {
    /** One file name. */
    void add(String name);
  }

  private static native void add(long function, long list, byte[] name);

  // The three that invar_java.h calls, found by name and signature.
  private long invokeSize(byte[] path) {
    try {
      return size(text(path));
    } catch (Throwable problem) {
      return -INTERNAL;
    }
  }

  private int invokeReadAt(byte[] path, long offset, ByteBuffer buffer) {
    try {
      return readAt(text(path), offset, buffer);
    } catch (Throwable problem) {
      return INTERNAL;
    }
  }

  private int invokeList(byte[] directory, long function, long list) {
    try {
      return list(text(directory), name -> add(function, list, name.getBytes(StandardCharsets.UTF_8)));
    } catch (Throwable problem) {
      return INTERNAL;
    }
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
