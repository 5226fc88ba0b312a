package dev.invar.raw;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Native memory as buffers. Not for users. */
public final class Memory {
  private Memory() {}

  /** A view of memory that somebody else keeps alive, in native byte order. */
  public static ByteBuffer view(long address, long size) {
    ByteBuffer view = size == 0 ? ByteBuffer.allocateDirect(0) : buffer(address, size);
    return view.order(ByteOrder.nativeOrder());
  }

  private static native ByteBuffer buffer(long address, long size);
}
