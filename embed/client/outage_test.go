package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// An outage breaks a client's connections, and lets it make no new ones.
type outage struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (o *outage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = true
	for _, c := range o.conns {
		_ = c.Close()
	}
	o.conns = nil
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = false
}

func (o *outage) over(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.down {
			_ = conn.Close()
			return nil, errors.New("the network is down")
		}
		o.conns = append(o.conns, conn)
		return conn, nil
	}
}

// Reads without a deadline, and watches, wait for the end of an outage that is longer than the
// request timeout. So a recipe that watches over a connection goes on afterwards.
func TestOutage(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		var o outage
		k := w.client(func(c *client.Config) {
			c.Dial, c.SessionTimeout, c.RequestTimeout = o.over(w.dial), time.Minute, 500*time.Millisecond
		})
		defer k.Close()
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		_, err = s.Create(t.Context(), "/a", []byte("1"), embed.Persistent)
		must(t, err)
		hold, err := lock.NewMutex(s, "/locks/a").Lock(t.Context())
		must(t, err)
		revoked := hold.Revoked()
		synctest.Wait() // it watches

		o.begin()
		synctest.Wait() // the session knows
		var reads sync.WaitGroup
		reads.Go(func() {
			if data, _, err := s.Get(t.Context(), "/a"); err != nil || string(data) != "1" {
				t.Errorf("read %q, %v", data, err)
			}
		})
		reads.Go(func() {
			watch, err := s.Watch(t.Context(), "/a", embed.WatchOnce)
			if err != nil {
				t.Errorf("watch: %v", err)
				return
			}
			_ = watch.Close()
		})
		if _, err := s.Set(t.Context(), "/a", []byte("2"), embed.AnyVersion); !errors.Is(err, embed.ErrUnavailable) {
			t.Errorf("a write without a connection: %v", err)
		}
		if _, err := s.Sync(t.Context(), "/a"); !errors.Is(err, embed.ErrUnavailable) {
			t.Errorf("a Sync without a connection: %v", err)
		}
		bound, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := s.Get(bound, "/a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read with a deadline: %v", err)
		}
		must(t, lock.Revoke(t.Context(), w.session(embed.SessionOptions{}), "/locks/a"))
		<-time.After(3 * time.Second)
		o.end()
		reads.Wait()
		<-revoked
		must(t, hold.Err())
		must(t, hold.Release())
	})
}

// breaking breaks its connection when an answer arrives that has some text, so many times.
type breaking struct {
	net.Conn
	text []byte
	left *atomic.Int32
}

func (c breaking) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bytes.Contains(p[:n], c.text) && c.left.Add(-1) >= 0 {
		_ = c.Close()
		return 0, errDropped
	}
	return n, err
}

// A read goes on when the network breaks several connections while it is sent.
func TestReadOnABadNetwork(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		var left atomic.Int32
		left.Store(6)
		k := w.client(func(c *client.Config) {
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				if err != nil {
					return nil, err
				}
				return breaking{conn, []byte("needle"), &left}, nil
			}
		})
		defer k.Close()
		_, err := w.session(embed.SessionOptions{}).Create(t.Context(), "/a", []byte("needle"), embed.Persistent)
		must(t, err)
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		_, err = s.Sync(t.Context(), "/a")
		must(t, err)
		data, _, err := s.Get(t.Context(), "/a")
		must(t, err)
		if string(data) != "needle" {
			t.Errorf("read %q", data)
		}
		if n := left.Load(); n >= 0 {
			t.Errorf("%d connections were left to break", n)
		}
	})
}

// A lossy connection loses what its client writes if it has some text, so many times.
type lossy struct {
	net.Conn
	text []byte
	left *atomic.Int32
}

func (c lossy) Write(p []byte) (int, error) {
	if bytes.Contains(p, c.text) && c.left.Add(-1) >= 0 {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A lock that is released during an outage is free after it, although Release had given up by then
// and the session goes on.
func TestReleaseDuringAnOutage(t *testing.T) {
	var o outage
	var left atomic.Int32
	for name, outage := range map[string]struct{ begin, end func() }{
		"not sent":        {o.begin, o.end},
		"sent, and lost":  {func() { left.Store(1) }, func() {}},
		"lost many times": {func() { left.Store(12) }, func() {}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				t := w.t
				k := w.client(func(c *client.Config) {
					c.SessionTimeout, c.RequestTimeout = 20*time.Second, 500*time.Millisecond
					c.Dial = o.over(func(ctx context.Context, address string) (net.Conn, error) {
						conn, err := w.dial(ctx, address)
						return lossy{conn, []byte("/locks/a"), &left}, err
					})
				})
				defer k.Close()
				s, err := k.NewSession(t.Context(), embed.SessionOptions{})
				must(t, err)
				hold, err := lock.NewMulti(s, "/locks/a", "/locks/b").Lock(t.Context())
				must(t, err)
				synctest.Wait()
				outage.begin()
				synctest.Wait()
				err = hold.Release()
				quick := err == nil && name == "sent, and lost" // the next connection may come in time
				if !quick && !errors.Is(err, embed.ErrUnknownOutcome) {
					t.Errorf("the release: %v", err)
				}
				outage.end()
				bound, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				other := w.session(embed.SessionOptions{})
				for _, path := range []string{"/locks/a", "/locks/b"} {
					next, err := lock.NewMutex(other, path).Lock(bound)
					must(t, err)
					must(t, next.Release())
				}
				must(t, s.Err())
				if n := left.Load(); n > 0 {
					t.Errorf("%d messages were left to lose", n)
				}
			})
		})
	}
}

