package invar

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// handle counts the calls at work on one C object, so that Close may come at any time: a closed object takes no new
// calls, and the last call that is still at work releases it.
type handle struct {
	state   atomic.Int64 // calls at work; closedBit once closed
	what    string       // "session", for messages
	release func()       // nil: the object was not made by this package
}

const closedBit = int64(1) << 62

// begin starts a call; the caller must end() it when there is no error.
func (h *handle) begin() error {
	if h == nil || h.release == nil {
		return &Error{Code: InvalidArgument, Reason: "argument.null", Message: "the object is nil or was not made by this package"}
	}
	for {
		state := h.state.Load()
		if state&closedBit != 0 {
			return &Error{Code: FailedPrecondition, Reason: ReasonClosed, Message: fmt.Sprintf("the %s is closed", h.what)}
		}
		if h.state.CompareAndSwap(state, state+1) {
			return nil
		}
	}
}

func (h *handle) end() {
	if h.state.Add(-1) == closedBit {
		h.release()
	}
}

// close is idempotent.
func (h *handle) close() error {
	if h == nil || h.release == nil {
		return nil
	}
	for {
		state := h.state.Load()
		if state&closedBit != 0 {
			return nil
		}
		if h.state.CompareAndSwap(state, state|closedBit) {
			if state == 0 {
				h.release()
			}
			return nil
		}
	}
}

// begin starts a call on several objects at once.
func begin(handles ...*handle) (end func(), err error) {
	for i, h := range handles {
		if err := h.begin(); err != nil {
			for _, begun := range handles[:i] {
				begun.end()
			}
			return nil, err
		}
	}
	return func() {
		for _, h := range handles {
			h.end()
		}
	}, nil
}

// adopt makes h the handle of a C object that was made from parent, on which a call has begun: it ends with h.
func (h *handle) adopt(what string, parent *handle, release func()) {
	h.what = what
	h.release = func() {
		release()
		parent.end()
	}
}

// net closes what its owner forgot. It is only a net: memory outside Go's heap does not hurry the collector.
func net[T interface{ Close() error }](owner T) T {
	runtime.SetFinalizer(any(owner), func(lost T) { _ = lost.Close() })
	return owner
}
