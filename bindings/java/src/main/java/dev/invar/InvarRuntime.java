package dev.invar;

import dev.invar.raw.Cancel;
import dev.invar.raw.FileCallback;
import dev.invar.raw.LogCallback;
import dev.invar.raw.NativeConstants;
import dev.invar.raw.ProgressCallback;
import dev.invar.raw.Runtime;
import dev.invar.v1.BenchConfig;
import dev.invar.v1.BenchReport;
import dev.invar.v1.CalibrateConfig;
import dev.invar.v1.CalibrateReport;
import dev.invar.v1.ConvertConfig;
import dev.invar.v1.ConvertReport;
import dev.invar.v1.DType;
import dev.invar.v1.DiffConfig;
import dev.invar.v1.DiffReport;
import dev.invar.v1.ExportConfig;
import dev.invar.v1.ExportReport;
import dev.invar.v1.InfoReport;
import dev.invar.v1.InspectConfig;
import dev.invar.v1.InspectReport;
import dev.invar.v1.LoadConfig;
import dev.invar.v1.MergeConfig;
import dev.invar.v1.MergeReport;
import dev.invar.v1.OpenConfig;
import dev.invar.v1.OptimizerConfig;
import dev.invar.v1.PreviewConfig;
import dev.invar.v1.PreviewReport;
import dev.invar.v1.TokenizerTrainConfig;
import dev.invar.v1.TokenizerTrainReport;
import dev.invar.v1.TrainConfig;
import dev.invar.v1.VerifyConfig;
import dev.invar.v1.VerifyReport;
import java.lang.System.Logger.Level;
import java.nio.ByteBuffer;
import com.google.protobuf.Message;
import com.google.protobuf.Parser;
import java.util.Objects;

/**
 * The thread pool, log sink and files that work shares: everything is made from a runtime.
 *
 * <pre>{@code
 * try (InvarRuntime runtime = InvarRuntime.create()) {
 *   ConvertReport report = runtime.convert(
 *       ConvertConfig.newBuilder().setSource("model-fp8").setDestination("model-bf16").build());
 *   System.out.println(report.getTensorsWritten() + " tensors written");
 * }
 * }</pre>
 *
 * <p>Any thread may use a runtime at any time; work of one runtime takes turns in its thread pool. What was made from it
 * stays valid after it is closed. A gate that fails (verify, diff, calibrate) is no exception: the report says so.
 *
 * <p>In every call of this package a cancel token and a listener may be null, a config may not, unless its method says so.
 */
public final class InvarRuntime implements AutoCloseable {
  private final Handle<Runtime> handle;

  private InvarRuntime(Runtime raw) {
    handle = new Handle<>(this, "runtime", raw, Runtime::delete);
  }

  /**
   * A runtime with every option at its default: one thread for each processor, no log.
   *
   * @return the runtime
   * @throws InvarException when the native library cannot be loaded ("library.missing", "library.abi")
   */
  public static InvarRuntime create() {
    return builder().build();
  }

  /**
   * Options of a runtime.
   *
   * @return a builder at defaults
   */
  public static Builder builder() {
    return new Builder();
  }

  /** Options of a runtime. */
  public static final class Builder {
    private int threads;
    private LogSink log;
    private Level level = Level.INFO;
    private FileSource files;
    private String prefix;

    private Builder() {}

    /**
     * The thread budget, the calling thread included.
     *
     * @param threads 0: one for each usable processor
     * @return this
     */
    public Builder threads(int threads) {
      this.threads = threads;
      return this;
    }

    /**
     * Where log messages go; without a sink nothing is logged.
     *
     * @param least messages below it are left out
     * @param sink the sink
     * @return this
     */
    public Builder log(Level least, LogSink sink) {
      this.level = Objects.requireNonNull(least, "least");
      this.log = Objects.requireNonNull(sink, "sink");
      return this;
    }

    /**
     * Log messages go to a logger of the platform.
     *
     * @param logger the logger; its own level decides what is kept
     * @return this
     */
    public Builder logger(System.Logger logger) {
      for (Level least : new Level[] {Level.DEBUG, Level.INFO, Level.WARNING}) {
        if (logger.isLoggable(least)) return log(least, logger::log);
      }
      return log(Level.ERROR, logger::log);
    }

