package dev.invar;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.invar.v1.ConvertConfig;
import dev.invar.v1.DType;
import dev.invar.v1.GenerateConfig;
import dev.invar.v1.InspectConfig;
import dev.invar.v1.OpenConfig;
import dev.invar.v1.OptimizerConfig;
import dev.invar.v1.TrainConfig;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Ten thousand calls of each kind: the process does not grow. */
class LeakTest extends Fixture {
  private static final int CALLS = Integer.getInteger("invar.calls", 10000);
  /** A leak grows in every round, the compiler's and the allocator's stores do not: the smallest growth counts. */
  private static final int ROUNDS = 8;
  private static final long SLACK_KIB = 64;

  private final Map<String, Runnable> calls = new TreeMap<>();

  private static long residentKib() {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
        if (line.startsWith("VmRSS:")) return Long.parseLong(line.replaceAll("\\D", ""));
      }
    } catch (IOException problem) {
      throw new IllegalStateException(problem);
    }
    throw new IllegalStateException("no VmRSS");
  }

  private static void settle() {
    for (int i = 0; i < 3; ++i) {
      System.gc();
      try {
        Thread.sleep(10);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
    }
  }

  @Test
  void memoryIsFlat() {
    ByteBuffer memory = direct(256);
    ByteBuffer destination = direct(256);
    Tensor left = runtime.viewTensor(DType.DTYPE_FP32, memory, 8, 8);
    Session session = runtime.createSession(hostDriven());
    CancelToken token = runtime.createCancelToken();
    CancelToken cancelled = runtime.createCancelToken();
    cancelled.cancel();
    Optimizer optimizer = runtime.createOptimizer(OptimizerConfig.getDefaultInstance());
    optimizer.add(left, true);
    Accumulator accumulator = runtime.createAccumulator(64);
    Batch tiny = Batch.of(new int[][] {{1, 2}});
    var asked = GenerateConfig.newBuilder().setPrompt("a").setMaxTokens(1).build();
    var source = testCase("fg-llama-b32/input").toString();
    Checkpoint opened = runtime.openCheckpoint(OpenConfig.newBuilder().setPath(source).build());
    Checkpoint.Entry entry = opened.entries().get(0);
    ByteBuffer row = direct((int) (entry.elements() / entry.rows() * 4));

    String vocabulary = testCase("tokenizers/small-llama3").toString();
    Tokenizer tokenizer = runtime.loadTokenizer(vocabulary);

    calls.put("runtime", () -> InvarRuntime.builder().threads(1).log(System.Logger.Level.INFO, (l, m) -> {}).build().close());
    calls.put("info", () -> runtime.info());
    calls.put("token", () -> runtime.createCancelToken().close());
    calls.put("token asked", () -> token.isCancelled());
    calls.put("json", () -> runtime.messages().fromJson(TrainConfig.getDefaultInstance(), "{\"steps\": 5}"));
    calls.put("failure", () -> failure(() -> runtime.messages().fromJson(TrainConfig.getDefaultInstance(), "{")));
    calls.put("tensor", () -> runtime.createTensor(DType.DTYPE_FP32, 8, 8).close());
    calls.put("tensor left to the cleaner", () -> runtime.createTensor(DType.DTYPE_FP32, 8, 8));
    calls.put("view", () -> runtime.viewTensor(DType.DTYPE_FP32, memory, 8, 8).close());
    calls.put("data", () -> left.data());
    calls.put("describe", () -> left.info());
    calls.put("read", () -> left.read(destination.clear()));
    calls.put("cast", () -> left.cast(DType.DTYPE_BF16).close());
    calls.put("quantize", () -> left.quantize().close());
    calls.put("matmul", () -> left.matmul(left, DType.DTYPE_FP32).close());
    calls.put("dlpack", () -> runtime.importDlpack(left.exportDlpack()).close());
    calls.put("optimizer", () -> runtime.createOptimizer(OptimizerConfig.getDefaultInstance()).close());
    calls.put("optimizer step", () -> optimizer.step(List.of(left), 0, 1));
    calls.put("state", () -> optimizer.state(0, Optimizer.State.FIRST_MOMENT).close());
    calls.put("accumulate", () -> accumulator.add(0, left));
    calls.put("gradient", () -> accumulator.gradient(0).close());
    calls.put("encode and decode", () -> tokenizer.decode(tokenizer.encode("The quick brown fox"), true));
    calls.put("load tokenizer", () -> runtime.loadTokenizer(vocabulary).close());
    calls.put("begin", () -> session.begin(1));
    calls.put("step", () -> {
      session.begin(1);
      session.forwardBackward(tiny);
      session.step(0);
    });
    calls.put("report", () -> session.report());
    calls.put("generate", () -> session.generate(asked, token, produced -> true));
    calls.put("generate stopped", () -> {
      try {
        session.generate(asked, null, produced -> {
          throw new IllegalStateException("stop");
        });
      } catch (IllegalStateException stopped) {
        // What the listener threw.
      }
    });
    calls.put("inspect", () -> runtime.inspect(InspectConfig.newBuilder().setPath(source).setTensors(false).build()));
    calls.put("convert cancelled", () -> failure(() -> runtime.convert(
        ConvertConfig.newBuilder().setSource(source).setDestination(folder.resolve("x").toString()).build(), cancelled,
        event -> true)));
    calls.put("open", () -> runtime.openCheckpoint(OpenConfig.newBuilder().setPath(source).build()).close());
    calls.put("read rows", () -> opened.readRows(entry, 0, 1, DType.DTYPE_FP32, row.clear(), token));

    // Classes, compiled code and pools.
    calls.values().forEach(call -> {
      for (int i = 0; i < 200; ++i) call.run();
    });
    calls.forEach((name, call) -> {
      int count = name.matches("inspect|open|runtime|load.*|convert.*") ? CALLS / 10 : CALLS;
      int round = count / ROUNDS;
      for (int i = 0; i < round / 2; ++i) call.run();
      settle();
      long spent = 0;
      long grown = Long.MAX_VALUE;
      long before = residentKib();
      for (int r = 0; r < ROUNDS; ++r) {
        long start = System.nanoTime();
        for (int i = 0; i < round; ++i) call.run();
        spent += System.nanoTime() - start;
        settle();
        long after = residentKib();
        grown = Math.min(grown, after - before);
        before = after;
      }
      double micros = spent / 1e3 / count;
      System.out.printf("%-28s %6d calls %9.2f us each %6d KiB a round%n", name, count, micros, grown);
      assertTrue(grown < SLACK_KIB, name + ": grew by " + grown + " KiB in each " + round + " calls");
    });
    tokenizer.close();
    opened.close();
    accumulator.close();
    optimizer.close();
    session.close();
    left.close();
  }

  /** What a call costs above its work: a flag is one atomic load. */
  @Test
  void aCallCostsLessThanAMicrosecond() {
    try (CancelToken token = runtime.createCancelToken()) {
      double best = Double.MAX_VALUE;
      for (int round = 0; round < 20; ++round) {
        long start = System.nanoTime();
        for (int i = 0; i < 20000; ++i) token.isCancelled();
        best = Math.min(best, (System.nanoTime() - start) / 20000.0);
      }
      System.out.printf("call overhead: %.0f ns%n", best);
      assertTrue(best < 1000, best + " ns");
    }
  }
}
