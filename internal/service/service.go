package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Call calls a function of the service on a goroutine of its own. If ctx ends, it no longer
// waits. A panic of the function or of its error, or a runtime.Goexit, becomes a Fault that names the
// function.
func Call[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (T, error) {
	said := make(chan heard[T], 1)
	go func() {
		t := heard[T]{err: &Fault{text: name + " called runtime.Goexit"}}
		defer func() { said <- t }() // last: the text of a panic may be the service's code too
		defer func() {
			if p := recover(); p != nil {
				t.err = &Fault{fmt.Sprintf("%s panicked at %s: %v", name, panickedAt(), p), string(debug.Stack())}
			}
		}()
		value, err := fn(ctx)
		t = heard[T]{value, spoken(err)}
	}()
	select {
	case t := <-said:
		return t.value, t.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%s has not returned: %w", name, ctx.Err())
	}
}

// Handshake does the handshake of TLS on a connection. It calls functions of the service: those of a
// tls.Config, and the methods of its keys and certificates. After an error the caller closes what is
// below TLS, and uses the connection for nothing else: the handshake may still be at work.
func Handshake(ctx context.Context, conn interface{ HandshakeContext(context.Context) error }) error {
	_, err := Call(ctx, "the handshake of TLS", func(ctx context.Context) (any, error) {
		return nil, conn.HandshakeContext(ctx)
	})
	return err
}

// HandshakeGrace is how much longer a handshake may take than its connection's deadline allows. By
// then it hangs in the service's code, and not at the peer.
const HandshakeGrace = time.Second

// A Fault says that a function has not returned at all: it has panicked, or called runtime.Goexit.
type Fault struct {
	text  string
	Stack string // of a panic
}

// Error says what the function has done instead.
func (f *Fault) Error() string { return f.text }

// heard is what a function of the service has returned.
type heard[T any] struct {
	value T
	err   error
}

// A serviceError is an error of the service with its text. Whatever the error's methods do, those of a
// serviceError do not panic.
type serviceError struct {
	text  string
	cause error
}

// spoken asks an error of the service for its text, on the goroutine that may panic. It leaves io.EOF
// as it is, as readers compare it.
func spoken(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &serviceError{err.Error(), err}
}

func (e *serviceError) Error() string { return e.text }

// Is and As ask the service's error. There is no Unwrap: errors.Is would call the service's methods.
func (e *serviceError) Is(target error) (is bool) {
	defer func() { _ = recover() }()
	return errors.Is(e.cause, target)
}

func (e *serviceError) As(target any) (is bool) {
	defer func() { _ = recover() }()
	return errors.As(e.cause, target)
}

// panickedAt returns the file and line of the panic that its caller has recovered from. It is no
// whole stack, because the error is compared, and told to other members.
func panickedAt() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for panics := false; ; {
		f, more := frames.Next()
		if own := strings.HasPrefix(f.Function, "runtime."); panics && !own || !more {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		panics = panics || f.Function == "runtime.gopanic"
	}
}
