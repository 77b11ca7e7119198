package client_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// Requests of a session that is well rarely read the slow clock. Time that its owner did not see,
// and a wall clock that was set, suspend the session at the next question: no timer has fired.
func TestClocks(t *testing.T) {
	for name, move := range map[string]func(*enginetest.Clock){
		"pause":              func(c *enginetest.Clock) { c.Pause(2 * time.Second) },
		"sleep":              func(c *enginetest.Clock) { c.Sleep(2 * time.Second) },
		"wall clock forward": func(c *enginetest.Clock) { c.Step(time.Second) },
		"wall clock back":    func(c *enginetest.Clock) { c.Step(-time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				t, clock := w.t, enginetest.NewClock()
				ctx, read := t.Context(), atomic.Int64{}
				k := w.client(func(c *client.Config) {
					c.Inside.Clock = clock.Clock()
					c.Inside.Clock.Boot = func() time.Duration {
						read.Add(1)
						return clock.Boot()
					}
				})
				defer func() { _ = k.Close() }()
				s, err := k.NewSession(ctx, embed.SessionOptions{})
				must(t, err)
				hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
				must(t, err)
				const sets = 100
				before := read.Load()
				for range sets {
					_, err := s.Set(ctx, "/lock", nil, embed.AnyVersion)
					must(t, err)
				}
				if n := read.Load() - before; n > sets {
					t.Errorf("%d requests read the clock %d times", sets, n)
				}
				move(clock)
				if err := hold.Err(); !errors.Is(err, embed.ErrSuspended) {
					t.Errorf("the hold has %v", err)
				}
			})
		})
		t.Run(name+" before a release", func(t *testing.T) {
			virtually(t, func(w *world) {
				t, clock := w.t, enginetest.NewClock()
				k := w.client(func(c *client.Config) { c.Inside.Clock = clock.Clock() })
				defer func() { _ = k.Close() }()
				s, err := k.NewSession(t.Context(), embed.SessionOptions{})
				must(t, err)
				for _, o := range []lock.Options{{}, {Keep: time.Hour}} {
					hold, err := lock.NewMutex(s, "/lock").With(o).Lock(t.Context())
					must(t, err)
					ctx := hold.Context()
					move(clock)
					_ = hold.Release() // it may wait, and fail
					if cause := context.Cause(ctx); !errors.Is(hold.Err(), embed.ErrSuspended) || !errors.Is(cause, embed.ErrSuspended) {
						t.Errorf("the hold that is kept for %v has %v, its context %v", o.Keep, hold.Err(), cause)
					}
				}
			})
		})
	}
}

// A tap is a connection that tells of each ping, and can keep back what the server answers.
type tap struct {
	net.Conn
	*pings
}

type pings struct {
	sent chan struct{} // capacity 1
	mu   sync.Mutex
	shut chan struct{} // closed to let the answers through; nil while nothing is kept back
}

func (p *pings) keepBack() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shut := make(chan struct{})
	p.shut = shut
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.shut = nil
		close(shut)
	}
}

// next waits for the next ping.
func (p *pings) next() {
	select {
	case <-p.sent: // an old one
	default:
	}
	<-p.sent
}

var pingFrame = (&wire.Request{Xid: wire.XidPing, Operation: wire.Operation{Op: wire.OpPing}}).AppendFrame(nil)

func (c tap) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if bytes.Contains(b, pingFrame) {
		select {
		case c.sent <- struct{}{}:
		default:
		}
	}
	return n, err
}

func (c tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	shut := c.shut
	c.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return n, err
}

// The clock jumps while a session is Suspended, and a ping is on its way. Its answer proves nothing,
// even if the clock has jumped back by then: a ping that was sent after the jumps has to be
// answered.
func TestClocks_JumpWhileSuspended(t *testing.T) {
	virtually(t, func(w *world) {
		const timeout = 6 * time.Second
		const age = timeout / 3 // of the proof by which a member may answer a ping
		t, clock, p := w.t, enginetest.NewClock(), &pings{sent: make(chan struct{}, 1)}
		k := w.client(func(c *client.Config) {
			c.Inside.Clock, c.SessionTimeout = clock.Clock(), timeout
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				return tap{conn, p}, err
			}
		})
		defer func() { _ = k.Close() }()
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		is := func(when string, want embed.State) {
			t.Helper()
			if got, _ := s.State(); got != want {
				t.Fatalf("%s the session is %v, want %v", when, got, want)
			}
		}
		jump := func(by time.Duration) (at time.Duration) {
			clock.Step(by)
			is("after a jump", embed.Suspended)
			return clock.Boot()
		}
		p.next() // the next pings come in time
		first := jump(time.Second)
		for clock.Boot()-first < age-timeout/8 {
			p.next()
		}
		synctest.Wait() // this ping is answered, and proves nothing yet
		is("before a ping that proves anything", embed.Suspended)
		release := p.keepBack()
		p.next() // without the next jumps, its answer would prove that the session lives
		synctest.Wait()
		if clock.Boot()-first < age {
			t.Fatal("the ping is too early")
		}
		jump(time.Second)
		last := jump(-time.Second)
		release()
		synctest.Wait()
		is("after the answer of an earlier ping", embed.Suspended)
		for state, changed := s.State(); state != embed.Connected; state, changed = s.State() {
			if state != embed.Suspended {
				t.Fatalf("the session is %v", state)
			}
			<-changed
		}
		if after := clock.Boot() - last; after < age {
			t.Errorf("the session is connected %v after the last jump", after)
		}
	})
}
