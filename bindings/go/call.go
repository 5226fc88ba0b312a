package invar

import (
	"context"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar/internal/raw"
)

// ProgressKind says which fields of a Progress are set.
type ProgressKind int32

// The kinds.
const (
	ProgressWork ProgressKind = 1 // Done and Total moved
	ProgressStep ProgressKind = 2 // Step is set
	ProgressEval ProgressKind = 3 // Eval is set
	ProgressNote ProgressKind = 4 // Detail says something worth a line
)

// Progress is one event of a long call.
type Progress struct {
	Kind        ProgressKind
	Stage       string // "convert", "verify", "calibrate", "train", "eval", "save", ...
	Detail      string // a tensor's name, a path or a sentence; may be empty
	Unit        string // of Done and Total: "bytes", "tensors", "tokens", "steps"
	Done, Total int64  // Total is 0 when it is not known
	Elapsed     time.Duration
	Step        *StepMetrics
	Eval        *EvalMetrics
}

// An Option of a long call.
type Option func(*options)

type options struct {
	progress func(Progress) error
}

// OnProgress calls function with every event, on the goroutine that made the call. An error stops the work; the call
// then returns an Error with Code Aborted whose Cause is that error. A panic becomes an error too (ReasonCallbackPanic).
// function must not end its goroutine (runtime.Goexit, testing's FailNow). It may use every object that is not at work.
func OnProgress(function func(Progress) error) Option {
	return func(o *options) { o.progress = function }
}

// guard runs a callback; what it returned or panicked with is kept for the call's error, and stops the work.
type guard struct{ err error }

func (g *guard) run(function func() error) (stop int32) {
	defer func() {
		if value := recover(); value != nil {
			g.err = &PanicError{Value: value, Stack: debug.Stack()}
			stop = 1
		}
	}()
	if err := function(); err != nil {
		g.err = err
		return 1
	}
	return 0
}

// progressID registers the progress function of a call; 0 when there is none.
func (g *guard) progressID(given []Option) uintptr {
	var o options
	for _, option := range given {
		if option != nil {
			option(&o)
		}
	}
	if o.progress == nil {
		return 0
	}
	return raw.Register(raw.ProgressFunc(func(event *raw.Progress) int32 {
		progress := Progress{
			Kind:    ProgressKind(event.Kind),
			Stage:   event.Stage,
			Detail:  event.Detail,
			Unit:    event.Unit,
			Done:    event.Done,
			Total:   event.Total,
			Elapsed: event.Elapsed,
		}
		if event.Step != nil {
			metrics := stepMetrics(*event.Step)
			progress.Step = &metrics
		}
		if event.Eval != nil {
			metrics := EvalMetrics(*event.Eval)
			progress.Eval = &metrics
		}
		return g.run(func() error { return o.progress(progress) })
	}))
}

// cancelWith is a cancel object that ctx sets; done releases it. Both are no-ops for a context that cannot end.
func cancelWith(ctx context.Context, runtime raw.Runtime) (cancel raw.Cancel, done func(), err error) {
	if ctx == nil || ctx.Done() == nil {
		return nil, func() {}, nil
	}
	if ctx.Err() != nil {
		return nil, nil, explain(&Error{Code: Cancelled, Reason: "cancelled", Message: "the context ended before the call"}, nil, ctx)
	}
	var word uintptr
	cancel = raw.NewCancel(runtime, &word)
	if err := failure(word); err != nil {
		return nil, nil, err
	}
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		cancel.Request()
		close(set)
	})
	return cancel, func() {
		if !stop() {
			<-set // it runs or has run: the object must not go before
		}
		raw.DeleteCancel(cancel)
	}, nil
}

// work is one long call: config in, progress and cancel on the way, a report out.
func work(ctx context.Context, runtime *Runtime, config, report proto.Message, given []Option,
	call func(config []byte, cancel raw.Cancel, progress uintptr, word *uintptr) uintptr) error {
	encoded, err := encode(config)
	if err != nil {
		return err
	}
	cancel, done, err := cancelWith(ctx, runtime.raw)
	if err != nil {
		return err
	}
	defer done()
	var g guard
	var word uintptr
	result := call(encoded, cancel, g.progressID(given), &word)
	if err := failure(word); err != nil {
		return explain(err, g.err, ctx)
	}
	return decode(result, report)
}

// encode serialises a config; nil is the empty one.
func encode(config proto.Message) ([]byte, error) {
	if config == nil || !config.ProtoReflect().IsValid() {
		return nil, nil
	}
	encoded, err := proto.Marshal(config)
	if err != nil {
		return nil, &Error{Code: InvalidArgument, Reason: "config.encoding", Message: err.Error(), Cause: err}
	}
	return encoded, nil
}

// decode takes a result of the library.
func decode(result uintptr, message proto.Message) error {
	var err error
	raw.TakeBytes(result, func(bytes []byte) {
		if message != nil {
			err = proto.Unmarshal(bytes, message)
		}
	})
	if err != nil {
		return &Error{Code: Internal, Reason: "report.encoding", Message: err.Error(), Cause: err}
	}
	return nil
}
