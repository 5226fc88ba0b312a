package dev.invar;

import dev.invar.raw.Memory;
import dev.invar.v1.DType;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/**
 * Row-major numbers in host memory; a quantised tensor carries its scales. Any thread; the caller orders reads and writes
 * of the elements, as for memory of its own. Made by {@link InvarRuntime#createTensor} and its neighbours.
 */
public final class Tensor implements AutoCloseable {
  final Handle<dev.invar.raw.Tensor> handle;

  Tensor(dev.invar.raw.Tensor raw) {
    handle = new Handle<>(this, "tensor", raw, dev.invar.raw.Tensor::delete);
  }

  /**
   * What a tensor is.
   *
   * @param dtype the format of its elements
   * @param shape sizes
   * @param elements their product
   * @param bytes of the elements
   * @param quantized value = code * scale of its block
   * @param blockRows rows of one scale's block; 0 when not quantised
   * @param blockCols columns of one scale's block; 0 when not quantised
   * @param scaleRows rows of the grid of scales; 0 when not quantised
   * @param scaleCols columns of the grid of scales; 0 when not quantised
   */
  public record Info(
      DType dtype, List<Long> shape, long elements, long bytes, boolean quantized, long blockRows, long blockCols,
      long scaleRows, long scaleCols) {}

  /** How many elements share a scale; numbers as in the C header. */
  public enum Granularity {
    /** All of them. */
    TENSOR,
    /** A row. */
    ROW,
    /** A block. */
    BLOCK
  }

  /**
   * What the tensor is.
   *
   * @return the description
   */
  public Info info() {
    return withInfo(
        info -> {
          List<Long> shape = new ArrayList<>();
          for (int axis = 0; axis < info.getRank(); ++axis) shape.add(info.size(axis));
          DType dtype = DType.forNumber(info.getDtype());
          return new Info(
              dtype == null ? DType.UNRECOGNIZED : dtype, List.copyOf(shape), info.getElements(), info.getBytes(),
              info.getQuantized() != 0, info.getBlock_rows(), info.getBlock_cols(), info.getScale_rows(),
              info.getScale_cols());
        });
  }

  private <T> T withInfo(Function<dev.invar.raw.TensorInfo, T> call) {
    return handle.call(
        raw -> {
          var info = new dev.invar.raw.TensorInfo();
          try {
            raw.describe(info);
            return call.apply(info);
          } finally {
            info.delete();
          }
        });
  }

  /**
   * The elements themselves, not a copy. The memory stays as long as the buffer is reachable, also after {@link #close}.
   *
   * @return a direct buffer in native byte order
   * @throws IllegalStateException for more than 2^31 - 1 bytes, which no buffer holds: see the other form
   */
  public ByteBuffer data() {
    long bytes = withInfo(dev.invar.raw.TensorInfo::getBytes);
    if (bytes > Integer.MAX_VALUE) {
      throw new IllegalStateException("tensor has " + bytes + " bytes; a buffer holds " + Integer.MAX_VALUE + ": name a part");
    }
    return data(0, (int) bytes);
  }

  /**
   * A part of the elements themselves, not a copy. The memory stays as long as the buffer is reachable.
   *
   * @param offset the first byte
   * @param size bytes
   * @return a direct buffer in native byte order
   */
  public ByteBuffer data(long offset, int size) {
    return handle.call(
        raw -> {
          long bytes = withInfo(dev.invar.raw.TensorInfo::getBytes);
          if (offset < 0 || size < 0 || offset > bytes - size) {
            throw new IndexOutOfBoundsException("bytes " + offset + " to " + (offset + size) + " of " + bytes);
          }
          ByteBuffer view = Memory.view(raw.data() + offset, size);
          handle.keepFor(view);
          return view;
        });
  }

  /**
   * Copies the elements into the buffer, from its position on, which moves behind them.
   *
   * @param destination a direct buffer
   * @throws IllegalArgumentException for a buffer that is not direct, or is read-only
   * @throws InvarException with {@link Code#OUT_OF_RANGE} when it has too little room
   */
  public void read(ByteBuffer destination) {
    Buffers.requireWritable("destination", destination);
    ByteBuffer slice = destination.slice();
    long bytes =
        handle.call(
            raw -> {
              raw.read(slice);
              return withInfo(dev.invar.raw.TensorInfo::getBytes);
            });
    destination.position(destination.position() + (int) bytes);
  }

