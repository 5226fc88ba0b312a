package invar

import (
	"context"
	"errors"
	"iter"
	"time"

	"invar.dev/invar/internal/raw"
	"invar.dev/invar/invarv1"
)

// LadderEvent is what the precision ladder did after a step.
type LadderEvent int32

// The events.
const (
	LadderNone     LadderEvent = 0
	LadderRaised   LadderEvent = 1
	LadderFellBack LadderEvent = 2
	LadderFinal    LadderEvent = 3
)

// StepMetrics is one optimizer step. What is not known is NaN.
type StepMetrics struct {
	Recipe          invarv1.Recipe
	Step            int64   // 1 for the first
	Loss            float64 // mean token loss over the window, nats
	LR              float64
	GradNorm        float64 // global norm before clipping
	Tokens          int64   // with loss in this step
	TotalTokens     int64
	Elapsed         time.Duration
	TokensPerSecond float64
	TotalSkipped    int64
	Skipped         bool // gradients were not finite, nothing was updated
	LadderEvent     LadderEvent
}

func stepMetrics(step raw.Step) StepMetrics {
	return StepMetrics{
		Recipe:          invarv1.Recipe(step.Recipe),
		Step:            step.Step,
		Loss:            step.Loss,
		LR:              step.LR,
		GradNorm:        step.GradNorm,
		Tokens:          step.Tokens,
		TotalTokens:     step.TotalTokens,
		Elapsed:         step.Elapsed,
		TokensPerSecond: step.TokensPerSecond,
		TotalSkipped:    step.TotalSkipped,
		Skipped:         step.Skipped,
		LadderEvent:     LadderEvent(step.LadderEvent),
	}
}

// EvalMetrics is one evaluation during training.
type EvalMetrics struct {
	Step       int64   // optimizer steps done
	Loss       float64 // mean token loss, nats
	Perplexity float64
	Tokens     int64
	Elapsed    time.Duration
}

// Batch is one micro-batch, row-major [Sequences, SequenceLength]. The slices are read in place, not copied by Go.
type Batch struct {
	Sequences, SequenceLength int
	IDs                       []int32
	// Targets is what each position predicts; negative: no loss there. nil: the next id of the row, none at its end.
	Targets []int32
	// Mask is 1 where a position's loss counts, 0 where not; nil: everywhere.
	Mask []byte
}

// Loss is of one micro-batch.
type Loss struct {
	Sum    float64 // of token losses, nats
	Tokens int64   // that carried loss
}

// Session trains a model.
//
// Library-driven: Run, or Steps, takes batches from the config's data until its last step. Host-driven: for every
// optimizer step Begin, ForwardBackward for each micro-batch, Step. The two may alternate between steps.
//
// One goroutine at a time: a second call meanwhile fails with ReasonBusy. Close may come from any goroutine at any time.
type Session struct {
	handle
	runtime *Runtime
	raw     raw.Session
}

// NewSession makes or loads the model of a training run.
func NewSession(ctx context.Context, runtime *Runtime, config *invarv1.TrainConfig, options ...Option) (*Session, error) {
	made, err := create(ctx, runtime, config, options, raw.NewSession)
	if err != nil {
		return nil, err
	}
	session := &Session{runtime: runtime, raw: made}
	session.adopt("session", runtime.self(), func() { raw.DeleteSession(made) })
	return net(session), nil
}

// Close gives the session up. It may be called at any time and more than once; a call at work ends first.
func (s *Session) Close() error {
	if s == nil {
		return nil
	}
	return s.close()
}

func (s *Session) self() *handle {
	if s == nil {
		return nil
	}
	return &s.handle
}

func (s *Session) native() raw.Session { return s.raw }

// Run trains to the config's last step. When ctx ends it writes a training checkpoint and fails with Cancelled; the
// session stays valid and may run on.
func (s *Session) Run(ctx context.Context, options ...Option) (*invarv1.TrainReport, error) {
	if s == nil {
		return nil, s.self().begin()
	}
	return on(ctx, s.self(), s.runtime, s.native, nil, new(invarv1.TrainReport), options,
		func(session raw.Session, _ []byte, cancel raw.Cancel, progress uintptr, word *uintptr) uintptr {
			return session.Run(cancel, progress, word)
		})
}

// Steps is Run as a loop over the metrics of its steps. Leaving the loop stops the run; an error is the last thing it
// yields.
func (s *Session) Steps(ctx context.Context) iter.Seq2[StepMetrics, error] {
	return stream(ctx, func(ctx context.Context, emit func(StepMetrics) error) error {
		_, err := s.Run(ctx, OnProgress(func(progress Progress) error {
			if progress.Step == nil {
				return nil
			}
			return emit(*progress.Step)
		}))
		return err
	})
}

// Report is what the session has done so far.
func (s *Session) Report() (*invarv1.TrainReport, error) {
	return brief(s.self(), s.native, new(invarv1.TrainReport), raw.Session.Report)
}

// Info is what the model is made of.
func (s *Session) Info() (*invarv1.ModelInfo, error) {
	return brief(s.self(), s.native, new(invarv1.ModelInfo), raw.Session.Info)
}

