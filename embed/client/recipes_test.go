package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/view"
)

// What recipes need of a session. The tests of the recipes found these with -sessions client.

// overBoth runs a test with the sessions of a member, and with those of a client of it.
func overBoth(t *testing.T, test func(w *world, at embed.MemberID, from embed.Opener)) {
	for _, over := range []string{"member", "client"} {
		t.Run(over, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, ens: embedtest.New(t, 3, embedtest.Options{})}
				at := w.ens.Leader()%3 + 1
				w.open(at)
				k := w.client(func(c *client.Config) { c.Servers = []string{fmt.Sprint("member:", at)} })
				defer k.Close()
				var from embed.Opener = k
				if over == "member" {
					from = w.ens.Node(at)
				}
				test(w, at, from)
			})
		})
	}
}

// What a holder wrote without waiting, before it gave its tenure up, is written.
func TestWrittenBeforeTheRelease(t *testing.T) {
	overBoth(t, func(w *world, _ embed.MemberID, from embed.Opener) {
		t := w.t
		ctx := t.Context()
		s, err := from.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		_, err = s.Create(ctx, "/data", nil, embed.Persistent)
		must(t, err)
		m := lock.NewMutex(s, "/locks/a").With(lock.Options{Keep: time.Hour})
		for range 20 {
			h, err := m.Lock(ctx)
			must(t, err)
			written := s.Submit(ctx, lock.Guard(h), embed.OpSet("/data", nil, embed.AnyVersion))
			must(t, h.Release())
			_, err = written.Result()
			must(t, err)
			if _, err := s.Multi(ctx, lock.Guard(h), embed.OpSet("/data", nil, embed.AnyVersion)); !errors.Is(err, embed.ErrNotHeld) {
				t.Errorf("after the release: %v", err)
			}
		}
	})
}

// A WatchOnce whose event may not be read says so. So somebody who waits for a contender that may
// not be read does not wait for ever. A recursive watch says nothing of such a znode.
func TestWatchOfWhatMayNotBeRead(t *testing.T) {
	overBoth(t, func(w *world, _ embed.MemberID, from embed.Opener) {
		t := w.t
		ctx := t.Context()
		bob, err := from.NewSession(ctx, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("bob:pw")}}})
		must(t, err)
		_, _, err = bob.CreateWith(ctx, "/dir/bobs", nil, embed.CreateOptions{Parents: true, ACL: embed.CreatorACL()})
		must(t, err)
		s, err := from.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		_, err = s.Sync(ctx, "/")
		must(t, err)
		all, err := s.Watch(ctx, "/dir", embed.WatchRecursive)
		must(t, err)
		once, err := s.Watch(ctx, "/dir/bobs", embed.WatchOnce)
		must(t, err)
		must(t, bob.Delete(ctx, "/dir/bobs", embed.AnyVersion))
		if e, ok := <-once.Events(); ok || !errors.Is(once.Err(), embed.ErrNoAuth) {
			t.Errorf("the watch tells %v, and ends with %v", e, once.Err())
		}
		_, err = bob.Create(ctx, "/dir/next", nil, embed.Persistent)
		must(t, err)
		if e := <-all.Events(); e.Path != "/dir/next" {
			t.Errorf("the recursive watch tells %v", e)
		}
	})
}

// withOutage runs a test with a session of a client of a follower, over connections that can break.
// over wraps each of them, and may be nil.
func withOutage(
	t *testing.T, over func(net.Conn) net.Conn,
	test func(w *world, at embed.MemberID, s *embed.Session, o *outage),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ens: embedtest.New(t, 3, embedtest.Options{})}
		at := w.ens.Leader()%3 + 1
		w.open(at)
		var o outage
		k := w.client(func(c *client.Config) {
			c.Servers = []string{fmt.Sprint("member:", at)}
			c.Dial = o.over(func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				if err == nil && over != nil {
					conn = over(conn)
				}
				return conn, err
			})
		})
		defer k.Close()
		s, err := k.NewSession(t.Context(), embed.SessionOptions{Timeout: 10 * time.Second})
		must(t, err)
		test(w, at, s, &o)
	})
}

// heir are the options of what lingers.
var heir = embed.CreateOptions{Mode: embed.Ephemeral, TTL: time.Hour}

