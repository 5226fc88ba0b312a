package dev.invar.examples.service;

import dev.invar.InvarException;

/** A request that is answered with an error: status, stable reason, message. */
final class Refusal extends RuntimeException {
  private static final long serialVersionUID = 1;

  final int status;
  final String reason;

  Refusal(int status, String reason, String message) {
    super(message);
    this.status = status;
    this.reason = reason;
  }

  static Refusal notFound(String what) {
    return new Refusal(404, "http.not_found", what + " does not exist");
  }

  /** What the library refused, by its code. */
  static Refusal of(InvarException failure) {
    int status =
        switch (failure.code()) {
          case INVALID_ARGUMENT, OUT_OF_RANGE, DATA_LOSS -> 400;
          case NOT_FOUND -> 404;
          case ALREADY_EXISTS, FAILED_PRECONDITION -> 409;
          case RESOURCE_EXHAUSTED -> 507;
          default -> 500;
        };
    return new Refusal(status, failure.reason(), failure.getMessage());
  }
}
