package dev.invar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.invar.v1.DType;
import dev.invar.v1.InspectConfig;
import dev.invar.v1.TrainConfig;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Versions, messages, logs and files of the host. */
class RuntimeTest extends Fixture {
  @Test
  void saysWhatIsLoaded() {
    assertEquals(0, Invar.abiVersion());
    assertTrue(Invar.version().matches("\\d+\\.\\d+\\.\\d+"), Invar.version());
    String[] parts = Invar.version().split("\\.");
    assertEquals(
        Integer.parseInt(parts[0]) * 1000000 + Integer.parseInt(parts[1]) * 1000 + Integer.parseInt(parts[2]),
        Invar.versionNumber());
    assertTrue(Invar.buildInfo().contains(Invar.version()));
    assertTrue(Invar.hasFeature("cpu"));
    assertFalse(Invar.hasFeature("time travel"));
    assertEquals(Invar.version(), runtime.info().getVersion());
    assertEquals(2, runtime.info().getThreads());
  }

  @Test
  void numbersAreThoseOfTheLibrary() {
    for (Code code : Code.values()) {
      assertEquals(code.name(), Invar.nameOf(code));
      assertEquals(code, Code.of(code.number()));
    }
    assertEquals(Code.UNKNOWN, Code.of(77));
    assertEquals("fp8_e4m3", Invar.nameOf(DType.DTYPE_FP8_E4M3));
    assertEquals(8, Invar.bitsOf(DType.DTYPE_FP8_E4M3));
    assertEquals(4, Invar.bitsOf(DType.DTYPE_FP4_E2M1));
  }

  @Test
  void messagesComeFromJsonAndText() {
    Messages messages = runtime.messages();
    TrainConfig config = messages.fromJson(TrainConfig.getDefaultInstance(), "{\"steps\": 5, /* few */ \"seed\": 7}");
    assertEquals(5, config.getSteps());
    assertEquals(config, messages.fromText(TrainConfig.getDefaultInstance(), messages.toText(config)));
    assertEquals(config, messages.fromJson(TrainConfig.getDefaultInstance(), messages.toJson(config, true)));
    assertEquals(0.5, messages.set(config, "optimizer.lr=0.5").getOptimizer().getLr());
    assertEquals(8, messages.withDefaults(config).getMicroBatch());
    messages.check(messages.set(config, "output=/tmp/x"));
    assertTrue(messages.explain("train.optimizer.lr").contains("lr"));
    assertTrue(messages.describe(config).startsWith("{"));
    assertEquals("über \uD83D\uDE80", messages.set(config, "output=über \uD83D\uDE80").getOutput());
  }

  @Test
  void failuresCarryCodeReasonAndMessage() {
    InvarException failure =
        failure(() -> runtime.messages().fromJson(TrainConfig.getDefaultInstance(), "{\"stepz\": 5}"));
    assertEquals(Code.INVALID_ARGUMENT, failure.code());
    assertEquals("config.unknown_field", failure.reason());
    assertTrue(failure.getMessage().contains("steps"), failure.getMessage());
    assertEquals(0, failure.callbackValue());
  }

  @Test
  void refusesAWrongOption() {
    assertEquals(Code.INVALID_ARGUMENT, failure(() -> InvarRuntime.builder().threads(-1).build()).code());
  }

  @Test
  void logsGoToTheSink() throws IOException {
    var lines = new ConcurrentLinkedQueue<String>();
    // A change of the recipe is worth a line.
    TrainConfig config =
        runtime
            .messages()
            .set(libraryDriven("run", 2).build(), "precision={\"recipe\": \"fp8_block\", \"ladder\": {\"warmup_steps\": 1}}");
    try (var logged =
            InvarRuntime.builder()
                .threads(2)
                .log(
                    System.Logger.Level.DEBUG,
                    (level, line) -> {
                      lines.add(level + " " + line);
                      throw new IllegalStateException("a sink's exception is dropped");
                    })
                .build();
        Session session = logged.createSession(config)) {
      session.run();
    }
    assertFalse(lines.isEmpty());
  }

  /** A folder of the disk under store://, read with positions. */
  private static final class Store implements FileSource {
    private final Path root;
    final Map<String, Integer> reads = new ConcurrentHashMap<>();

    Store(Path root) {
      this.root = root;
    }

    private Path path(String name) {
      return root.resolve(name.substring("store://".length()).replaceFirst("^/+", ""));
    }

    @Override
    public long size(String name) throws IOException {
      if (!Files.exists(path(name))) throw new NoSuchFileException(name);
      return Files.size(path(name));
    }

    @Override
    public void readAt(String name, long offset, ByteBuffer into) throws IOException {
      reads.merge(name, 1, Integer::sum);
      try (var file = new RandomAccessFile(path(name).toFile(), "r")) {
        file.getChannel().read(into, offset);
      }
    }

    @Override
    public List<String> list(String directory) throws IOException {
      try (Stream<Path> files = Files.list(path(directory))) {
        return files.map(file -> file.getFileName().toString()).toList();
      }
    }
  }

  @Test
  void filesComeFromTheHost() {
    Store store = new Store(testCase("autofp8-static-llama"));
    try (var stored = InvarRuntime.builder().files("store://", store).build()) {
      var here = runtime.inspect(InspectConfig.newBuilder().setPath(testCase("autofp8-static-llama/input").toString()).build());
      var there = stored.inspect(InspectConfig.newBuilder().setPath("store://input").build());
      assertNotEquals(0, there.getTensors());
      assertEquals(here.getTensorList(), there.getTensorList());
      assertFalse(store.reads.isEmpty());
      InvarException absent =
          failure(() -> stored.inspect(InspectConfig.newBuilder().setPath("store://absent").build()));
      assertNotEquals(Code.INTERNAL, absent.code());
    }
  }

  @Test
  void nothingWorksAfterClose() {
    Messages messages = runtime.messages();
    CancelToken token = runtime.createCancelToken();
    runtime.close();
    runtime.close();
    IllegalStateException refused = assertThrows(IllegalStateException.class, () -> runtime.info());
    assertEquals("runtime is closed", refused.getMessage());
    assertThrows(IllegalStateException.class, () -> messages.explain("train"));
    assertThrows(IllegalStateException.class, () -> runtime.createCancelToken());
    // What was made from it lives on.
    token.cancel();
    assertTrue(token.isCancelled());
    token.close();
    assertThrows(IllegalStateException.class, token::cancel);
  }

  @Test
  void nullIsRefusedByName() {
    assertThrows(NullPointerException.class, () -> runtime.convert(null));
    assertThrows(NullPointerException.class, () -> runtime.loadModel(null));
    assertThrows(NullPointerException.class, () -> runtime.createSession(null));
    assertThrows(NullPointerException.class, () -> runtime.messages().explain(null));
    assertThrows(NullPointerException.class, () -> runtime.viewTensor(DType.DTYPE_FP32, null, 1));
    assertThrows(NullPointerException.class, () -> InvarRuntime.builder().log(null, null));
  }
}
