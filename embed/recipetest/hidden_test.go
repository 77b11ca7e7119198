package recipetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A hider takes from others the permission to read its znodes, and gives it back.
type hider struct {
	t      *testing.T
	ctx    context.Context
	bob    *embed.Session // who hides
	s      *embed.Session // who waits
	opener embed.Opener   // of s
}

func (h *hider) hide(path string) { h.setACL(path, embed.ACL{Perms: embed.PermAll, Scheme: "auth"}) }

func (h *hider) show(path string) {
	h.setACL(path, embed.ACL{Perms: embed.PermAll, Scheme: "world", ID: "anyone"})
}

// createHidden creates a znode that the others may not read.
func (h *hider) createHidden(path string) {
	h.t.Helper()
	acl := []embed.ACL{{Perms: embed.PermAll, Scheme: "auth"}}
	_, _, err := h.bob.CreateWith(h.ctx, path, []byte("2"), embed.CreateOptions{ACL: acl})
	must(h.t, err)
}

// setACL sets an ACL, and then gives all who wait the time to learn of it.
func (h *hider) setACL(path string, acl embed.ACL) {
	h.t.Helper()
	<-time.After(time.Second)
	_, err := h.bob.SetACL(h.ctx, path, []embed.ACL{acl}, embed.AnyVersion)
	must(h.t, err)
	<-time.After(time.Second)
}

// children returns the paths of a znode's children.
func (h *hider) children(path string) (paths []string) {
	h.t.Helper()
	names, _, err := h.bob.Children(h.ctx, path)
	must(h.t, err)
	for _, name := range names {
		paths = append(paths, path+"/"+name)
	}
	return paths
}

// soon returns what a call returns, in half a minute at most.
func (h *hider) soon(what string, call <-chan error) error {
	h.t.Helper()
	select {
	case err := <-call:
		return err
	case <-time.After(30 * time.Second):
		h.t.Fatalf("%s still waits", what)
		return nil
	}
}

// waits fails unless a call still waits.
func (h *hider) waits(what string, call <-chan error) {
	h.t.Helper()
	select {
	case err := <-call:
		h.t.Fatalf("%s: %v", what, err)
	case <-time.After(time.Minute):
	}
}

func begin(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// besideAHider plays with a session of a member and with one of a client, on one shard and on four.
func besideAHider(t *testing.T, play func(h *hider)) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprintf("member, %d shards", shards), func(t *testing.T) { hides(t, shards, nil, play) })
		t.Run(fmt.Sprintf("client, %d shards", shards), func(t *testing.T) {
			hides(t, shards, func(c net.Conn) net.Conn { return c }, play)
		})
	}
}

// besideASlowHider plays with the session of a client whose connection is slow.
func besideASlowHider(t *testing.T, play func(h *hider)) {
	hides(t, 1, func(c net.Conn) net.Conn { return slowConn{c} }, play)
}

// A slowConn delivers what it reads 200 ms late.
type slowConn struct{ net.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(200 * time.Millisecond)
	return n, err
}

// hides plays with the session of a client over such connections, or of a member if over is nil.
func hides(t *testing.T, shards int, over func(net.Conn) net.Conn, play func(h *hider)) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = shards }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		h := &hider{t: t, ctx: ctx, opener: ens.Node(1)}
		if over != nil {
			k, end, err := clienttest.Over(ens.Node(1), func(ctx context.Context) (net.Conn, error) {
				c, err := ens.Dial(ctx, 1)
				if err != nil {
					return nil, err
				}
				return over(c), nil
			})
			must(t, err)
			defer end()
			h.opener = k
		}
		h.bob = ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("bob:secret")}}})
		var err error
		h.s, err = h.opener.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		defer h.s.Close()
		play(h)
	})
}

