package dev.invar;

import java.nio.charset.StandardCharsets;

/**
 * A call of the library failed. {@link #getMessage} is for people: lower-case, it names thing, value and expectation.
 * {@link #code} and {@link #reason} are for programs.
 */
public final class InvarException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The canonical code. */
  private final Code code;

  /** A stable dotted word. */
  private final String reason;

  /** What a listener returned. */
  private final int callbackValue;

  InvarException(Code code, String reason, String message, Throwable cause) {
    super(message, cause);
    this.code = code;
    this.reason = reason;
    this.callbackValue = 0;
  }

  // The constructor that invar_java.h calls.
  private InvarException(int code, byte[] reason, byte[] message, int callbackValue) {
    super(new String(message, StandardCharsets.UTF_8));
    this.code = Code.of(code);
    this.reason = new String(reason, StandardCharsets.UTF_8);
    this.callbackValue = callbackValue;
  }

  /**
   * The canonical code.
   *
   * @return never {@link Code#OK}
   */
  public Code code() {
    return code;
  }

  /**
   * A stable dotted word: "config.unknown_field", "safetensors.truncated".
   *
   * @return the reason; "" when there is none
   */
  public String reason() {
    return reason;
  }

  /**
   * What a listener made of the work.
   *
   * @return the number with which a listener stopped the work; 0 when none did
   */
  public int callbackValue() {
    return callbackValue;
  }
}
