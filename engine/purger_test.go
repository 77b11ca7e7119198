package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// on returns a path of a shard, a different path for each i.
func (n *node) on(id ShardID, i int) string {
	for k := 0; ; k++ {
		path := fmt.Sprintf("/%d-%d", i, k)
		if command.ShardOf(path, len(n.shards)) == id {
			return path
		}
	}
}

// own creates an ephemeral.
func (n *node) own(s *Session, path string) {
	n.t.Helper()
	p := s.Submit(n.t.Context(), []tree.Op{ephemeral(path)})
	n.commit()
	if err := outcome(p); err != nil {
		n.t.Fatalf("create %s: %v", path, err)
	}
}

// told returns the entry that tells a shard that a session has ended at home.
func told(s *Session, z tree.Zxid) command.Command {
	return command.Command{Kind: command.KindPurge, Purge: []command.Ending{{Session: s.ID(), Former: []session.Incarnation{{Member: enginetest.Member, Start: enginetest.Origin().Start}}, Zxid: z}}}
}

// This node learns from another shard that a session has ended, before it has applied the end at
// home. What the session has in flight at home may come before the end there. So its outcome is
// unknown for now.
func TestRequestsThatAnotherShardEndsHaveNoOutcomeAtHome(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.own(s, n.on(2, 0))
		home := s.Submit(t.Context(), []tree.Op{create(n.on(1, 0))})
		there := s.Submit(t.Context(), []tree.Op{create(n.on(2, 1))})
		_, ps := n.requests()
		n.applyOn(2, told(s, zxidOf(n.shard)+2))
		if err := outcome(home); !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Errorf("a request that may still be applied got %v", err)
		}
		if err := outcome(there); err != session.ErrExpired {
			t.Errorf("a request after the end got %v", err)
		}
		n.apply(ps...)
		if !n.exists(n.on(1, 0)) || n.exists(n.on(2, 1)) {
			t.Error("it was applied where it came after the end, or not where it came before")
		}
	})
}

// lookAround makes the loops of the purger look. It returns when the first of them looks again.
func (n *node) lookAround() time.Duration {
	again := time.Duration(math.MaxInt64)
	for _, r := range n.shards[1:] {
		again = min(again, n.purger.Look(r.Shard, time.Now()))
	}
	return again
}

// endedAtHome returns the sessions whose end a shard has still to learn.
func (n *node) endedAtHome() (left []session.Record) {
	for _, r := range n.shards[1:] {
		left = append(left, tableOf(n.home()).Ended(uint32(r.Shard))...)
	}
	return left
}

// looks makes the purger look, and returns its proposals. They must be of the wanted kinds.
func (n *node) looks(want ...string) []*enginetest.Proposal {
	n.t.Helper()
	n.lookAround()
	synctest.Wait()
	ps := n.log.Drain()
	var got []string
	for _, p := range ps {
		got = append(got, fmt.Sprintf("%d on %d", enginetest.Decode(n.t, p.Cmd).Kind, p.Shard))
	}
	if !slices.Equal(got, want) {
		n.t.Fatalf("proposed %v, want %v", got, want)
	}
	return ps
}

// A store has what a shard's image would have of its sessions.
type store map[tree.SessionID]session.Record