// M115: what a watch sees is hidden. The watch says so, and does not fall silent. One that sees
// nothing else goes on, even if somebody else's znodes are created hidden below it.
func TestHidden_Watches(t *testing.T) {
	besideAHider(t, func(h *hider) {
		watch := func(path string, mode embed.WatchMode) *embed.Watch {
			h.t.Helper()
			w, err := h.s.Watch(h.ctx, path, mode)
			must(h.t, err)
			return w
		}
		for _, path := range []string{"/w", "/w/a", "/w/b"} {
			_, err := h.bob.Put(h.ctx, path, nil)
			must(h.t, err)
		}
		h.hide("/w/b")
		want := map[*embed.Watch]error{
			watch("/w/a", embed.WatchOnce): embed.ErrNoAuth, watch("/w/a", embed.WatchPersistent): embed.ErrWatchGap,
			watch("/w/a", embed.WatchRecursive): embed.ErrWatchGap, watch("/w", embed.WatchRecursive): embed.ErrWatchGap,
			watch("/", embed.WatchRecursive): embed.ErrWatchGap,
			watch("/w", embed.WatchOnce):     nil, watch("/w", embed.WatchPersistent): nil,
			watch("/", embed.WatchPersistent): nil, watch("/missing", embed.WatchOnce): nil,
			watch("/missing", embed.WatchRecursive): nil, watch("/w/b", embed.WatchPersistent): nil,
		}
		_, err := h.bob.Put(h.ctx, "/w/b", nil)
		must(h.t, err)
		_, err = h.bob.SetACL(h.ctx, "/w/b", []embed.ACL{{Perms: embed.PermRead | embed.PermAdmin, Scheme: "auth"}}, embed.AnyVersion)
		must(h.t, err)
		<-time.After(time.Second)
		for w := range want {
			if err := w.Err(); err != nil {
				h.t.Errorf("a watch ended when nothing was hidden: %v", err)
			}
		}
		h.hide("/w/a")
		for w, err := range want {
			select {
			case e, open := <-w.Events():
				if open || err == nil {
					h.t.Errorf("told of %v, want %v", e, err)
				}
			default:
				if err != nil {
					h.t.Errorf("a watch did not end with %v", err)
				}
			}
			if !errors.Is(w.Err(), err) {
				h.t.Errorf("a watch ended with %v, want %v", w.Err(), err)
			}
			must(h.t, w.Close())
		}
	})
}

// M115: a znode is created where the session may not read it. The watches of its path say so, and those
// from above go on.
func TestHidden_WatchesOfAMissingZnode(t *testing.T) {
	besideAHider(t, func(h *hider) {
		_, err := h.bob.Put(h.ctx, "/w", nil)
		must(h.t, err)
		for mode, want := range map[embed.WatchMode]error{
			embed.WatchOnce: embed.ErrNoAuth, embed.WatchPersistent: embed.ErrWatchGap, embed.WatchRecursive: embed.ErrWatchGap,
		} {
			above, err := h.s.Watch(h.ctx, "/w", embed.WatchRecursive)
			must(h.t, err)
			w, err := h.s.Watch(h.ctx, "/w/a", mode)
			must(h.t, err)
			h.createHidden("/w/a")
			<-time.After(time.Second)
			select {
			case e, open := <-w.Events():
				if open || !errors.Is(w.Err(), want) {
					h.t.Errorf("mode %v: told of %v, ended with %v, want %v", mode, e, w.Err(), want)
				}
			default:
				h.t.Errorf("mode %v: the watch is silent", mode)
			}
			if len(above.Events()) > 0 || above.Err() != nil {
				h.t.Errorf("the watch from above: %v", above.Err())
			}
			must(h.t, above.Close())
			must(h.t, w.Close())
			must(h.t, h.bob.Delete(h.ctx, "/w/a", embed.AnyVersion))
		}
	})
}

// M115: a countdown is created where the session may not read it. Nobody waits for what it is not told.
func TestHidden_ANewCountdown(t *testing.T) {
	besideAHider(t, func(h *hider) {
		waited := begin(func() error { return barrier.NewCountdown(h.s, "/work", 1).Wait(h.ctx) })
		<-time.After(time.Second)
		h.createHidden("/work")
		if err := h.soon("Wait", waited); !errors.Is(err, embed.ErrNoAuth) {
			h.t.Errorf("Wait: %v", err)
		}
	})
}

