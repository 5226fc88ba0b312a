package dev.invar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.invar.v1.DType;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Tensors over the library's and the host's memory. */
class TensorTest extends Fixture {
  @Test
  void describesItself() {
    try (Tensor tensor = runtime.createTensor(DType.DTYPE_BF16, 3, 5)) {
      var info = tensor.info();
      assertEquals(DType.DTYPE_BF16, info.dtype());
      assertEquals(List.of(3L, 5L), info.shape());
      assertEquals(15, info.elements());
      assertEquals(30, info.bytes());
      assertEquals(0, tensor.scales().length);
    }
    try (Tensor scalar = runtime.createTensor(DType.DTYPE_FP32);
        Tensor empty = runtime.createTensor(DType.DTYPE_FP32, 4, 0)) {
      assertEquals(1, scalar.info().elements());
      assertEquals(0, empty.data().remaining());
      assertEquals(0, empty.toFloats().length);
    }
  }

  @Test
  void sharesTheHostsMemory() {
    ByteBuffer memory = floats(1, 2, 3, 4);
    memory.position(4);
    try (Tensor tensor = runtime.viewTensor(DType.DTYPE_FP32, memory, 3)) {
      assertArrayEquals(new float[] {2, 3, 4}, tensor.toFloats());
      memory.putFloat(4, 7);
      assertArrayEquals(new float[] {7, 3, 4}, tensor.toFloats());
      tensor.data().putFloat(8, 9);
      assertEquals(9, memory.getFloat(12));
    }
  }

  @Test
  void keepsTheHostsMemoryAndLetsItGo() throws InterruptedException {
    ByteBuffer memory = floats(1, 2);
    var watched = new WeakReference<>(memory);
    Tensor tensor = runtime.viewTensor(DType.DTYPE_FP32, memory, 2);
    memory = null;
    System.gc();
    assertArrayEquals(new float[] {1, 2}, tensor.toFloats());
    tensor.close();
    for (int i = 0; i < 100 && watched.get() != null; ++i) {
      System.gc();
      Thread.sleep(10);
    }
    assertNull(watched.get());
  }

  @Test
  void dataOutlivesTheTensor() {
    Tensor tensor = runtime.createTensor(DType.DTYPE_FP32, 1000);
    FloatBuffer data = tensor.data().asFloatBuffer();
    tensor.close();
    System.gc();
    for (int i = 0; i < 1000; ++i) data.put(i, i);
    assertEquals(999, data.get(999));
    assertThrows(IllegalStateException.class, tensor::info);
  }

  @Test
  void aPartOfTheData() {
    try (Tensor tensor = runtime.viewTensor(DType.DTYPE_FP32, floats(1, 2, 3), 3)) {
      assertEquals(2, tensor.data(4, 4).getFloat());
      assertThrows(IndexOutOfBoundsException.class, () -> tensor.data(4, 9));
      assertThrows(IndexOutOfBoundsException.class, () -> tensor.data(-1, 4));
    }
  }

  @Test
  void wrongBuffersAreRefusedInWords() {
    var heap =
        assertThrows(
            IllegalArgumentException.class, () -> runtime.viewTensor(DType.DTYPE_FP32, ByteBuffer.allocate(8), 2));
    assertTrue(heap.getMessage().contains("allocateDirect"), heap.getMessage());
    assertThrows(
        IllegalArgumentException.class,
        () -> runtime.viewTensor(DType.DTYPE_FP32, direct(8).asReadOnlyBuffer(), 2));
    try (Tensor tensor = runtime.createTensor(DType.DTYPE_FP32, 2)) {
      assertThrows(IllegalArgumentException.class, () -> tensor.read(ByteBuffer.allocate(8)));
      assertEquals(Code.OUT_OF_RANGE, failure(() -> tensor.read(direct(4))).code());
    }
    assertEquals(
        Code.INVALID_ARGUMENT, failure(() -> runtime.viewTensor(DType.DTYPE_FP32, direct(4), 2)).code());
    assertEquals(Code.INVALID_ARGUMENT, failure(() -> runtime.createTensor(DType.DTYPE_FP32, -1)).code());
  }

  @Test
  void readsIntoTheHostsMemory() {
    ByteBuffer destination = direct(12);
    destination.position(4);
    try (Tensor tensor = runtime.viewTensor(DType.DTYPE_FP32, floats(5, 6), 2)) {
      tensor.read(destination);
    }
    assertEquals(12, destination.position());
    assertEquals(6, destination.getFloat(8));
  }

  @Test
  void castsQuantisesAndMultiplies() {
    try (Tensor wide = runtime.viewTensor(DType.DTYPE_FP32, floats(1, 2, 3, 4), 2, 2);
        Tensor half = wide.cast(DType.DTYPE_BF16);
        Tensor codes = half.quantize(DType.DTYPE_FP8_E4M3, Tensor.Granularity.ROW, 0, 0, false);
        Tensor product = wide.matmul(wide, DType.DTYPE_FP32);
        Tensor turned = wide.matmul(true, wide, false, DType.DTYPE_FP32)) {
      assertArrayEquals(new float[] {1, 2, 3, 4}, half.toFloats());
      assertTrue(codes.info().quantized());
      assertEquals(2, codes.info().scaleRows());
      assertArrayEquals(new float[] {2f / 448, 4f / 448}, codes.scales(), 1e-9f);
      assertArrayEquals(new float[] {1, 2, 3, 4}, codes.toFloats(), 0.2f);
      assertArrayEquals(new float[] {7, 10, 15, 22}, product.toFloats());
      assertArrayEquals(new float[] {10, 14, 14, 20}, turned.toFloats());
      assertEquals(Code.INVALID_ARGUMENT, failure(() -> wide.matmul(half, DType.DTYPE_FP32)).code());
    }
    try (Tensor wide = runtime.createTensor(DType.DTYPE_FP32, 130, 130);
        Tensor codes = wide.quantize()) {
      assertEquals(4, codes.scales().length);
    }
  }

  @Test
  void goesThroughDlpackWithoutACopy() {
    ByteBuffer memory = floats(1, 2, 3);
    Tensor first = runtime.viewTensor(DType.DTYPE_FP32, memory, 3);
    long managed = first.exportDlpack();
    first.close();
    try (Tensor second = runtime.importDlpack(managed)) {
      memory.putFloat(0, 8);
      assertArrayEquals(new float[] {8, 2, 3}, second.toFloats());
    }
    assertEquals(Code.INVALID_ARGUMENT, failure(() -> runtime.importDlpack(0)).code());
  }
}