// drain brings a store up to date. It returns the sessions in it that have ended or will soon be
// closed.
func (st store) drain(t *testing.T, r *replica.Replica) (ended []session.Record) {
	t.Helper()
	err := tableOf(r).Drain(func(session.Origin) error { return nil }, func(id tree.SessionID, r session.Record, exists bool) error {
		delete(st, id)
		if exists {
			st[id] = r
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range st {
		if r.Ended != 0 {
			ended = append(ended, r)
		}
	}
	return ended
}

const (
	purgeOn2, purgeOn3 = "6 on 2", "6 on 3"
	purgedAtHome       = "7 on 1"
)

// F2: the leader of the home shard carries the end of a session to the shards that the session's
// record names, until all are done. Proposals may be lost or come twice.
func TestEndIsCarriedToEveryShardThatTheSessionUses(t *testing.T) {
	withShards(t, 4, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		stays := n.open(time.Minute)
		for _, id := range []ShardID{1, 2, 3} {
			n.own(s, n.on(id, 0))
			n.own(stays, n.on(id, 1))
		}
		n.looks()     // no session has ended, and another member leads
		for range 4 { // quarters of its timeout
			step, d, _ := tableOf(n.shard).NextStep(enginetest.Member)
			n.apply(&enginetest.Proposal{Cmd: command.EncodeSilence(step, d, 1)})
		}
		if n.exists(n.on(1, 0)) || !n.exists(n.on(2, 0)) || !n.exists(n.on(3, 0)) {
			t.Fatal("the end did not take what is at home, or took more")
		}
		n.looks()
		n.lead(enginetest.Member)
		n.log.Drain()

		n.looks(purgeOn2, purgeOn3) // and both are lost
		n.looks()
		enginetest.Pass(replica.RetryAfter)
		n.log.Drain()
		lost := n.looks(purgeOn2, purgeOn3)
		lost[0].Lost.Store(true)
		purges := append(n.looks(purgeOn2), lost[1])
		n.apply(purges[0])
		report := n.looks(purgedAtHome)
		n.apply(report[0], report[0])
		n.apply(purges[0])
		n.looks()
		if n.exists(n.on(2, 0)) || !n.exists(n.on(3, 0)) {
			t.Fatal("it still exists on a shard that was told, or it is gone from one that was not")
		}

		n.lead(enginetest.Other) // which does nothing
		n.apply(purges[1])
		enginetest.Pass(replica.RetryAfter)
		n.log.Drain()
		n.looks()
		n.lead(enginetest.Member) // and has not seen that it was done
		n.log.Drain()
		n.apply(n.looks(purgeOn3)...)
		n.apply(n.looks(purgedAtHome)...)
		if left := n.endedAtHome(); len(left) > 0 {
			t.Errorf("remembered at home: %v", left)
		}
		if again := n.lookAround(); again < time.Minute {
			t.Errorf("there is nothing to do, but it looks again in %v", again)
		}
		for id := range ShardID(3) {
			if n.exists(n.on(id+1, 0)) || !n.exists(n.on(id+1, 1)) {
				t.Errorf("shard %d has what ended, or not what lives", id+1)
			}
		}
	})
}

// F2: introduce is in flight when the session ends and the shard is purged. It must find that it is
// late, for as long as its stream may bring it.
func TestLateIntroduceFindsThatTheSessionHasEnded(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s, path, kept := n.open(testTimeout), n.on(2, 0), make(store)
		create := n.creating(s, path)
		n.apply(n.log.Drain()...) // addShard
		_, introduce := n.requests()
		if len(introduce) != 1 || introduce[0].Shard != 2 {
			t.Fatalf("%d proposals, want introduce", len(introduce))
		}
		n.applyOn(2, told(s, zxidOf(n.shard)+1))
		n.apply(introduce[0], introduce[0])
		if err := <-create; err != session.ErrExpired {
			t.Errorf("the create returned %v", err)
		}
		n.applyOn(2, told(s, zxidOf(n.shard)+1))
		if ended := kept.drain(t, n.shards[1]); len(ended) != 1 || len(kept) != 1 {
			t.Errorf("shard 2 keeps %v", kept)
		}
		n.silence()
		n.own(n.open(testTimeout), n.on(2, 1)) // sent by a node that knows of the end
		if ended := kept.drain(t, n.shards[1]); len(ended) != 0 || n.exists(path) {
			t.Errorf("shard 2 still keeps %v", ended)
		}
	})
}

// F2: a shard learns of a session's end before the member has registered there. The same start of
// the member registers and then introduces the session.
func TestRegisterForgetsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newShardedNode(t, enginetest.Origin(), 2)
		n.lead(enginetest.Other)
		var late []*enginetest.Proposal
		for _, p := range n.log.Drain() {
			if p.Shard == command.HomeShard {
				n.apply(p)
			} else {
				late = append(late, p)
			}
		}
		s, path := n.open(testTimeout), n.on(2, 0)
		create := n.creating(s, path)
		n.commit() // addShard
		n.applyOn(2, told(s, zxidOf(n.shard)+1))
		n.apply(late...)
		n.commit() // introduce
		select {
		case err := <-create:
			if err != session.ErrExpired {
				t.Errorf("the create returned %v", err)
			}
		default:
			t.Error("the create did not return")
		}
		if n.exists(path) {
			t.Error("it was applied")
		}
	})
}

// creating creates an ephemeral, the first of its session on the shard.
func (n *node) creating(s *Session, path string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Submit(n.t.Context(), []tree.Op{ephemeral(path)}).Wait(n.t.Context())
		done <- err
	}()
	synctest.Wait()
	return done
}

