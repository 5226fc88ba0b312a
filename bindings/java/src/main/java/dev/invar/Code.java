package dev.invar;

/** The canonical status codes; numbers equal those of the C header, gRPC and absl. */
public enum Code {
  /** No error. */
  OK,
  /** A cancel token was set. */
  CANCELLED,
  /** An error without a better code. */
  UNKNOWN,
  /** The caller passed something that can never work. */
  INVALID_ARGUMENT,
  /** Time ran out. */
  DEADLINE_EXCEEDED,
  /** A file, tensor or name does not exist. */
  NOT_FOUND,
  /** Something to be made exists. */
  ALREADY_EXISTS,
  /** The system refused access. */
  PERMISSION_DENIED,
  /** No memory or disk. */
  RESOURCE_EXHAUSTED,
  /** The object is not in the state that the call needs. */
  FAILED_PRECONDITION,
  /** A listener stopped the work. */
  ABORTED,
  /** A number or position outside its range. */
  OUT_OF_RANGE,
  /** This library cannot do it. */
  UNIMPLEMENTED,
  /** A fault of the library. */
  INTERNAL,
  /** Something outside did not answer; it may later. */
  UNAVAILABLE,
  /** Data is damaged. */
  DATA_LOSS,
  /** Credentials are missing. */
  UNAUTHENTICATED;

  private static final Code[] VALUES = values();

  /**
   * The number in the C header.
   *
   * @return 0 to 16
   */
  public int number() {
    return ordinal();
  }

  /**
   * The code of a number.
   *
   * @param number any number
   * @return the code; {@link #UNKNOWN} for numbers outside the list
   */
  public static Code of(int number) {
    return number >= 0 && number < VALUES.length ? VALUES[number] : UNKNOWN;
  }
}
