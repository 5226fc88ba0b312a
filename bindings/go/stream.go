package invar

import (
	"context"
	"errors"
	"iter"
)

// stream turns a call with a callback into a loop. The call runs on a goroutine of its own and waits for the loop's body
// after every value, so a body may break, panic, or end its goroutine as in any other loop: the call is stopped, and
// has returned, before the loop is left.
func stream[T any](ctx context.Context, run func(ctx context.Context, emit func(T) error) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithCancel(ctx)
		values := make(chan T)
		resume := make(chan struct{})
		stop := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- run(ctx, func(value T) error {
				select {
				case values <- value:
				case <-stop:
					return errStopped
				}
				select {
				case <-resume:
					return nil
				case <-stop:
					return errStopped
				}
			})
		}()
		ended := false
		defer func() {
			close(stop)
			cancel()
			if !ended {
				<-done
			}
		}()
		for {
			select {
			case value := <-values:
				if !yield(value, nil) {
					return
				}
				resume <- struct{}{}
			case err := <-done:
				ended = true
				if err != nil {
					yield(none, err)
				}
				return
			}
		}
	}
}

// errStopped is what the callback of a left loop returns.
var errStopped = errors.New("the loop over the results was left")
