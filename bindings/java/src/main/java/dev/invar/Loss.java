package dev.invar;

/**
 * The loss of one micro-batch.
 *
 * @param sum of token losses, in nats
 * @param tokens that carried loss
 */
public record Loss(double sum, long tokens) {
  /**
   * The mean token loss.
   *
   * @return sum / tokens; NaN without tokens
   */
  public double mean() {
    return sum / tokens;
  }
}