// A hold ends when its znode is deleted, although its session may not read the znode.
func TestHoldOfAHiddenZnode(t *testing.T) {
	virtually(t, func(w *world) {
		t, s := w.t, w.session(embed.SessionOptions{})
		blind := []embed.ACL{{Perms: embed.PermAdmin, Scheme: "world", ID: "anyone"}}
		c, err := claim.New(t.Context(), s, embed.OpCreateWith("/a", nil, embed.CreateOptions{Mode: embed.Ephemeral, ACL: blind}))
		must(t, err)
		_, err = c.Created(t.Context())
		must(t, err)
		hold, err := c.Hold(false)
		must(t, err)
		must(t, w.ens.Session(1, embed.SessionOptions{}).Delete(t.Context(), "/a", embed.AnyVersion))
		<-hold.Done()
		if err := hold.Err(); !errors.Is(err, embed.ErrDeleted) {
			t.Errorf("the hold ended with %v", err)
		}
	})
}

// A hung is a handler that hangs at its first line.
type hung struct {
	slog.Handler
	free chan struct{}
}

func (h hung) Handle(context.Context, slog.Record) error { <-h.free; return nil }

// A Logger that hangs when the connection is lost keeps no session from connecting again, and no
// client from closing.
func TestOutage_WithALoggerThatHangs(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		var o outage
		free := make(chan struct{})
		defer close(free)
		k := w.client(func(c *client.Config) {
			c.Dial, c.SessionTimeout = o.over(w.dial), time.Minute
			c.Logger = slog.New(hung{slog.NewTextHandler(io.Discard, nil), free})
		})
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		o.begin()
		synctest.Wait() // the session knows
		o.end()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := s.Create(ctx, "/a", nil, embed.Persistent); err != nil && !errors.Is(err, embed.ErrUnavailable) {
			t.Error(err)
		}
		<-time.After(5 * time.Second)
		if _, err := s.Sync(ctx, "/"); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		closed := make(chan error, 1)
		go func() { closed <- k.Close() }()
		select {
		case err := <-closed:
			must(t, err)
		case <-time.After(time.Minute):
			t.Error("Close waits for the Logger")
		}
	})
}

// M140: the connection of a client that waits for a countdown breaks. Afterwards it passes if all names
// are done, it waits if no more has happened than that some were done, and otherwise it says that it
// may have missed the moment.
func TestCountdown_AcrossABreak(t *testing.T) {
	for name, c := range map[string]struct {
		before, meanwhile string // names: done by a +, deleted by a -; / stands for the countdown
		want              error
		waits             bool
	}{
		"done":                  {before: "+a", meanwhile: "+b"},
		"one is done":           {before: "", meanwhile: "+a", waits: true},
		"nothing":               {before: "+a", meanwhile: "", waits: true},
		"done and deleted":      {before: "+a", meanwhile: "+b-a-b-/", want: embed.ErrWatchGap},
		"done for a moment":     {before: "+a", meanwhile: "+b-b", want: embed.ErrWatchGap},
		"begun anew":            {before: "+a", meanwhile: "-a-/+a", want: embed.ErrWatchGap},
		"begun anew, and done":  {before: "+a", meanwhile: "-a-/+a+b"},
		"begun in the meantime": {before: "", meanwhile: "+b", waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
				t, ctx := w.t, w.t.Context()
				play := func(steps string) {
					for ; steps != ""; steps = steps[2:] {
						name := steps[1:2]
						switch {
						case steps[0] == '+':
							must(t, barrier.NewCountdown(writer, "/work", 2).Done(ctx, name))
						case name == "/":
							must(t, writer.Delete(ctx, "/work", embed.AnyVersion))
						default:
							must(t, writer.Delete(ctx, "/work/"+name, embed.AnyVersion))
						}
					}
				}
				play(c.before)
				waited := make(chan error, 1)
				go func() { waited <- barrier.NewCountdown(s, "/work", 2).Wait(ctx) }()
				<-time.After(time.Second)
				o.begin()
				play(c.meanwhile)
				<-time.After(time.Second)
				o.end()
				if c.waits {
					select {
					case err := <-waited:
						t.Errorf("Wait returned %v", err)
						return
					case <-time.After(time.Minute):
					}
					play("+a+b")
				}
				select {
				case err := <-waited:
					if !errors.Is(err, c.want) {
						t.Errorf("Wait returned %v, want %v", err, c.want)
					}
				case <-time.After(time.Minute):
					t.Error("Wait still waits")
				}
			})
		})
	}
}

// M140: a gate is opened and shut again while the connection of a client that waits for it is broken.
func TestGate_AcrossABreak(t *testing.T) {
	onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
		t, ctx := w.t, w.t.Context()
		gate := barrier.NewGate(writer, "/gate")
		must(t, gate.Shut(ctx))
		waited := make(chan error, 1)
		go func() { waited <- barrier.NewGate(s, "/gate").Wait(ctx) }()
		<-time.After(time.Second)
		o.begin()
		must(t, gate.Open(ctx))
		must(t, gate.Shut(ctx))
		<-time.After(time.Second)
		o.end()
		select {
		case err := <-waited:
			must(t, err)
		case <-time.After(time.Minute):
			t.Error("Wait still waits")
		}
	})
}
