package dev.invar;

/**
 * Hears of progress, on the thread that called the library. Work that other threads of the runtime do at the same time is
 * told with the next event of the calling thread, so a short job may end without an event.
 */
@FunctionalInterface
public interface ProgressListener {
  /**
   * One event. It may use any object that is not at work. What it throws ends the work and is thrown to the caller of
   * the work.
   *
   * @param event the event
   * @return true to go on; false ends the work with {@link Code#ABORTED}
   */
  boolean onProgress(Progress event);
}
