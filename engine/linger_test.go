package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

const lingerTime = 30 * time.Second

func lingering(path string) tree.Op {
	return tree.Op{Kind: tree.KindCreate, Path: path, Mode: tree.Ephemeral, Data: []byte("mine"), TTL: lingerTime.Milliseconds()}
}

// owns creates, on every shard, an ephemeral that lingers when it is lost and one that does not. It
// returns the paths of the former.
func (n *node) owns(s *Session) (paths []string) {
	n.t.Helper()
	for _, r := range n.shards {
		path := n.on(r.Shard, 0)
		p := s.Submit(n.t.Context(), []tree.Op{lingering(path), ephemeral(n.on(r.Shard, 1))})
		n.commit()
		if err := outcome(p); err != nil {
			n.t.Fatalf("create %s: %v", path, err)
		}
		paths = append(paths, path)
	}
	return paths
}

// carry carries ends to all shards.
func (n *node) carry() {
	n.t.Helper()
	n.lead(enginetest.Member)
	for range 3 {
		n.commit()
		n.lookAround()
		for _, r := range n.shards {
			r.ExpireDue(time.Now())
		}
	}
	n.commit()
	if left := n.endedAtHome(); len(left) > 0 {
		n.t.Fatalf("ends still to be carried: %v", left)
	}
}

// left checks what is left of a session that has ended. The session must own nothing any more.
func (n *node) left(s *Session, paths []string, lingers bool) {
	n.t.Helper()
	for i, path := range paths {
		r := n.shards[i]
		data, stat, err := r.Tree().Get(path)
		is := err == nil && stat.EphemeralOwner == 0 && string(data) == "mine" && stat.Version == 1 && stat.Mzxid > stat.Czxid && stat.Mtime.UnixMilli() != 0
		if (err == nil) != lingers || is != lingers {
			n.t.Errorf("shard %d: %q %+v, %v; to linger: %v", r.Shard, data, stat, err, lingers)
		}
		if n.exists(n.on(r.Shard, 1)) {
			n.t.Errorf("shard %d: an ephemeral without a TTL is still there", r.Shard)
		}
		if owned := tableOf(r).Ephemerals(s.ID()); len(owned) > 0 {
			n.t.Errorf("shard %d: the session still owns %v", r.Shard, owned)
		}
		if err := tableOf(r).Verify(); err != nil {
			n.t.Errorf("shard %d: %v", r.Shard, err)
		}
	}
}

// expireHere lets a session expire by its node's clock.
func (n *node) expireHere(s *Session) {
	for range 3 {
		n.fake.Pause(testTimeout)
		s.State()
	}
}

// The way a session ends decides whether its ephemerals linger: after a loss they do, after an end
// by the owner they do not. This holds on every shard, however the shard learns of the end.
func TestEphemeralsLingerIfTheirSessionIsLost(t *testing.T) {
	ends := map[string]struct {
		lost bool
		end  func(n *node, s *Session)
	}{
		"the log expires it": {true, func(n *node, _ *Session) { n.silence() }},
		"it expires here":    {true, func(n *node, s *Session) { n.expireHere(s) }},
		"it expires here and the purge is faster": {true, func(n *node, s *Session) {
			n.expireHere(s)
			n.faster()
		}},
		"its owner closes it": {false, func(n *node, s *Session) {
			go s.Close()
			n.commit()
		}},
		"its owner closes it and the purge is faster": {false, func(n *node, s *Session) {
			go s.Close()
			n.faster()
		}},
		"its owner closes it without a leader": {false, func(n *node, s *Session) {
			n.lead(0)
			go s.Close()
			synctest.Wait()
			n.lead(enginetest.Other)
			n.commit()
		}},
		"its node shuts down": {false, func(n *node, _ *Session) {
			go n.keeper.CloseAll(context.Background())
			n.commit()
		}},
		"its owner closes it when the log has expired it": {true, func(n *node, s *Session) {
			n.lead(0)
			n.silence()
			go s.Close()
			n.lead(enginetest.Other)
		}},
	}
	for name, c := range ends {
		for _, shards := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, %d shards", name, shards), func(t *testing.T) {
				withShards(t, shards, func(t *testing.T, n *node) {
					s := n.open(testTimeout)
					paths := n.owns(s)
					c.end(n, s)
					n.carry()
					n.left(s, paths, c.lost)
				})
			})
		}
	}
}

