package operationtest

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// faults are what a function of the service may do, and what the node says of it. One hangs until
// free is closed.
var faults = map[string]func(free <-chan struct{}){
	"panicked at service_test.go:": func(<-chan struct{}) { panic("a defect of the service") },
	"runtime.Goexit":               func(<-chan struct{}) { runtime.Goexit() },
	"is not loaded":                func(free <-chan struct{}) { <-free },
}

// A faultyReader fails in one of its methods.
type faultyReader struct {
	io.Reader
	fail func(method string)
}

func (r faultyReader) Read(p []byte) (int, error) { r.fail("Read"); return r.Reader.Read(p) }
func (r faultyReader) Close() error               { r.fail("Close"); return nil }
func (r faultyReader) Name() string               { r.fail("Name"); return "a backup" }

// withSeed runs a new ensemble with a Config.Seed that fails in one place, and closes it.
func withSeed(t *testing.T, file []byte, at string, fault func(<-chan struct{}), then func(n *embed.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		fail := func(place string) {
			if place == at {
				fault(free)
			}
		}
		e := embedtest.New(t, 1, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			c.Seed = func(context.Context) (io.ReadCloser, error) {
				fail("Seed")
				return faultyReader{bytes.NewReader(file), fail}, nil
			}
		}})
		n := e.Start(1)
		<-time.After(time.Minute)
		if then(n); n.Err() != nil {
			t.Errorf("%s: the node has failed: %v", at, n.Err())
		}
		began := time.Now()
		must(t, n.Close())
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: Close took %v", at, took)
		}
	})
}

// A panic or a Goexit of Config.Seed or its reader is an error of Config.Seed. Ready says it, and the
// node lasts. If one of them hangs, Close goes on without it.
func TestSeed_ThatIsFaulty(t *testing.T) {
	var file []byte
	synctest.Test(t, func(t *testing.T) { file = newPast(t, 1).file })
	for says, fault := range faults {
		for _, at := range []string{"Seed", "Read"} {
			withSeed(t, file, at, fault, func(n *embed.Node) {
				if err := ready(n); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: Ready says %v, and nothing of %q", at, err, says)
				}
			})
		}
		withSeed(t, file, "Close", fault, func(n *embed.Node) { must(t, ready(n)) })
	}
}

// ready waits a minute for a node.
func ready(n *embed.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return n.Ready(ctx)
}

// A typedNil is an error whose methods panic if it is nil.
type typedNil struct{ cause error }

func (e *typedNil) Error() string { return e.cause.Error() }
func (e *typedNil) Unwrap() error { return e.cause }

// M94: Config.Seed or its reader returns a nil pointer as an error. Its methods panic, which Ready
// says, and the node lasts.
func TestSeed_AnErrorThatPanics(t *testing.T) {
	var none *typedNil
	for _, open := range []func(context.Context) (io.ReadCloser, error){
		func(context.Context) (io.ReadCloser, error) { return nil, none },
		func(context.Context) (io.ReadCloser, error) { return io.NopCloser(failingReader{none}), nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			e := embedtest.New(t, 1, embedtest.Options{Stopped: true, Config: func(c *embed.Config) { c.Seed = open }})
			n := e.Start(1)
			if err := ready(n); err == nil || !strings.Contains(err.Error(), "panicked at service_test.go:") {
				t.Errorf("Ready says %v", err)
			}
			must(t, n.Close())
		})
	}
}

// A failingReader always fails.
type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
