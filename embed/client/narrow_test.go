package client_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A thin connection delivers a megabyte in a second.
type thin struct{ net.Conn }

func (c thin) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		<-time.After(time.Duration(n) * time.Second / (1 << 20))
	}
	return n, err
}

// M156: a client watches a large znode over a thin link. Small children come below it, or the znode is
// set and nobody has asked for its data. The client keeps its locks.
func TestWatches_ThinLink(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much data, which says nothing of races")
	}
	child := func(ctx context.Context, s *embed.Session) error {
		_, err := s.Create(ctx, "/cfg/i-", nil, embed.EphemeralSequential)
		return err
	}
	set := func(ctx context.Context, s *embed.Session) error {
		_, err := s.Set(ctx, "/cfg", make([]byte, 500<<10), embed.AnyVersion)
		return err
	}
	with, without := embed.WatchOptions{Buffer: 1000, Values: true}, embed.WatchOptions{Buffer: 1000}
	for _, c := range []struct {
		change func(context.Context, *embed.Session) error
		watch  func(context.Context, *embed.Session) error
	}{
		{child, watching("/cfg", embed.WatchPersistent, with)},
		{child, watching("/cfg", embed.WatchPersistent, without)},
		{set, watching("/cfg", embed.WatchPersistent, without)},
		{set, watching("/", embed.WatchRecursive, without)},
		{set, func(ctx context.Context, s *embed.Session) error { // whoever wanted values is gone
			own, cancel := context.WithCancel(ctx)
			err := watching("/cfg", embed.WatchPersistent, without)(ctx, s)
			if err == nil {
				err = watching("/cfg", embed.WatchPersistent, with)(own, s)
			}
			cancel()
			return err
		}},
	} {
		virtually(t, func(w *world) { onAThinLink(w, c.change, c.watch) })
	}
}

// watching returns a call that watches a path, and drops the events, as long as its ctx lasts.
func watching(path string, mode embed.WatchMode, o embed.WatchOptions) func(context.Context, *embed.Session) error {
	return func(ctx context.Context, s *embed.Session) error {
		w, err := s.WatchWith(ctx, path, mode, o)
		if err != nil {
			return err
		}
		var drops sync.WaitGroup
		drops.Go(func() {
			for range w.Events() {
			}
		})
		context.AfterFunc(ctx, func() { _ = w.Close() })
		return nil
	}
}

func onAThinLink(w *world, change, watch func(context.Context, *embed.Session) error) {
	t := w.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k := w.client(func(c *client.Config) {
		c.SessionTimeout = 10 * time.Second
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := w.dial(ctx, address)
			return thin{conn}, err
		}
	})
	defer k.Close()
	other := w.session(embed.SessionOptions{})
	_, err := other.Create(ctx, "/cfg", make([]byte, 500<<10), embed.Persistent)
	must(t, err)
	s, err := k.NewSession(ctx, embed.SessionOptions{})
	must(t, err)
	h, err := lock.NewMutex(s, "/locks/a").Lock(ctx)
	must(t, err)
	must(t, watch(ctx, s))
	<-time.After(3 * time.Second)
	for range 150 {
		must(t, change(ctx, other))
		<-time.After(200 * time.Millisecond)
	}
	if err := h.Err(); err != nil {
		t.Fatalf("the lock is lost: %v; the session: %v", err, s.Err())
	}
}

// M156: those of a client's watches that ask for values have them, also beside others on the same znode.
func TestWatches_ValuesBesideNone(t *testing.T) {
	virtually(t, func(w *world) {
		t, ctx := w.t, w.t.Context()
		k := w.client(nil)
		defer k.Close()
		s, err := k.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		with := embed.WatchOptions{Values: true}
		watch := func(path string, mode embed.WatchMode, o embed.WatchOptions) *embed.Watch {
			t.Helper()
			made, err := s.WatchWith(ctx, path, mode, o)
			must(t, err)
			return made
		}
		put := func(data string) { t.Helper(); must(t, w.put(s, "/a", data)) }
		want := func(from *embed.Watch, data string) {
			t.Helper()
			if e := w.next(from); string(e.Data()) != data {
				t.Errorf("%v of %s has %q, want %q", e.Type, e.Path, e.Data(), data)
			}
		}
		put("0")
		plain := watch("/a", embed.WatchPersistent, embed.WatchOptions{})
		deep := watch("/", embed.WatchRecursive, with)
		put("1")
		want(plain, "")
		want(deep, "1")
		own := watch("/a", embed.WatchPersistent, with)
		late := watch("/a", embed.WatchPersistent, embed.WatchOptions{})
		must(t, deep.Close())
		put("2")
		want(own, "2")
		want(plain, "")
		want(late, "")
		must(t, own.Close())
		again := watch("/a", embed.WatchPersistent, with)
		put("3")
		want(again, "3")
		want(plain, "")
		must(t, w.put(s, "/a/b", ""))
		if e := w.next(again); e.Type != embed.NodeChildrenChanged || e.Data() != nil {
			t.Errorf("%v has %q", e.Type, e.Data())
		} else if stat, ok := e.Stat(); !ok || stat.NumChildren != 1 {
			t.Errorf("%v shows %+v", e.Type, stat)
		}
	})
}