    /**
     * Paths that begin with the prefix are read through the source.
     *
     * @param prefix "store://"
     * @param source the source
     * @return this
     */
    public Builder files(String prefix, FileSource source) {
      this.prefix = Objects.requireNonNull(prefix, "prefix");
      this.files = Objects.requireNonNull(source, "source");
      return this;
    }

    /**
     * Makes the runtime.
     *
     * @return the runtime
     */
    public InvarRuntime build() {
      NativeLibrary.load();
      LogCallback logCallback = log == null ? null : new SinkBridge(log);
      FileCallback fileCallback = files == null ? null : new FileSourceBridge(files);
      byte[] prefixBytes = prefix == null ? null : Messages.utf8(prefix);
      return new InvarRuntime(new Runtime(threads, logCallback, number(level), fileCallback, prefixBytes));
    }

    private static int number(Level level) {
      return switch (level) {
        case ALL, TRACE, DEBUG -> NativeConstants.INVAR_LOG_DEBUG;
        case INFO -> NativeConstants.INVAR_LOG_INFO;
        case WARNING -> NativeConstants.INVAR_LOG_WARNING;
        case ERROR, OFF -> NativeConstants.INVAR_LOG_ERROR;
      };
    }
  }

  private static final class SinkBridge extends LogCallback {
    private final LogSink sink;

    SinkBridge(LogSink sink) {
      this.sink = sink;
    }

    @Override
    protected void call(int level, String message) {
      sink.log(
          switch (level) {
            case NativeConstants.INVAR_LOG_DEBUG -> Level.DEBUG;
            case NativeConstants.INVAR_LOG_INFO -> Level.INFO;
            case NativeConstants.INVAR_LOG_WARNING -> Level.WARNING;
            default -> Level.ERROR;
          },
          message);
    }
  }

  /**
   * What this library and machine can do.
   *
   * @return the report
   */
  public InfoReport info() {
    return Messages.parse(InfoReport.parser(), handle.call(Runtime::info));
  }

  /**
   * Configs and reports as JSON and text.
   *
   * @return the converter; valid until this runtime is closed
   */
  public Messages messages() {
    return new Messages(handle);
  }

  /**
   * A flag that ends work.
   *
   * @return a token that is not set
   */
  public CancelToken createCancelToken() {
    return new CancelToken(handle.call(Cancel::new));
  }

  // ---- Checkpoints

  private interface Work {
    byte[] run(Runtime raw, byte[] config, Cancel cancel, ProgressCallback progress);
  }

  private <M extends Message> M work(
      Message config, CancelToken cancel, ProgressListener listener, Parser<M> parser, Work work) {
    byte[] bytes = config.toByteArray();
    byte[] report =
        handle.call(
            raw ->
                CancelToken.with(
                    cancel,
                    token -> Listeners.withProgress(listener, progress -> work.run(raw, bytes, token, progress))));
    return Messages.parse(parser, report);
  }

  /**
   * What is stored in a checkpoint, by reading headers only.
   *
   * @param config what to inspect
   * @return the report
   */
  public InspectReport inspect(InspectConfig config) {
    return inspect(config, null, null);
  }

  /**
   * What is stored in a checkpoint, by reading headers only.
   *
   * @param config what to inspect
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public InspectReport inspect(InspectConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, InspectReport.parser(), Runtime::inspect);
  }

  /**
   * Converts a checkpoint. The destination appears under its name only when complete.
   *
   * @param config from where to where, and how
   * @return the report: a line for each tensor
   */
  public ConvertReport convert(ConvertConfig config) {
    return convert(config, null, null);
  }

