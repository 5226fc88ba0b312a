package dev.invar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.invar.v1.CheckpointConfig;
import dev.invar.v1.ConvertConfig;
import dev.invar.v1.ConvertReport;
import dev.invar.v1.DType;
import dev.invar.v1.ExportConfig;
import dev.invar.v1.GenerateConfig;
import dev.invar.v1.GenerateReport;
import dev.invar.v1.LoadConfig;
import dev.invar.v1.OpenConfig;
import dev.invar.v1.RuleCount;
import dev.invar.v1.StepMetrics;
import dev.invar.v1.TrainConfig;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The five examples that every language runs, with the inputs and outputs of bindings/testdata/examples.json. */
class ExamplesTest extends Fixture {
  private final JsonObject examples = json(Path.of(System.getProperty("invar.testdata"), "examples.json"));

  private static JsonObject json(Path file) {
    try {
      return JsonParser.parseString(Files.readString(file)).getAsJsonObject();
    } catch (IOException problem) {
      throw new IllegalStateException(problem);
    }
  }

  private JsonObject example(String name) {
    return examples.getAsJsonObject(name);
  }

  private TrainConfig config(String name) {
    return runtime.messages().fromJson(TrainConfig.getDefaultInstance(), example(name).get("config").toString());
  }

  private static JsonObject digests(JsonObject example) {
    return json(testCase(example.get("case").getAsString()).resolve("case.json")).getAsJsonObject("expected_digests");
  }

  private static String input(JsonObject example) {
    return testCase(example.get("case").getAsString()).resolve("input").toString();
  }

  private static String sha256(ByteBuffer bytes) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      digest.update(bytes.duplicate().rewind());
      return HexFormat.of().formatHex(digest.digest());
    } catch (NoSuchAlgorithmException problem) {
      throw new IllegalStateException(problem);
    }
  }

  private static void judge(JsonObject example, List<Double> losses) {
    JsonArray expected = example.getAsJsonArray("losses");
    double[] wanted = new double[expected.size()];
    for (int i = 0; i < wanted.length; ++i) wanted[i] = expected.get(i).getAsDouble();
    double[] found = losses.stream().mapToDouble(Double::doubleValue).toArray();
    assertArrayEquals(wanted, found, example.get("tolerance").getAsDouble());
  }

  @Test
  void convertWithReport() {
    JsonObject example = example("convert");
    String destination = folder.resolve("bf16").toString();
    ConvertReport report =
        runtime.convert(
            ConvertConfig.newBuilder().setSource(input(example)).setDestination(destination).setVerify(true).build());
    assertTrue(report.getPassed() && report.getVerification().getPassed());
    assertEquals(example.get("tensors_written").getAsLong(), report.getTensorsWritten());
    assertEquals(example.get("scales_used").getAsLong(), report.getScalesUsed());
    for (var rule : example.getAsJsonObject("rules").entrySet()) {
      long tensors =
          report.getRulesList().stream()
              .filter(line -> line.getRule().equals(rule.getKey()))
              .mapToLong(RuleCount::getTensors)
              .sum();
      assertEquals(rule.getValue().getAsLong(), tensors, rule.getKey());
    }
    try (Checkpoint written = runtime.openCheckpoint(OpenConfig.newBuilder().setPath(destination).build())) {
      for (var digest : digests(example).entrySet()) {
        Checkpoint.Entry entry = written.find(digest.getKey());
        ByteBuffer values = direct((int) (2 * entry.elements()));
        written.read(entry, DType.DTYPE_BF16, values);
        assertEquals(digest.getValue().getAsJsonObject().get("sha256").getAsString(), sha256(values), digest.getKey());
      }
    }
  }

  @Test
  void decodeOneTensorIntoOwnMemory() {
    JsonObject example = example("decode");
    try (Checkpoint checkpoint = runtime.openCheckpoint(OpenConfig.newBuilder().setPath(input(example)).build())) {
      Checkpoint.Entry entry = checkpoint.find(example.get("tensor").getAsString());
      assertEquals(example.get("rule").getAsString(), entry.rule());
      assertEquals(List.of(example.get("rows").getAsLong(), example.get("cols").getAsLong()), entry.shape());
      assertTrue(entry.quantized());

      ByteBuffer own = direct((int) (2 * entry.elements()));
      checkpoint.read(entry, DType.DTYPE_BF16, own);
      String expected = digests(example).getAsJsonObject(entry.name()).get("sha256").getAsString();
      assertEquals(expected, sha256(own));

      ByteBuffer byRows = direct(own.capacity());
      for (long row = 0; row < entry.rows(); ++row) {
        checkpoint.readRows(entry, row, 1, DType.DTYPE_BF16, byRows, null);
      }
      assertEquals(expected, sha256(byRows));
    }
  }

  @Test
  void fineTuneFromTextExportAndGenerateWithStreaming() throws IOException {
    Path text = folder.resolve("text.txt");
    StringBuilder lines = new StringBuilder();
    int count = example("text").get("lines").getAsInt();
    for (int i = 0; i < count; ++i) lines.append(String.format(example("text").get("line").getAsString(), i, i, i + 1));
    Files.writeString(text, lines);
    TrainConfig.Builder config = config("fine_tune").toBuilder();
    config.getDataBuilder().addPaths(text.toString());
    config.setOutput(folder.resolve("run").toString()).setCheckpoint(CheckpointConfig.newBuilder().setDurable(false));

    String serving = folder.resolve("serving").toString();
    List<Double> losses = new ArrayList<>();
    try (Session session = runtime.createSession(config.build())) {
      session.run(
          null,
          event -> {
            if (event.kind() == Progress.Kind.STEP) losses.add(event.step().getLoss());
            return true;
          });
      session.export(ExportConfig.newBuilder().setDestination(serving).build());
    }
    judge(example("fine_tune"), losses);

    GenerateConfig asked =
        GenerateConfig.newBuilder()
            .setPrompt(example("generate").get("prompt").getAsString())
            .setMaxTokens(example("generate").get("max_tokens").getAsLong())
            .build();
    StringBuilder streamed = new StringBuilder();
    try (Model model = runtime.loadModel(LoadConfig.newBuilder().setPath(serving).build())) {
      GenerateReport report =
          model.generate(
              asked,
              null,
              token -> {
                streamed.append(token.text());
                return true;
              });
      assertEquals(report.getText(), streamed.toString());
      assertTrue(report.getIdsCount() > 0);
    }
  }

  @Test
  void hostDrivenLoopWithOwnDataAndOwnLearningRate() {
    JsonObject example = example("host_driven");
    int sequences = example.get("sequences").getAsInt();
    int length = example.get("sequence_length").getAsInt();
    double rate = example.get("lr").getAsDouble();
    var ids = ByteBuffer.allocateDirect(4 * sequences * length).order(ByteOrder.nativeOrder()).asIntBuffer();
    for (int i = 0; i < ids.capacity(); ++i) ids.put(i, 97 + i % 7);
    Batch batch = Batch.of(sequences, length, ids);
    List<Double> losses = new ArrayList<>();
    try (Session session = runtime.createSession(config("host_driven"))) {
      for (int step = 0; step < example.get("steps").getAsInt(); ++step) {
        int microBatches = example.get("micro_batches").getAsInt();
        session.begin(microBatches);
        for (int i = 0; i < microBatches; ++i) session.forwardBackward(batch);
        StepMetrics metrics = session.step(rate);
        assertEquals(rate, metrics.getLr());
        losses.add(metrics.getLoss());
      }
    }
    judge(example, losses);
  }
}
