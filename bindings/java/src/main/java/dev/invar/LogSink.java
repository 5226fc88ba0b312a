package dev.invar;

/** Where the library's log messages go. Called from any of the runtime's threads, several at once. */
@FunctionalInterface
public interface LogSink {
  /**
   * One message. It must not call the library. What it throws is dropped.
   *
   * @param level DEBUG, INFO, WARNING or ERROR
   * @param message a line
   */
  void log(System.Logger.Level level, String message);
}