// M115: a gate is hidden from those who wait, and opened.
func TestHidden_AGate(t *testing.T) {
	besideAHider(t, func(h *hider) {
		must(h.t, barrier.NewGate(h.bob, "/gate").Shut(h.ctx))
		waited := begin(func() error { return barrier.NewGate(h.s, "/gate").Wait(h.ctx) })
		h.hide("/gate")
		if err := h.soon("Wait", waited); !errors.Is(err, embed.ErrNoAuth) {
			h.t.Errorf("Wait: %v", err)
		}
	})
}

// M115: one of the names of a countdown is hidden, and counts like the others.
func TestHidden_ANameOfACountdown(t *testing.T) {
	besideAHider(t, func(h *hider) {
		mine := barrier.NewCountdown(h.bob, "/work", 3)
		must(h.t, mine.Done(h.ctx, "a"))
		waited := begin(func() error { return barrier.NewCountdown(h.s, "/work", 3).Wait(h.ctx) })
		h.hide("/work/a")
		must(h.t, mine.Done(h.ctx, "b"))
		h.waits("one of three is not done", waited)
		must(h.t, mine.Done(h.ctx, "c"))
		must(h.t, h.soon("Wait", waited))
	})
}

// M137: the last name of a countdown is created where the session may not read it, while it waits.
func TestHidden_ANewNameOfACountdown(t *testing.T) {
	besideAHider(t, func(h *hider) {
		mine := barrier.NewCountdown(h.bob, "/work", 2)
		must(h.t, mine.Done(h.ctx, "a"))
		waited := begin(func() error { return barrier.NewCountdown(h.s, "/work", 2).Wait(h.ctx) })
		<-time.After(time.Second)
		h.createHidden("/work/b")
		must(h.t, h.soon("Wait", waited))
	})
}

// M138: a countdown with a hidden name is done and deleted before a slow client looks.
func TestHidden_ACountdownThatIsDeleted(t *testing.T) {
	besideASlowHider(t, func(h *hider) {
		mine := barrier.NewCountdown(h.bob, "/work", 2)
		must(h.t, mine.Done(h.ctx, "a"))
		h.hide("/work/a")
		waited := begin(func() error { return barrier.NewCountdown(h.s, "/work", 2).Wait(h.ctx) })
		<-time.After(10 * time.Second)
		must(h.t, mine.Done(h.ctx, "b"))
		<-time.After(100 * time.Millisecond)
		for _, path := range []string{"/work/b", "/work/a", "/work"} {
			must(h.t, h.bob.Delete(h.ctx, path, embed.AnyVersion))
		}
		must(h.t, h.soon("Wait", waited))
	})
}

// M115: a member of a barrier is hidden, and leaves. Until then nobody takes it for one that has left.
func TestHidden_AMemberOfABarrier(t *testing.T) {
	besideAHider(t, func(h *hider) {
		var of [2]*barrier.Pass
		came := begin(func() (err error) { of[0], err = barrier.Enter(h.ctx, h.bob, "/b", 2); return err })
		var err error
		of[1], err = barrier.Enter(h.ctx, h.s, "/b", 2)
		must(h.t, err)
		must(h.t, h.soon("Enter", came))
		left := begin(func() error { return of[1].Leave(h.ctx) })
		<-time.After(time.Second)
		for _, path := range h.children("/b") {
			if path != "/b/ready" {
				h.hide(path)
			}
		}
		h.waits("the other is there", left)
		must(h.t, of[0].Leave(h.ctx))
		must(h.t, h.soon("Leave", left))
	})
}