// A create waits until its shard knows the session. If the session ends meanwhile, the create is
// refused, and is not applied afterwards.
func TestCreateThatWaitsForItsShardIsToldOfTheSessionsEnd(t *testing.T) {
	for stage, reach := range map[string]func(n *node, s *Session) []*enginetest.Proposal{
		"addShard is sent": func(n *node, _ *Session) []*enginetest.Proposal { return n.log.Drain() },
		"introduce is sent": func(n *node, _ *Session) []*enginetest.Proposal {
			n.apply(n.log.Drain()...)
			return n.log.Drain()
		},
		"introduce is queued": func(n *node, _ *Session) []*enginetest.Proposal {
			addShard := n.log.Drain()
			n.shards[1].Outbox.Submit(outbox.NewCall(nil, &command.Request{Kind: command.RequestClose, Session: 999})) // the next one waits until this is applied
			n.apply(addShard...)
			return n.log.Drain()
		},
	} {
		for end, do := range map[string]func(n *node, s *Session){
			"its owner closes it":                         func(_ *node, s *Session) { go s.Close() },
			"the log expires it":                          func(n *node, _ *Session) { n.silence() },
			"another shard's log tells that it has ended": func(n *node, s *Session) { n.applyOn(2, told(s, zxidOf(n.shard)+1)) },
			"it expires here": func(n *node, s *Session) {
				for range 3 {
					n.fake.Pause(testTimeout)
					s.State()
				}
			},
		} {
			t.Run(stage+", "+end, func(t *testing.T) {
				withShards(t, 2, func(t *testing.T, n *node) {
					s, path := n.open(testTimeout), n.on(2, 0)
					create := n.creating(s, path)
					onWay := reach(n, s)
					if len(onWay) != 1 || len(create) > 0 {
						t.Fatalf("%d proposals are on their way", len(onWay))
					}
					do(n, s)
					synctest.Wait()
					n.apply(onWay...)
					n.run(2 * testTimeout)
					select {
					case err := <-create:
						if err != session.ErrClosed && err != session.ErrExpired {
							t.Errorf("the create returned %v", err)
						}
					default:
						t.Error("the create did not return")
					}
					if n.exists(path) {
						t.Error("it was applied")
					}
				})
			})
		}
	}
}

// However many calls wait until one shard knows their sessions, each waits only its own time.
func TestWaitForAShardIsBounded(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s := n.open(time.Minute)
		first, second := n.creating(s, n.on(2, 0)), n.creating(s, n.on(2, 1))
		n.apply(n.log.Drain()...) // addShard; introduce is lost
		n.log.Drain()
		enginetest.Pass(n.cfg.RequestTimeout)
		for _, create := range []<-chan error{first, second} {
			select {
			case err := <-create:
				if !errors.Is(err, outbox.ErrUnavailable) {
					t.Errorf("the create returned %v", err)
				}
			default:
				t.Error("it still waits")
			}
		}
	})
}

// If more sessions have ended than the purger handles at a time, each end is carried, and only
// once.
func TestEndsOfManyAreCarriedInPortions(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		const many = replica.PurgeWindow + replica.PurgeWindow/4
		n.open(time.Minute) // its member is heard
		table := tableOf(n.home())
		for id := tree.SessionID(1000); id < 1000+many; id++ {
			if err := errors.Join(table.Open(id, [16]byte{}, testTimeout, enginetest.Member, 0, nil), table.AddShard(id, enginetest.Member, 2)); err != nil {
				t.Fatal(err)
			}
			table.Close(id, 1, true)
		}
		n.lead(enginetest.Member)
		carried := make(map[tree.SessionID]int)
		for range 2 * many / replica.PurgeBatch {
			n.lookAround()
			ps := n.log.Drain()
			for _, p := range ps {
				for _, e := range enginetest.Decode(t, p.Cmd).Purge {
					carried[e.Session]++
				}
			}
			n.apply(ps...)
		}
		if left := n.endedAtHome(); len(left) > 0 || len(carried) != many {
			t.Errorf("%d were carried, %d still wait, of %d", len(carried), len(left), many)
		}
		for id, times := range carried {
			if times > 1 {
				t.Fatalf("session %d was carried %d times", id, times)
			}
		}
	})
}
