package engine

import (
	"context"
	"fmt"
	"runtime/debug"
)

// consult calls a function of the service on a goroutine of its own. If ctx ends, it no longer waits.
// A panic of the function, or a runtime.Goexit, becomes an error that names the function.
func consult[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	said := make(chan heard[T], 1)
	go func() {
		t := heard[T]{err: fmt.Errorf("%s called runtime.Goexit", name)}
		defer func() { said <- t }() // last: the text of a panic may be the service's code too
		defer func() {
			if p := recover(); p != nil {
				t.err = fmt.Errorf("%s panicked: %v\n%s", name, p, debug.Stack())
			}
		}()
		t.value, t.err = fn(ctx)
	}()
	select {
	case t := <-said:
		return t.value, t.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%s has not returned: %w", name, ctx.Err())
	}
}

// heard is what a function of the service has returned.
type heard[T any] struct {
	value T
	err   error
}