// M115: somebody who has come to a barrier is hidden before all have come, and shown again.
func TestHidden_WhoHasComeToABarrier(t *testing.T) {
	besideAHider(t, func(h *hider) {
		enter := func(s *embed.Session) <-chan error {
			return begin(func() error { _, err := barrier.Enter(h.ctx, s, "/b", 3); return err })
		}
		first := enter(h.bob)
		<-time.After(time.Second)
		of := h.children("/b")[0]
		second := enter(h.s)
		h.hide(of)
		h.show(of)
		third := enter(h.bob)
		for _, call := range []<-chan error{first, second, third} {
			must(h.t, h.soon("Enter", call))
		}
	})
}

// M116: a value is hidden for a moment, and gets its newest version meanwhile. A binding ends, and the
// next one has it.
func TestHidden_AValue(t *testing.T) {
	besideAHider(t, func(h *hider) {
		v := value.New(h.bob, "/v", value.JSON[int]())
		_, err := v.Set(h.ctx, 1)
		must(h.t, err)
		var p atomic.Pointer[int]
		bind := func() func() error {
			stop, err := value.Bind(h.ctx, h.s, "/v", value.JSON[int](), &p, value.BindOptions[int]{})
			must(h.t, err)
			return stop
		}
		stop := bind()
		h.hide("/v")
		_, err = v.Set(h.ctx, 2)
		must(h.t, err)
		h.show("/v")
		if err := stop(); !errors.Is(err, embed.ErrNoAuth) {
			h.t.Errorf("a binding that may have missed a value ended with %v", err)
		}
		must(h.t, bind()())
		if *p.Load() != 2 {
			h.t.Errorf("the value is %d", *p.Load())
		}
	})
}

// M116: a value is created where the session may not read it, in the place of one that it could read.
// A binding ends as if the value had been hidden.
func TestHidden_ANewValue(t *testing.T) {
	besideAHider(t, func(h *hider) {
		_, err := value.New(h.bob, "/v", value.JSON[int]()).Set(h.ctx, 1)
		must(h.t, err)
		var p atomic.Pointer[int]
		stop, err := value.Bind(h.ctx, h.s, "/v", value.JSON[int](), &p, value.BindOptions[int]{})
		must(h.t, err)
		must(h.t, h.bob.Delete(h.ctx, "/v", embed.AnyVersion))
		h.createHidden("/v")
		<-time.After(time.Second)
		if err := stop(); !errors.Is(err, embed.ErrNoAuth) {
			h.t.Errorf("a binding of a value that is hidden ended with %v", err)
		}
	})
}

// M116: the value of a rollout is hidden for a moment, and changes meanwhile. A member that cannot
// follow it leaves and says so.
func TestHidden_TheValueOfARollout(t *testing.T) {
	besideAHider(t, func(h *hider) {
		v := value.New(h.bob, "/v", value.JSON[int]())
		_, err := v.Set(h.ctx, 1)
		must(h.t, err)
		ended := begin(func() error {
			return group.Follow(h.ctx, h.opener, "/v", "a", value.JSON[int](), func(context.Context, value.Versioned[int]) error { return nil })
		})
		h.hide("/v")
		now, err := v.Set(h.ctx, 2)
		must(h.t, err)
		h.show("/v")
		if err := h.soon("Follow", ended); !errors.Is(err, embed.ErrNoAuth) {
			h.t.Errorf("Follow: %v", err)
		}
		must(h.t, h.soon("AwaitApplied", begin(func() error { _, err := group.AwaitApplied(h.ctx, h.s, "/v", now.Mzxid); return err })))
	})
}

// M117: a member of a rollout is hidden. Nobody says that it has applied a value, nor that it has gone.
func TestHidden_AMemberOfARollout(t *testing.T) {
	besideAHider(t, func(h *hider) {
		v := value.New(h.bob, "/v", value.JSON[int]())
		now, err := v.Set(h.ctx, 1)
		must(h.t, err)
		_, _, err = h.bob.CreateWith(h.ctx, "/v/members/a", nil, embed.CreateOptions{Mode: embed.Ephemeral, Parents: true})
		must(h.t, err)
		var missing []string
		applied := begin(func() (err error) { missing, err = group.AwaitApplied(h.ctx, h.s, "/v", now.Mzxid); return err })
		h.hide("/v/members/a")
		if err := h.soon("AwaitApplied", applied); !errors.Is(err, embed.ErrNoAuth) || !slices.Equal(missing, []string{"a"}) {
			h.t.Errorf("AwaitApplied: %q %v", missing, err)
		}
	})
}