// inherits lets an ephemeral be lost and linger, and makes a claim in its place.
func inherits(w *world, at embed.MemberID, s *embed.Session) *claim.Claim {
	w.t.Helper()
	lose(w, at, s)
	c, err := claim.New(w.t.Context(), s, claim.OpInherit("/lost"), embed.OpCreateWith("/lost", nil, heir))
	must(w.t, err)
	return c
}

// lose lets an ephemeral be lost and linger, as a session sees.
func lose(w *world, at embed.MemberID, s *embed.Session) {
	w.t.Helper()
	ctx := w.t.Context()
	lost := at%3 + 1
	if lost == w.ens.Leader() {
		lost = lost%3 + 1
	}
	_, _, err := w.ens.Session(lost, embed.SessionOptions{}).CreateWith(ctx, "/lost", nil, heir)
	must(w.t, err)
	w.ens.Kill(lost)
	w.ens.Until("it to linger", func() bool {
		stat, ok, err := s.Exists(ctx, "/lost")
		return err == nil && ok && stat.EphemeralOwner == 0
	})
}

// lingers reports whether the heir's place is still kept.
func lingers(w *world, s *embed.Session) bool {
	w.t.Helper()
	_, err := s.Sync(w.t.Context(), "/")
	must(w.t, err)
	stat, ok, err := s.Exists(w.t.Context(), "/lost")
	must(w.t, err)
	return ok && stat.EphemeralOwner == 0
}

// A claim that takes over something lost, and was never held, lingers when its session is closed.
// It does so too if its outcome is not known yet, or if it was given up just before.
func TestHeirLingersWhenItsSessionIsClosed(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, c *claim.Claim){
		"standing": func(t *testing.T, c *claim.Claim) {
			_, err := c.Created(t.Context())
			must(t, err)
		},
		"entering": func(*testing.T, *claim.Claim) { synctest.Wait() },
		"released": func(t *testing.T, c *claim.Claim) {
			_, err := c.Created(t.Context())
			must(t, err)
			must(t, c.Release())
		},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(w *world, at embed.MemberID, from embed.Opener) {
				t := w.t
				s, err := from.NewSession(t.Context(), embed.SessionOptions{Timeout: time.Minute})
				must(t, err)
				before(t, inherits(w, at, s))
				must(t, s.Close())
				if !lingers(w, w.ens.Session(at, embed.SessionOptions{})) {
					t.Error("the place is not kept")
				}
			})
		})
	}
}

// A claim that takes over something lost lingers although its connection breaks while its session
// is closed. Its outcome may be unknown then, or its release may be under way.
func TestHeirLingersBehindABrokenConnection(t *testing.T) {
	created := func(t *testing.T, c *claim.Claim) {
		_, err := c.Created(t.Context())
		must(t, err)
	}
	var left atomic.Int32 // messages to lose
	for name, test := range map[string]struct {
		before  func(t *testing.T, c *claim.Claim) // with a slow network
		closing bool                               // the connection breaks after Close was called
		unsure  bool                               // Close cannot know whether the place is kept
	}{
		"entering":               {before: func(*testing.T, *claim.Claim) {}, unsure: true},
		"entering, then closing": {func(*testing.T, *claim.Claim) {}, true, true},
		"released":               {before: func(t *testing.T, c *claim.Claim) { created(t, c); must(t, c.Release()) }},
		"released, then closing": {func(t *testing.T, c *claim.Claim) { created(t, c); must(t, c.Release()) }, true, true},
		"released, and lost":     {before: func(t *testing.T, c *claim.Claim) { created(t, c); left.Store(1); must(t, c.Release()) }},
		"standing":               {before: created},
		"standing, then closing": {created, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			over := func(conn net.Conn) net.Conn { return lossy{conn, []byte("/lost"), &left} }
			withOutage(t, over, func(w *world, at embed.MemberID, s *embed.Session, o *outage) {
				t, leader := w.t, w.ens.Leader()
				w.ens.Faults(at).SetLink(leader, embedtest.Link{Delay: 50 * time.Millisecond}) // before anything of the claim is sent
				c := inherits(w, at, s)
				test.before(t, c)
				synctest.Wait() // what was sent has come to the member, and waits for the leader
				closed := make(chan error, 1)
				if !test.closing {
					o.begin()
					synctest.Wait()
				}
				go func() { closed <- s.Close() }()
				<-s.Done()
				synctest.Wait()
				if test.closing {
					o.begin()
					synctest.Wait()
				}
				o.end()
				if n := left.Load(); n > 0 {
					t.Errorf("%d messages were left to lose", n)
				}
				if err := <-closed; errors.Is(err, embed.ErrUnknownOutcome) != test.unsure || !test.unsure && err != nil {
					t.Errorf("closed: %v", err)
				}
				w.ens.HealAll()
				<-time.After(time.Minute)
				if !lingers(w, w.ens.Session(leader, embed.SessionOptions{})) {
					t.Error("the place is not kept")
				}
			})
		})
	}
}

