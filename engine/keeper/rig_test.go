package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// rigTimeout is the timeout of sessions in these tests.
const rigTimeout = 10 * time.Second

// A keeperRig is a keeper with outboxes but without replicas: the test completes their calls.
type keeperRig struct {
	keeper *Keeper
	clock  *enginetest.Clock // of withKeeper
	log    *enginetest.Log
	route  replication.ShardID // of every transaction
	defect func(args ...any)   // told of a defect; nil panics
}

func newRigOf(clock clock.Clock, shards int) *keeperRig {
	r := &keeperRig{log: &enginetest.Log{}, route: command.HomeShard}
	r.keeper = New(Options{Node: r, Clock: clock, RequestTimeout: 5 * time.Second, RequestBytesMax: 1 << 20, LeastTimeout: time.Second})
	for id := range replication.ShardID(shards) {
		r.keeper.AddOutbox(outbox.New(id+1, r.log, clock, enginetest.Origin(), command.Rules{}, r))
	}
	return r
}

// withKeeper runs fn in a bubble with a keeper whose outboxes run, on a member that does not lead.
func withKeeper(t *testing.T, shards int, fn func(t *testing.T, r *keeperRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := enginetest.NewClock()
		r := newRigOf(clock.Clock(), shards)
		r.clock = clock
		for _, o := range r.keeper.outboxes {
			go o.Loop()
			t.Cleanup(func() { o.Close(outbox.ErrClosed) })
		}
		r.lead(enginetest.Other)
		r.complete(t)
		fn(t, r)
	})
}

func (r *keeperRig) lead(m replication.MemberID) {
	r.log.Elect(m)
	for _, o := range r.keeper.outboxes {
		o.LeaderChanged()
	}
	synctest.Wait()
}

// complete completes everything that is proposed, with success.
func (r *keeperRig) complete(t *testing.T) {
	t.Helper()
	for ps := r.drain(); len(ps) > 0; ps = r.drain() {
		for _, p := range ps {
			r.completeOne(t, p)
		}
	}
}

// completeOne completes a batch, with success.
func (r *keeperRig) completeOne(t *testing.T, p *enginetest.Proposal) {
	t.Helper()
	o, c := r.keeper.outboxes[p.Shard-1], enginetest.Decode(t, p.Cmd)
	b := o.Oldest(c.Seq)
	for i := range c.Requests {
		zxid := tree.Zxid(c.Seq)<<10 + tree.Zxid(i)
		o.Complete(b, i, created(&c.Requests[i], zxid), zxid, nil)
	}
	o.BatchApplied(b)
}

// created returns the results of a transaction's creates.
func created(q *command.Request, zxid tree.Zxid) (results []tree.Result) {
	for _, op := range q.Ops {
		if op.Kind == tree.KindCreate {
			results = append(results, tree.Result{Kind: op.Kind, Path: op.Path, Stat: tree.Stat{Czxid: zxid, EphemeralOwner: q.Session}})
		}
	}
	return results
}

