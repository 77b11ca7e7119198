package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// A held network passes on what the client sends, and holds the answers back until they are lost
// with the connections. It begins when the client sends some bytes, or when on is set.
type held struct {
	outage
	at   []byte // nil: nothing
	on   atomic.Bool
	lost chan struct{}
}

type dialer = func(ctx context.Context, address string) (net.Conn, error)

func (h *held) dial(dial dialer) dialer {
	return h.over(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		return heldConn{conn, h}, err
	})
}

type heldConn struct {
	net.Conn
	h *held
}

func (c heldConn) Write(p []byte) (int, error) {
	if c.h.at != nil && bytes.Contains(p, c.h.at) {
		c.h.on.Store(true)
	}
	return c.Conn.Write(p)
}

func (c heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.h.on.Load() {
		<-c.h.lost
		return 0, errDropped
	}
	return n, err
}

// cut loses the answers and the connections.
func (h *held) cut() {
	h.begin()
	close(h.lost)
	synctest.Wait() // the session knows
	h.at = nil
	h.on.Store(false)
}

// withFewWatches runs a test whose gateways allow few watches, over a held network.
func withFewWatches(t *testing.T, test func(w *world, h *held, s *embed.Session)) {
	virtuallyWith(t, gateway.Config{Watches: 8}, embedtest.Options{}, func(w *world, _ *atomic.Int64) {
		h := &held{lost: make(chan struct{})}
		k := w.client(func(c *client.Config) {
			c.Dial, c.SessionTimeout, c.Logger = h.dial(w.dial), time.Minute, slog.New(slog.DiscardHandler)
		})
		defer k.Close()
		s, err := k.NewSession(w.t.Context(), embed.SessionOptions{})
		must(w.t, err)
		synctest.Wait() // it watches the list of members
		test(w, h, s)
	})
}

// armThree arms as many watches as the bound leaves room for.
func armThree(t *testing.T, s *embed.Session) {
	t.Helper()
	for i := range 3 {
		if _, err := s.Watch(t.Context(), fmt.Sprint("/free", i), embed.WatchPersistent); err != nil {
			t.Errorf("watch %d of 3: %v", i, err)
		}
	}
}

// G9: a watch whose caller gives up while there is no connection is not armed on the next one. It
// was sent on the last one, or waits.
func TestWatchGivenUpInAnOutage(t *testing.T) {
	withFewWatches(t, func(w *world, h *held, s *embed.Session) {
		t := w.t
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		arm := func(path string) {
			calls.Go(func() {
				if _, err := s.Watch(ctx, path, embed.WatchPersistent); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", path, err)
				}
			})
			synctest.Wait()
		}
		h.on.Store(true)
		arm("/sent")
		arm("/sent2")
		h.cut()
		arm("/queued")
		cancel()
		calls.Wait()
		h.end()
		_, err := s.Sync(t.Context(), "/")
		must(t, err)
		armThree(t, s)
	})
}

// G9: the same for the watch of a claim that ends in an outage.
func TestClaimEndsInAnOutage(t *testing.T) {
	withFewWatches(t, func(w *world, h *held, s *embed.Session) {
		t := w.t
		h.at = binary.BigEndian.AppendUint32(nil, uint32(wire.NativeArm))
		h.at = append(h.at, "\x00\x00\x00\x05/mine"...)
		c, err := claim.New(t.Context(), s, embed.OpCreate("/mine", nil, embed.Ephemeral))
		must(t, err)
		_, err = c.Created(t.Context())
		must(t, err)
		synctest.Wait()
		if !h.on.Load() {
			t.Fatal("the claim is not watched")
		}
		h.cut()
		c.Release()
		h.end()
		_, err = s.Sync(t.Context(), "/")
		must(t, err)
		armThree(t, s)
	})
}

// G9: reads that were given up leave their room to others at once, also without a connection.
func TestReadsGivenUpInAnOutage(t *testing.T) {
	withFewWatches(t, func(w *world, h *held, s *embed.Session) {
		t := w.t
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		var refused atomic.Int64
		many := func(ctx context.Context, want error) {
			for range 6000 {
				calls.Go(func() {
					if _, _, err := s.Get(ctx, "/a"); !errors.Is(err, want) {
						refused.Add(1)
					}
				})
			}
			synctest.Wait()
		}
		h.on.Store(true)
		many(ctx, context.Canceled)
		h.cut()
		cancel()
		calls.Wait()
		many(t.Context(), embed.ErrNoNode)
		h.end()
		calls.Wait()
		if n := refused.Load(); n > 0 {
			t.Errorf("%d of 12,000 reads got another error", n)
		}
	})
}

// G9: a watch that waits for room, and whose caller gives up, leaves nothing to be sent.
func TestWatchBehindAFullQueue(t *testing.T) {
	withFewWatches(t, func(w *world, h *held, s *embed.Session) {
		t := w.t
		h.on.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 10_000 {
			calls.Go(func() { _, _, _ = s.Get(ctx, "/a") })
		}
		synctest.Wait()
		short, end := context.WithCancel(ctx)
		var watches sync.WaitGroup
		for i := range 100 {
			watches.Go(func() {
				_, err := s.Watch(short, fmt.Sprint("/given-up", i), embed.WatchOnce)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("a watch beside 10,000 reads: %v", err)
				}
			})
		}
		synctest.Wait()
		end()
		watches.Wait()
		cancel()
		calls.Wait()
		h.cut()
		h.at = []byte("/given-up")
		h.end()
		_, err := s.Sync(t.Context(), "/")
		must(t, err)
		if h.on.Load() {
			t.Error("something is sent for a watch that was given up")
		}
	})
}