// M139: a member of a rollout that has applied nothing is shown while somebody waits for all. That one
// may learn that it was hidden, or wait for it.
func TestHidden_AMemberOfARolloutThatIsShown(t *testing.T) {
	for at := range 40 {
		besideASlowHider(t, func(h *hider) {
			v := value.New(h.bob, "/v", value.JSON[int]())
			now, err := v.Set(h.ctx, 1)
			must(h.t, err)
			_, _, err = h.bob.CreateWith(h.ctx, "/v/members/a", nil, embed.CreateOptions{Mode: embed.Ephemeral, Parents: true})
			must(h.t, err)
			h.hide("/v/members/a")
			var missing []string
			applied := begin(func() (err error) { missing, err = group.AwaitApplied(h.ctx, h.s, "/v", now.Mzxid); return err })
			<-time.After(time.Duration(at)*50*time.Millisecond + 10*time.Millisecond)
			_, err = h.bob.SetACL(h.ctx, "/v/members/a", []embed.ACL{{Perms: embed.PermAll, Scheme: "world", ID: "anyone"}}, embed.AnyVersion)
			must(h.t, err)
			select {
			case err := <-applied:
				if !errors.Is(err, embed.ErrNoAuth) || !slices.Equal(missing, []string{"a"}) {
					h.t.Errorf("shown at %d: AwaitApplied: %q %v", at, missing, err)
				}
				return
			case <-time.After(20 * time.Second):
			}
			_, err = h.bob.Set(h.ctx, "/v/members/a", binary.BigEndian.AppendUint64(nil, uint64(now.Mzxid)), embed.AnyVersion)
			must(h.t, err)
			must(h.t, h.soon("AwaitApplied", applied))
		})
	}
}

// M118: a member of a group is hidden, and goes; another one is shown.
func TestHidden_AMemberOfAGroup(t *testing.T) {
	besideAHider(t, func(h *hider) {
		_, _, err := h.bob.CreateWith(h.ctx, "/g/a", nil, embed.CreateOptions{Mode: embed.Ephemeral, Parents: true})
		must(h.t, err)
		_, _, err = h.bob.CreateWith(h.ctx, "/g/b", nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "auth"}}})
		must(h.t, err)
		g, err := group.Watch(h.ctx, h.s, "/g", group.Options{})
		must(h.t, err)
		defer g.Close()
		want := func(ids ...string) {
			h.t.Helper()
			var now []string
			for _, m := range g.Members() {
				now = append(now, m.ID)
			}
			if !slices.Equal(now, ids) {
				h.t.Errorf("the members are %q, want %q", now, ids)
			}
		}
		want("a")
		h.show("/g/b")
		want("a", "b")
		h.hide("/g/a")
		want("b")
		must(h.t, h.bob.Delete(h.ctx, "/g/a", embed.AnyVersion))
		h.show("/g/b")
		want("b")
	})
}

// M118: the znode of a view is hidden, its children change, and it is shown again. The view shows
// at all times what the session may read.
func TestHidden_TheZnodeOfAView(t *testing.T) {
	besideAHider(t, func(h *hider) {
		for _, path := range []string{"/v", "/v/a", "/v/b"} {
			_, err := h.bob.Put(h.ctx, path, []byte("1"))
			must(h.t, err)
		}
		w, err := view.Open(h.ctx, h.s, "/v", view.Options[string]{})
		must(h.t, err)
		defer w.Close()
		want := func(all string) {
			h.t.Helper()
			now := ""
			for path, e := range w.All() {
				now += path + "=" + e.Value + " "
			}
			if now != all {
				h.t.Errorf("the view shows %q, want %q", now, all)
			}
		}
		h.hide("/v/a")
		want("/v=1 /v/b=1 ")
		_, err = h.bob.Put(h.ctx, "/v/a", []byte("2"))
		must(h.t, err)
		h.show("/v/a")
		want("/v=1 /v/a=2 /v/b=1 ")
		h.hide("/v")
		want("")
		must(h.t, h.bob.Delete(h.ctx, "/v/b", embed.AnyVersion))
		h.show("/v")
		want("/v=1 /v/a=2 ")
	})
}

