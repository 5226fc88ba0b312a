package dev.invar;

import java.lang.ref.Cleaner;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * One native object and how it ends: {@link #close}, or the cleaner once its owner is unreachable.
 *
 * <p>Calls are counted. Closing marks the object, so that later calls are refused; the memory goes when the last call
 * that is under way has returned. So close is safe at any time from any thread, and never waits.
 */
final class Handle<R> {
  private static final Cleaner CLEANER = Cleaner.create();

  private final String name;
  private final State<R> state;
  private final Cleaner.Cleanable cleanable;

  /** name: for messages, "session". */
  Handle(Object owner, String name, R raw, Consumer<R> delete) {
    this.name = name;
    state = new State<>(raw, delete);
    cleanable = CLEANER.register(owner, state);
  }

  /** Runs the call while the object is kept. */
  <T> T call(Function<R, T> call) {
    R raw = acquire();
    try {
      return call.apply(raw);
    } finally {
      release();
    }
  }

  void run(Consumer<R> call) {
    call(
        raw -> {
          call.accept(raw);
          return null;
        });
  }

  /** Counts a call in. Throws IllegalStateException after close. */
  R acquire() {
    return state.acquire(name);
  }

  void release() {
    state.release();
  }

  /** Keeps the native object until guest is unreachable: for memory that guest shows. Call it between acquire and release. */
  void keepFor(Object guest) {
    state.acquire(name);
    CLEANER.register(guest, state::release);
  }

  void close() {
    cleanable.clean();
  }

  /** What the cleaner holds: nothing in it leads back to the owner. */
  private static final class State<R> implements Runnable {
    private final R raw;
    private final Consumer<R> delete;
    private int users;
    private boolean closed;

    State(R raw, Consumer<R> delete) {
      this.raw = raw;
      this.delete = delete;
    }

    synchronized R acquire(String name) {
      if (closed) throw new IllegalStateException(name + " is closed");
      ++users;
      return raw;
    }

    void release() {
      boolean last;
      synchronized (this) {
        last = --users == 0 && closed;
      }
      if (last) delete.accept(raw);
    }

    @Override
    public void run() {
      boolean last;
      synchronized (this) {
        last = users == 0 && !closed;
        closed = true;
      }
      if (last) delete.accept(raw);
    }
  }
}
