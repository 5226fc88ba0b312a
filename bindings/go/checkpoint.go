package invar

import (
	"context"
	"iter"

	"invar.dev/invar/internal/raw"
	"invar.dev/invar/invarv1"
)

// CheckpointTensor is one tensor as a loader sees it.
type CheckpointTensor struct {
	Index          int64
	DType          DType   // as it is stored
	Shape          []int64 // of the values
	Elements, Rows int64   // Rows is the first dimension; 1 for a scalar
	Quantized      bool    // codes with scales, read as FP32, BF16 or FP16
	Name           string
	Rule           string // how it is decoded: "copy", "tensor_scale", "row_scale", "block_scale", "unscaled", ...
	Layout         string // the producer's layout; empty for copies
	File           string // name of the file that holds it
}

// Checkpoint is open for reading tensor by tensor: what a conversion would write, decoded into the caller's own memory.
// Any number of goroutines may use it at once.
type Checkpoint struct {
	handle
	runtime *Runtime
	raw     raw.Checkpoint
}

// OpenCheckpoint reads headers and gives every tensor exactly one rule, or fails as a conversion would.
func OpenCheckpoint(runtime *Runtime, config *invarv1.OpenConfig) (*Checkpoint, error) {
	made, err := create(context.Background(), runtime, config, nil,
		func(runtime raw.Runtime, config []byte, _ raw.Cancel, _ uintptr, word *uintptr) raw.Checkpoint {
			return raw.NewCheckpoint(runtime, config, word)
		})
	if err != nil {
		return nil, err
	}
	checkpoint := &Checkpoint{runtime: runtime, raw: made}
	checkpoint.adopt("checkpoint", runtime.self(), func() { raw.DeleteCheckpoint(made) })
	return net(checkpoint), nil
}

// Close gives the checkpoint up. It may be called at any time and more than once; reads at work end first.
func (c *Checkpoint) Close() error {
	if c == nil {
		return nil
	}
	return c.close()
}

func (c *Checkpoint) self() *handle {
	if c == nil {
		return nil
	}
	return &c.handle
}

// Len is the number of tensors with values; scales are used up by their weights and not among them.
func (c *Checkpoint) Len() (int64, error) {
	if err := c.self().begin(); err != nil {
		return 0, err
	}
	defer c.end()
	var word uintptr
	count := c.raw.Count(&word)
	return count, failure(word)
}

// Tensor describes the tensor at an index from 0 to Len() - 1.
func (c *Checkpoint) Tensor(index int64) (CheckpointTensor, error) {
	if err := c.self().begin(); err != nil {
		return CheckpointTensor{}, err
	}
	defer c.end()
	info := raw.NewCheckpointTensor()
	var word uintptr
	c.raw.Describe(index, &info, &word)
	if err := failure(word); err != nil {
		return CheckpointTensor{}, err
	}
	fields := info.Fields()
	return CheckpointTensor{
		Index:     index,
		DType:     DType(fields.DType),
		Shape:     fields.Shape,
		Elements:  fields.Elements,
		Rows:      fields.Rows,
		Quantized: fields.Quantized,
		Name:      fields.Name,
		Rule:      fields.Rule,
		Layout:    fields.Layout,
		File:      fields.File,
	}, nil
}

// Tensors are all tensors, sorted by name; an error is the last thing it yields.
func (c *Checkpoint) Tensors() iter.Seq2[CheckpointTensor, error] {
	return func(yield func(CheckpointTensor, error) bool) {
		count, err := c.Len()
		if err != nil {
			yield(CheckpointTensor{}, err)
			return
		}
		for index := int64(0); index < count; index++ {
			tensor, err := c.Tensor(index)
			if !yield(tensor, err) || err != nil {
				return
			}
		}
	}
}

// Find is the tensor of a name; NotFound when there is none.
func (c *Checkpoint) Find(name string) (CheckpointTensor, error) {
	if err := c.self().begin(); err != nil {
		return CheckpointTensor{}, err
	}
	defer c.end()
	var word uintptr
	index := c.raw.Find(name, &word)
	if err := failure(word); err != nil {
		return CheckpointTensor{}, err
	}
	return c.Tensor(index)
}

// ReadRows decodes rows [first, first + rows) of the tensor at index to the start of memory, row-major without gaps:
// FP32, BF16 or FP16; or as stored, for what is not quantised. After a failure memory may be partly written.
func (c *Checkpoint) ReadRows(ctx context.Context, index, first, rows int64, dtype DType, memory []byte) error {
	if err := c.self().begin(); err != nil {
		return err
	}
	defer c.end()
	cancel, done, err := cancelWith(ctx, c.runtime.raw)
	if err != nil {
		return err
	}
	defer done()
	var word uintptr
	c.raw.ReadRows(index, first, rows, int32(dtype), cancel, memory, &word)
	return explain(failure(word), nil, ctx)
}

// Decode reads a whole tensor as FP32 to the start of values.
func (c *Checkpoint) Decode(ctx context.Context, name string, values []float32) error {
	tensor, err := c.Find(name)
	if err != nil {
		return err
	}
	return c.ReadRows(ctx, tensor.Index, 0, tensor.Rows, FP32, Bytes(values))
}