// faster commits the end at home and carries it to the other shards, before they get what this node
// has sent them itself.
func (n *node) faster() {
	n.t.Helper()
	var late []*enginetest.Proposal
	n.lead(enginetest.Member)
	for range 6 {
		synctest.Wait()
		for _, p := range n.log.Drain() {
			if p.Shard != command.HomeShard && enginetest.Decode(n.t, p.Cmd).Kind == command.KindBatch {
				late = append(late, p)
			} else {
				n.apply(p)
			}
		}
		n.lookAround()
	}
	if left := n.endedAtHome(); len(left) > 0 {
		n.t.Fatalf("ends still to be carried: %v", left)
	}
	if len(late) == 0 && len(n.shards) > 1 {
		n.t.Fatal("nothing is in flight")
	}
	n.apply(late...)
}

// A new start of a member ends the in-process sessions of the earlier start. Those cannot have
// given anything up.
func TestEphemeralsLingerIfTheirMemberStartsAgain(t *testing.T) {
	withShards(t, 4, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		paths := n.owns(s)
		n.fails = true // this node is the earlier start
		o := enginetest.Origin()
		o.Start++
		for _, r := range n.shards[1:] {
			n.applyOn(r.Shard, command.Command{Kind: command.KindRegister, Origin: o, Rules: enginetest.Rules(), Wall: 5})
		}
		if stat, _ := n.tree().Exists(paths[0]); stat.EphemeralOwner != s.ID() {
			t.Fatalf("it has ended at home: %+v", stat)
		}
		n.applyCommand(command.Command{Kind: command.KindRegister, Origin: o, Rules: enginetest.Rules(), Wall: 5})
		n.left(s, paths, true)
	})
}

// A remote client that disappears has lost its ephemerals. A client that closes its session has
// not.
func TestEphemeralsOfRemoteClientsLinger(t *testing.T) {
	for name, lost := range map[string]bool{"silent": true, "closed": false} {
		t.Run(name, func(t *testing.T) {
			withShards(t, 2, func(t *testing.T, n *node) {
				var s *Session
				var err error
				go func() { s, err = n.OpenRemote(t.Context(), testTimeout) }()
				n.commit()
				if err != nil {
					t.Fatal(err)
				}
				paths := n.owns(s)
				if lost {
					n.run(2 * testTimeout)
				} else {
					go s.Close()
					n.commit()
				}
				if s.Err() == nil {
					t.Fatal("it has not ended")
				}
				n.carry()
				n.left(s, paths, lost)
			})
		})
	}
}

// A remote client says which of its ephemerals it gives up, and which it has lost. It may close its
// session behind that, and the close may come to a shard first.
func TestRemoteClientReleases(t *testing.T) {
	for name, lost := range map[string]bool{"lost": true, "given up": false} {
		t.Run(name, func(t *testing.T) {
			withShards(t, 4, func(t *testing.T, n *node) {
				var s *Session
				var err error
				go func() { s, err = n.OpenRemote(t.Context(), testTimeout) }()
				n.commit()
				if err != nil {
					t.Fatal(err)
				}
				paths := n.owns(s)
				var told atomic.Int32
				release := func(path string, czxid tree.Zxid) keeper.Pending {
					return s.ReleaseThen(path, czxid, lost, func() { told.Add(1) })
				}
				for _, p := range []keeper.Pending{release("/none", 1), release(paths[0], 1<<40)} {
					n.commit()
					if err := outcome(p); err != nil || !n.exists(paths[0]) {
						t.Errorf("of what is not there: %v", err)
					}
				}
				if err := outcome(release("/"+strings.Repeat("x", PathMax), 1)); !errors.Is(err, ErrTooLarge) {
					t.Errorf("of a path that is too long: %v", err)
				}
				for _, path := range paths {
					stat, _ := n.shards.At(path).Tree().Exists(path)
					release(path, stat.Czxid)
				}
				go s.Close()
				n.faster()
				n.left(s, paths, lost)
				if err := outcome(release(paths[0], 1)); err == nil {
					t.Error("a session that has ended releases")
				}
				if want := int32(3 + len(paths) + 1); told.Load() != want {
					t.Errorf("%d outcomes were told, want %d", told.Load(), want)
				}
			})
		})
	}
}

