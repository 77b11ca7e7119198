package client_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/client"
)

// A flapping connection breaks after a few reads, while the network is bad.
type flapping struct {
	net.Conn
	bad   *atomic.Bool
	reads *int // that are left
}

func (c flapping) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.bad.Load() {
		if *c.reads--; *c.reads < 0 {
			_ = c.Close()
			return 0, errDropped
		}
	}
	return n, err
}

// M158: the network breaks more connections than a read is sent on, while a recipe waits, or while it
// begins to. That does not end a wait that lasts as long as its ctx.
func TestWaits_OnAFlappingNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes under the race detector")
	}
	for name, call := range waits {
		for _, begins := range []bool{false, true} {
			virtually(t, func(w *world) { waitOnAFlappingNetwork(w, name, call, begins) })
		}
	}
}

func waitOnAFlappingNetwork(w *world, name string, call wait, begins bool) {
	t := w.t
	var bad atomic.Bool
	var conns []net.Conn
	k := w.client(func(c *client.Config) {
		c.SessionTimeout = 30 * time.Second
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := w.dial(ctx, address)
			if err != nil {
				return nil, err
			}
			conns = append(conns, conn)
			reads := 2 // of the handshake: what is asked then has no answer
			return flapping{conn, &bad, &reads}, nil
		}
	})
	defer k.Close()
	s, err := k.NewSession(t.Context(), embed.SessionOptions{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	occupy(ctx, t, w.session(embed.SessionOptions{}))
	<-time.After(3 * time.Second)
	ended := make(chan error, 1)
	begin := func() { go func() { ended <- cmp.Or(call(ctx, s), errNoWait) }() }
	if !begins {
		begin()
		<-time.After(3 * time.Second)
	}
	bad.Store(true)
	for _, c := range conns {
		_ = c.Close()
	}
	if begins {
		begin()
	}
	<-time.After(14 * time.Second)
	bad.Store(false)
	<-time.After(5 * time.Second)
	cancel()
	err = <-ended
	if begins && errors.Is(err, embed.ErrUnknownOutcome) {
		return // a write was on its way, which the package doc speaks of
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%s, which begins then: %v: %v; the session: %v", name, begins, err, s.Err())
	}
}

// M158: the answer to a wait's first look breaks more connections than a read is sent on.
func TestGate_OnABadNetwork(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		var left atomic.Int32
		k := w.client(func(c *client.Config) {
			c.SessionTimeout = time.Minute
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				return breaking{conn, []byte("needle"), &left}, err
			}
		})
		defer k.Close()
		other := w.session(embed.SessionOptions{})
		_, err := other.Create(t.Context(), "/gate", []byte("needle"), embed.Persistent)
		must(t, err)
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		left.Store(12)
		ended := make(chan error, 1)
		go func() { ended <- barrier.NewGate(s, "/gate").Wait(t.Context()) }()
		w.ens.Until("twelve breaks", func() bool { return left.Load() < 0 })
		must(t, other.Delete(t.Context(), "/gate", embed.AnyVersion))
		must(t, <-ended)
	})
}
