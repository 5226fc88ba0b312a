package dev.invar.examples.service;

import com.google.protobuf.Descriptors.FieldDescriptor.JavaType;
import com.google.protobuf.Message;
import dev.invar.Code;
import dev.invar.InvarException;
import dev.invar.InvarRuntime;
import dev.invar.Progress;
import dev.invar.Session;
import dev.invar.v1.TrainConfig;
import dev.invar.v1.TrainReport;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Fine-tuning jobs: one runs at a time, the others wait in line. */
final class Jobs implements AutoCloseable {
  private static final int WAITING = 16;

  private final InvarRuntime runtime;
  private final Path root;
  private final String model;
  private final Metrics metrics;
  private final List<Job> all = new ArrayList<>();
  private final ThreadPoolExecutor line =
      new ThreadPoolExecutor(1, 1, 0, TimeUnit.SECONDS, new ArrayBlockingQueue<>(WAITING));

  /** model: the folder that jobs start from; null: a random start, as the job's config says. */
  Jobs(InvarRuntime runtime, Path root, String model, Metrics metrics) throws IOException {
    this.runtime = runtime;
    this.root = root;
    this.model = model;
    this.metrics = metrics;
    Files.createDirectories(root.resolve("files"));
    Files.createDirectories(root.resolve("jobs"));
  }

  Path file(String name) {
    return root.resolve("files").resolve(name);
  }

  synchronized List<Job> list() {
    return List.copyOf(all);
  }

  Job get(String id) {
    return list().stream()
        .filter(job -> Integer.toString(job.id).equals(id))
        .findFirst()
        .orElseThrow(() -> Refusal.notFound("job " + id));
  }

  Map<String, Long> states() {
    Map<String, Long> states = new TreeMap<>();
    for (Job.State state : Job.State.values()) states.put(state.word(), 0L);
    for (Job job : list()) states.merge(job.state().word(), 1L, Long::sum);
    return states;
  }

  /** Puts a job in line. json: fields of TrainConfig; those that name files are the service's own. */
  synchronized Job add(String file, String json) throws IOException {
    Path text = file(file);
    if (!Files.isRegularFile(text)) throw Refusal.notFound("file " + file);
    TrainConfig given = runtime.messages().fromJson(TrainConfig.getDefaultInstance(), json.isBlank() ? "{}" : json);
    refusePaths(given);
    int id = 1;
    while (Files.exists(root.resolve("jobs/" + id))) ++id;
    Path folder = root.resolve("jobs/" + id);
    TrainConfig.Builder config = given.toBuilder().setOutput(folder.resolve("run").toString());
    config.getDataBuilder().addPaths(text.toString());
    config.getCheckpointBuilder().setSaveFinal(true);
    if (model != null) config.getModelBuilder().setPath(model);
    runtime.messages().check(config.build());
    Files.createDirectories(folder);
    Job job = new Job(id, folder, config.build(), runtime.createCancelToken());
    try {
      line.execute(() -> run(job));
    } catch (RejectedExecutionException refused) {
      Files.delete(folder);
      job.cancel.close();
      if (line.isShutdown()) throw new Refusal(503, "service.stopping", "the service is stopping");
      throw new Refusal(429, "service.full", WAITING + " jobs wait already");
    }
    all.add(job);
    return job;
  }

  /** Texts that name no file. Every other one could, also one that a later version adds. */
  private static final Set<String> HARMLESS = Set.of("family", "text_key", "device", "keep_bf16");

  /** A client names no file of this machine. */
  private static void refusePaths(Message config) {
    config
        .getAllFields()
        .forEach(
            (field, value) -> {
              if (value instanceof Message message) {
                refusePaths(message);
              } else if (field.getJavaType() == JavaType.MESSAGE
                  || field.getJavaType() == JavaType.STRING && !HARMLESS.contains(field.getName())) {
                throw new Refusal(400, "service.path", field.getFullName() + " is set by the service");
              }
            });
  }

  private void run(Job job) {
    job.enter(Job.State.RUNNING, "null");
    try (Session session = runtime.createSession(job.config, job.cancel, null)) {
      session.run(
          job.cancel,
          event -> {
            tell(job, event);
            return true;
          });
      TrainReport report = session.report();
      job.enter(
          Job.State.DONE,
          new Json().add("steps", report.getSteps()).add("loss", report.getLastLoss()).add("seconds", report.getSeconds()).toString());
    } catch (InvarException failure) {
      Job.State state = failure.code() == Code.CANCELLED ? Job.State.CANCELLED : Job.State.FAILED;
      job.enter(state, new Json().add("reason", failure.reason()).add("message", failure.getMessage()).toString());
    } catch (RuntimeException failure) {
      job.enter(Job.State.FAILED, new Json().add("message", failure.toString()).toString());
    }
  }

  private void tell(Job job, Progress event) {
    switch (event.kind()) {
      case STEP -> {
        var step = event.step();
        metrics.steps.increment();
        metrics.tokens.add(step.getTokens());
        metrics.loss = step.getLoss();
        job.push(
            "step",
            new Json()
                .add("step", step.getStep())
                .add("of", event.total())
                .add("loss", step.getLoss())
                .add("lr", step.getLr())
                .add("tokens_per_second", step.getTokensPerSecond())
                .toString());
      }
      case EVAL -> job.push(
          "eval", new Json().add("step", event.eval().getStep()).add("loss", event.eval().getLoss()).toString());
      default -> {}
    }
  }

  /** Cancels everything and waits until the running job has written its checkpoint. */
  @Override
  public void close() {
    line.shutdown();
    for (Job job : list()) job.cancel.cancel();
    try {
      line.awaitTermination(10, TimeUnit.MINUTES);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }
}