  /**
   * Converts a checkpoint. The destination appears under its name only when complete.
   *
   * @param config from where to where, and how
   * @param cancel ends it
   * @param listener hears of it
   * @return the report: a line for each tensor
   */
  public ConvertReport convert(ConvertConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, ConvertReport.parser(), Runtime::convert);
  }

  /**
   * Proves a converted folder against its source again.
   *
   * @param config the two folders
   * @return the report
   */
  public VerifyReport verify(VerifyConfig config) {
    return verify(config, null, null);
  }

  /**
   * Proves a converted folder against its source again.
   *
   * @param config the two folders
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public VerifyReport verify(VerifyConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, VerifyReport.parser(), Runtime::verify);
  }

  /**
   * Compares two checkpoints, tensor by tensor.
   *
   * @param config the two folders
   * @return the report
   */
  public DiffReport diff(DiffConfig config) {
    return diff(config, null, null);
  }

  /**
   * Compares two checkpoints, tensor by tensor.
   *
   * @param config the two folders
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public DiffReport diff(DiffConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, DiffReport.parser(), Runtime::diff);
  }

  /**
   * Loss, KL and agreement of two checkpoints on the same tokens.
   *
   * @param config the two folders and the text
   * @return the report
   */
  public CalibrateReport calibrate(CalibrateConfig config) {
    return calibrate(config, null, null);
  }

  /**
   * Loss, KL and agreement of two checkpoints on the same tokens.
   *
   * @param config the two folders and the text
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public CalibrateReport calibrate(CalibrateConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, CalibrateReport.parser(), Runtime::calibrate);
  }

  /**
   * A training checkpoint as a serving folder.
   *
   * @param config from where to where, and as what
   * @return the report
   */
  public ExportReport export(ExportConfig config) {
    return export(config, null, null);
  }

  /**
   * A training checkpoint as a serving folder.
   *
   * @param config from where to where, and as what
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public ExportReport export(ExportConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, ExportReport.parser(), Runtime::exportCheckpoint);
  }

  /**
   * Folds a LoRA adapter into its base.
   *
   * @param config base, adapter and the folder to write
   * @return the report
   */
  public MergeReport merge(MergeConfig config) {
    return merge(config, null, null);
  }

  /**
   * Folds a LoRA adapter into its base.
   *
   * @param config base, adapter and the folder to write
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public MergeReport merge(MergeConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, MergeReport.parser(), Runtime::merge);
  }

  /**
   * Measures this machine.
   *
   * @param config what to measure
   * @return the report
   */
  public BenchReport bench(BenchConfig config) {
    return bench(config, null, null);
  }

  /**
   * Measures this machine.
   *
   * @param config what to measure
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public BenchReport bench(BenchConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, BenchReport.parser(), Runtime::bench);
  }

  // ---- Text

  /**
   * Learns a byte-level vocabulary from text.
   *
   * @param config the text, the size, and where the vocabulary goes
   * @return the report
   */
  public TokenizerTrainReport trainTokenizer(TokenizerTrainConfig config) {
    return trainTokenizer(config, null, null);
  }

  /**
   * Learns a byte-level vocabulary from text.
   *
   * @param config the text, the size, and where the vocabulary goes
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public TokenizerTrainReport trainTokenizer(
      TokenizerTrainConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, TokenizerTrainReport.parser(), Runtime::trainTokenizer);
  }

  /**
   * Data files as training sees them, token by token: what is in a document, and where its loss counts.
   *
   * @param config the data
   * @return the report
   */
  public PreviewReport previewData(PreviewConfig config) {
    return previewData(config, null, null);
  }

  /**
   * Data files as training sees them, token by token: what is in a document, and where its loss counts.
   *
   * @param config the data
   * @param cancel ends it
   * @param listener hears of it
   * @return the report
   */
  public PreviewReport previewData(PreviewConfig config, CancelToken cancel, ProgressListener listener) {
    return work(config, cancel, listener, PreviewReport.parser(), Runtime::previewData);
  }

  // ---- What is made from a runtime

  /**
   * Loads a tokenizer.
   *
   * @param path a tokenizer.json, a SentencePiece model (*.model), or the folder that holds one of them
   * @return the tokenizer
   * @throws InvarException "tokenizer.unsupported" names what is not supported in the file
   */
  public Tokenizer loadTokenizer(String path) {
    byte[] bytes = Messages.utf8(path);
    return new Tokenizer(handle.call(raw -> new dev.invar.raw.Tokenizer(raw, bytes)));
  }

  /**
   * Opens a checkpoint for reading tensor by tensor. Every tensor gets exactly one rule, or this fails as a conversion
   * would.
   *
   * @param config which one
   * @return the checkpoint
   */
  public Checkpoint openCheckpoint(OpenConfig config) {
    byte[] bytes = config.toByteArray();
    return new Checkpoint(handle.call(raw -> new dev.invar.raw.Checkpoint(raw, bytes)));
  }

  /**
   * Loads a model for evaluation and generation.
   *
   * @param config which one
   * @return the model
   */
  public Model loadModel(LoadConfig config) {
    return loadModel(config, null, null);
  }

  /**
   * Loads a model for evaluation and generation.
   *
   * @param config which one
   * @param cancel ends it
   * @param listener hears of it
   * @return the model
   */
  public Model loadModel(LoadConfig config, CancelToken cancel, ProgressListener listener) {
    byte[] bytes = config.toByteArray();
    return new Model(
        handle.call(
            raw ->
                CancelToken.with(
                    cancel,
                    token ->
                        Listeners.withProgress(
                            listener, progress -> new dev.invar.raw.Model(raw, bytes, token, progress)))));
  }

  /**
   * Makes a training session: the model is made or loaded, text is read.
   *
   * @param config the whole run; a host-driven session needs neither data.paths nor output
   * @return the session
   */
  public Session createSession(TrainConfig config) {
    return createSession(config, null, null);
  }

  /**
   * Makes a training session: the model is made or loaded, text is read.
   *
   * @param config the whole run; a host-driven session needs neither data.paths nor output
   * @param cancel ends it
   * @param listener hears of it
   * @return the session
   */
  public Session createSession(TrainConfig config, CancelToken cancel, ProgressListener listener) {
    byte[] bytes = config.toByteArray();
    return new Session(
        handle.call(
            raw ->
                CancelToken.with(
                    cancel,
                    token ->
                        Listeners.withProgress(
                            listener, progress -> new dev.invar.raw.Session(raw, bytes, token, progress)))));
  }

  /**
   * A tensor of zeros in the library's memory.
   *
   * @param dtype the format of its elements
   * @param shape sizes, 0 or more; at most 8 of them
   * @return the tensor
   */
  public Tensor createTensor(DType dtype, long... shape) {
    Objects.requireNonNull(shape, "shape");
    return new Tensor(handle.call(raw -> new dev.invar.raw.Tensor(raw, dtype.getNumber(), shape)));
  }

  /**
   * A tensor over the caller's own memory, not copied; the tensor keeps the buffer alive.
   *
   * @param dtype the format of its elements
   * @param memory a direct buffer; the elements are those from its position to its limit
   * @param shape sizes, 0 or more; at most 8 of them
   * @return the tensor
   * @throws IllegalArgumentException for a buffer that is not direct, or is read-only
   */
  public Tensor viewTensor(DType dtype, ByteBuffer memory, long... shape) {
    Buffers.requireWritable("memory", memory);
    Objects.requireNonNull(shape, "shape");
    ByteBuffer slice = memory.slice();
    return new Tensor(
        handle.call(raw -> dev.invar.raw.Tensor.view(raw, dtype.getNumber(), shape, slice, slice)));
  }

  /**
   * Takes a tensor over from another native library in this process: DLPack 1.x, on the CPU, row-major without gaps.
   *
   * @param managed the address of a DLManagedTensorVersioned; on success it belongs to the tensor
   * @return the tensor
   */
  public Tensor importDlpack(long managed) {
    return new Tensor(handle.call(raw -> dev.invar.raw.Tensor.fromDlpack(raw, managed)));
  }

  /**
   * An optimizer for the caller's own tensors.
   *
   * @param config kind and coefficients
   * @return the optimizer, without parameters
   */
  public Optimizer createOptimizer(OptimizerConfig config) {
    byte[] bytes = config.toByteArray();
    return new Optimizer(handle.call(raw -> new dev.invar.raw.Optimizer(raw, bytes)));
  }

  /**
   * FP32 sums of gradients over the micro-batches of a window.
   *
   * @param elements of each gradient, one number each
   * @return the accumulator, at zero
   */
  public Accumulator createAccumulator(long... elements) {
    Objects.requireNonNull(elements, "elements");
    return new Accumulator(handle.call(raw -> new dev.invar.raw.Accumulator(raw, elements)));
  }

  /** Releases the runtime; what was made from it keeps what it needs. */
  @Override
  public void close() {
    handle.close();
  }
}
