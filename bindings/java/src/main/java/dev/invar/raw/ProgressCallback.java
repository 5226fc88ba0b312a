package dev.invar.raw;

import java.nio.charset.StandardCharsets;

/** What the native layer calls for each progress event; it keeps what the listener throws. Not for users. */
public abstract class ProgressCallback {
  private Throwable thrown;

  /** An evaluation's numbers. */
  public record Eval(long step, double loss, double perplexity, long tokens, double seconds) {}

  /** Returns 0 to go on. step and eval are null where the event has none; step ends with the call. */
  protected abstract int call(
      int kind, String stage, String detail, String unit, long done, long total, double seconds, StepMetrics step, Eval eval);

  /** What the listener threw; null for nothing. */
  public final Throwable thrown() {
    return thrown;
  }

  // Called by invar_java.h, found by name and signature.
  private int invoke(
      int kind, byte[] stage, byte[] detail, byte[] unit, long done, long total, double seconds, long step, boolean hasEval,
      long evalStep, double evalLoss, double evalPerplexity, long evalTokens, double evalSeconds) {
    try {
      return call(
          kind, text(stage), text(detail), text(unit), done, total, seconds, step == 0 ? null : new StepMetrics(step, false),
          hasEval ? new Eval(evalStep, evalLoss, evalPerplexity, evalTokens, evalSeconds) : null);
    } catch (Throwable problem) {
      thrown = problem;
      return -1;
    }
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