// M118: a leader is hidden, proclaims another value, and is shown again. Whoever observes learns that.
func TestHidden_TheLeader(t *testing.T) {
	besideAHider(t, func(h *hider) {
		l, err := election.New(h.bob, "/lead").Campaign(h.ctx, []byte("1"))
		must(h.t, err)
		ctx, cancel := context.WithCancel(h.ctx)
		seen := make(chan election.Leader, 10)
		observed := begin(func() error {
			for l, err := range election.New(h.s, "/lead").Observe(ctx) {
				if err != nil {
					return err
				}
				seen <- l
			}
			return nil
		})
		want := func(value string) {
			h.t.Helper()
			select {
			case now := <-seen:
				if now.Path != l.Path() || string(now.Value) != value {
					h.t.Errorf("observed %+v, want the value %q", now, value)
				}
			default:
				h.t.Errorf("the value %q is not observed", value)
			}
		}
		h.hide(l.Path())
		want("1")
		want("")
		h.show(l.Path())
		want("1") // it is the same, and it can be read again
		h.hide(l.Path())
		want("")
		must(h.t, l.Proclaim(h.ctx, []byte("2")))
		h.show(l.Path())
		want("2")
		h.hide(l.Path())
		want("")
		must(h.t, l.Resign())
		next, err := election.New(h.bob, "/lead").Campaign(h.ctx, []byte("3"))
		must(h.t, err)
		l = next
		<-time.After(time.Second)
		want("3")
		cancel()
		if err := h.soon("Observe", observed); !errors.Is(err, context.Canceled) {
			h.t.Errorf("Observe: %v", err)
		}
	})
}

// M119: who holds a lock, or leads, hides its znode and gives it up. Who waits behind it is told at
// once, without looking from time to time.
func TestHidden_WhoIsAhead(t *testing.T) {
	besideAHider(t, func(h *hider) {
		held, err := lock.NewMutex(h.bob, "/lock").Lock(h.ctx)
		must(h.t, err)
		leads, err := election.New(h.bob, "/lead").Campaign(h.ctx, nil)
		must(h.t, err)
		locked := begin(func() error { _, err := lock.NewMutex(h.s, "/lock").Lock(h.ctx); return err })
		elected := begin(func() error { _, err := election.New(h.s, "/lead").Campaign(h.ctx, nil); return err })
		<-time.After(time.Second)
		ahead := h.children("/lock")[0]
		h.hide(ahead)
		h.hide(leads.Path())
		must(h.t, held.Release())
		must(h.t, leads.Resign())
		must(h.t, h.soon("Lock", locked))
		must(h.t, h.soon("Campaign", elected))
	})
}

// M142: the znode of a holder is hidden for a moment. From then on the holder still hears that
// somebody asks for the lock, as also when that is asked while the znode is hidden.
func TestHidden_AHoldThatIsRevoked(t *testing.T) {
	for _, beforeItIsShown := range []bool{false, true} {
		besideAHider(t, func(h *hider) {
			hold, err := lock.NewMutex(h.s, "/locks/m").Lock(h.ctx)
			must(h.t, err)
			revoked := hold.Revoked()
			h.hide(hold.Path())
			if beforeItIsShown {
				must(h.t, lock.Revoke(h.ctx, h.bob, "/locks/m"))
			}
			h.show(hold.Path())
			if !beforeItIsShown {
				must(h.t, lock.Revoke(h.ctx, h.bob, "/locks/m"))
			}
			must(h.t, h.soon("the holder", begin(func() error { <-revoked; return hold.Err() })))
		})
	}
}
