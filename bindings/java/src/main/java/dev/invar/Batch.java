package dev.invar;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.util.Objects;

/**
 * Token ids of one micro-batch, row-major [sequences, length], in direct buffers that native code reads in place. A batch
 * may be used again after the buffers' contents have changed. Not for several threads at once.
 */
public final class Batch {
  private final long sequences;
  private final long length;
  private final IntBuffer ids;
  private final IntBuffer targets;
  private final ByteBuffer mask;

  private Batch(long sequences, long length, IntBuffer ids, IntBuffer targets, ByteBuffer mask) {
    this.sequences = sequences;
    this.length = length;
    this.ids = ids;
    this.targets = targets;
    this.mask = mask;
  }

  /**
   * A batch over the caller's memory. Each position predicts the next id of its row, the last one nothing.
   *
   * @param sequences rows
   * @param length columns
   * @param ids a direct buffer in native byte order; the ids begin at its position
   * @return the batch
   * @throws IllegalArgumentException for another buffer, or one with too few elements
   */
  public static Batch of(long sequences, long length, IntBuffer ids) {
    Objects.requireNonNull(ids, "ids");
    Buffers.requireNative("ids", ids);
    Buffers.requireRemaining("ids", ids, elements(sequences, length));
    return new Batch(sequences, length, ids.slice(), null, null);
  }

  /**
   * A batch with a copy of the rows.
   *
   * @param rows of equal length, one or more
   * @return the batch
   */
  public static Batch of(int[][] rows) {
    int length = rows.length == 0 ? 0 : rows[0].length;
    ByteBuffer memory = ByteBuffer.allocateDirect(Math.multiplyExact(Math.multiplyExact(rows.length, length), 4));
    IntBuffer ids = memory.order(ByteOrder.nativeOrder()).asIntBuffer();
    for (int[] row : rows) {
      if (row.length != length) {
        throw new IllegalArgumentException("rows: lengths " + length + " and " + row.length + " differ");
      }
      ids.put(row);
    }
    return of(rows.length, length, ids.flip());
  }

  /**
   * The same batch with what each position predicts.
   *
   * @param targets like the ids; negative: no loss there
   * @return a new batch
   */
  public Batch withTargets(IntBuffer targets) {
    Buffers.requireNative("targets", targets);
    Buffers.requireRemaining("targets", targets, elements(sequences, length));
    return new Batch(sequences, length, ids, targets.slice(), mask);
  }

  /**
   * The same batch with what counts.
   *
   * @param mask a direct buffer of a byte for each id: 1 where a position's loss counts, 0 where not
   * @return a new batch
   */
  public Batch withMask(ByteBuffer mask) {
    Buffers.requireDirect("mask", mask);
    Buffers.requireRemaining("mask", mask, elements(sequences, length));
    return new Batch(sequences, length, ids, targets, mask.slice());
  }

  /**
   * Rows.
   *
   * @return their number
   */
  public long sequences() {
    return sequences;
  }

  /**
   * Columns.
   *
   * @return the length of a row
   */
  public long length() {
    return length;
  }

  IntBuffer ids() {
    return ids;
  }

  IntBuffer targets() {
    return targets;
  }

  ByteBuffer mask() {
    return mask;
  }

  private static long elements(long sequences, long length) {
    if (sequences < 1 || length < 1 || sequences > Integer.MAX_VALUE / length) {
      throw new IllegalArgumentException(
          "batch: " + sequences + " sequences of " + length + " ids; both are 1 or more, and no buffer holds 2^31");
    }
    return sequences * length;
  }
}
