// Package raw is the C interface as SWIG gives it to Go: raw.go is generated, the rest carries structs, errors and
// callbacks over. Nothing here is checked twice; the package invar above is what people use.
package raw

/*
#cgo pkg-config: invar
#cgo CFLAGS: -fno-strict-aliasing
#include <invar/invar.h>
*/
import "C"

import (
	"time"
	"unsafe"
)

// ABI is the number of the header that this package was compiled with.
const ABI = int32(C.INVAR_ABI_VERSION)

// Bits of a tokenizer's calls.
const (
	EncodeAddSpecial   = uint32(C.INVAR_ENCODE_ADD_SPECIAL)
	EncodeParseSpecial = uint32(C.INVAR_ENCODE_PARSE_SPECIAL)
	EncodeTruncate     = uint32(C.INVAR_ENCODE_TRUNCATE)
	DecodeSkipSpecial  = uint32(C.INVAR_DECODE_SKIP_SPECIAL)
	DecodeBytes        = uint32(C.INVAR_DECODE_BYTES)
)

// Memory for structs that a method fills.
type (
	StepMetrics      C.invar_step_metrics
	Loss             C.invar_loss
	TensorInfo       C.invar_tensor_info
	CheckpointTensor C.invar_checkpoint_tensor
	OptimizerResult  C.invar_optimizer_result
	AccumulatorInfo  C.invar_accumulator_info
)

// Step is what a StepMetrics says.
type Step struct {
	Recipe          int32
	Step            int64
	Loss            float64
	LR              float64
	GradNorm        float64
	Tokens          int64
	TotalTokens     int64
	Elapsed         time.Duration
	TokensPerSecond float64
	TotalSkipped    int64
	Skipped         bool
	LadderEvent     int32
}

// Eval is what an invar_eval_metrics says.
type Eval struct {
	Step       int64
	Loss       float64
	Perplexity float64
	Tokens     int64
	Elapsed    time.Duration
}

// NewStepMetrics is empty and knows its size.
func NewStepMetrics() StepMetrics {
	return StepMetrics{struct_size: C.sizeof_invar_step_metrics}
}

// Fields are the struct's in Go's types.
func (m *StepMetrics) Fields() Step {
	return Step{
		Recipe:          int32(m.recipe),
		Step:            int64(m.step),
		Loss:            float64(m.loss),
		LR:              float64(m.lr),
		GradNorm:        float64(m.grad_norm),
		Tokens:          int64(m.tokens),
		TotalTokens:     int64(m.total_tokens),
		Elapsed:         time.Duration(float64(m.seconds) * float64(time.Second)),
		TokensPerSecond: float64(m.tokens_per_second),
		TotalSkipped:    int64(m.total_skipped),
		Skipped:         m.skipped != 0,
		LadderEvent:     int32(m.ladder_event),
	}
}

// NewLoss is empty and knows its size.
func NewLoss() Loss { return Loss{struct_size: C.sizeof_invar_loss} }

// Fields are the sum of token losses and their number.
func (l *Loss) Fields() (sum float64, tokens int64) { return float64(l.sum), int64(l.tokens) }

// NewTensorInfo is empty and knows its size.
func NewTensorInfo() TensorInfo { return TensorInfo{struct_size: C.sizeof_invar_tensor_info} }

// TensorFields is what a TensorInfo says.
type TensorFields struct {
	DType                int32
	Shape                []int64
	Elements             int64
	Bytes                int
	Quantized            bool
	BlockRows, BlockCols int64
	ScaleRows, ScaleCols int64
	ScaleInv             []float32 // the tensor's own memory
}