// open opens an in-process session.
func (r *keeperRig) open(t *testing.T) *Session {
	t.Helper()
	var s *Session
	var err error
	go func() { s, err = r.keeper.Open(t.Context(), rigTimeout, false, nil) }()
	r.complete(t)
	if err != nil || s == nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func (r *keeperRig) Route([]tree.Op) (replication.ShardID, error)   { return r.route, nil }
func (r *keeperRig) ShardsOf(tree.SessionID) []uint32               { return nil }
func (r *keeperRig) CheckDeadlines()                                { r.keeper.CheckDeadlines() }
func (r *keeperRig) Proved(sent, offset time.Duration)              { r.keeper.Proved(sent, offset) }
func (r *keeperRig) BeatInterval() time.Duration                    { return r.keeper.BeatInterval() }
func (r *keeperRig) AppliedAtHome() tree.Zxid                       { return 0 }
func (r *keeperRig) Explain(_ replication.ShardID, err error) error { return err }

func (r *keeperRig) Tell(level slog.Level, message string, args ...any) {
	switch {
	case level < slog.LevelWarn:
	case r.defect == nil:
		panic(fmt.Sprintln(message, args))
	default:
		r.defect(args...)
	}
}

// A claim that takes a step that it must not take does not end the process. The log says so once.
func TestDefectIsLoggedOnce(t *testing.T) {
	withKeeper(t, 1, func(t *testing.T, r *keeperRig) {
		s := r.open(t)
		var told []any
		r.defect = func(args ...any) { told = append(told, args...) }
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		r.complete(t)
		r.keeper.mu.Lock()
		defer r.keeper.mu.Unlock()
		c.AppliedLocked(nil, s.id, nil) // for the second time
		c.AppliedLocked(nil, s.id, nil)
		if want := []any{"session", s.id, "cause", "a claim goes from standing to standing"}; !slices.Equal(told, want) {
			t.Errorf("the log says %v, want %v", told, want)
		}
	})
}

// The deadline has passed, and nobody has asked. Then the owner gives up what it had. It was lost
// before that: the owner is told so, and the znode lingers for its delay.
func TestGivingUpComparesTheClock(t *testing.T) {
	giveUp := map[string]func(s *Session, c *Claim, tenure *Tenure){
		"the tenure": func(_ *Session, _ *Claim, tenure *Tenure) { tenure.End() },
		"the claim":  func(_ *Session, c *Claim, _ *Tenure) { go c.Release() }, // it waits
		"the claim in a transaction": func(s *Session, c *Claim, _ *Tenure) {
			if _, err := new(With).Release(s, c); err != nil && !errors.Is(err, ErrSuspended) {
				panic(err)
			}
		},
	}
	for how, c := range map[string]struct {
		pass func(c *enginetest.Clock)
		want error
	}{
		"in time": {func(c *enginetest.Clock) { c.Pause(rigTimeout / 2) }, ErrReleased},
		"stopped": {func(c *enginetest.Clock) { c.Pause(rigTimeout) }, ErrSuspended},
		"asleep":  {func(c *enginetest.Clock) { c.Sleep(rigTimeout) }, ErrSuspended},
		"stepped": {func(c *enginetest.Clock) { c.Step(rigTimeout) }, ErrSuspended},
	} {
		for what, do := range giveUp {
			t.Run(what+"/"+how, func(t *testing.T) {
				withKeeper(t, 1, func(t *testing.T, r *keeperRig) {
					s := r.open(t)
					claim := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
					r.complete(t)
					tenure, err := claim.Hold(true)
					if err != nil {
						t.Fatal(err)
					}
					ctx := tenure.Context()
					c.pass(r.clock)
					do(s, claim, tenure)
					var lost bool
					for _, p := range r.drain() {
						for _, q := range enginetest.Decode(t, p.Cmd).Requests {
							lost = lost || q.Kind == command.RequestRelease && q.Path == "/q" && q.Lost
						}
						r.completeOne(t, p)
					}
					r.complete(t)
					if got := context.Cause(ctx); got != c.want || tenure.Err() != c.want || lost != (c.want == ErrSuspended) {
						t.Errorf("the context ended with %v, the tenure with %v, lost: %v; want %v", got, tenure.Err(), lost, c.want)
					}
				})
			})
		}
	}
}

// A call that is parked until its shard knows the session gets the reason why the session ended,
// even if nothing of it could be sent.
func TestParkedCallIsToldWhyItsSessionEnded(t *testing.T) {
	withKeeper(t, 2, func(t *testing.T, r *keeperRig) {
		s := r.open(t)
		r.lead(0) // the request to add the shard stays queued
		r.route = 2
		p := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindDelete, Path: "/a"}})
		synctest.Wait()
		s.cancel(session.ErrClosed) // like endLocked, before it has closed done
		synctest.Wait()
		if !p.Known() {
			t.Fatal("the parked call still waits")
		}
		if _, err := p.Result(); err == nil || err == context.Canceled {
			t.Errorf("the parked call got %v, want why the session ended", err)
		}
	})
}

// The keeper keeps nothing of a session that has ended for a claim that inherits too late.
func TestHeirOfAnEndedSessionIsForgotten(t *testing.T) {
	withKeeper(t, 1, func(t *testing.T, r *keeperRig) {
		s := r.open(t)
		go s.Close()
		<-s.Done()
		r.complete(t)
		heir := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, &With{Inherits: true})
		if err := heir.Err(); err == nil || len(r.keeper.mu.losing) != 0 {
			t.Errorf("the claim that inherits: %v; the keeper remembers losses of %d sessions, want an error and 0", err, len(r.keeper.mu.losing))
		}
	})
}

// A firedWatch has ended by itself.
type firedWatch struct{ Stream }

func (firedWatch) Ended() bool { return true }
func (firedWatch) End(error)   {}

func TestWatchesThatHaveFiredAreForgotten(t *testing.T) {
	withKeeper(t, 1, func(t *testing.T, r *keeperRig) {
		s := r.open(t)
		for range 1000 {
			if _, err := s.AddWatch(firedWatch{}); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.watches.n; got > 100 {
			t.Fatalf("%d watches are remembered", got)
		}
	})
}
