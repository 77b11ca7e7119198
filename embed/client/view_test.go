package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// onOutages runs a test with a client's session whose connections can be broken, and with one of a
// member.
func onOutages(t *testing.T, shards int, test func(w *world, o *outage, s, writer *embed.Session)) {
	virtuallyOn(t, embedtest.Options{Config: func(c *embed.Config) { c.Shards = shards }}, func(w *world) {
		var o outage
		k := w.client(func(c *client.Config) { c.Dial, c.SessionTimeout = o.over(w.dial), 20*time.Second })
		defer k.Close()
		s, err := k.NewSession(w.t.Context(), embed.SessionOptions{})
		must(w.t, err)
		test(w, &o, s, w.ens.Session(1, embed.SessionOptions{Timeout: time.Minute}))
	})
}

// shows waits until a view shows the data of the znode /v.
func (w *world) shows(v *view.View[string], want string) {
	w.t.Helper()
	w.ens.Until(want+" in the view", func() bool {
		e, ok := v.Get("/v")
		return ok && e.Value == want || v.Err() != nil
	})
	must(w.t, v.Err())
}

// bound waits until a binding has stored a value.
func (w *world) bound(p *atomic.Pointer[string], want string) {
	w.t.Helper()
	w.ens.Until(want+" in the binding", func() bool { return *p.Load() == want })
}

// fill fills the queue of a session that has no connection, with as many writes and reads as it takes.
func fill(ctx context.Context, s *embed.Session) {
	n := 0
	for !testkit.Closed(s.Submit(ctx, embed.OpSet("/other", nil, embed.AnyVersion)).Done()) {
		n++
	}
	for range n {
		go func() { _, _, _ = s.Get(ctx, "/other") }()
	}
	synctest.Wait()
}

// D8: when the connection is back, the session's queue is full. A view and a binding go on once it
// is not.
func TestViews_BesideAFullQueue(t *testing.T) {
	onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
		t := w.t
		ctx := t.Context()
		must(t, w.put(writer, "/v", "1"))
		_, err := s.Sync(ctx, "/v")
		must(t, err)
		v, err := view.Open(ctx, s, "/v", view.Options[string]{})
		must(t, err)
		var p atomic.Pointer[string]
		stop, err := value.Bind(ctx, s, "/v", value.Codec[string]{}, &p, value.BindOptions[string]{})
		must(t, err)
		o.begin()
		fill(ctx, s)
		o.end()
		must(t, w.put(writer, "/v", "2"))
		w.shows(v, "2")
		w.bound(&p, "2")
		must(t, v.Close())
		must(t, stop())
	})
}

// D8: a holder whose session has a full queue when the connection is back is asked later to give up.
func TestRevoked_BesideAFullQueue(t *testing.T) {
	onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
		t := w.t
		ctx := t.Context()
		hold, err := lock.NewMutex(s, "/locks/a").Lock(ctx)
		must(t, err)
		revoked := hold.Revoked()
		synctest.Wait() // it watches
		o.begin()
		note, err := lock.Holders(ctx, writer, "/locks/a")
		must(t, err)
		_, err = writer.Set(ctx, note[0].Path, []byte("a note"), embed.AnyVersion) // so that it looks again
		must(t, err)
		fill(ctx, s)
		o.end()
		<-time.After(time.Second)
		must(t, lock.Revoke(ctx, writer, "/locks/a"))
		select {
		case <-revoked:
		case <-time.After(time.Minute):
			t.Error("it was not asked")
		}
		must(t, hold.Release())
	})
}

// D9: a subtree grows past what one answer has, below a znode with a view and a binding. They go on
// across a break, and the binding does not read the subtree.
func TestViews_OfALargeSubtree(t *testing.T) {
	onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
		t := w.t
		ctx := t.Context()
		must(t, w.put(writer, "/v", "1"))
		_, err := s.Sync(ctx, "/v")
		must(t, err)
		v, err := view.Open(ctx, s, "/v", view.Options[string]{})
		must(t, err)
		var p atomic.Pointer[string]
		stop, err := value.Bind(ctx, s, "/v", value.Codec[string]{}, &p, value.BindOptions[string]{})
		must(t, err)
		const n = 40
		for i := range n {
			_, err := writer.Put(ctx, fmt.Sprintf("/v/%02d", i), make([]byte, 512<<10))
			must(t, err)
		}
		o.begin()
		must(t, w.put(writer, "/v", "2"))
		o.end()
		w.shows(v, "2")
		w.bound(&p, "2")
		var paths []string
		for path := range v.All() {
			paths = append(paths, path)
		}
		if len(paths) != n+1 || !slices.IsSorted(paths) {
			t.Errorf("it shows %q", paths)
		}
		must(t, v.Close())
		must(t, stop())
	})
}

// narrow is a network that, while it is on, carries only some bytes of each connection.
type narrow struct{ on atomic.Bool }

type narrowConn struct {
	net.Conn
	network *narrow
	left    int
	closed  chan struct{}
	once    sync.Once
}

func (n *narrow) over(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		return &narrowConn{Conn: conn, network: n, left: 32 << 10, closed: make(chan struct{})}, nil
	}
}