// Fields are the struct's in Go's types.
func (t *TensorInfo) Fields() TensorFields {
	fields := TensorFields{
		DType:     int32(t.dtype),
		Elements:  int64(t.elements),
		Bytes:     int(t.bytes),
		Quantized: t.quantized != 0,
		BlockRows: int64(t.block_rows),
		BlockCols: int64(t.block_cols),
		ScaleRows: int64(t.scale_rows),
		ScaleCols: int64(t.scale_cols),
	}
	fields.Shape = make([]int64, int(t.rank))
	for i := range fields.Shape {
		fields.Shape[i] = int64(t.shape[i])
	}
	if t.scale_inv != nil {
		fields.ScaleInv = unsafe.Slice((*float32)(unsafe.Pointer(t.scale_inv)), int(t.scale_rows*t.scale_cols))
	}
	return fields
}

// NewCheckpointTensor is empty and knows its size.
func NewCheckpointTensor() CheckpointTensor {
	return CheckpointTensor{struct_size: C.sizeof_invar_checkpoint_tensor}
}

// CheckpointFields is what a CheckpointTensor says.
type CheckpointFields struct {
	DType                    int32
	Shape                    []int64
	Elements, Rows           int64
	Quantized                bool
	Name, Rule, Layout, File string
}

// Fields are the struct's in Go's types.
func (t *CheckpointTensor) Fields() CheckpointFields {
	fields := CheckpointFields{
		DType:     int32(t.dtype),
		Elements:  int64(t.elements),
		Rows:      int64(t.rows),
		Quantized: t.quantized != 0,
		Name:      C.GoString(t.name),
		Rule:      C.GoString(t.rule),
		Layout:    C.GoString(t.layout),
		File:      C.GoString(t.file),
	}
	fields.Shape = make([]int64, int(t.rank))
	for i := range fields.Shape {
		fields.Shape[i] = int64(t.shape[i])
	}
	return fields
}

// NewOptimizerResult is empty and knows its size.
func NewOptimizerResult() OptimizerResult {
	return OptimizerResult{struct_size: C.sizeof_invar_optimizer_result}
}

// Fields are the struct's in Go's types.
func (r *OptimizerResult) Fields() (skipped bool, step int64, gradNorm, clipFactor float64) {
	return r.skipped != 0, int64(r.step), float64(r.grad_norm), float64(r.clip_factor)
}

// NewAccumulatorInfo is empty and knows its size.
func NewAccumulatorInfo() AccumulatorInfo {
	return AccumulatorInfo{struct_size: C.sizeof_invar_accumulator_info}
}

// Fields are the struct's in Go's types.
func (i *AccumulatorInfo) Fields() (finite bool, tokens int64, norm float64) {
	return i.finite != 0, int64(i.tokens), float64(i.norm)
}

// Failure is a status in Go's memory.
type Failure struct {
	Code, CallbackValue int32
	Reason, Message     string
}

// TakeStatus reads and releases what a method left in its error word; nil for 0.
func TakeStatus(word uintptr) *Failure {
	if word == 0 {
		return nil
	}
	status := SwigcptrStatus(word)
	taken := &Failure{
		Code:          status.Code(),
		CallbackValue: status.CallbackValue(),
		Reason:        status.Reason(),
		Message:       status.Message(),
	}
	DeleteStatus(status)
	return taken
}

// TakeBytes lends a result's memory to use and releases it; nothing happens for 0.
func TakeBytes(word uintptr, use func([]byte)) {
	if word == 0 {
		return
	}
	bytes := (*C.invar_bytes)(pointer(word))
	use(unsafe.Slice((*byte)(unsafe.Pointer(C.invar_bytes_data(bytes))), int(C.invar_bytes_size(bytes))))
	C.invar_bytes_release(bytes)
}

// TakeIDs copies a result of 32-bit integers and releases it; empty for 0.
func TakeIDs(word uintptr) []int32 {
	ids := []int32{}
	TakeBytes(word, func(bytes []byte) {
		if len(bytes) >= 4 {
			ids = make([]int32, len(bytes)/4)
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&ids[0])), 4*len(ids)), bytes)
		}
	})
	return ids
}

// Memory is C memory as a slice.
func Memory(address uintptr, size int) []byte {
	if address == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(address)), size)
}

// pointer is the C address in a word. It never points into Go's memory, so the collector does not care for it.
func pointer(word uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&word)) }
