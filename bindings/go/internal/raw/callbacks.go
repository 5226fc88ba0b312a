package raw

/*
#include <invar/invar.h>
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"runtime/cgo"
	"time"
	"unsafe"
)

// The Go side of every callback. C carries a word, never a pointer: the id of a registry entry, which the library's
// drop function removes after the last call. A function here must not panic: the packages above recover.

// Progress is one event of a long call.
type Progress struct {
	Kind                int32
	Stage, Detail, Unit string
	Done, Total         int64
	Elapsed             time.Duration
	Step                *Step
	Eval                *Eval
}

// ProgressFunc returns 0 to go on.
type ProgressFunc func(*Progress) int32

// Token is one generated token.
type Token struct {
	ID    int32
	Index int64
	Text  string
}

// TokenFunc returns 0 to go on.
type TokenFunc func(Token) int32

// LogFunc takes a log line from any thread.
type LogFunc func(level int32, message string)

// Files are read-only files of the host. Methods return a status code.
type Files interface {
	Size(path string) (int64, int32)
	ReadAt(path string, offset int64, buffer []byte) int32
	List(directory string, add func(name string)) int32
}

// Droppable is told when the library needs it no more.
type Droppable interface{ Drop() }

// Register gives a callback its id; 0 for nil functions is the caller's business.
func Register(callback any) uintptr { return uintptr(cgo.NewHandle(callback)) }

//export invarGoDrop
func invarGoDrop(id C.uintptr_t) {
	handle := cgo.Handle(id)
	if value, ok := handle.Value().(Droppable); ok {
		value.Drop()
	}
	handle.Delete()
}

//export invarGoProgress
func invarGoProgress(id C.uintptr_t, event *C.invar_progress) C.int32_t {
	progress := Progress{
		Kind:    int32(event.kind),
		Stage:   C.GoString(event.stage),
		Detail:  C.GoString(event.detail),
		Unit:    C.GoString(event.unit),
		Done:    int64(event.done),
		Total:   int64(event.total),
		Elapsed: time.Duration(float64(event.seconds) * float64(time.Second)),
	}
	if event.step != nil {
		step := (*StepMetrics)(event.step).Fields()
		progress.Step = &step
	}
	if event.eval != nil {
		progress.Eval = &Eval{
			Step:       int64(event.eval.step),
			Loss:       float64(event.eval.loss),
			Perplexity: float64(event.eval.perplexity),
			Tokens:     int64(event.eval.tokens),
			Elapsed:    time.Duration(float64(event.eval.seconds) * float64(time.Second)),
		}
	}
	return C.int32_t(cgo.Handle(id).Value().(ProgressFunc)(&progress))
}

//export invarGoToken
func invarGoToken(id C.uintptr_t, token *C.invar_token) C.int32_t {
	return C.int32_t(cgo.Handle(id).Value().(TokenFunc)(Token{
		ID:    int32(token.id),
		Index: int64(token.index),
		Text:  C.GoStringN(token.text, C.int(token.text_size)),
	}))
}

//export invarGoLog
func invarGoLog(id C.uintptr_t, level C.int32_t, message *C.char, size C.size_t) {
	cgo.Handle(id).Value().(LogFunc)(int32(level), C.GoStringN(message, C.int(size)))
}

//export invarGoFileSize
func invarGoFileSize(id C.uintptr_t, path *C.char, size *C.int64_t) C.int32_t {
	n, code := cgo.Handle(id).Value().(Files).Size(C.GoString(path))
	if code == 0 {
		*size = C.int64_t(n)
	}
	return C.int32_t(code)
}

//export invarGoFileReadAt
func invarGoFileReadAt(id C.uintptr_t, path *C.char, offset C.int64_t, buffer unsafe.Pointer, size C.size_t) C.int32_t {
	memory := unsafe.Slice((*byte)(buffer), int(size))
	return C.int32_t(cgo.Handle(id).Value().(Files).ReadAt(C.GoString(path), int64(offset), memory))
}

//export invarGoFileList
func invarGoFileList(id C.uintptr_t, directory *C.char, add unsafe.Pointer, list unsafe.Pointer) C.int32_t {
	return C.int32_t(cgo.Handle(id).Value().(Files).List(C.GoString(directory), func(name string) {
		text := C.CString(name)
		C.invar_go_add(add, list, text)
		C.free(unsafe.Pointer(text))
	}))
}
