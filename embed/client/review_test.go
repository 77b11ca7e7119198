package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
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
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// virtuallyWith is virtually with other gateways, and a client that counts its connections. A
// client that connects without end is stopped after 100, because no time passes meanwhile.
func virtuallyWith(t *testing.T, g gateway.Config, o embedtest.Options, test func(w *world, dials *atomic.Int64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ens: embedtest.New(t, 3, o)}
		g.Listen = "127.0.0.1:0"
		for id := range embed.MemberID(3) {
			_, err := gateway.Start(w.ens.Node(id+1), g)
			must(t, err)
		}
		var dials atomic.Int64
		w.k = w.client(func(c *client.Config) {
			c.Logger = slog.New(slog.DiscardHandler)
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				if dials.Add(1) > 100 {
					return nil, errors.New("too many connections")
				}
				return w.dial(ctx, address)
			}
		})
		test(w, &dials)
		_ = w.k.Close()
	})
}

func few(t *testing.T, dials *atomic.Int64) {
	t.Helper()
	if n := dials.Load(); n > 5 {
		t.Errorf("the client connected %d times", n)
	}
}

// A watch beyond the gateway's bound is refused, and the session goes on.
func TestWatchBeyondTheBound(t *testing.T) {
	virtuallyWith(t, gateway.Config{Watches: 8}, embedtest.Options{}, func(w *world, dials *atomic.Int64) {
		t, s := w.t, w.session(embed.SessionOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var err error
		for i := 0; i < 10 && err == nil; i++ {
			_, err = s.Create(ctx, fmt.Sprint("/w", i), nil, embed.Persistent)
			must(t, err)
			short, cancel := context.WithTimeout(ctx, time.Second)
			_, err = s.Watch(short, fmt.Sprint("/w", i), embed.WatchOnce)
			cancel()
		}
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("watches beyond the bound: %v", err)
		}
		if _, err := s.Create(ctx, "/a", nil, embed.Persistent); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		few(t, dials)
	})
}

// A read that no server takes fails, and the session goes on.
func TestReadThatNoServerTakes(t *testing.T) {
	virtuallyWith(t, gateway.Config{}, embedtest.Options{}, func(w *world, dials *atomic.Int64) {
		t, s := w.t, w.session(embed.SessionOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := s.Get(ctx, "/"+strings.Repeat("x", 1<<20))
		t.Log("the long path:", fmt.Sprint(err)[max(0, len(fmt.Sprint(err))-100):])
		later, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := s.Create(later, "/a", nil, embed.Persistent); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		few(t, dials)
	})
}

// What a member's session may write, a client's may write too, or is told that it may not.
func TestLargestData(t *testing.T) {
	virtuallyWith(t, gateway.Config{}, embedtest.Options{}, func(w *world, dials *atomic.Int64) {
		t, s := w.t, w.session(embed.SessionOptions{})
		data := make([]byte, embed.DefaultMaxDataSize)
		_, err := w.ens.Node(1).NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		if _, err := s.Create(t.Context(), "/a", data, embed.Persistent); errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("MaxDataSize bytes: %v", err)
		}
		_, err = s.Multi(t.Context(), embed.OpCreate("/b", data[:600_000], embed.Persistent), embed.OpCreate("/c", data[:600_000], embed.Persistent))
		if errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("a transaction of 1.2 MB: %v", err)
		}
		few(t, dials)
	})
}

// A valve holds back what a server answers, and lets it go on later.
type valve struct {
	mu   sync.Mutex
	open chan struct{} // nil while nothing is held back
}

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = make(chan struct{})
}

func (v *valve) reopen() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.open)
	v.open = nil
}

type valved struct {
	net.Conn
	v *valve
}

func (c *valved) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.v.mu.Lock()
	open := c.v.open
	c.v.mu.Unlock()
	if open != nil {
		<-open
	}
	return n, err
}

func (w *world) valved(v *valve) *client.Client {
	return w.client(func(c *client.Config) {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := w.dial(ctx, address)
			if err != nil {
				return nil, err
			}
			return &valved{conn, v}, nil
		}
	})
}

