package dev.invar;

import dev.invar.v1.DType;
import java.nio.ByteBuffer;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.List;

/**
 * A checkpoint opened for reading: what a conversion would write, decoded tensor by tensor into the caller's own memory.
 * Headers are read at once, elements when they are asked for. Any thread, several at once. Made by
 * {@link InvarRuntime#openCheckpoint}.
 *
 * <pre>{@code
 * try (Checkpoint checkpoint = runtime.openCheckpoint(OpenConfig.newBuilder().setPath("model-fp8").build())) {
 *   Checkpoint.Entry entry = checkpoint.find("model.norm.weight");
 *   ByteBuffer values = ByteBuffer.allocateDirect((int) (4 * entry.elements())).order(ByteOrder.nativeOrder());
 *   checkpoint.read(entry, DType.DTYPE_FP32, values);
 * }
 * }</pre>
 */
public final class Checkpoint implements AutoCloseable {
  private final Handle<dev.invar.raw.Checkpoint> handle;

  Checkpoint(dev.invar.raw.Checkpoint raw) {
    handle = new Handle<>(this, "checkpoint", raw, dev.invar.raw.Checkpoint::delete);
  }

  /**
   * One tensor as a loader sees it.
   *
   * @param index its place, 0 for the first by name
   * @param name as stored
   * @param dtype as stored
   * @param shape of the values
   * @param elements their number
   * @param rows the first dimension; 1 for a scalar
   * @param quantized codes with scales, read as FP32, BF16 or FP16
   * @param rule how it is decoded: "copy", "tensor_scale", "row_scale", "block_scale", "unscaled", ...
   * @param layout the producer's layout; "" for copies
   * @param file name of the file that holds it
   */
  public record Entry(
      long index, String name, DType dtype, List<Long> shape, long elements, long rows, boolean quantized, String rule,
      String layout, String file) {}

  /**
   * The tensors with values, sorted by name; scales are used up by their weights and not among them.
   *
   * @return a list that describes a tensor when it is asked for; valid until {@link #close}
   */
  public List<Entry> entries() {
    int count = Math.toIntExact(handle.call(dev.invar.raw.Checkpoint::count));
    return new AbstractList<>() {
      @Override
      public Entry get(int index) {
        return describe(index);
      }

      @Override
      public int size() {
        return count;
      }
    };
  }

  /**
   * A tensor by its name.
   *
   * @param name as stored
   * @return the tensor
   * @throws InvarException with {@link Code#NOT_FOUND} ("checkpoint.no_tensor")
   */
  public Entry find(String name) {
    byte[] bytes = Messages.utf8(name);
    return describe(handle.call(raw -> raw.find(bytes)));
  }

  private Entry describe(long index) {
    return handle.call(
        raw -> {
          var tensor = new dev.invar.raw.CheckpointTensor();
          try {
            raw.describe(index, tensor);
            List<Long> shape = new ArrayList<>();
            for (int axis = 0; axis < tensor.getRank(); ++axis) shape.add(tensor.size(axis));
            DType dtype = DType.forNumber(tensor.getDtype());
            return new Entry(
                index, tensor.getName(), dtype == null ? DType.UNRECOGNIZED : dtype, List.copyOf(shape),
                tensor.getElements(), tensor.getRows(), tensor.getQuantized() != 0, tensor.getRule(), tensor.getLayout(),
                tensor.getFile());
          } finally {
            tensor.delete();
          }
        });
  }

  /**
   * Decodes a whole tensor into the buffer, from its position on, which moves behind the values.
   *
   * @param entry which tensor
   * @param dtype FP32, BF16 or FP16; or the stored format, for what is not quantised
   * @param destination a direct buffer
   */
  public void read(Entry entry, DType dtype, ByteBuffer destination) {
    readRows(entry, 0, entry.rows(), dtype, destination, null);
  }

  /**
   * Decodes rows into the buffer, from its position on, row-major without gaps; the position moves behind the values.
   *
   * @param entry which tensor
   * @param firstRow 0 for the first
   * @param rows how many
   * @param dtype FP32, BF16 or FP16; or the stored format, for what is not quantised
   * @param destination a direct buffer; partly written when this fails
   * @param cancel ends it
   * @throws IllegalArgumentException for a buffer that is not direct, or is read-only
   * @throws InvarException with {@link Code#OUT_OF_RANGE} for rows the tensor does not have ("checkpoint.row_range"), or
   *     too little room ("checkpoint.read_size")
   */
  public void readRows(
      Entry entry, long firstRow, long rows, DType dtype, ByteBuffer destination, CancelToken cancel) {
    Buffers.requireWritable("destination", destination);
    ByteBuffer slice = destination.slice();
    handle.run(
        raw ->
            CancelToken.with(
                cancel,
                token -> {
                  raw.readRows(entry.index(), firstRow, rows, dtype.getNumber(), token, slice);
                  return null;
                }));
    long elements = entry.rows() == 0 ? 0 : entry.elements() / entry.rows() * rows;
    destination.position(destination.position() + Math.toIntExact((elements * Invar.bitsOf(dtype) + 7) / 8));
  }

  /** Releases the checkpoint, when the last call has returned. */
  @Override
  public void close() {
    handle.close();
  }
}
