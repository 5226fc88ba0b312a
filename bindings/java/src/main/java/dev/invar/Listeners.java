package dev.invar;

import dev.invar.raw.ProgressCallback;
import dev.invar.raw.StepMetrics;
import dev.invar.raw.TokenCallback;
import dev.invar.v1.EvalMetrics;
import dev.invar.v1.Recipe;
import java.util.function.Function;

/** From the users' listeners to what the native layer calls, and their exceptions back to the caller. */
final class Listeners {
  private Listeners() {}

  /** Runs the call with the listener, which may be null; throws what the listener threw. */
  static <T> T withProgress(ProgressListener listener, Function<ProgressCallback, T> call) {
    if (listener == null) return call.apply(null);
    ProgressCallback callback =
        new ProgressCallback() {
          @Override
          protected int call(
              int kind, String stage, String detail, String unit, long done, long total, double seconds, StepMetrics step,
              Eval eval) {
            Progress event =
                new Progress(
                    Progress.Kind.of(kind), stage, detail, unit, done, total, seconds, step == null ? null : message(step),
                    eval == null ? null : message(eval));
            return listener.onProgress(event) ? 0 : 1;
          }
        };
    return rethrowing(callback::thrown, () -> call.apply(callback));
  }

  /** Runs the call with the listener, which may be null; throws what the listener threw. */
  static <T> T withTokens(TokenListener listener, Function<TokenCallback, T> call) {
    if (listener == null) return call.apply(null);
    TokenCallback callback =
        new TokenCallback() {
          @Override
          protected int call(int id, long index, String text) {
            return listener.onToken(new Token(id, index, text)) ? 0 : 1;
          }
        };
    return rethrowing(callback::thrown, () -> call.apply(callback));
  }

  /** The struct of the C header as the message with the same fields. */
  static dev.invar.v1.StepMetrics message(StepMetrics step) {
    var message =
        dev.invar.v1.StepMetrics.newBuilder()
            .setStep(step.getStep())
            .setLoss(step.getLoss())
            .setLr(step.getLr())
            .setGradNorm(step.getGrad_norm())
            .setTokens(step.getTokens())
            .setTotalTokens(step.getTotal_tokens())
            .setSeconds(step.getSeconds())
            .setTokensPerSecond(step.getTokens_per_second())
            .setTotalSkipped(step.getTotal_skipped())
            .setSkipped(step.getSkipped() != 0);
    Recipe recipe = Recipe.forNumber(step.getRecipe());
    if (recipe != null) message.setRecipe(recipe);
    switch (step.getLadder_event()) {
      case dev.invar.raw.NativeConstants.INVAR_LADDER_RAISED -> message.setLadderEvent("raised");
      case dev.invar.raw.NativeConstants.INVAR_LADDER_FELL_BACK -> message.setLadderEvent("fell_back");
      case dev.invar.raw.NativeConstants.INVAR_LADDER_FINAL -> message.setLadderEvent("final");
      default -> {}
    }
    return message.build();
  }

  private static EvalMetrics message(ProgressCallback.Eval eval) {
    return EvalMetrics.newBuilder()
        .setStep(eval.step())
        .setLoss(eval.loss())
        .setPerplexity(eval.perplexity())
        .setTokens(eval.tokens())
        .setSeconds(eval.seconds())
        .build();
  }

  private interface Work<T> {
    T run();
  }

  private interface Thrown {
    Throwable get();
  }

  private static <T> T rethrowing(Thrown thrown, Work<T> work) {
    T result;
    try {
      result = work.run();
    } catch (InvarException stopped) {
      if (thrown.get() != null) throw Listeners.<RuntimeException>unchecked(thrown.get());
      throw stopped;
    }
    if (thrown.get() != null) throw Listeners.<RuntimeException>unchecked(thrown.get());
    return result;
  }

  /** The same exception: a listener cannot declare checked ones, but other languages of the JVM throw them. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable problem) throws E {
    throw (E) problem;
  }
}