// A watch that is armed while its session closes ends with the session.
func TestWatchArmedDuringClose(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		var v valve
		k := w.valved(&v)
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		<-time.After(50 * time.Millisecond)
		v.shut()
		armed := make(chan *embed.Watch, 1)
		go func() {
			watch, _ := s.Watch(context.Background(), "/a", embed.WatchPersistent)
			armed <- watch
		}()
		<-time.After(20 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		<-time.After(20 * time.Millisecond)
		v.reopen()
		must(t, <-closed)
		_ = k.Close()
		if watch := <-armed; watch != nil {
			select {
			case <-watch.Events():
			case <-time.After(time.Minute):
				t.Errorf("the watch of a closed session goes on for ever, Err is %v", watch.Err())
				watch.Close()
			}
		}
	})
}

// A claim ends as a whole, also when the transaction that was to give it up is refused.
func TestClaimThatLeavesEndsAsAWhole(t *testing.T) {
	for _, over := range []string{"member", "client"} {
		t.Run(over, func(t *testing.T) {
			virtually(t, func(w *world) {
				t, ctx := w.t, w.t.Context()
				var v valve
				k := w.valved(&v)
				var from embed.Opener = k
				if over == "member" {
					from = w.ens.Node(1)
				}
				s, err := from.NewSession(ctx, embed.SessionOptions{})
				must(t, err)
				c, err := claim.New(ctx, s, embed.OpCreate("/a", nil, embed.Ephemeral), embed.OpCreate("/b", nil, embed.Ephemeral))
				must(t, err)
				_, err = c.Created(ctx)
				must(t, err)
				other, err := w.ens.Node(2).NewSession(ctx, embed.SessionOptions{})
				must(t, err)
				<-time.After(50 * time.Millisecond)
				v.shut()
				_, err = other.Sync(ctx, "/")
				must(t, err)
				must(t, other.Delete(ctx, "/b", embed.AnyVersion))
				failed := make(chan error, 1)
				go func() {
					_, err := s.Multi(ctx, claim.OpRelease(c))
					failed <- err
				}()
				<-time.After(50 * time.Millisecond)
				v.reopen()
				t.Log("the transaction:", <-failed, "the claim:", c.Err())
				<-time.After(5 * time.Second)
				_, err = other.Sync(ctx, "/")
				must(t, err)
				if _, there, err := other.Exists(ctx, "/a"); there || err != nil {
					t.Errorf("a znode of the ended claim is left: %v, %v", there, err)
				}
				_ = k.Close()
			})
		})
	}
}

// Callers that wait for a transaction keep no ping from being answered.
func TestManyAwaits(t *testing.T) {
	virtuallyWith(t, gateway.Config{}, embedtest.Options{}, func(w *world, dials *atomic.Int64) {
		t, ctx, s := w.t, w.t.Context(), w.session(embed.SessionOptions{})
		hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
		must(t, err)
		z, err := s.Sync(ctx, "/")
		must(t, err)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				short, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				if err := s.Await(short, "/", z+1_000_000); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := hold.Err(); err != nil {
			t.Errorf("the lock is lost: %v", err)
		}
		if n := dials.Load(); n > 1 {
			t.Errorf("the client connected %d times", n)
		}
	})
}

// A member with a lesser MaxSessionTimeout shortens the session, and its answer is lost. The holder
// is still told before anyone else is granted the lock.
func TestToldFirstWithAShorterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ens: embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			c.MaxSessionTimeout = 20 * time.Second
			if c.ID == 2 {
				c.MaxSessionTimeout = time.Second
			}
		}})}
		for id := range embed.MemberID(3) {
			w.open(id + 1)
		}
		ctx := t.Context()
		var moved atomic.Bool
		var first atomic.Pointer[net.Conn]
		never := make(chan struct{})
		k := w.client(func(c *client.Config) {
			c.Servers = []string{"member:1"}
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				if !moved.Load() {
					conn, err := w.dial(ctx, "member:1")
					first.Store(&conn)
					return conn, err
				}
				conn, err := w.dial(ctx, "member:2")
				if err != nil {
					return nil, err
				}
				return &deaf{Conn: conn, closed: never}, nil
			}
		})
		s, err := k.NewSession(ctx, embed.SessionOptions{Timeout: 10 * time.Second})
		must(t, err)
		hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
		must(t, err)
		lost := make(chan time.Time, 1)
		go func() {
			<-hold.Done()
			lost <- time.Now()
		}()
		moved.Store(true)
		_ = (*first.Load()).Close()
		other, err := w.ens.Node(3).NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		began := time.Now()
		_, err = lock.NewMutex(other, "/lock").Lock(ctx)
		must(t, err)
		granted := time.Now()
		if hold.Err() == nil {
			t.Errorf("somebody else was granted the lock after %v, and the holder does not know", granted.Sub(began))
			t.Errorf("it is told %v later", (<-lost).Sub(granted))
		}
		_ = k.Close()
	})
}

