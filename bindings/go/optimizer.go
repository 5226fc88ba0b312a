package invar

import (
	"google.golang.org/protobuf/proto"

	"invar.dev/invar/internal/raw"
	"invar.dev/invar/invarv1"
)

// OptimizerResult is one update.
type OptimizerResult struct {
	Skipped    bool    // gradients were not finite, nothing was updated
	Step       int64   // updates done
	GradNorm   float64 // global norm of gradient * scale before clipping
	ClipFactor float64 // 1 when not clipped
}

// State is what an optimizer keeps for each parameter.
type State int32

// The states.
const (
	Master       State = 1
	FirstMoment  State = 2
	SecondMoment State = 3
)

// Optimizer updates the host's own tensors. One goroutine at a time; Close may come at any time.
type Optimizer struct {
	handle
	raw raw.Optimizer
}

// NewOptimizer makes an optimizer without parameters.
func NewOptimizer(runtime *Runtime, config *invarv1.OptimizerConfig) (*Optimizer, error) {
	encoded, err := encode(proto.Message(config))
	if err != nil {
		return nil, err
	}
	if err := runtime.self().begin(); err != nil {
		return nil, err
	}
	var word uintptr
	made := raw.NewOptimizer(runtime.raw, encoded, &word)
	if err := failure(word); err != nil {
		runtime.end()
		return nil, err
	}
	optimizer := &Optimizer{raw: made}
	optimizer.adopt("optimizer", runtime.self(), func() { raw.DeleteOptimizer(made) })
	return net(optimizer), nil
}

// Close gives the optimizer up. It may be called at any time and more than once.
func (o *Optimizer) Close() error {
	if o == nil {
		return nil
	}
	return o.close()
}

func (o *Optimizer) self() *handle {
	if o == nil {
		return nil
	}
	return &o.handle
}

// Add takes a parameter: FP32, updated in place, or BF16, with an FP32 master inside. decays: the config's weight decay
// applies to it. All parameters are added before the first step or state. It returns 0, 1, ...
func (o *Optimizer) Add(parameter *Tensor, decays bool) (int64, error) {
	end, err := begin(o.self(), parameter.self())
	if err != nil {
		return 0, err
	}
	defer end()
	var word uintptr
	index := o.raw.Add(parameter.raw, decays, &word)
	return index, failure(word)
}

// Step updates every parameter. gradients: one FP32 tensor for each, in the order of their indices. gradScale multiplies
// every gradient first (1 / tokens).
func (o *Optimizer) Step(gradients []*Tensor, lr, gradScale float64) (OptimizerResult, error) {
	handles := []*handle{o.self()}
	for _, gradient := range gradients {
		handles = append(handles, gradient.self())
	}
	end, err := begin(handles...)
	if err != nil {
		return OptimizerResult{}, err
	}
	defer end()
	words := make([]uintptr, len(gradients))
	for i, gradient := range gradients {
		words[i] = gradient.raw.Swigcptr()
	}
	result := raw.NewOptimizerResult()
	var word uintptr
	o.raw.Step(words, lr, gradScale, &result, &word)
	if err := failure(word); err != nil {
		return OptimizerResult{}, err
	}
	var made OptimizerResult
	made.Skipped, made.Step, made.GradNorm, made.ClipFactor = result.Fields()
	return made, nil
}

// State is one state of one parameter as an FP32 tensor that shares its memory: read it to save, write it to restore.
func (o *Optimizer) State(index int64, which State) (*Tensor, error) {
	return tensorFrom(o.self(), func(word *uintptr) raw.Tensor { return o.raw.State(index, int32(which), word) })
}

// SetStep sets the count of updates done, which the bias correction uses.
func (o *Optimizer) SetStep(step int64) error {
	if err := o.self().begin(); err != nil {
		return err
	}
	defer o.end()
	var word uintptr
	o.raw.SetStep(step, &word)
	return failure(word)
}

// AccumulatorSummary is what an accumulator holds.
type AccumulatorSummary struct {
	Finite bool // every sum is
	Tokens int64
	Norm   float64 // global norm of the sums
}

// Accumulator keeps FP32 sums of gradients over the micro-batches of a window, and its tokens. One goroutine at a time;
// Close may come at any time.
type Accumulator struct {
	handle
	raw raw.Accumulator
}

// NewAccumulator makes sums of zero for gradients with these many elements.
func NewAccumulator(runtime *Runtime, elements ...int64) (*Accumulator, error) {
	if err := runtime.self().begin(); err != nil {
		return nil, err
	}
	var word uintptr
	made := raw.NewAccumulator(runtime.raw, elements, &word)
	if err := failure(word); err != nil {
		runtime.end()
		return nil, err
	}
	accumulator := &Accumulator{raw: made}
	accumulator.adopt("accumulator", runtime.self(), func() { raw.DeleteAccumulator(made) })
	return net(accumulator), nil
}

// Close gives the accumulator up. It may be called at any time and more than once.
func (a *Accumulator) Close() error {
	if a == nil {
		return nil
	}
	return a.close()
}

func (a *Accumulator) self() *handle {
	if a == nil {
		return nil
	}
	return &a.handle
}

// Add adds a gradient, FP32 or BF16 and of a sum of token losses, to the sum at index.
func (a *Accumulator) Add(index int64, gradient *Tensor) error {
	end, err := begin(a.self(), gradient.self())
	if err != nil {
		return err
	}
	defer end()
	var word uintptr
	a.raw.Add(index, gradient.raw, &word)
	return failure(word)
}

// AddTokens counts tokens of one micro-batch.
func (a *Accumulator) AddTokens(tokens int64) error {
	return a.short(func(word *uintptr) { a.raw.AddTokens(tokens, word) })
}

// Reset sets sums and tokens back to zero.
func (a *Accumulator) Reset() error {
	return a.short(func(word *uintptr) { a.raw.Reset(word) })
}

func (a *Accumulator) short(call func(word *uintptr)) error {
	if err := a.self().begin(); err != nil {
		return err
	}
	defer a.end()
	var word uintptr
	call(&word)
	return failure(word)
}

// Summary is what has gathered.
func (a *Accumulator) Summary() (AccumulatorSummary, error) {
	info := raw.NewAccumulatorInfo()
	if err := a.short(func(word *uintptr) { a.raw.Summary(&info, word) }); err != nil {
		return AccumulatorSummary{}, err
	}
	var made AccumulatorSummary
	made.Finite, made.Tokens, made.Norm = info.Fields()
	return made, nil
}

// Gradient is one sum as an FP32 tensor of rank 1 that shares its memory.
func (a *Accumulator) Gradient(index int64) (*Tensor, error) {
	return tensorFrom(a.self(), func(word *uintptr) raw.Tensor { return a.raw.Gradient(index, word) })
}
