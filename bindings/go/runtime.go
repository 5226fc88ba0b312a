package invar

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"

	"invar.dev/invar/internal/raw"
	"invar.dev/invar/invarv1"
)

// Options of a Runtime. The zero value takes every default.
type Options struct {
	// Threads is the thread budget, the calling thread included; 0: one for each usable processor.
	Threads int
	// Logger takes the library's log lines; nil: nothing is logged. It is called from any thread.
	Logger *slog.Logger
	// Files reads the paths that begin with FilePrefix ("store://"), without the prefix; nil: the operating system
	// reads every path. Its files implement io.ReaderAt, or io.ReadSeeker. It is called from any thread.
	Files      fs.FS
	FilePrefix string
}

// Runtime is what work shares: the thread pool, the log sink, files. Any number of goroutines may use it. Objects made
// from it keep it alive inside: it may be closed before them.
type Runtime struct {
	handle
	raw raw.Runtime
}

// NewRuntime starts a runtime. It fails when library and package are not of one ABI.
func NewRuntime(given Options) (*Runtime, error) {
	if loaded := raw.AbiVersion(); loaded != raw.ABI {
		return nil, &Error{Code: FailedPrecondition, Reason: ReasonABI, Message: fmt.Sprintf(
			"libinvar %s has ABI %d, this package was built for ABI %d", raw.VersionString(), loaded, raw.ABI)}
	}
	if given.Threads < 0 || given.Threads > 1<<20 {
		return nil, invalid("argument.threads", "Options.Threads %d is not a number of threads", given.Threads)
	}
	if (given.Files != nil) != (given.FilePrefix != "") {
		return nil, invalid("argument.files", "Options.Files and Options.FilePrefix go together")
	}
	var log, files uintptr
	level := int32(logInfo)
	if given.Logger != nil {
		log, level = raw.Register(logTo(given.Logger)), lowestLevel(given.Logger)
	}
	if given.Files != nil {
		files = raw.Register(raw.Files(newHostFiles(given.Files, given.FilePrefix)))
	}
	var word uintptr
	made := raw.NewRuntime(int32(given.Threads), log, level, files, given.FilePrefix, &word)
	if err := failure(word); err != nil {
		return nil, err
	}
	runtime := &Runtime{raw: made}
	runtime.handle.what = "runtime"
	runtime.handle.release = func() { raw.DeleteRuntime(made) }
	return net(runtime), nil
}

// Close gives the runtime up. It may be called at any time and more than once; calls at work end first.
func (r *Runtime) Close() error {
	if r == nil {
		return nil
	}
	return r.close()
}

// self is the handle of a possibly nil object.
func (r *Runtime) self() *handle {
	if r == nil {
		return nil
	}
	return &r.handle
}

// Info is what this library and machine can do.
func (r *Runtime) Info() (*invarv1.InfoReport, error) {
	end, err := begin(r.self())
	if err != nil {
		return nil, err
	}
	defer end()
	var word uintptr
	result := r.raw.Info(&word)
	if err := failure(word); err != nil {
		return nil, err
	}
	report := new(invarv1.InfoReport)
	return report, decode(result, report)
}

// Version is the loaded library's, "0.1.0".
func Version() string { return raw.VersionString() }

// VersionNumber is the loaded library's, major * 1000000 + minor * 1000 + patch.
func VersionNumber() int { return int(raw.VersionNumber()) }

// ABIVersion is the loaded library's ABI number; NewRuntime compares it with the package's.
func ABIVersion() int { return int(raw.AbiVersion()) }

// BuildInfo is version, compiler and build options of the library, a few lines for bug reports.
func BuildInfo() string { return raw.BuildInfo() }

// HasFeature tells whether the library can do something by name: "cuda", "fp8_block", "gguf", "generate", ...
func HasFeature(name string) bool { return raw.FeatureQuery(name) }

// Inspect tells what a checkpoint stores, by reading headers only.
func (r *Runtime) Inspect(ctx context.Context, config *invarv1.InspectConfig, options ...Option) (*invarv1.InspectReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.InspectReport), options, raw.Runtime.Inspect)
}

// Convert writes a checkpoint in another form, with proof. The destination appears under its name only when complete.
func (r *Runtime) Convert(ctx context.Context, config *invarv1.ConvertConfig, options ...Option) (*invarv1.ConvertReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.ConvertReport), options, raw.Runtime.Convert)
}

// Verify proves a converted folder against its source again. A mismatch is no error: the report says so.
func (r *Runtime) Verify(ctx context.Context, config *invarv1.VerifyConfig, options ...Option) (*invarv1.VerifyReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.VerifyReport), options, raw.Runtime.Verify)
}

// Diff compares two checkpoints tensor by tensor. A difference is no error: the report says so.
func (r *Runtime) Diff(ctx context.Context, config *invarv1.DiffConfig, options ...Option) (*invarv1.DiffReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.DiffReport), options, raw.Runtime.Diff)
}

// Calibrate runs two checkpoints on the same tokens. A gate that fails is no error: the report says so.
func (r *Runtime) Calibrate(ctx context.Context, config *invarv1.CalibrateConfig, options ...Option) (*invarv1.CalibrateReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.CalibrateReport), options, raw.Runtime.Calibrate)
}

// Export writes a training checkpoint as a serving folder.
func (r *Runtime) Export(ctx context.Context, config *invarv1.ExportConfig, options ...Option) (*invarv1.ExportReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.ExportReport), options, raw.Runtime.ExportCheckpoint)
}

// Merge folds a LoRA adapter into its base.
func (r *Runtime) Merge(ctx context.Context, config *invarv1.MergeConfig, options ...Option) (*invarv1.MergeReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.MergeReport), options, raw.Runtime.Merge)
}

// Bench measures this machine.
func (r *Runtime) Bench(ctx context.Context, config *invarv1.BenchConfig, options ...Option) (*invarv1.BenchReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.BenchReport), options, raw.Runtime.Bench)
}
