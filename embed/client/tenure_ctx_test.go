package client_test

import (
	"context"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A call may be bound by a hold of its own session.
func TestCallWithinAHold(t *testing.T) {
	virtually(t, func(w *world) {
		ctx := context.Background()
		s := w.session(embed.SessionOptions{})
		hold, err := lock.NewMutex(s, "/m").Lock(ctx)
		must(t, err)
		_, _, err = s.Get(hold.Context(), "/")
		must(t, err)
		must(t, hold.Release())
	})
}
