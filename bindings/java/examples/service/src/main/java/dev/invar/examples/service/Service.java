package dev.invar.examples.service;

import com.google.protobuf.Message;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import dev.invar.InvarException;
import dev.invar.InvarRuntime;
import dev.invar.v1.ConvertConfig;
import dev.invar.v1.ExportConfig;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

/**
 * An HTTP service that fine-tunes language models in its own process.
 *
 * <pre>
 * POST /files?name=a.jsonl                        stores text or JSON lines, bounded
 * POST /jobs?file=a.jsonl                         starts fine-tuning; the body holds fields of TrainConfig in JSON
 * GET  /jobs, /jobs/1                             states
 * GET  /jobs/1/events                             progress as server-sent events; Last-Event-ID continues
 * POST /jobs/1/cancel                             ends it at the next micro-batch; a checkpoint is written
 * GET  /jobs/1/checkpoints                        training checkpoints
 * POST /jobs/1/export?name=out&amp;target=fp8_block   newest checkpoint to a serving folder; answers with the report
 * POST /jobs/1/convert?source=out&amp;name=b          one serving folder to another, verified; answers with the report
 * GET  /jobs/1/files/out/model.safetensors        download
 * GET  /metrics                                   Prometheus text
 * </pre>
 *
 * <p>Closing it, as SIGTERM does, lets the running job write its checkpoint first. It has no authentication and no
 * time-outs of its own: run it behind a proxy.
 */
public final class Service implements AutoCloseable {
  private static final int STREAMS = 16;
  private static final int CONFIG_BYTES = 1 << 20;

  private final InvarRuntime runtime;
  private final Jobs jobs;
  private final long maxUpload;
  private final Metrics metrics = new Metrics();
  private final Semaphore streams = new Semaphore(STREAMS);
  private final ExecutorService threads = Executors.newFixedThreadPool(STREAMS + 8);
  private final HttpServer server;

  /**
   * Starts the service.
   *
   * @param address where it listens; port 0 takes a free one
   * @param data folder of uploads and jobs
   * @param model folder that jobs start from; null for a random start
   * @param threads the runtime's budget; 0 takes every processor
   * @param maxUpload bytes of one upload
   * @throws IOException when the address or the folder cannot be used
   */
  public Service(InetSocketAddress address, Path data, String model, int threads, long maxUpload) throws IOException {
    this.maxUpload = maxUpload;
    runtime = InvarRuntime.builder().threads(threads).logger(System.getLogger("invar")).build();
    jobs = new Jobs(runtime, data.toAbsolutePath(), model, metrics);
    server = HttpServer.create(address, 64);
    server.setExecutor(this.threads);
    server.createContext("/", this::handle);
    server.start();
  }

  /**
   * Where it listens.
   *
   * @return the port
   */
  public int port() {
    return server.getAddress().getPort();
  }