// A deaf connection loses what the server answers.
type deaf struct {
	net.Conn
	closed chan struct{}
}

func (c *deaf) Read(p []byte) (int, error) {
	for {
		if _, err := c.Conn.Read(p); err != nil {
			return 0, err
		}
	}
}

// A claim that is released while its member is overloaded is deleted when that is over.
func TestReleaseBehindAFullQueue(t *testing.T) {
	for _, over := range []string{"member", "client"} {
		t.Run(over, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, ens: embedtest.New(t, 3, embedtest.Options{})}
				ctx := t.Context()
				at := w.ens.Leader()%3 + 1 // a follower
				w.open(at)
				k := w.client(func(c *client.Config) { c.Servers = []string{fmt.Sprint("member:", at)} })
				var from embed.Opener = k
				if over == "member" {
					from = w.ens.Node(at)
				}
				s, err := from.NewSession(ctx, embed.SessionOptions{Timeout: 30 * time.Second})
				must(t, err)
				c, err := claim.New(ctx, s, embed.OpCreate("/a", nil, embed.Ephemeral))
				must(t, err)
				_, err = c.Created(ctx)
				must(t, err)
				_, err = c.Hold(false)
				must(t, err)
				busy, err := w.ens.Node(at).NewSession(ctx, embed.SessionOptions{Timeout: 30 * time.Second})
				must(t, err)
				w.ens.Isolate(at)
				var last *embed.Pending
				for range 17_000 {
					last = busy.Submit(ctx, embed.OpCheck("/", embed.AnyVersion))
				}
				released := make(chan error, 1)
				go func() { released <- c.Release() }()
				<-time.After(time.Second)
				w.ens.HealAll()
				t.Log("released:", <-released)
				<-last.Done()
				<-time.After(5 * time.Second)
				other, err := w.ens.Node(at%3+1).NewSession(ctx, embed.SessionOptions{})
				must(t, err)
				_, err = other.Sync(ctx, "/")
				must(t, err)
				if _, there, err := other.Exists(ctx, "/a"); there || err != nil {
					t.Errorf("the released znode is left: %v, %v; the session: %v", there, err, s.Err())
				}
				_ = k.Close()
			})
		})
	}
}

// A late connection breaks for its client while what the client has written is still on its way.
type late struct {
	net.Conn
	broken chan struct{}

	mu   sync.Mutex
	hold bool
	held []byte
}

func (c *late) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *late) Read(p []byte) (int, error) {
	type read struct {
		n   int
		err error
	}
	done := make(chan read, 1)
	b := make([]byte, len(p))
	go func() {
		n, err := c.Conn.Read(b)
		done <- read{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, b[:r.n]), r.err
	case <-c.broken:
		return 0, errDropped
	}
}

func (c *late) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold {
		return nil // its bytes are on their way
	}
	return c.Conn.Close()
}

// A claim with an unknown outcome leaves nothing behind, also if its transaction comes to the member
// while the session is being reattached there.
func TestClaimBehindItsReattachmentLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ens: embedtest.New(t, 3, embedtest.Options{})}
		ctx := t.Context()
		leader := w.ens.Leader()
		at := leader%3 + 1
		w.open(at)
		var mu sync.Mutex
		var conns []*late
		k := w.client(func(c *client.Config) {
			c.Servers = []string{fmt.Sprint("member:", at)}
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				if err != nil {
					return nil, err
				}
				l := &late{Conn: conn, broken: make(chan struct{})}
				mu.Lock()
				defer mu.Unlock()
				conns = append(conns, l)
				return l, nil
			}
		})
		s, err := k.NewSession(ctx, embed.SessionOptions{Timeout: 10 * time.Second})
		must(t, err)
		busy, err := w.ens.Node(at).NewSession(ctx, embed.SessionOptions{Timeout: 10 * time.Second})
		must(t, err)
		<-time.After(100 * time.Millisecond)
		old := conns[0]
		old.mu.Lock()
		old.hold = true
		old.mu.Unlock()
		c, err := claim.New(ctx, s, embed.OpCreate("/a", nil, embed.Ephemeral))
		must(t, err)
		<-time.After(10 * time.Millisecond)
		for id := range embed.MemberID(3) {
			if id+1 != at {
				w.ens.Faults(at).SetLink(id+1, embedtest.Link{Delay: 100 * time.Millisecond})
			}
		}
		close(old.broken) // the client connects again, and its session is being reattached
		<-time.After(40 * time.Millisecond)
		old.mu.Lock()
		_, err = old.Conn.Write(old.held) // the claim arrives
		old.mu.Unlock()
		must(t, err)
		<-time.After(5 * time.Millisecond)
		for range 400 {
			busy.Submit(ctx, embed.OpCheck("/", embed.AnyVersion))
		}
		_, err = c.Created(ctx)
		t.Log("the claim:", err, "connections:", len(conns))
		w.ens.HealAll()
		<-time.After(5 * time.Second)
		if s.Err() != nil {
			t.Error(s.Err())
		}
		other, err := w.ens.Node(leader).NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		if stat, there, err := other.Exists(ctx, "/a"); there || err != nil {
			t.Errorf("the claim's znode is left: %v, %+v, %v", there, stat, err)
		}
		_ = k.Close()
		_ = old.Conn.Close()
	})
}

