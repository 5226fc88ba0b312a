package invar

import (
	"fmt"
	"runtime"
	"unsafe"

	"invar.dev/invar/internal/raw"
	"invar.dev/invar/invarv1"
)

// DType is a number format.
type DType = invarv1.DType

// The formats that tensors of this package are made in most often; invarv1 has all.
const (
	FP32    = invarv1.DType_DTYPE_FP32
	FP16    = invarv1.DType_DTYPE_FP16
	BF16    = invarv1.DType_DTYPE_BF16
	FP8E4M3 = invarv1.DType_DTYPE_FP8_E4M3
	FP8E5M2 = invarv1.DType_DTYPE_FP8_E5M2
)

// Element is a Go type that elements of a tensor can be seen as: the 16-bit floats are uint16, the 8-bit ones uint8.
type Element interface {
	~float32 | ~float64 | ~uint8 | ~int8 | ~uint16 | ~int16 | ~uint32 | ~int32 | ~uint64 | ~int64
}

// Bytes is the memory of a slice as bytes, without a copy.
func Bytes[T Element](elements []T) []byte {
	if len(elements) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), len(elements)*int(unsafe.Sizeof(elements[0])))
}

// TensorInfo describes a tensor.
type TensorInfo struct {
	DType     DType
	Shape     []int64
	Elements  int64
	Bytes     int
	Quantized bool // value = code * scale of its block
	// Of quantised tensors: elements of one scale's block, the grid of scales, and the scales row by row (a copy).
	BlockRows, BlockCols int64
	ScaleRows, ScaleCols int64
	ScaleInv             []float32
}

// Tensor is row-major numbers in host memory; a quantised one carries its scales. Any goroutine may use it; the host
// orders reads and writes of the elements, as for its own memory.
type Tensor struct {
	handle
	raw raw.Tensor
}

func newTensor(parent *handle, made raw.Tensor) *Tensor {
	tensor := &Tensor{raw: made}
	tensor.adopt("tensor", parent, func() { raw.DeleteTensor(made) })
	return net(tensor)
}

// tensorFrom runs a raw call that makes a tensor; parent stays begun for as long as the tensor lives.
func tensorFrom(parent *handle, call func(word *uintptr) raw.Tensor) (*Tensor, error) {
	if err := parent.begin(); err != nil {
		return nil, err
	}
	var word uintptr
	made := call(&word)
	if err := failure(word); err != nil {
		parent.end()
		return nil, err
	}
	return newTensor(parent, made), nil
}

// NewTensor makes a tensor of zeros.
func NewTensor(runtime *Runtime, dtype DType, shape ...int64) (*Tensor, error) {
	return tensorFrom(runtime.self(), func(word *uintptr) raw.Tensor {
		return raw.NewTensor(runtime.raw, int32(dtype), shape, word)
	})
}

// lent keeps Go memory in place while C uses it.
type lent struct{ pinner runtime.Pinner }

func (l *lent) Drop() { l.pinner.Unpin() }

// ViewTensor makes a tensor of the slice's own memory: nothing is copied, and writes on either side are seen on the
// other. The memory stays in place until the tensor, and all that was made to share it, are released.
func ViewTensor[T Element](runtime *Runtime, dtype DType, elements []T, shape ...int64) (*Tensor, error) {
	memory := Bytes(elements)
	return tensorFrom(runtime.self(), func(word *uintptr) raw.Tensor {
		owner := new(lent)
		if len(memory) > 0 {
			owner.pinner.Pin(unsafe.SliceData(memory))
		}
		// On failure the library drops the owner, too.
		return raw.TensorView(runtime.raw, int32(dtype), shape, memory, raw.Register(owner), word)
	})
}

// TensorFromDLPack takes over a DLManagedTensorVersioned at an address. On failure it still belongs to the caller.
func TensorFromDLPack(runtime *Runtime, managed uintptr) (*Tensor, error) {
	return tensorFrom(runtime.self(), func(word *uintptr) raw.Tensor {
		return raw.TensorFromDlpack(runtime.raw, managed, word)
	})
}

// DLPack is the address of a DLManagedTensorVersioned that shares the tensor's memory; whoever takes it calls its deleter.
func (t *Tensor) DLPack() (uintptr, error) {
	if err := t.self().begin(); err != nil {
		return 0, err
	}
	defer t.end()
	var word uintptr
	managed := t.raw.ToDlpack(&word)
	return managed, failure(word)
}

// Close gives the tensor up. It may be called at any time and more than once.
func (t *Tensor) Close() error {
	if t == nil {
		return nil
	}
	return t.close()
}

func (t *Tensor) self() *handle {
	if t == nil {
		return nil
	}
	return &t.handle
}

