package invar

import (
	"context"
	"iter"

	"invar.dev/invar/internal/raw"
	"invar.dev/invar/invarv1"
)

// Token is one generated token.
type Token struct {
	ID    int32
	Index int64 // 0 for the first generated token
	// Text is what this token completes, whole UTF-8 characters; empty while a character is incomplete.
	Text string
}

// Model is a model loaded for evaluation and generation. One goroutine at a time: a second call meanwhile fails with
// ReasonBusy. Close may come from any goroutine at any time.
type Model struct {
	handle
	runtime *Runtime
	raw     raw.Model
}

// LoadModel reads a model's weights and tokenizer.
func LoadModel(ctx context.Context, runtime *Runtime, config *invarv1.LoadConfig, options ...Option) (*Model, error) {
	made, err := create(ctx, runtime, config, options, raw.NewModel)
	if err != nil {
		return nil, err
	}
	model := &Model{runtime: runtime, raw: made}
	model.adopt("model", runtime.self(), func() { raw.DeleteModel(made) })
	return net(model), nil
}

// Close gives the model up. It may be called at any time and more than once; a call at work ends first.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	return m.close()
}

func (m *Model) self() *handle {
	if m == nil {
		return nil
	}
	return &m.handle
}

func (m *Model) native() raw.Model { return m.raw }

// Info is what the model is made of.
func (m *Model) Info() (*invarv1.ModelInfo, error) {
	return brief(m.self(), m.native, new(invarv1.ModelInfo), raw.Model.Info)
}

// Evaluate is the token loss and perplexity of text; the config's model field is not read.
func (m *Model) Evaluate(ctx context.Context, config *invarv1.EvalConfig, options ...Option) (*invarv1.EvalReport, error) {
	if m == nil {
		return nil, m.self().begin()
	}
	return on(ctx, m.self(), m.runtime, m.native, config, new(invarv1.EvalReport), options, raw.Model.Evaluate)
}

// Generate makes text; the config's model field is not read.
func (m *Model) Generate(ctx context.Context, config *invarv1.GenerateConfig) (*invarv1.GenerateReport, error) {
	return m.generate(ctx, config, nil)
}

// Tokens generates token by token. Leaving the loop ends the generation; an error is the last thing it yields.
//
//	for token, err := range model.Tokens(ctx, config) { ... }
func (m *Model) Tokens(ctx context.Context, config *invarv1.GenerateConfig) iter.Seq2[Token, error] {
	return stream(ctx, func(ctx context.Context, emit func(Token) error) error {
		_, err := m.generate(ctx, config, emit)
		return err
	})
}

func (m *Model) generate(ctx context.Context, config *invarv1.GenerateConfig, emit func(Token) error) (*invarv1.GenerateReport, error) {
	if m == nil {
		return nil, m.self().begin()
	}
	return generate(ctx, m.self(), m.runtime, m.native, config, emit, raw.Model.Generate)
}

// generate is common to models and sessions. What emit returns stops the generation; a failure of its own is the
// call's.
func generate[H any](ctx context.Context, h *handle, runtime *Runtime, object func() H, config *invarv1.GenerateConfig,
	emit func(Token) error, method reporter[H]) (*invarv1.GenerateReport, error) {
	var g guard
	report, err := on(ctx, h, runtime, object, config, new(invarv1.GenerateReport), nil,
		func(object H, config []byte, cancel raw.Cancel, _ uintptr, word *uintptr) uintptr {
			var token uintptr
			if emit != nil {
				token = raw.Register(raw.TokenFunc(func(token raw.Token) int32 {
					return g.run(func() error { return emit(Token(token)) })
				}))
			}
			return method(object, config, cancel, token, word)
		})
	if err != nil {
		return nil, err
	}
	// Stopping is a result for the library; here the callback's error, if it was one, is told.
	if g.err != nil {
		return nil, explain(&Error{Code: Aborted, Reason: "callback.stopped", Message: "stopped by a callback"}, g.err, ctx)
	}
	return report, nil
}