// What a silent node holds lingers, even if its session comes back. Another session may be granted
// it meanwhile. So everything that the holder has in flight must be gone by then.
func TestWhatASuspendedSessionHeldLingers(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			withShards(t, shards, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				held, given := n.heldToLinger(s, n.on(ShardID(shards), 0)), n.heldToLinger(s, n.on(ShardID(shards), 1))
				waits, between := n.claimToLinger(s, n.on(ShardID(shards), 2)), n.heldToLinger(s, n.on(ShardID(shards), 4))
				go given.Release()
				between.tenure.End() // its claim stays, for another tenure
				n.commit()
				guard, err := new(keeper.With).Guard(s.Session, held.tenure)
				if err != nil {
					t.Fatal(err)
				}
				n.lead(0)
				n.fake.Pause(testDeadline)
				n.wantState(s, session.Suspended)
				n.lead(enginetest.Other)
				n.commit()
				n.wantState(s, session.Connected)
				stat, ok := n.shards.At(pathOf(held.Claim)).Tree().Exists(pathOf(held.Claim))
				if !ok || stat.EphemeralOwner != 0 || !errors.Is(held.Err(), keeper.ErrSuspended) {
					t.Errorf("what was held is %+v, %v", stat, held.Err())
				}
				if n.exists(pathOf(given.Claim)) || n.exists(pathOf(between.Claim)) {
					t.Error("what was given up lingers")
				}
				if err := holdErr(waits); err != nil {
					t.Errorf("what was not held: %v", err)
				}
				late := s.Submit(t.Context(), append(guard, create(n.on(ShardID(shards), 3))))
				n.commit()
				if err := outcome(late); !errors.Is(err, tree.ErrNotHeld) {
					t.Errorf("a write that it guards: %v", err)
				}
				go s.Close()
				n.carry()
				if !n.exists(pathOf(held.Claim)) || n.exists(pathOf(waits)) {
					t.Error("its close took what lingers, or left what does not")
				}
			})
		})
	}
}

// A close reaches a shard by way of home, ahead of the request that says that the session lost a
// claim. The loss still counts.
func TestCloseDoesNotOvertakeALoss(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		held := n.heldToLinger(s, n.on(2, 0))
		n.lead(0)
		n.fake.Pause(testDeadline)
		n.wantState(s, session.Suspended)
		n.lead(enginetest.Other)
		go s.Close()
		n.faster()
		n.commit()
		if stat, ok := n.shards.At(pathOf(held.Claim)).Tree().Exists(pathOf(held.Claim)); !ok || stat.EphemeralOwner != 0 {
			t.Errorf("what was held is there: %v, %+v", ok, stat)
		}
	})
}

func (n *node) claimToLinger(s *Session, path string) *keeper.Claim {
	n.t.Helper()
	c := s.Claim(n.t.Context(), []tree.Op{lingering(path)}, nil)
	n.commit()
	if _, err := c.Created(n.t.Context()); err != nil {
		n.t.Fatalf("claim %s: %v", path, err)
	}
	return c
}

func (n *node) heldToLinger(s *Session, path string) hold {
	n.t.Helper()
	c := n.claimToLinger(s, path)
	tenure, err := c.Hold(true)
	if err != nil {
		n.t.Fatalf("hold %s: %v", path, err)
	}
	return hold{c, tenure}
}

// If what an heir inherits was lost, the heir can lose it too, until it is held. Every earlier end
// of the heir is a loss, whether or not its outcome is known. The close of its session is one as
// well. Before its transaction is sent, there is nothing to lose.
func TestHeirIsLostUnlessItIsHeld(t *testing.T) {
	inherit := func(n *node, s *Session) *keeper.Claim {
		return s.Claim(n.t.Context(), []tree.Op{lingering("/q")}, &keeper.With{Inherits: true})
	}
	created := func(n *node, s *Session) (*keeper.Claim, func()) {
		c := inherit(n, s)
		n.commit()
		return c, func() {}
	}
	for name, c := range map[string]struct {
		claim   func(n *node, s *Session) (c *keeper.Claim, send func())
		lingers bool
	}{
		"created": {created, true},
		"on its way": {func(n *node, s *Session) (*keeper.Claim, func()) {
			c := inherit(n, s)
			_, ps := n.requests()
			return c, func() { n.apply(ps...) }
		}, true},
		"not sent": {func(n *node, s *Session) (*keeper.Claim, func()) {
			n.lead(0)
			return inherit(n, s), func() { n.lead(enginetest.Other) }
		}, false},
		"held": {func(n *node, s *Session) (*keeper.Claim, func()) {
			c, send := created(n, s)
			if _, err := c.Hold(false); err != nil {
				n.t.Error(err)
			}
			return c, send
		}, false},
	} {
		for _, how := range []string{"released", "its session closed", "both"} {
			t.Run(name+", "+how, func(t *testing.T) {
				withNode(t, func(t *testing.T, n *node) {
					s := n.open(testTimeout)
					claim, send := c.claim(n, s)
					if how != "its session closed" {
						go claim.Release()
						<-claim.Done()
						if err := claim.Err(); !errors.Is(err, keeper.ErrReleased) {
							t.Errorf("given up: %v", err)
						}
					}
					if how != "released" {
						go s.Close()
						<-s.Done()
					}
					send()
					n.commit()
					stat, ok := n.tree().Exists("/q")
					if ok != c.lingers || stat.EphemeralOwner != 0 {
						t.Errorf("it is there: %v, %+v", ok, stat)
					}
				})
			})
		}
	}
}