  /**
   * The elements as Java floats: FP32 as they are, other float formats converted, quantised ones multiplied by their
   * scales.
   *
   * @return a new array, row-major
   */
  public float[] toFloats() {
    Info info = info();
    if (info.dtype() != DType.DTYPE_FP32 || info.quantized()) {
      try (Tensor wide = info.quantized() ? dequantize(DType.DTYPE_FP32) : cast(DType.DTYPE_FP32)) {
        return wide.toFloats();
      }
    }
    float[] result = new float[Math.toIntExact(info.elements())];
    data().asFloatBuffer().get(result);
    return result;
  }

  /**
   * The scales of a quantised tensor.
   *
   * @return the grid, row-major; empty when not quantised
   */
  public float[] scales() {
    return withInfo(
        info -> {
          if (info.getQuantized() == 0) return new float[0];
          float[] result = new float[Math.toIntExact(Math.multiplyExact(info.getScale_rows(), info.getScale_cols()))];
          Memory.view(info.scaleInv(), 4L * result.length).order(ByteOrder.nativeOrder()).asFloatBuffer().get(result);
          return result;
        });
  }

  /**
   * The tensor in another float format, rounded to nearest even; FP8 saturates.
   *
   * @param dtype the format
   * @return a new tensor
   */
  public Tensor cast(DType dtype) {
    return new Tensor(handle.call(raw -> raw.cast(dtype.getNumber())));
  }

  /**
   * FP32 or BF16, rank 1 or 2, to FP8 codes in blocks of 128 x 128.
   *
   * @return a new, quantised tensor
   */
  public Tensor quantize() {
    return quantize(DType.DTYPE_FP8_E4M3, Granularity.BLOCK, 128, 128, false);
  }

  /**
   * FP32 or BF16, rank 1 or 2, to FP8 codes with scale = amax / largest code of each block.
   *
   * @param dtype E4M3 or E5M2
   * @param granularity what shares a scale
   * @param blockRows rows of a block; read for BLOCK only
   * @param blockCols columns of a block; read for BLOCK only
   * @param powerOfTwo scales are powers of two
   * @return a new, quantised tensor
   */
  public Tensor quantize(DType dtype, Granularity granularity, long blockRows, long blockCols, boolean powerOfTwo) {
    return new Tensor(
        handle.call(
            raw -> raw.quantize(dtype.getNumber(), granularity.ordinal() + 1, powerOfTwo, blockRows, blockCols)));
  }

  /**
   * code * scale, rounded to nearest even.
   *
   * @param dtype FP32, BF16 or FP16
   * @return a new tensor
   */
  public Tensor dequantize(DType dtype) {
    return new Tensor(handle.call(raw -> raw.dequantize(dtype.getNumber())));
  }

  /**
   * The product [rows, inner] x [inner, cols] with FP32 accumulation; both FP32 or both BF16.
   *
   * @param other the right factor
   * @param dtype FP32 or BF16, of the result
   * @return a new tensor
   */
  public Tensor matmul(Tensor other, DType dtype) {
    return matmul(false, other, false, dtype);
  }

  /**
   * The product of factors that may be stored the other way round.
   *
   * @param transpose this one is stored as [inner, rows]
   * @param other the right factor
   * @param transposeOther it is stored as [cols, inner]
   * @param dtype FP32 or BF16, of the result
   * @return a new tensor
   */
  public Tensor matmul(boolean transpose, Tensor other, boolean transposeOther, DType dtype) {
    return new Tensor(
        handle.call(
            raw -> other.handle.call(right -> raw.matmul(transpose, right, transposeOther, dtype.getNumber()))));
  }

  /**
   * The memory for another native library in this process, as DLPack 1.x; the tensor's memory lives until the capsule's
   * deleter is called. Quantised tensors are refused.
   *
   * @return the address of a DLManagedTensorVersioned that the caller owns
   */
  public long exportDlpack() {
    return handle.call(dev.invar.raw.Tensor::toDlpack);
  }

  /** Releases the tensor, when the last call has returned and the last buffer over its memory is gone. */
  @Override
  public void close() {
    handle.close();
  }
}
