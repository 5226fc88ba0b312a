package dev.invar;

import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.invar.v1.CheckpointConfig;
import dev.invar.v1.DataConfig;
import dev.invar.v1.ModelConfig;
import dev.invar.v1.OptimizerConfig;
import dev.invar.v1.ScheduleConfig;
import dev.invar.v1.TokenizerConfig;
import dev.invar.v1.TokenizerKind;
import dev.invar.v1.TrainConfig;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** A runtime of two threads, a folder, and small training runs. */
abstract class Fixture {
  @TempDir Path folder;
  InvarRuntime runtime;

  @BeforeEach
  void createRuntime() {
    runtime = InvarRuntime.builder().threads(2).build();
  }

  @AfterEach
  void closeRuntime() {
    runtime.close();
  }

  /** A folder of tests/cases. */
  static Path testCase(String name) {
    return Path.of(System.getProperty("invar.cases", "tests/cases"), name).toAbsolutePath();
  }

  static TrainConfig.Builder small() {
    return TrainConfig.newBuilder()
        .setModel(
            ModelConfig.newBuilder()
                .setHiddenSize(32)
                .setNumHiddenLayers(2)
                .setNumAttentionHeads(2)
                .setIntermediateSize(64))
        .setMicroBatch(2)
        .setOptimizer(OptimizerConfig.newBuilder().setLr(0.01))
        .setSchedule(ScheduleConfig.newBuilder().setWarmupSteps(1));
  }

  /** Takes batches from the caller, on bytes. */
  static TrainConfig hostDriven() {
    return small()
        .setData(
            DataConfig.newBuilder()
                .setSequenceLength(16)
                .setTokenizer(TokenizerConfig.newBuilder().setKind(TokenizerKind.TOKENIZER_KIND_BYTE)))
        .build();
  }

  /** Reads a text of its own and writes below the test's folder. */
  TrainConfig.Builder libraryDriven(String output, int steps) throws IOException {
    Path text = folder.resolve("text.txt");
    StringBuilder lines = new StringBuilder();
    for (int i = 0; i < 200; ++i) lines.append("line " + i + " says that the sum of " + i + " and 1 is " + (i + 1) + "\n");
    Files.writeString(text, lines);
    return small()
        .setOutput(folder.resolve(output).toString())
        .setSteps(steps)
        .setCheckpoint(CheckpointConfig.newBuilder().setDurable(false))
        .setData(DataConfig.newBuilder().setSequenceLength(16).addPaths(text.toString()));
  }

  static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }

  static ByteBuffer floats(float... values) {
    ByteBuffer buffer = direct(values.length * 4);
    buffer.asFloatBuffer().put(values);
    return buffer;
  }

  static Batch batch() {
    int[][] rows = new int[2][16];
    for (int i = 0; i < 32; ++i) rows[i / 16][i % 16] = 'a' + i % 7;
    return Batch.of(rows);
  }

  /** The failure of the call. */
  static InvarException failure(Executable call) {
    return assertThrows(InvarException.class, call);
  }
}
