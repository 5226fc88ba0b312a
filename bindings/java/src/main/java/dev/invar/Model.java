package dev.invar;

import dev.invar.v1.EvalConfig;
import dev.invar.v1.EvalReport;
import dev.invar.v1.GenerateConfig;
import dev.invar.v1.GenerateReport;
import dev.invar.v1.ModelInfo;

/**
 * A model loaded for evaluation and generation. One thread at a time, any thread in turn: a second call meanwhile fails
 * with {@link Code#FAILED_PRECONDITION} ("handle.busy"). Made by {@link InvarRuntime#loadModel}.
 */
public final class Model implements AutoCloseable {
  private final Handle<dev.invar.raw.Model> handle;

  Model(dev.invar.raw.Model raw) {
    handle = new Handle<>(this, "model", raw, dev.invar.raw.Model::delete);
  }

  /**
   * Shape, family and size.
   *
   * @return the description
   */
  public ModelInfo info() {
    return Messages.parse(ModelInfo.parser(), handle.call(dev.invar.raw.Model::info));
  }

  /**
   * Token loss and perplexity of text.
   *
   * @param config the text; its model field is not read
   * @return the report
   */
  public EvalReport evaluate(EvalConfig config) {
    return evaluate(config, null, null);
  }

  /**
   * Token loss and perplexity of text.
   *
   * @param config the text; its model field is not read
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public EvalReport evaluate(EvalConfig config, CancelToken cancel, ProgressListener listener) {
    byte[] bytes = config.toByteArray();
    return Messages.parse(
        EvalReport.parser(),
        handle.call(
            raw ->
                CancelToken.with(
                    cancel,
                    token -> Listeners.withProgress(listener, progress -> raw.evaluate(bytes, token, progress)))));
  }

  /**
   * Generates text.
   *
   * @param config prompt, length and sampling; its model field is not read
   * @return the report, with the text
   */
  public GenerateReport generate(GenerateConfig config) {
    return generate(config, null, null);
  }

  /**
   * Generates text, token by token.
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

  /** Releases the model, when the last call has returned. */
  @Override
  public void close() {
    handle.close();
  }
}
