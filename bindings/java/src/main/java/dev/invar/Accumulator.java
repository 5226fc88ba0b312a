package dev.invar;

/**
 * FP32 sums of gradients over the micro-batches of a window, and its tokens. One thread at a time, any thread in turn.
 * Made by {@link InvarRuntime#createAccumulator}.
 */
public final class Accumulator implements AutoCloseable {
  private final Handle<dev.invar.raw.Accumulator> handle;

  Accumulator(dev.invar.raw.Accumulator raw) {
    handle = new Handle<>(this, "accumulator", raw, dev.invar.raw.Accumulator::delete);
  }

  /**
   * What was gathered.
   *
   * @param finite every sum is
   * @param tokens counted
   * @param norm global norm of the sums
   */
  public record Summary(boolean finite, long tokens, double norm) {}

  /**
   * Adds to a sum.
   *
   * @param index of the sum
   * @param gradient FP32 or BF16, of a sum of token losses
   */
  public void add(long index, Tensor gradient) {
    handle.run(raw -> gradient.handle.run(tensor -> raw.add(index, tensor)));
  }

  /**
   * Counts the tokens of one micro-batch.
   *
   * @param tokens 0 or more
   */
  public void addTokens(long tokens) {
    handle.run(raw -> raw.addTokens(tokens));
  }

  /**
   * What was gathered.
   *
   * @return norm, tokens and finiteness
   */
  public Summary summary() {
    return handle.call(
        raw -> {
          var info = new dev.invar.raw.AccumulatorInfo();
          try {
            raw.summary(info);
            return new Summary(info.getFinite() != 0, info.getTokens(), info.getNorm());
          } finally {
            info.delete();
          }
        });
  }

  /**
   * One sum, sharing its memory; zeros before anything was added.
   *
   * @param index of the sum
   * @return an FP32 tensor of rank 1
   */
  public Tensor gradient(long index) {
    return new Tensor(handle.call(raw -> raw.gradient(index)));
  }

  /** Sums and tokens back to zero. */
  public void reset() {
    handle.run(dev.invar.raw.Accumulator::reset);
  }

  /** Releases the accumulator, when the last call has returned. */
  @Override
  public void close() {
    handle.close();
  }
}
