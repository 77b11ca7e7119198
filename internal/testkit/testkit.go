package testkit

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen. It is long because the machine may be
// busy with something else too.
const Patience = 2 * time.Minute

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantErr reports an error of the test unless err is want, as errors.Is sees it.
func WantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// Context returns a context that ends after Patience. Other than t.Context() it also works in
// functions that t.Cleanup calls.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Until waits for a condition that nothing announces. It asks cond again and again, and ends the
// test if cond is still false after Patience. what completes the sentence "waited in vain for".
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited in vain for %s\n%s", what, Stacks())
		}
	}
}

// Reaches waits until state returns want. state also returns a channel that is closed when its
// first result changes, as embed.Session.State does.
func Reaches[S comparable](t testing.TB, state func() (S, <-chan struct{}), want S) {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for {
		now, changed := state()
		if now == want {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("the state is %v, want %v", now, want)
		}
	}
}

// Closed reports whether a channel is closed. If the channel has a value, Closed receives it.
func Closed[T any](ch <-chan T) bool {
	select {
	case _, ok := <-ch:
		return !ok
	default:
		return false
	}
}