// A claim that takes over something lost lingers although a broken connection took its outcome along
// with that of another, which may have created the same znodes. When the session knows of both, it
// closes at once.
func TestHeirLingersBesideAnotherClaim(t *testing.T) {
	withOutage(t, nil, func(w *world, at embed.MemberID, s *embed.Session, o *outage) {
		t, leader := w.t, w.ens.Leader()
		ctx := t.Context()
		_, err := s.Create(ctx, "/queue", nil, embed.Persistent)
		must(t, err)
		lose(w, at, s)
		w.ens.Faults(at).SetLink(leader, embedtest.Link{Delay: 50 * time.Millisecond})
		_, err = claim.New(ctx, s, embed.OpCreate("/queue/c-", nil, embed.EphemeralSequential))
		must(t, err)
		_, err = claim.New(ctx, s, claim.OpInherit("/lost"), embed.OpCreateWith("/queue/c-", nil,
			embed.CreateOptions{Mode: embed.EphemeralSequential, TTL: time.Hour}))
		must(t, err)
		synctest.Wait()
		o.begin()
		synctest.Wait()
		o.end()
		<-time.After(5 * time.Second) // the session has looked
		must(t, s.Close())
		other := w.ens.Session(leader, embed.SessionOptions{})
		_, err = other.Sync(ctx, "/")
		must(t, err)
		if _, kept, err := other.Exists(ctx, "/queue/c-0000000001"); !kept || err != nil {
			t.Errorf("the place is kept: %v, %v", kept, err)
		}
	})
}

// Flush waits for a write that a broken connection took along and that is still on its way from the
// member. So none of a former tenure is applied in the next one.
func TestFlushAfterABrokenConnection(t *testing.T) {
	withOutage(t, nil, func(w *world, at embed.MemberID, s *embed.Session, o *outage) {
		t, leader := w.t, w.ens.Leader()
		ctx := t.Context()
		_, err := s.Create(ctx, "/data", nil, embed.Persistent)
		must(t, err)
		c, err := claim.New(ctx, s, embed.OpCreate("/a", nil, embed.Ephemeral))
		must(t, err)
		_, err = c.Created(ctx)
		must(t, err)
		tenure, err := c.Hold(true)
		must(t, err)
		other := w.ens.Session(leader, embed.SessionOptions{})
		version := func() int32 {
			_, err := other.Sync(ctx, "/data")
			must(t, err)
			_, stat, err := other.Get(ctx, "/data")
			must(t, err)
			return stat.Version
		}
		for id := range embed.MemberID(3) {
			if id+1 != at {
				w.ens.Faults(at).SetLink(id+1, embedtest.Link{Delay: 100 * time.Millisecond})
			}
		}
		written := s.Submit(ctx, claim.OpGuard(tenure), embed.OpSet("/data", nil, embed.AnyVersion))
		synctest.Wait()
		o.begin()
		if _, err := written.Result(); !errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("the write: %v", err)
		}
		o.end()
		tenure.End()
		must(t, c.Flush())
		_, err = c.Hold(true)
		must(t, err)
		began := version()
		w.ens.HealAll()
		<-time.After(5 * time.Second)
		if now := version(); now != began || now != 1 {
			t.Errorf("the next tenure began with version %d, and it became %d", began, now)
		}
	})
}

// A session that has expired while there was no connection is closed as soon as a member says so.
func TestCloseOfAnExpiredSession(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		var o outage
		k := w.client(func(c *client.Config) { c.Dial, c.RequestTimeout = o.over(w.dial), time.Hour })
		defer k.Close()
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		o.begin()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		<-time.After(10 * s.Timeout())
		o.end()
		<-time.After(s.Timeout())
		select {
		case err := <-closed:
			must(t, err)
		default:
			t.Error("Close still waits")
		}
	})
}

