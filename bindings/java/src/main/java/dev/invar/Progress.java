package dev.invar;

import dev.invar.v1.EvalMetrics;
import dev.invar.v1.StepMetrics;

/**
 * What long work tells while it runs.
 *
 * @param kind which of the fields below matter
 * @param stage "convert", "verify", "calibrate", "train", "eval", "save", ...
 * @param detail a tensor's name, a path or a sentence; may be ""
 * @param unit of done and total: "bytes", "tensors", "tokens", "steps"
 * @param done what is done
 * @param total of how much; 0 when not known
 * @param seconds since the work began
 * @param step an optimizer step, else null
 * @param eval an evaluation, else null
 */
public record Progress(
    Kind kind, String stage, String detail, String unit, long done, long total, double seconds, StepMetrics step, EvalMetrics eval) {
  /** Kinds of events; numbers as in the C header. */
  public enum Kind {
    /** A kind that these classes do not know. */
    OTHER,
    /** done and total moved. */
    WORK,
    /** step is set. */
    STEP,
    /** eval is set. */
    EVAL,
    /** detail says something worth a line. */
    NOTE;

    private static final Kind[] VALUES = values();

    static Kind of(int number) {
      return number > 0 && number < VALUES.length ? VALUES[number] : OTHER;
    }
  }
}
