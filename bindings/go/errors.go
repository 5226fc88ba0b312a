package invar

import (
	"context"
	"errors"
	"fmt"

	"invar.dev/invar/internal/raw"
)

// Code is a canonical status code; its numbers are those of gRPC. A Code is an error so that it can be asked for:
//
//	errors.Is(err, invar.NotFound)
type Code int32

// The codes.
const (
	Cancelled          Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
)

// The names are kept here: an error about a library of another ABI is printed without asking that library.
var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// String is the code's name, "INVALID_ARGUMENT".
func (c Code) String() string {
	if c >= 0 && int(c) < len(codeNames) {
		return codeNames[c]
	}
	return raw.CodeName(int32(c))
}

// Error makes a Code an error to compare with.
func (c Code) Error() string { return c.String() }

// Reason is a stable dotted word for programs, "config.unknown_field"; it can be asked for like a Code:
//
//	errors.Is(err, invar.Reason("safetensors.truncated"))
type Reason string

// Error makes a Reason an error to compare with.
func (r Reason) Error() string { return string(r) }

// Reasons that this package itself gives.
const (
	ReasonClosed        Reason = "handle.closed"
	ReasonBusy          Reason = "handle.busy"
	ReasonCallbackPanic Reason = "callback.panic"
	ReasonABI           Reason = "library.abi"
)

// ErrClosed is what a method of a closed object returns: errors.Is(err, invar.ErrClosed).
var ErrClosed error = ReasonClosed

// Error is a failure of the library: what errors.As finds.
type Error struct {
	Code    Code
	Reason  Reason
	Message string // for people: lower-case, names thing, value and expectation
	// Cause is what a callback returned, or the context's error; nil otherwise.
	Cause error
}

// Error is the message, the code's name and the reason.
func (e *Error) Error() string {
	return fmt.Sprintf("invar: %s (%s, %s)", e.Message, e.Code, string(e.Reason))
}

// Is reports whether target is the error's Code or Reason.
func (e *Error) Is(target error) bool {
	switch want := target.(type) {
	case Code:
		return e.Code == want
	case Reason:
		return e.Reason == want
	}
	return false
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// PanicError is the Cause when a callback panicked.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

// Error is the value's text.
func (p *PanicError) Error() string { return fmt.Sprintf("a callback panicked: %v", p.Value) }

// Unwrap is the value when it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// failure makes an error of what a raw method left behind; nil for success.
func failure(word uintptr) error {
	taken := raw.TakeStatus(word)
	if taken == nil {
		return nil
	}
	return &Error{Code: Code(taken.Code), Reason: Reason(taken.Reason), Message: taken.Message}
}

// explain adds what C could not carry: the callback's own error, or why the context ended.
func explain(err, callback error, ctx context.Context) error {
	var failed *Error
	if !errors.As(err, &failed) {
		return err
	}
	var panicked *PanicError
	switch {
	case errors.As(callback, &panicked):
		return &Error{Code: Internal, Reason: ReasonCallbackPanic, Message: panicked.Error(), Cause: panicked}
	case callback != nil:
		failed.Cause = callback
	case failed.Code == Cancelled && ctx != nil && ctx.Err() != nil:
		failed.Cause = context.Cause(ctx)
		if !errors.Is(failed.Cause, ctx.Err()) {
			failed.Cause = errors.Join(ctx.Err(), failed.Cause)
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			failed.Code = DeadlineExceeded
		}
	}
	return err
}

func invalid(reason Reason, format string, arguments ...any) error {
	return &Error{Code: InvalidArgument, Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}