func (c *narrowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.left -= n; c.left < 0 && c.network.on.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *narrowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// D10: for minutes a network lets no large answer pass. The session lives on, and so does its view.
func TestViews_AfterANarrowNetwork(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx, writer := t.Context(), w.ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		var o outage
		var network narrow
		k := w.client(func(c *client.Config) { c.Dial, c.SessionTimeout = network.over(o.over(w.dial)), 10*time.Second })
		defer k.Close()
		s, err := k.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		must(t, w.put(writer, "/v", "1"))
		for i := range 4 {
			_, err := writer.Put(ctx, fmt.Sprintf("/v/%d", i), make([]byte, 64<<10))
			must(t, err)
		}
		_, err = s.Sync(ctx, "/v")
		must(t, err)
		v, err := view.Open(ctx, s, "/v", view.Options[string]{})
		must(t, err)
		network.on.Store(true)
		o.begin()
		o.end()
		<-time.After(3 * time.Minute)
		must(t, v.Err())
		must(t, s.Err())
		network.on.Store(false)
		must(t, w.put(writer, "/v", "2"))
		w.shows(v, "2")
		must(t, v.Close())
	})
}

// D11: a view's own znode may no longer be read when the connection is back. The view shows that as
// changes, and never goes back.
func TestViews_OfAHiddenRoot(t *testing.T) {
	onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
		t := w.t
		ctx := t.Context()
		must(t, w.put(writer, "/v", "1"))
		must(t, w.put(writer, "/v/a", "1"))
		_, err := s.Sync(ctx, "/v")
		must(t, err)
		v, err := view.Open(ctx, s, "/v", view.Options[string]{})
		must(t, err)
		since := v.Zxid()
		_, err = writer.SetACL(ctx, "/v", []embed.ACL{{Perms: embed.PermAll &^ embed.PermRead, Scheme: "world", ID: "anyone"}}, embed.AnyVersion)
		must(t, err)
		o.begin()
		o.end()
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var gone []string
		for c, err := range v.Changes(bounded, since) {
			must(t, err)
			if c.Type != embed.NodeDeleted || c.Zxid <= since {
				t.Errorf("%v of %s at %d", c.Type, c.Path, c.Zxid)
			}
			if gone = append(gone, c.Path); c.Last {
				break
			}
		}
		if want := []string{"/v", "/v/a"}; !slices.Equal(gone, want) || v.Zxid() <= since {
			t.Errorf("gone: %q, at %d, before at %d", gone, v.Zxid(), since)
		}
		must(t, v.Close())
	})
}

// onShard returns a path on one of four shards, with a number that makes it different from others.
func onShard(shard engine.ShardID, n int) string {
	for ; ; n++ {
		if path := fmt.Sprintf("/v%d", n); engine.ShardOf(path, 4) == shard {
			return path
		}
	}
}

// D11: a view that shows the newest zxid of its shard has missed nothing when the connection is back.
// It keeps what it shows, as without a break. Whoever has seen that zxid would not be told of a change.
func TestViews_ThatHaveMissedNothing(t *testing.T) {
	onOutages(t, 4, func(w *world, o *outage, s, writer *embed.Session) {
		t := w.t
		ctx, path := t.Context(), onShard(2, 0)
		must(t, w.put(writer, path, "1"))
		_, err := s.Sync(ctx, path)
		must(t, err)
		v, err := view.Open(ctx, s, path, view.Options[string]{})
		must(t, err)
		newest, err := s.Sync(ctx, path)
		must(t, err)
		must(t, v.Await(ctx, newest))
		o.begin()
		o.end()
		watch, err := s.Watch(ctx, path, embed.WatchPersistent) // on the next connection
		must(t, err)
		must(t, watch.Close())
		<-time.After(time.Second)
		if e, ok := v.Get(path); !ok || e.Value != "1" || v.Zxid() != newest {
			t.Errorf("it shows %q %v at %d, before at %d", e.Value, ok, v.Zxid(), newest)
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		for c, err := range v.Changes(soon, newest) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("told of %+v: %v", c, err)
			}
		}
		must(t, v.Close())
	})
}

// torn is a network that, once it is on, breaks a connection amid the next frame with some text.
type torn struct {
	on   atomic.Bool
	text []byte
}

type tornConn struct {
	net.Conn
	network *torn
	broken  bool
}

func (c *tornConn) Read(b []byte) (int, error) {
	if c.broken {
		return 0, errDropped
	}
	n, err := c.Conn.Read(b)
	if i := bytes.Index(b[:n], c.network.text); i >= 0 && c.network.on.CompareAndSwap(true, false) {
		c.broken, n = true, i
	}
	return n, err
}

// D13: a connection breaks between two events of one transaction. A view shows that as a whole.
func TestViews_ABreakAmidATransaction(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx, writer := t.Context(), w.ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		network := torn{text: []byte("/v/second")}
		k := w.client(func(c *client.Config) {
			c.SessionTimeout = 20 * time.Second
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				return &tornConn{Conn: conn, network: &network}, err
			}
		})
		defer k.Close()
		s, err := k.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		must(t, w.put(writer, "/v/first", "1"))
		must(t, w.put(writer, "/v/second", "1"))
		_, err = s.Sync(ctx, "/v")
		must(t, err)
		v, err := view.Open(ctx, s, "/v", view.Options[string]{})
		must(t, err)
		since := v.Zxid()
		network.on.Store(true)
		_, err = writer.Multi(ctx, embed.OpSet("/v/first", []byte("2"), embed.AnyVersion), embed.OpSet("/v/second", []byte("2"), embed.AnyVersion))
		must(t, err)
		var got []string
		for c, err := range v.Changes(ctx, since) {
			must(t, err)
			if got = append(got, c.Path); c.Last {
				break
			}
		}
		if want := []string{"/v/first", "/v/second"}; !slices.Equal(got, want) {
			t.Errorf("shown at once: %q, want %q", got, want)
		}
		must(t, v.Close())
	})
}