  private void handle(HttpExchange exchange) {
    metrics.requests.increment();
    try (exchange) {
      try {
        route(exchange, parts(exchange), query(exchange));
      } catch (InvarException failure) {
        refuse(exchange, Refusal.of(failure));
      } catch (Refusal refusal) {
        refuse(exchange, refusal);
      }
    } catch (IOException gone) {
      // A client that went away is no fault of the service.
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private static String[] parts(HttpExchange exchange) {
    return exchange.getRequestURI().getRawPath().replaceFirst("^/+", "").split("/");
  }

  private static Map<String, String> query(HttpExchange exchange) {
    Map<String, String> query = new HashMap<>();
    String raw = exchange.getRequestURI().getRawQuery();
    for (String pair : raw == null ? new String[0] : raw.split("&")) {
      int cut = pair.indexOf('=');
      if (cut > 0) query.put(pair.substring(0, cut), URLDecoder.decode(pair.substring(cut + 1), StandardCharsets.UTF_8));
    }
    return query;
  }

  private void route(HttpExchange exchange, String[] parts, Map<String, String> query)
      throws IOException, InterruptedException {
    String what = exchange.getRequestMethod() + " " + parts[0] + (parts.length > 2 ? " " + parts[2] : "");
    if (parts.length == 2) what += " ID";
    switch (what) {
      case "POST files" -> upload(exchange, name(query, "name"));
      case "POST jobs" -> {
        String config = new String(body(exchange, CONFIG_BYTES), StandardCharsets.UTF_8);
        send(exchange, 202, jobs.add(name(query, "file"), config).describe());
      }
      case "GET jobs" -> send(exchange, 200, jobs.list().stream().map(Job::describe).toList().toString());
      case "GET jobs ID" -> send(exchange, 200, jobs.get(parts[1]).describe());
      case "GET jobs events" -> stream(exchange, jobs.get(parts[1]));
      case "POST jobs cancel" -> {
        Job job = jobs.get(parts[1]);
        job.cancel.cancel();
        send(exchange, 202, job.describe());
      }
      case "GET jobs checkpoints" -> {
        List<String> names = jobs.get(parts[1]).checkpoints().stream().map(Json::quoted).toList();
        send(exchange, 200, new Json().raw("checkpoints", names.toString()).toString());
      }
      case "POST jobs export" -> export(exchange, jobs.get(parts[1]), query);
      case "POST jobs convert" -> convert(exchange, jobs.get(parts[1]), query);
      case "GET jobs files" -> download(exchange, jobs.get(parts[1]), parts);
      case "GET metrics" -> send(exchange, 200, "text/plain; version=0.0.4", metrics.text(jobs.states()));
      default -> throw Refusal.notFound(exchange.getRequestURI().getPath());
    }
  }

  private void upload(HttpExchange exchange, String name) throws IOException {
    Path partial = Files.createTempFile(jobs.file(""), ".partial-", "");
    try {
      long bytes = 0;
      try (OutputStream out = Files.newOutputStream(partial)) {
        byte[] buffer = new byte[65536];
        InputStream in = exchange.getRequestBody();
        for (int got = in.read(buffer); got >= 0; got = in.read(buffer)) {
          bytes += got;
          if (bytes > maxUpload) throw tooLarge(maxUpload);
          out.write(buffer, 0, got);
        }
      }
      Files.move(partial, jobs.file(name), StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
      metrics.uploadBytes.add(bytes);
      send(exchange, 201, new Json().add("file", name).add("bytes", bytes).toString());
    } finally {
      Files.deleteIfExists(partial);
    }
  }

  private static Refusal tooLarge(long most) {
    return new Refusal(413, "http.too_large", "the body is larger than " + most + " bytes");
  }

  private static byte[] body(HttpExchange exchange, int most) throws IOException {
    byte[] body = exchange.getRequestBody().readNBytes(most + 1);
    if (body.length > most) throw tooLarge(most);
    return body;
  }

  /** Server-sent events until the job has ended; a comment now and then shows whether the reader is still there. */
  private void stream(HttpExchange exchange, Job job) throws IOException, InterruptedException {
    if (!streams.tryAcquire()) throw new Refusal(503, "service.streams", STREAMS + " event streams are open already");
    try {
      String last = exchange.getRequestHeaders().getFirst("Last-Event-ID");
      long from = last != null && last.matches("\\d{1,18}") ? Long.parseLong(last) + 1 : 0;
      exchange.getResponseHeaders().set("Content-Type", "text/event-stream");
      exchange.getResponseHeaders().set("Cache-Control", "no-store");
      exchange.sendResponseHeaders(200, 0);
      OutputStream out = exchange.getResponseBody();
      for (List<Job.Event> events = job.events(from); events != null; events = job.events(from)) {
        StringBuilder text = new StringBuilder(events.isEmpty() ? ": waiting\n\n" : "");
        for (Job.Event event : events) {
          text.append("id: " + event.id() + "\nevent: " + event.kind() + "\ndata: " + event.data() + "\n\n");
          from = event.id() + 1;
        }
        out.write(text.toString().getBytes(StandardCharsets.UTF_8));
        out.flush();
      }
    } finally {
      streams.release();
    }
  }

  private void export(HttpExchange exchange, Job job, Map<String, String> query) throws IOException {
    ExportConfig config =
        ExportConfig.newBuilder()
            .setSource(job.folder.resolve("run").toString())
            .setDestination(destination(job, query))
            .build();
    send(exchange, 201, runtime.export(withTarget(config, query)));
  }

  private void convert(HttpExchange exchange, Job job, Map<String, String> query) throws IOException {
    ConvertConfig config =
        ConvertConfig.newBuilder()
            .setSource(job.folder.resolve(name(query, "source")).toString())
            .setDestination(destination(job, query))
            .setVerify(true)
            .build();
    send(exchange, 201, runtime.convert(withTarget(config, query)));
  }

  private <M extends Message> M withTarget(M config, Map<String, String> query) {
    return runtime.messages().set(config, "target=" + query.getOrDefault("target", "bf16"));
  }

  private static String destination(Job job, Map<String, String> query) {
    String name = name(query, "name");
    if (name.equals("run")) throw new Refusal(409, "service.name", "run: the name is taken by the job's own folder");
    if (!job.state().ended()) throw new Refusal(409, "service.running", "job " + job.id + " has not ended");
    return job.folder.resolve(name).toString();
  }

  private static void download(HttpExchange exchange, Job job, String[] parts) throws IOException {
    Path file = job.folder;
    for (int i = 3; i < parts.length; ++i) file = file.resolve(plain(parts[i]));
    if (!Files.isRegularFile(file)) throw Refusal.notFound("file " + file.getFileName());
    exchange.getResponseHeaders().set("Content-Type", "application/octet-stream");
    long size = Files.size(file);
    exchange.sendResponseHeaders(200, size == 0 ? -1 : size);
    Files.copy(file, exchange.getResponseBody());
  }

  private static String name(Map<String, String> query, String field) {
    if (!query.containsKey(field)) throw new Refusal(400, "http.field", field + ": is missing in the address");
    return plain(query.get(field));
  }

  /** A name without folders, and none that is hidden. */
  private static String plain(String name) {
    if (!name.matches("[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")) {
      throw new Refusal(400, "http.name", name + ": letters, digits, '.', '_' and '-' make a name");
    }
    return name;
  }

  private void send(HttpExchange exchange, int status, Message report) throws IOException {
    send(exchange, status, runtime.messages().toJson(report, false));
  }

  private static void send(HttpExchange exchange, int status, String json) throws IOException {
    send(exchange, status, "application/json", json + "\n");
  }

  private static void send(HttpExchange exchange, int status, String type, String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    exchange.getResponseHeaders().set("Content-Type", type);
    exchange.sendResponseHeaders(status, bytes.length);
    exchange.getResponseBody().write(bytes);
  }

  private void refuse(HttpExchange exchange, Refusal refusal) throws IOException {
    metrics.refusals.increment();
    if (exchange.getResponseCode() >= 0) return;  // too late: the answer has begun
    send(
        exchange,
        refusal.status,
        new Json().add("reason", refusal.reason).add("message", refusal.getMessage()).toString());
  }

  /** The running job writes its checkpoint, event streams end, then the port is given back. */
  @Override
  public void close() {
    jobs.close();
    server.stop(1);
    threads.shutdownNow();
    runtime.close();
  }

  /**
   * Runs the service until SIGTERM or SIGINT.
   *
   * @param arguments [--port N] [--data FOLDER] [--model FOLDER] [--threads N] [--max-upload BYTES]
   * @throws Exception when it cannot start
   */
  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (int i = 0; i + 1 < arguments.length; i += 2) options.put(arguments[i], arguments[i + 1]);
    Service service =
        new Service(
            new InetSocketAddress("127.0.0.1", Integer.parseInt(options.getOrDefault("--port", "8080"))),
            Path.of(options.getOrDefault("--data", "invar-service")),
            options.get("--model"),
            Integer.parseInt(options.getOrDefault("--threads", "0")),
            Long.parseLong(options.getOrDefault("--max-upload", "67108864")));
    System.out.println("listening on http://127.0.0.1:" + service.port());
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  service.close();
                  System.out.println("stopped");
                }));
    new CountDownLatch(1).await();
  }
}
