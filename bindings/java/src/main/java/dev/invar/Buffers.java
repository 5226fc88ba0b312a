package dev.invar;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;

/** What memory must be like before its address goes to native code. */
final class Buffers {
  private Buffers() {}

  static void requireDirect(String name, Buffer buffer) {
    if (!buffer.isDirect()) {
      throw new IllegalArgumentException(
          name + ": a buffer on the heap cannot be shared with native code: use ByteBuffer.allocateDirect");
    }
  }

  static void requireWritable(String name, ByteBuffer buffer) {
    requireDirect(name, buffer);
    if (buffer.isReadOnly()) throw new IllegalArgumentException(name + ": the buffer is read-only");
  }

  static void requireNative(String name, IntBuffer buffer) {
    requireDirect(name, buffer);
    if (buffer.order() != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException(
          name + ": the buffer is " + buffer.order() + ": use ByteBuffer.order(ByteOrder.nativeOrder()) before asIntBuffer");
    }
  }

  static void requireRemaining(String name, Buffer buffer, long elements) {
    if (buffer.remaining() < elements) {
      throw new IllegalArgumentException(
          name + ": " + buffer.remaining() + " elements remain, the batch has " + elements);
    }
  }
}