// Info describes the tensor.
func (t *Tensor) Info() (TensorInfo, error) {
	if err := t.self().begin(); err != nil {
		return TensorInfo{}, err
	}
	defer t.end()
	info := raw.NewTensorInfo()
	var word uintptr
	t.raw.Describe(&info, &word)
	if err := failure(word); err != nil {
		return TensorInfo{}, err
	}
	fields := info.Fields()
	return TensorInfo{
		DType:     DType(fields.DType),
		Shape:     fields.Shape,
		Elements:  fields.Elements,
		Bytes:     fields.Bytes,
		Quantized: fields.Quantized,
		BlockRows: fields.BlockRows,
		BlockCols: fields.BlockCols,
		ScaleRows: fields.ScaleRows,
		ScaleCols: fields.ScaleCols,
		ScaleInv:  append([]float32(nil), fields.ScaleInv...),
	}, nil
}

// Read copies the elements to memory, which holds at least their bytes.
func (t *Tensor) Read(memory []byte) error {
	if err := t.self().begin(); err != nil {
		return err
	}
	defer t.end()
	var word uintptr
	t.raw.Read(memory, &word)
	return failure(word)
}

// Elements lends the tensor's own memory: no copy. It is valid until the tensor is closed; the tensor is then no longer
// closed by the collector, only by Close.
func Elements[T Element](t *Tensor) ([]T, error) {
	info, err := t.Info()
	if err != nil {
		return nil, err
	}
	var none T
	size := int(unsafe.Sizeof(none))
	if bits := int(raw.DtypeBits(int32(info.DType))); bits != 8*size {
		return nil, invalid("tensor.dtype", "elements of %s have %d bits, the slice's %d", raw.DtypeName(int32(info.DType)), bits, 8*size)
	}
	if err := t.begin(); err != nil {
		return nil, err
	}
	defer t.end()
	var word uintptr
	address := t.raw.Data(&word)
	if err := failure(word); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(t, nil)
	memory := raw.Memory(address, info.Bytes)
	if len(memory) == 0 {
		return nil, nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), int(info.Elements)), nil
}

// Cast is the tensor in another float format, rounded to nearest even; FP8 saturates.
func (t *Tensor) Cast(dtype DType) (*Tensor, error) {
	return tensorFrom(t.self(), func(word *uintptr) raw.Tensor { return t.raw.Cast(int32(dtype), word) })
}

// Granularity is what one scale belongs to.
type Granularity int32

// The granularities.
const (
	PerTensor Granularity = 1
	PerRow    Granularity = 2
	PerBlock  Granularity = 3
)

// QuantizeOptions say how codes and scales are made. The zero value is E4M3 in 128x128 blocks.
type QuantizeOptions struct {
	DType                DType // FP8E4M3 or FP8E5M2
	Granularity          Granularity
	PowerOfTwo           bool // scales are powers of two
	BlockRows, BlockCols int64
}

// Quantize makes codes of an FP32 or BF16 tensor of rank 1 or 2, with scale = amax / largest code of each block.
func (t *Tensor) Quantize(o QuantizeOptions) (*Tensor, error) {
	if o.DType == 0 {
		o.DType = FP8E4M3
	}
	if o.Granularity == 0 {
		o.Granularity = PerBlock
	}
	if o.BlockRows == 0 && o.BlockCols == 0 {
		o.BlockRows, o.BlockCols = 128, 128
	}
	return tensorFrom(t.self(), func(word *uintptr) raw.Tensor {
		return t.raw.Quantize(int32(o.DType), int32(o.Granularity), o.PowerOfTwo, o.BlockRows, o.BlockCols, word)
	})
}

// Dequantize is code * scale in FP32, rounded to nearest even to FP32, BF16 or FP16.
func (t *Tensor) Dequantize(dtype DType) (*Tensor, error) {
	return tensorFrom(t.self(), func(word *uintptr) raw.Tensor { return t.raw.Dequantize(int32(dtype), word) })
}

// MatMul is a x b with FP32 accumulation, both FP32 or both BF16 of rank 2; transpose: stored the other way round.
func MatMul(a *Tensor, transposeA bool, b *Tensor, transposeB bool, dtype DType) (*Tensor, error) {
	if err := b.self().begin(); err != nil {
		return nil, err
	}
	defer b.end()
	return tensorFrom(a.self(), func(word *uintptr) raw.Tensor {
		return a.raw.Matmul(transposeA, b.raw, transposeB, int32(dtype), word)
	})
}

// String is the shape and dtype, for logs.
func (t *Tensor) String() string {
	info, err := t.Info()
	if err != nil {
		return "tensor (closed)"
	}
	return fmt.Sprintf("tensor %s %v", raw.DtypeName(int32(info.DType)), info.Shape)
}
