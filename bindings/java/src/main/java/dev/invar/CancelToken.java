package dev.invar;

import dev.invar.raw.Cancel;
import java.util.function.Function;

/**
 * A sticky flag that ends work with {@link Code#CANCELLED} at its next boundary: a block, a micro-batch, a token. Any
 * thread, any time.
 */
public final class CancelToken implements AutoCloseable {
  private final Handle<Cancel> handle;

  CancelToken(Cancel raw) {
    handle = new Handle<>(this, "cancel token", raw, Cancel::delete);
  }

  /** Runs the call with the token, which may be null. */
  static <T> T with(CancelToken token, Function<Cancel, T> call) {
    return token == null ? call.apply(null) : token.handle.call(call);
  }

  /** Sets the flag, for good. */
  public void cancel() {
    handle.run(Cancel::request);
  }

  /**
   * Whether the flag is set.
   *
   * @return true once {@link #cancel} was called
   */
  public boolean isCancelled() {
    return handle.call(Cancel::requested);
  }

  /** Releases the token; work that has it goes on with it. */
  @Override
  public void close() {
    handle.close();
  }
}
