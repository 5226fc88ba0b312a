package dev.invar.examples.service;

import java.util.Map;
import java.util.concurrent.atomic.LongAdder;

/** Counters in Prometheus' text form. */
final class Metrics {
  final LongAdder requests = new LongAdder();
  final LongAdder refusals = new LongAdder();
  final LongAdder uploadBytes = new LongAdder();
  final LongAdder steps = new LongAdder();
  final LongAdder tokens = new LongAdder();
  volatile double loss;

  /** jobs: how many are in each state. */
  String text(Map<String, Long> jobs) {
    StringBuilder out = new StringBuilder();
    counter(out, "invar_http_requests_total", "Requests", requests);
    counter(out, "invar_http_refusals_total", "Requests answered with an error", refusals);
    counter(out, "invar_upload_bytes_total", "Bytes uploaded", uploadBytes);
    counter(out, "invar_train_steps_total", "Optimizer steps", steps);
    counter(out, "invar_train_tokens_total", "Tokens that carried loss", tokens);
    head(out, "invar_train_loss", "Newest loss, nats", "gauge").append("invar_train_loss ").append(loss).append('\n');
    head(out, "invar_jobs", "Jobs by state", "gauge");
    jobs.forEach((state, count) -> out.append("invar_jobs{state=\"" + state + "\"} " + count + "\n"));
    return out.toString();
  }

  private static void counter(StringBuilder out, String name, String help, LongAdder counter) {
    head(out, name, help, "counter").append(name).append(' ').append(counter.sum()).append('\n');
  }

  private static StringBuilder head(StringBuilder out, String name, String help, String type) {
    return out.append("# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n");
  }
}
