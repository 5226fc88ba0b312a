package dev.invar.examples.service;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The service as a client sees it: a process of its own, a real HTTP client. */
class ServiceTest {
  private record Event(long id, String kind, JsonObject data) {}

  private final HttpClient client = HttpClient.newHttpClient();
  @TempDir Path data;
  private Process process;
  private BufferedReader output;
  private String url;

  @BeforeEach
  void start() throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin/java").toString());
    command.addAll(List.of("-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-Xcheck:jni"));
    command.add("-Dinvar.library.path=" + System.getProperty("invar.library.path"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), "dev.invar.examples.service.Service"));
    command.addAll(List.of("--port", "0", "--threads", "1", "--max-upload", "20000", "--data", data.toString()));
    process = new ProcessBuilder(command).redirectErrorStream(true).start();
    output = process.inputReader();
    String line = output.readLine();
    assertTrue(line.startsWith("listening on "), line);
    url = line.substring("listening on ".length());
  }

  @AfterEach
  void stop() {
    process.destroyForcibly();
  }

  private HttpRequest.Builder request(String path) {
    return HttpRequest.newBuilder(URI.create(url + path)).timeout(Duration.ofSeconds(60));
  }

  private HttpResponse<String> post(String path, String body) throws Exception {
    return client.send(
        request(path).POST(HttpRequest.BodyPublishers.ofString(body)).build(), HttpResponse.BodyHandlers.ofString());
  }

  private HttpResponse<String> get(String path) throws Exception {
    return client.send(request(path).build(), HttpResponse.BodyHandlers.ofString());
  }

  private static JsonObject json(HttpResponse<String> response, int status) {
    assertEquals(status, response.statusCode(), response.body());
    return JsonParser.parseString(response.body()).getAsJsonObject();
  }

  /** Starts a job on uploaded text; its address. */
  private String job(long steps) throws Exception {
    StringBuilder lines = new StringBuilder();
    for (int i = 0; i < 150; ++i) lines.append("{\"text\": \"line " + i + " says " + (i + 1) + "\"}\n");
    assertEquals("lines.jsonl", json(post("/files?name=lines.jsonl", lines.toString()), 201).get("file").getAsString());
    String config =
        "{\"steps\": " + steps + ", \"micro_batch\": 2, \"data\": {\"sequence_length\": 16}, \"model\": {\"hidden_size\": 32,"
            + " \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 64}}";
    return "/jobs/" + json(post("/jobs?file=lines.jsonl", config), 202).get("job").getAsInt();
  }

  /** Events until one is enough, or the stream ends. */
  private List<Event> events(String job, String lastId, Predicate<Event> enough) throws Exception {
    HttpRequest.Builder request = request(job + "/events");
    if (lastId != null) request.header("Last-Event-ID", lastId);
    HttpResponse<Stream<String>> response = client.send(request.build(), HttpResponse.BodyHandlers.ofLines());
    assertEquals(200, response.statusCode());
    assertEquals("text/event-stream", response.headers().firstValue("Content-Type").orElseThrow());
    List<Event> events = new ArrayList<>();
    long id = 0;
    String kind = "";
    try (Stream<String> lines = response.body()) {
      for (var line = lines.iterator(); line.hasNext(); ) {
        String[] field = line.next().split(": ", 2);
        if (field[0].equals("id")) id = Long.parseLong(field[1]);
        if (field[0].equals("event")) kind = field[1];
        if (field[0].equals("data")) {
          events.add(new Event(id, kind, JsonParser.parseString(field[1]).getAsJsonObject()));
          if (enough.test(events.get(events.size() - 1))) break;
        }
      }
    }
    return events;
  }

  @Test
  void aModelIsTrainedWatchedExportedConvertedAndDownloaded() throws Exception {
    String job = job(8);
    List<Event> events = events(job, null, event -> false);
    List<Event> steps = events.stream().filter(event -> event.kind().equals("step")).toList();
    assertEquals(8, steps.size());
    assertTrue(steps.get(7).data().get("loss").getAsDouble() < steps.get(0).data().get("loss").getAsDouble());
    Event last = events.get(events.size() - 1);
    assertEquals("done", last.data().get("state").getAsString());
    // A reader that comes back gets what it has not seen.
    assertEquals(events.subList(events.size() - 2, events.size()), events(job, "" + (last.id() - 2), event -> false));

    assertEquals(1, json(get(job + "/checkpoints"), 200).getAsJsonArray("checkpoints").size());
    JsonObject exported = json(post(job + "/export?name=fp8&target=fp8_block", ""), 201);
    assertEquals(8, exported.get("step").getAsInt());
    assertTrue(json(post(job + "/convert?source=fp8&name=bf16", ""), 201).get("passed").getAsBoolean());
    json(post(job + "/convert?source=fp8&name=bf16", ""), 409);

    HttpResponse<byte[]> download =
        client.send(
            request(job + "/files/bf16/model.safetensors").build(), HttpResponse.BodyHandlers.ofByteArray());
    assertEquals(200, download.statusCode());
    assertArrayEquals(Files.readAllBytes(data.resolve(job.substring(1) + "/bf16/model.safetensors")), download.body());

    String metrics = get("/metrics").body();
    for (String line :
        List.of("invar_train_steps_total 8", "invar_jobs{state=\"done\"} 1", "# TYPE invar_train_loss gauge")) {
      assertTrue(metrics.contains(line + "\n"), metrics);
    }
  }

  @Test
  void aJobIsCancelledAndLeavesACheckpoint() throws Exception {
    String job = job(1000000);
    events(job, null, event -> event.kind().equals("step"));
    assertEquals("service.running", json(post(job + "/export?name=early", ""), 409).get("reason").getAsString());
    json(post(job + "/cancel", ""), 202);
    List<Event> events = events(job, null, event -> false);
    assertEquals("cancelled", events.get(events.size() - 1).data().get("state").getAsString());
    assertEquals(1, json(get(job + "/checkpoints"), 200).getAsJsonArray("checkpoints").size());
    JsonElement all = JsonParser.parseString(get("/jobs").body());
    assertEquals("cancelled", all.getAsJsonArray().get(0).getAsJsonObject().get("state").getAsString());
  }

  @Test
  void stoppingTheServiceCheckpointsFirst() throws Exception {
    String job = job(1000000);
    events(job, null, event -> event.kind().equals("step"));
    process.toHandle().destroy();  // SIGTERM
    assertTrue(process.waitFor(60, TimeUnit.SECONDS));
    List<String> rest = output.lines().toList();
    assertEquals(List.of("stopped"), rest);
    try (Stream<Path> checkpoints = Files.list(data.resolve(job.substring(1) + "/run/checkpoints"))) {
      assertEquals(1, checkpoints.count());
    }
  }

  private void refused(String path, String body, int status, String reason) throws Exception {
    assertEquals(reason, json(post(path, body), status).get("reason").getAsString(), path + " " + body);
  }

  @Test
  void wrongRequestsAreRefused() throws Exception {
    refused("/files?name=big", "x".repeat(20001), 413, "http.too_large");
    // Chunked: the length is not known before it is too much.
    HttpResponse<String> chunked =
        client.send(
            request("/files?name=big")
                .POST(HttpRequest.BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(new byte[30000])))
                .build(),
            HttpResponse.BodyHandlers.ofString());
    json(chunked, 413);
    try (Stream<Path> left = Files.list(data.resolve("files"))) {
      assertEquals(List.of(), left.toList());
    }
    job(1);
    refused("/files?name=..", "x", 400, "http.name");
    refused("/files?name=a%2Fb", "x", 400, "http.name");
    refused("/jobs?file=lines.jsonl", "{", 400, "config.syntax");
    refused("/jobs", "{}", 400, "http.field");
    refused("/jobs?file=absent", "{}", 404, "http.not_found");
    refused("/jobs?file=lines.jsonl", "{\"stepps\": 1}", 400, "config.unknown_field");
    refused("/jobs?file=lines.jsonl", "{\"steps\": -1}", 400, "config.out_of_range");
    refused("/jobs?file=lines.jsonl", "{\"model\": {\"path\": \"/etc\"}}", 400, "service.path");
    refused("/jobs?file=lines.jsonl", "{\"output\": \"/etc\"}", 400, "service.path");
    for (String field : List.of("\"paths\": [\"/etc/passwd\"]", "\"chat_template\": \"/etc/passwd\"", "\"tokenizer\": {\"path\": \"/etc\"}")) {
      refused("/jobs?file=lines.jsonl", "{\"data\": {" + field + "}}", 400, "service.path");
    }
    refused("/jobs/7/cancel", "", 404, "http.not_found");
    refused("/nowhere", "", 404, "http.not_found");
    assertEquals(400, get("/jobs/1/files/..%2f..%2ffiles/lines.jsonl").statusCode());
    assertTrue(Files.notExists(data.resolve("jobs/2")));
  }
}
