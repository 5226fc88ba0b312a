package dev.invar;

import dev.invar.v1.EvalConfig;
import dev.invar.v1.EvalReport;
import dev.invar.v1.ExportConfig;
import dev.invar.v1.ExportReport;
import dev.invar.v1.GenerateConfig;
import dev.invar.v1.GenerateReport;
import dev.invar.v1.ModelInfo;
import dev.invar.v1.StepMetrics;
import dev.invar.v1.TrainReport;
import java.nio.file.Path;
import java.util.function.Consumer;

/**
 * A model in training. Library-driven: {@link #run} takes batches from the config's data until its last step.
 * Host-driven, for every optimizer step:
 *
 * <pre>{@code
 * session.begin(microBatches);
 * for (Batch batch : batches) session.forwardBackward(batch);
 * StepMetrics metrics = session.step();
 * }</pre>
 *
 * <p>The two may alternate between steps. One thread at a time, any thread in turn: a second call meanwhile fails with
 * {@link Code#FAILED_PRECONDITION} ("handle.busy"). Made by {@link InvarRuntime#createSession}.
 */
public final class Session implements AutoCloseable {
  private final Handle<dev.invar.raw.Session> handle;

  Session(dev.invar.raw.Session raw) {
    handle = new Handle<>(this, "session", raw, dev.invar.raw.Session::delete);
  }

  /**
   * Trains to the config's last step: metrics, evaluations, checkpoints and exports as the config says.
   *
   * @return what was done
   */
  public TrainReport run() {
    return run(null, null);
  }

  /**
   * Trains to the config's last step. Cancelled, it writes a training checkpoint and fails with {@link Code#CANCELLED};
   * the session stays valid and may run on.
   *
   * @param cancel ends it
   * @param listener hears of every step and evaluation
   * @return what was done
   */
  public TrainReport run(CancelToken cancel, ProgressListener listener) {
    return Messages.parse(
        TrainReport.parser(),
        handle.call(
            raw ->
                CancelToken.with(
                    cancel, token -> Listeners.withProgress(listener, progress -> raw.run(token, progress)))));
  }

  /**
   * What the session has done so far.
   *
   * @return the report
   */
  public TrainReport report() {
    return Messages.parse(TrainReport.parser(), handle.call(dev.invar.raw.Session::report));
  }

  /**
   * Shape, family and size of the model.
   *
   * @return the description
   */
  public ModelInfo info() {
    return Messages.parse(ModelInfo.parser(), handle.call(dev.invar.raw.Session::info));
  }

  /**
   * Opens an accumulation window, and drops what an unfinished one gathered.
   *
   * @param microBatches calls of {@link #forwardBackward} that it takes
   */
  public void begin(long microBatches) {
    handle.run(raw -> raw.begin(microBatches));
  }

  /**
   * Adds one micro-batch's gradients to the window.
   *
   * @param batch the tokens; read before this returns
   * @return the micro-batch's loss
   */
  public Loss forwardBackward(Batch batch) {
    return handle.call(
        raw -> {
          var loss = new dev.invar.raw.Loss();
          try {
            raw.forwardBackward(batch.sequences(), batch.length(), batch.ids(), batch.targets(), batch.mask(), loss);
            return new Loss(loss.getSum(), loss.getTokens());
          } finally {
            loss.delete();
          }
        });
  }

  /**
   * Closes the window: mean over its tokens, clip, update, at the schedule's learning rate. Gradients that are not finite
   * skip the update: the metrics say so.
   *
   * @return the step's numbers
   */
  public StepMetrics step() {
    return step((raw, metrics) -> raw.step(metrics));
  }

  /**
   * Closes the window with the caller's own learning rate; the schedule counts on.
   *
   * @param lr the rate, finite and 0 or more
   * @return the step's numbers
   */
  public StepMetrics step(double lr) {
    return step((raw, metrics) -> raw.stepWithLr(lr, metrics));
  }

  private interface StepCall {
    void run(dev.invar.raw.Session raw, dev.invar.raw.StepMetrics metrics);
  }

  private StepMetrics step(StepCall call) {
    return handle.call(
        raw -> {
          var metrics = new dev.invar.raw.StepMetrics();
          try {
            call.run(raw, metrics);
            return Listeners.message(metrics);
          } finally {
            metrics.delete();
          }
        });
  }

  /**
   * Evaluates the weights as they are now on the held-out data.
   *
   * @return the report
   */
  public EvalReport evaluate() {
    return evaluate(null, null, null);
  }

  /**
   * Evaluates the weights as they are now.
   *
   * @param config the text; null for the held-out data; its model field is not read
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public EvalReport evaluate(EvalConfig config, CancelToken cancel, ProgressListener listener) {
    byte[] bytes = config == null ? null : config.toByteArray();
    return Messages.parse(
        EvalReport.parser(),
        handle.call(
            raw ->
                CancelToken.with(
                    cancel,
                    token -> Listeners.withProgress(listener, progress -> raw.evaluate(bytes, token, progress)))));
  }

  /**
   * Generates text with the weights as they are now.
   *
   * @param config prompt, length and sampling; its model field is not read
   * @return the report, with the text
   */
  public GenerateReport generate(GenerateConfig config) {
    return generate(config, null, null);
  }

  /**
   * Generates text with the weights as they are now, token by token.
   *
   * @param config prompt, length and sampling; its model field is not read
   * @param cancel ends it with an error
   * @param listener hears of each token, and may end it without one
   * @return the report, with the text
   */
  public GenerateReport generate(GenerateConfig config, CancelToken cancel, TokenListener listener) {
    byte[] bytes = config.toByteArray();
    return Messages.parse(
        GenerateReport.parser(),
        handle.call(
            raw ->
                CancelToken.with(
                    cancel, token -> Listeners.withTokens(listener, tokens -> raw.generate(bytes, token, tokens)))));
  }

  /**
   * Writes a training checkpoint.
   *
   * @param folder must not exist or be empty
   */
  public void save(Path folder) {
    withPath(folder, path -> handle.run(raw -> raw.save(path)));
  }

  /**
   * Loads a training checkpoint; the run continues bit for bit.
   *
   * @param folder what {@link #save} or a run wrote
   */
  public void resume(Path folder) {
    withPath(folder, path -> handle.run(raw -> raw.resume(path)));
  }

  private static void withPath(Path folder, Consumer<byte[]> call) {
    call.accept(Messages.utf8(folder.toString()));
  }

  /**
   * Writes a serving folder of the weights as they are now.
   *
   * @param config where to and as what; its source field is not read
   * @return the report
   */
  public ExportReport export(ExportConfig config) {
    return export(config, null, null);
  }

  /**
   * Writes a serving folder of the weights as they are now. A call that fails or is cancelled leaves no folder.
   *
   * @param config where to and as what; its source field is not read
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public ExportReport export(ExportConfig config, CancelToken cancel, ProgressListener listener) {
    byte[] bytes = config.toByteArray();
    return Messages.parse(
        ExportReport.parser(),
        handle.call(
            raw ->
                CancelToken.with(
                    cancel,
                    token -> Listeners.withProgress(listener, progress -> raw.exportModel(bytes, token, progress)))));
  }

  /** Releases the session, when the last call has returned. */
  @Override
  public void close() {
    handle.close();
  }
}