// A claim ends before anyone can see that its znode has no owner. So it is when the log of a shard
// learns of the session's end first, and when a snapshot brings the end.
func TestClaimEndsBeforeItsZnodeIsSeenToLinger(t *testing.T) {
	// lose returns an entry of the log in which the session loses the znode.
	lose := func(n *node, s *Session, path string) []*enginetest.Proposal {
		stat, _ := n.tree().Exists(path)
		n.outbox.QueueEnd(outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestRelease, Session: s.ID(), Path: path, Czxid: stat.Czxid, Lost: true}))
		n.outbox.Pump()
		return n.log.Drain()
	}
	owner := func(n *node) tree.SessionID {
		stat, _ := n.tree().Exists("/q")
		return stat.EphemeralOwner
	}
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.heldToLinger(s, "/q")
		var seen tree.SessionID
		n.tells(c, func() { seen = owner(n) })
		n.apply(lose(n, s, "/q")...)
		if seen != s.ID() || c.Err() != keeper.ErrDeleted {
			t.Errorf("told while session %d owned it, %v", seen, c.Err())
		}
	})
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		c := n.heldToLinger(s, "/q")
		var seen tree.SessionID
		n.tells(c, func() { seen = owner(n) })
		ahead.catchUp()
		ahead.node.apply(lose(n, s, "/q")...)
		ahead.node.apply(&enginetest.Proposal{Cmd: command.EncodeExpire(1, 1)}) // saves
		ahead.install()
		if seen != s.ID() || c.Err() != keeper.ErrDeleted || owner(n) != 0 {
			t.Errorf("by a snapshot: told while session %d owned it, %v", seen, c.Err())
		}
	})
}

// What lingers is in the image. It is reaped at its time, counted from its loss. Its watches get
// both events.
func TestWhatLingersIsReaped(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		s := r.open(testTimeout)
		p := s.Submit(t.Context(), []tree.Op{lingering("/e")})
		r.commit()
		if err := outcome(p); err != nil {
			t.Fatal(err)
		}
		r.after(2 * lingerTime)() // it has an owner
		w, err := r.Watch("/e", watch.Persistent, watch.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		r.expire(s.ID())
		r.want("e")
		r.after(lingerTime - time.Second)()
		r.want("e")
		r.after(2 * time.Second)()
		r.want()
		for _, want := range []watch.EventType{watch.NodeDataChanged, watch.NodeDeleted} {
			if e := <-w.Events(); e.Type != want || e.Path != "/e" {
				t.Errorf("event %+v, want %v", e, want)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t).withImage()
		n.lead(enginetest.Other)
		n.commit()
		m := n.joined(2, 1)
		id := m.open(testTimeout)
		m.batch(txn(id, lingering("/e")))
		n.joined(2, 2)
		was, _ := n.tree().Exists("/e")
		n.applyNothing()
		n.restart()
		stat, ok := n.tree().Exists("/e")
		if !ok || stat != was || stat.EphemeralOwner != 0 || n.mortals() != 1 {
			t.Errorf("loaded %+v, was %+v", stat, was)
		}
	})
}

// A client cannot make another session's ephemeral linger.
func TestLoseIsNothingToAskFor(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.claimToLinger(s, "/e")
		for _, ops := range [][]tree.Op{{{Kind: tree.KindLose, Path: "/e"}}, {create("/x"), {Kind: tree.KindLose, Path: "/e"}}} {
			p := s.Submit(t.Context(), ops)
			n.commit()
			if err := outcome(p); !errors.Is(err, tree.ErrInvalidKind) {
				t.Errorf("%v", err)
			}
		}
		if stat, _ := n.tree().Exists("/e"); stat.EphemeralOwner != s.ID() || n.exists("/x") {
			t.Errorf("it is %+v", stat)
		}
	})
}
