package dev.invar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.invar.v1.ConvertConfig;
import dev.invar.v1.ConvertReport;
import dev.invar.v1.DType;
import dev.invar.v1.DiffConfig;
import dev.invar.v1.InspectConfig;
import dev.invar.v1.OpenConfig;
import dev.invar.v1.VerifyConfig;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Work on checkpoints: reports, progress, and the ways to end it. */
class CheckpointTest extends Fixture {
  /** One thread: every event comes to the listener, which hears only of work on the thread that called. */
  @BeforeEach
  @Override
  void createRuntime() {
    runtime = InvarRuntime.builder().threads(1).build();
  }

  private ConvertConfig conversion() {
    return ConvertConfig.newBuilder()
        .setSource(testCase("fg-llama-b32/input").toString())
        .setDestination(folder.resolve("bf16").toString())
        .setDurable(false)
        .build();
  }

  @Test
  void inspectsConvertsVerifiesAndCompares() {
    var inspected =
        runtime.inspect(InspectConfig.newBuilder().setPath(testCase("fg-llama-b32/input").toString()).build());
    List<Progress> events = new ArrayList<>();
    ConvertReport report = runtime.convert(conversion(), null, events::add);
    assertTrue(report.getPassed());
    assertEquals(inspected.getTensors(), report.getTensorsRead());
    assertTrue(Files.exists(folder.resolve("bf16/config.json")));
    Progress last = events.get(events.size() - 1);
    assertEquals(Progress.Kind.WORK, last.kind());
    assertEquals("convert", last.stage());
    assertEquals("bytes", last.unit());
    assertTrue(last.done() > 0 && last.done() <= last.total(), last.toString());

    var verified =
        runtime.verify(
            VerifyConfig.newBuilder()
                .setSource(report.getSource())
                .setDestination(report.getDestination())
                .build());
    assertTrue(verified.getPassed());
    assertTrue(verified.getElements() > 0);
    var same = runtime.diff(DiffConfig.newBuilder().setA(report.getDestination()).setB(report.getDestination()).build());
    assertTrue(same.getIdentical());
  }

  @Test
  void aCheckpointThatIsNotThereIsNamed() {
    InvarException failure =
        failure(() -> runtime.convert(conversion().toBuilder().setSource("/absent").build()));
    assertEquals(Code.NOT_FOUND, failure.code());
    assertTrue(failure.getMessage().contains("/absent"));
    assertFalse(Files.exists(folder.resolve("bf16")));
  }

  @Test
  void decodesRowsIntoTheHostsMemory() {
    var open = OpenConfig.newBuilder().setPath(testCase("fg-llama-b32/input").toString()).build();
    try (Checkpoint checkpoint = runtime.openCheckpoint(open)) {
      Checkpoint.Entry entry =
          checkpoint.entries().stream().filter(Checkpoint.Entry::quantized).findFirst().orElseThrow();
      assertEquals(entry, checkpoint.find(entry.name()));
      assertEquals("block_scale", entry.rule());
      ByteBuffer all = direct((int) (entry.elements() * 4));
      checkpoint.read(entry, DType.DTYPE_FP32, all);
      assertEquals(0, all.remaining());
      int row = (int) (entry.elements() / entry.rows()) * 4;
      ByteBuffer one = direct(4 + row);
      one.position(4);
      checkpoint.readRows(entry, 1, 1, DType.DTYPE_FP32, one, null);
      assertEquals(all.slice(row, row), one.slice(4, row));

      assertEquals(
          "checkpoint.row_range",
          failure(() -> checkpoint.readRows(entry, entry.rows(), 1, DType.DTYPE_FP32, direct(row), null)).reason());
      assertEquals(
          "checkpoint.read_size",
          failure(() -> checkpoint.read(entry, DType.DTYPE_FP32, direct(row - 1))).reason());
      assertEquals("checkpoint.no_tensor", failure(() -> checkpoint.find("absent")).reason());
      assertThrows(
          IllegalArgumentException.class,
          () -> checkpoint.read(entry, DType.DTYPE_FP32, ByteBuffer.allocate(row)));
    }
    Checkpoint closed = runtime.openCheckpoint(open);
    closed.close();
    assertThrows(IllegalStateException.class, () -> closed.find("a"));
  }

  @Test
  void aTokenEndsIt() {
    try (CancelToken token = runtime.createCancelToken()) {
      token.cancel();
      assertEquals(Code.CANCELLED, failure(() -> runtime.convert(conversion(), token, null)).code());
    }
    assertFalse(Files.exists(folder.resolve("bf16")));
  }

  @Test
  void aListenerEndsIt() {
    InvarException failure = failure(() -> runtime.convert(conversion(), null, event -> false));
    assertEquals(Code.ABORTED, failure.code());
    assertEquals(1, failure.callbackValue());
    assertFalse(Files.exists(folder.resolve("bf16")));
  }

  @Test
  void whatAListenerThrowsArrivesAsItself() {
    var thrown = new UnsupportedOperationException("mine");
    var caught =
        assertThrows(
            UnsupportedOperationException.class,
            () ->
                runtime.convert(
                    conversion(),
                    null,
                    event -> {
                      throw thrown;
                    }));
    assertSame(thrown, caught);
    assertTrue(runtime.convert(conversion()).getPassed(), "the runtime goes on");
  }

  @Test
  void aListenerMayUseTheLibrary() {
    List<String> versions = new ArrayList<>();
    runtime.convert(
        conversion(),
        null,
        event -> {
          versions.add(runtime.info().getVersion());
          return true;
        });
    assertEquals(Invar.version(), versions.get(0));
  }
}