// short runs a method without a result.
func (s *Session) short(call func(word *uintptr)) error {
	h := s.self()
	if err := h.begin(); err != nil {
		return err
	}
	defer h.end()
	var word uintptr
	call(&word)
	return failure(word)
}

// Begin opens an accumulation window of microBatches calls of ForwardBackward, and drops what an unfinished one gathered.
func (s *Session) Begin(microBatches int) error {
	return s.short(func(word *uintptr) { s.raw.Begin(int64(microBatches), word) })
}

// ForwardBackward adds one micro-batch's gradients to the window.
func (s *Session) ForwardBackward(batch Batch) (Loss, error) {
	tokens := batch.Sequences * batch.SequenceLength
	if batch.Sequences < 1 || batch.SequenceLength < 1 || tokens/batch.Sequences != batch.SequenceLength {
		return Loss{}, invalid("batch.shape", "the batch has %d sequences of %d tokens", batch.Sequences, batch.SequenceLength)
	}
	if len(batch.IDs) != tokens || (batch.Targets != nil && len(batch.Targets) != tokens) ||
		(batch.Mask != nil && len(batch.Mask) != tokens) {
		return Loss{}, invalid("batch.shape", "%d x %d tokens need as many IDs, and as many Targets and Mask or none; they are %d, %d and %d",
			batch.Sequences, batch.SequenceLength, len(batch.IDs), len(batch.Targets), len(batch.Mask))
	}
	loss := raw.NewLoss()
	err := s.short(func(word *uintptr) {
		s.raw.ForwardBackward(int64(batch.Sequences), int64(batch.SequenceLength), batch.IDs, batch.Targets, batch.Mask, &loss, word)
	})
	if err != nil {
		return Loss{}, err
	}
	sum, counted := loss.Fields()
	return Loss{Sum: sum, Tokens: counted}, nil
}

// Step closes the window: mean over its tokens, clip, update. Gradients that are not finite skip the update
// (StepMetrics.Skipped); too many in a row are an error.
func (s *Session) Step() (StepMetrics, error) {
	return s.step(func(metrics *raw.StepMetrics, word *uintptr) { s.raw.Step(metrics, word) })
}

// StepWithLR is Step with the host's own learning rate; the schedule counts on.
func (s *Session) StepWithLR(lr float64) (StepMetrics, error) {
	return s.step(func(metrics *raw.StepMetrics, word *uintptr) { s.raw.StepWithLr(lr, metrics, word) })
}

func (s *Session) step(call func(metrics *raw.StepMetrics, word *uintptr)) (StepMetrics, error) {
	metrics := raw.NewStepMetrics()
	if err := s.short(func(word *uintptr) { call(&metrics, word) }); err != nil {
		return StepMetrics{}, err
	}
	return stepMetrics(metrics.Fields()), nil
}

// Evaluate is token loss and perplexity with the weights as they are; a nil config evaluates the held-out data.
func (s *Session) Evaluate(ctx context.Context, config *invarv1.EvalConfig, options ...Option) (*invarv1.EvalReport, error) {
	if s == nil {
		return nil, s.self().begin()
	}
	return on(ctx, s.self(), s.runtime, s.native, config, new(invarv1.EvalReport), options, raw.Session.Evaluate)
}

// Generate makes text with the weights as they are.
func (s *Session) Generate(ctx context.Context, config *invarv1.GenerateConfig) (*invarv1.GenerateReport, error) {
	return s.generate(ctx, config, nil)
}

// Tokens generates token by token, as Model.Tokens.
func (s *Session) Tokens(ctx context.Context, config *invarv1.GenerateConfig) iter.Seq2[Token, error] {
	return stream(ctx, func(ctx context.Context, emit func(Token) error) error {
		_, err := s.generate(ctx, config, emit)
		return err
	})
}

func (s *Session) generate(ctx context.Context, config *invarv1.GenerateConfig, emit func(Token) error) (*invarv1.GenerateReport, error) {
	if s == nil {
		return nil, s.self().begin()
	}
	return generate(ctx, s.self(), s.runtime, s.native, config, emit, raw.Session.Generate)
}

// Save writes a training checkpoint to a folder that does not exist or is empty.
func (s *Session) Save(path string) error {
	return s.short(func(word *uintptr) { s.raw.Save(path, word) })
}

// Resume loads a training checkpoint; the run continues bit for bit.
func (s *Session) Resume(path string) error {
	return s.short(func(word *uintptr) { s.raw.Resume(path, word) })
}

// Export writes a serving folder of the weights as they are; the config's source is not read.
func (s *Session) Export(ctx context.Context, config *invarv1.ExportConfig, options ...Option) (*invarv1.ExportReport, error) {
	if s == nil {
		return nil, s.self().begin()
	}
	return on(ctx, s.self(), s.runtime, s.native, config, new(invarv1.ExportReport), options, raw.Session.ExportModel)
}

// IsCancelled tells whether err is a call's that ended because its context did, by cancellation or deadline.
func IsCancelled(err error) bool {
	return errors.Is(err, Cancelled) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
