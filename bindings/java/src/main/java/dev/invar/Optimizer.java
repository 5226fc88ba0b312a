package dev.invar;

import java.util.List;

/**
 * An optimizer for the caller's own tensors. One thread at a time, any thread in turn. Made by
 * {@link InvarRuntime#createOptimizer}.
 */
public final class Optimizer implements AutoCloseable {
  private final Handle<dev.invar.raw.Optimizer> handle;

  Optimizer(dev.invar.raw.Optimizer raw) {
    handle = new Handle<>(this, "optimizer", raw, dev.invar.raw.Optimizer::delete);
  }

  /** What is kept for each parameter; numbers as in the C header. */
  public enum State {
    /** The FP32 master of a BF16 parameter. */
    MASTER,
    /** The mean of gradients. */
    FIRST_MOMENT,
    /** The mean of squared gradients. */
    SECOND_MOMENT
  }

  /**
   * One update.
   *
   * @param skipped gradients were not finite, nothing was updated
   * @param step updates done
   * @param gradNorm global norm of gradient * gradScale before clipping
   * @param clipFactor 1 when not clipped
   */
  public record Result(boolean skipped, long step, double gradNorm, double clipFactor) {}

  /**
   * Adds a parameter; all are added before the first step.
   *
   * @param parameter FP32, updated in place, or BF16, with an FP32 master inside; kept alive
   * @param decays the config's weight decay applies: by rule for matrices, not for gains and biases
   * @return its index: 0, 1, ...
   */
  public long add(Tensor parameter, boolean decays) {
    return handle.call(raw -> parameter.handle.call(tensor -> raw.add(tensor, decays)));
  }

  /**
   * One update of every parameter.
   *
   * @param gradients one FP32 tensor for each, in the order of their indices
   * @param lr this step's rate
   * @param gradScale multiplies every gradient first: 1 / tokens
   * @return what was done
   */
  public Result step(List<Tensor> gradients, double lr, double gradScale) {
    var tensors = new dev.invar.raw.Tensor[gradients.size()];
    int held = 0;
    try {
      for (; held < tensors.length; ++held) tensors[held] = gradients.get(held).handle.acquire();
      return handle.call(
          raw -> {
            var result = new dev.invar.raw.OptimizerResult();
            try {
              raw.step(tensors, lr, gradScale, result);
              return new Result(
                  result.getSkipped() != 0, result.getStep(), result.getGrad_norm(), result.getClip_factor());
            } finally {
              result.delete();
            }
          });
    } finally {
      for (int i = 0; i < held; ++i) gradients.get(i).handle.release();
    }
  }

  /**
   * One state of one parameter, sharing its memory: read it to save, write it to restore.
   *
   * @param index of the parameter
   * @param state which one
   * @return an FP32 tensor
   */
  public Tensor state(long index, State state) {
    return new Tensor(handle.call(raw -> raw.state(index, state.ordinal() + 1)));
  }

  /**
   * Sets the count of updates done, which the bias correction uses.
   *
   * @param step 0 or more
   */
  public void setStep(long step) {
    handle.run(raw -> raw.setStep(step));
  }

  /** Releases the optimizer, when the last call has returned. */
  @Override
  public void close() {
    handle.close();
  }
}