// More names than a client reads at once are refused, and the session goes on.
func TestNamesAreBounded(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx := t.Context()
		s := w.session(embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(ctx, "/dir", nil, embed.Persistent)
		must(t, err)
		var ops []embed.Op
		for i := range 9000 {
			if ops = append(ops, embed.OpCreate(fmt.Sprint("/dir/", i, strings.Repeat("x", 2000)), nil, embed.Ephemeral)); len(ops) == 100 {
				_, err := s.Multi(ctx, ops...)
				must(t, err)
				ops = nil
			}
		}
		_, _, children := s.Children(ctx, "/dir")
		_, page := s.Page(ctx, "/dir", "", 9000)
		_, ephemerals := s.Ephemerals(ctx, "/")
		for name, err := range map[string]error{"Children": children, "Page": page, "Ephemerals": ephemerals} {
			if !errors.Is(err, embed.ErrTooLarge) {
				t.Errorf("%s: %v", name, err)
			}
		}
		names, err := s.Page(ctx, "/dir", "", 1000)
		must(t, err)
		if len(names) != 1000 {
			t.Errorf("a page of %d names", len(names))
		}
	})
}

// Whoever closes a session that is being closed waits for that too.
func TestCloseWaitsForClose(t *testing.T) {
	overBoth(t, func(w *world, at embed.MemberID, from embed.Opener) {
		t := w.t
		ctx := t.Context()
		s, err := from.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		_, err = s.Create(ctx, "/a", nil, embed.Ephemeral)
		must(t, err)
		leader := w.ens.Leader()
		other := w.ens.Session(leader, embed.SessionOptions{})
		w.ens.Faults(at).SetLink(leader, embedtest.Link{Delay: 100 * time.Millisecond})
		first := make(chan error, 1)
		go func() { first <- s.Close() }()
		<-s.Done()
		must(t, s.Close())
		_, err = other.Sync(ctx, "/a") // the leader may apply it after the member that asked
		must(t, err)
		if _, there, err := other.Exists(ctx, "/a"); there || err != nil {
			t.Errorf("its ephemeral is there: %v, %v", there, err)
		}
		must(t, <-first)
	})
}

// An event of a znode that its own transaction deletes again has no Stat.
func TestEventOfAZnodeThatVanishes(t *testing.T) {
	overBoth(t, func(w *world, _ embed.MemberID, from embed.Opener) {
		t := w.t
		s, err := from.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		watch, err := s.WatchWith(t.Context(), "/a", embed.WatchPersistent, embed.WatchOptions{Values: true})
		must(t, err)
		_, err = s.Multi(t.Context(), embed.OpCreate("/a", []byte("x"), embed.Persistent), embed.OpDelete("/a", embed.AnyVersion))
		must(t, err)
		if e := <-watch.Events(); e.Type != embed.NodeCreated {
			t.Errorf("it tells %v", e)
		} else if stat, ok := e.Stat(); ok {
			t.Errorf("it tells of %+v", stat)
		}
		must(t, watch.Close())
	})
}

// A walk below a znode that is missing says as of when. So a view that is opened there knows where
// it begins.
func TestWalkOfAMissingZnode(t *testing.T) {
	overBoth(t, func(w *world, _ embed.MemberID, from embed.Opener) {
		t := w.t
		s, err := from.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		v, err := view.Open(t.Context(), s, "/none", view.Options[string]{})
		must(t, err)
		if v.Zxid() == 0 {
			t.Error("the view does not know as of when it shows nothing")
		}
		must(t, v.Close())
	})
}

// The Release of what an expired session held has nothing to do.
func TestReleaseAfterTheEnd(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		var o outage
		k := w.client(func(c *client.Config) { c.Dial = o.over(w.dial) })
		defer k.Close()
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		hold, err := lock.NewMutex(s, "/locks/a").Lock(t.Context())
		must(t, err)
		o.begin()
		synctest.Wait()
		_ = hold.Release()
		<-time.After(10 * s.Timeout())
		o.end()
		<-s.Done()
		must(t, hold.Release())
	})
}
