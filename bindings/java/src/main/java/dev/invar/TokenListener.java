package dev.invar;

/** Hears of generated tokens, on the thread that called the library. */
@FunctionalInterface
public interface TokenListener {
  /**
   * One token. What it throws ends the generation and is thrown to its caller.
   *
   * @param token the token
   * @return true to go on; false ends the generation: the report then says {@code FINISH_REASON_CALLBACK}
   */
  boolean onToken(Token token);
}