// A client that releases an absurd path costs nobody else anything.
func TestReleaseOfAnAbsurdPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ens: embedtest.New(t, 3, embedtest.Options{})}
		_, err := gateway.Start(w.ens.Node(1), gateway.Config{Listen: "127.0.0.1:0", FrameSize: 32 << 20})
		must(t, err)
		conn, err := w.ens.Dial(t.Context(), 1)
		must(t, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		_, err = conn.Write((&wire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16)}).AppendFrame(nil))
		must(t, err)
		<-time.After(time.Second)
		_, err = conn.Write((&wire.Request{Operation: wire.Operation{Op: wire.OpNative},
			Native: wire.Native{Kind: wire.NativeRelease, Path: "/" + strings.Repeat("x", 17<<20), Zxid: 1}}).AppendFrame(nil))
		must(t, err)
		<-time.After(time.Second)
		s, err := w.ens.Node(1).NewSession(t.Context(), embed.SessionOptions{})
		if err == nil {
			_, err = s.Create(t.Context(), "/a", nil, embed.Persistent)
		}
		if err != nil {
			t.Errorf("another session: %v", err)
		}
		_ = conn.Close()
	})
}

// A claim whose outcome a snapshot has replaced leaves nothing behind, although its connection goes
// on.
func TestClaimWhoseOutcomeASnapshotReplaces(t *testing.T) {
	for _, over := range []string{"member", "client"} {
		t.Run(over, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, ens: embedtest.New(t, 3, embedtest.Options{KeepEntries: 1})}
				ctx := t.Context()
				leader := w.ens.Leader()
				at := leader%3 + 1
				third := at%3 + 1
				w.open(at)
				var dials atomic.Int64
				k := w.client(func(c *client.Config) {
					c.Servers = []string{fmt.Sprint("member:", at)}
					c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
						dials.Add(1)
						return w.dial(ctx, address)
					}
				})
				var from embed.Opener = k
				if over == "member" {
					from = w.ens.Node(at)
				}
				s, err := from.NewSession(ctx, embed.SessionOptions{Timeout: 60 * time.Second})
				must(t, err)
				other, err := w.ens.Node(leader).NewSession(ctx, embed.SessionOptions{Timeout: 60 * time.Second})
				must(t, err)
				<-time.After(100 * time.Millisecond)
				w.ens.Faults(leader).SetLink(at, embedtest.Link{Cut: true})
				w.ens.Faults(third).SetLink(at, embedtest.Link{Cut: true})
				c, err := claim.New(ctx, s, embed.OpCreate("/a", nil, embed.Ephemeral))
				must(t, err)
				<-time.After(20 * time.Millisecond)
				w.ens.Cut(at, leader)
				w.ens.Cut(at, third)
				_, there, err := other.Exists(ctx, "/a")
				must(t, err)
				t.Log("applied:", there)
				for range 200 {
					_, err := other.Create(ctx, "/n", nil, embed.Sequential)
					must(t, err)
				}
				must(t, w.ens.Snapshot(leader))
				must(t, w.ens.Snapshot(third))
				w.ens.HealAll()
				_, err = c.Created(ctx)
				t.Log("the claim:", err, "connections:", dials.Load())
				<-time.After(10 * time.Second)
				_, err = other.Sync(ctx, "/")
				must(t, err)
				if _, there, err := other.Exists(ctx, "/a"); there || err != nil {
					t.Errorf("the claim's znode is left: %v, %v; the claim: %v, the session: %v", there, err, c.Err(), s.Err())
				}
				_ = k.Close()
			})
		})
	}
}
