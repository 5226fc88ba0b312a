package dev.invar.examples.service;

import dev.invar.CancelToken;
import dev.invar.v1.TrainConfig;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.stream.Stream;

/** One job. Its folder holds "run" (checkpoints) and the serving folders made from it. Any thread. */
final class Job {
  /** States, in the order in which a job may pass them. */
  enum State {
    WAITING,
    RUNNING,
    DONE,
    CANCELLED,
    FAILED;

    boolean ended() {
      return compareTo(RUNNING) > 0;
    }

    String word() {
      return name().toLowerCase(java.util.Locale.ROOT);
    }
  }

  /** One event; data is JSON. */
  record Event(long id, String kind, String data) {}

  private static final int KEPT = 10000;

  final int id;
  final Path folder;
  final TrainConfig config;
  final CancelToken cancel;

  private final Deque<Event> events = new ArrayDeque<>();
  private long next;
  private State state = State.WAITING;
  private String last = "null";
  private String result = "null";

  Job(int id, Path folder, TrainConfig config, CancelToken cancel) {
    this.id = id;
    this.folder = folder;
    this.config = config;
    this.cancel = cancel;
  }

  synchronized State state() {
    return state;
  }

  synchronized void push(String kind, String data) {
    if (kind.equals("step")) last = data;
    events.add(new Event(next++, kind, data));
    if (events.size() > KEPT) events.remove();
    notifyAll();
  }

  synchronized void enter(State state, String result) {
    this.state = state;
    this.result = result;
    push("state", new Json().add("state", state.word()).raw("result", result).toString());
  }

  synchronized String describe() {
    return new Json().add("job", id).add("state", state.word()).raw("last", last).raw("result", result).toString();
  }

  /** Events from number `from` on, waiting a second for one; null when the job has ended and all was read. */
  synchronized List<Event> events(long from) throws InterruptedException {
    if (from >= next && !state.ended()) wait(1000);
    if (from >= next && state.ended()) return null;
    List<Event> fresh = new ArrayList<>();
    for (Event event : events) {
      if (event.id() >= from) fresh.add(event);
    }
    return fresh;
  }

  List<String> checkpoints() throws IOException {
    Path checkpoints = folder.resolve("run/checkpoints");
    if (!Files.isDirectory(checkpoints)) return List.of();
    try (Stream<Path> found = Files.list(checkpoints)) {
      return found.map(path -> path.getFileName().toString()).sorted().toList();
    }
  }
}
