package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A watchman is a node that may lead and measure silence. Commits of its log take some time.
type watchman struct {
	*node
	latency time.Duration
	onWay   []*enginetest.Proposal
	expired map[tree.SessionID]time.Time // when sessions of other members expired
}

// withWatchman runs fn in a bubble with a watchman that leads.
func withWatchman(t *testing.T, latency time.Duration, fn func(t *testing.T, w *watchman)) {
	t.Helper()
	withNode(t, func(t *testing.T, n *node) {
		w := &watchman{node: n, latency: latency, expired: make(map[tree.SessionID]time.Time)}
		n.cfg.SessionExpired = func(id tree.SessionID) { w.expired[id] = time.Now() }
		n.loops.Go(func() { n.shard.ExpireLoop(n.stop, n.done) })
		w.lead(enginetest.Member)
		fn(t, w)
	})
}

// lead makes this member or another one the leader.
func (w *watchman) lead(m MemberID) {
	w.log.Elect(m)
	w.leaderChanged(command.HomeShard, w.log.Leader(command.HomeShard))
	synctest.Wait()
}

// watch lets time pass. Proposals are committed after the latency.
func (w *watchman) watch(d time.Duration) {
	w.t.Helper()
	const step = 5 * time.Millisecond
	for ; d > 0; d -= step {
		enginetest.Pass(step)
		w.onWay = append(w.onWay, w.log.Drain()...)
		for len(w.onWay) > 0 && time.Since(w.onWay[0].At) >= w.latency {
			if !w.onWay[0].Dropped() {
				w.apply(w.onWay[0])
			}
			w.onWay = w.onWay[1:]
		}
	}
}

// wantExpired checks that a session expired no sooner than its timeout after from, and at most
// slack later.
func (w *watchman) wantExpired(id tree.SessionID, from time.Time, timeout, slack time.Duration) {
	w.t.Helper()
	at, ok := w.expired[id]
	if !ok {
		w.t.Fatalf("session %d with a timeout of %v is alive after %v", id, timeout, time.Since(from))
	}
	if got := at.Sub(from); got < timeout || got > timeout+slack {
		w.t.Fatalf("a session with a timeout of %v expired after %v, want at most %v later", timeout, got, slack)
	}
}

func TestOnlyTheLeaderMeasures(t *testing.T) {
	withWatchman(t, 0, func(t *testing.T, w *watchman) {
		w.lead(enginetest.Other)
		w.joined(2, 1).open(time.Second)
		enginetest.Pass(time.Minute)
		if got := w.log.Drain(); len(got) > 0 {
			t.Fatalf("%d commands proposed", len(got))
		}
		w.lead(enginetest.Member)
		ps := w.log.Drain()
		if len(ps) == 0 || enginetest.Decode(t, ps[0].Cmd).Kind != command.KindSilence {
			t.Fatalf("%d commands proposed by the new leader", len(ps))
		}
		w.lead(0)
		w.apply(ps...)
		enginetest.Pass(time.Minute)
		if got := w.log.Drain(); len(got) > 0 {
			t.Fatalf("%d commands proposed after the leadership was lost", len(got))
		}
	})
}

func TestStepsAreQuartersOfTheTimeout(t *testing.T) {
	withWatchman(t, 0, func(t *testing.T, w *watchman) {
		w.joined(2, 1).open(8 * time.Second)
		for step := range uint64(3) {
			enginetest.Pass(2*time.Second - time.Millisecond)
			if got := w.log.Drain(); len(got) > 0 {
				t.Fatalf("step %d was proposed early", step+1)
			}
			enginetest.Pass(time.Millisecond)
			ps := w.log.Drain()
			if len(ps) != 1 {
				t.Fatalf("%d commands for step %d", len(ps), step+1)
			}
			want := command.Command{Kind: command.KindSilence, Step: session.Step{Member: 2, Start: 1, LastSeq: 1, Number: step + 1}, Silence: 2 * time.Second}
			if got := enginetest.Decode(t, ps[0].Cmd); got.Kind != want.Kind || got.Step != want.Step || got.Silence != want.Silence {
				t.Fatalf("proposed %+v, want %+v", got, want)
			}
			w.apply(ps...)
		}
	})
}

func TestSilentMembersSessionsExpireOnTime(t *testing.T) {
	const latency = 30 * time.Millisecond
	withWatchman(t, latency, func(t *testing.T, w *watchman) {
		m := w.joined(2, 1)
		// One deadline is shortly after another, so the last step to it is short.
		timeouts := []time.Duration{4 * time.Second, 4100 * time.Millisecond, 4150 * time.Millisecond, 9 * time.Second}
		ids := make([]tree.SessionID, len(timeouts))
		for i, d := range timeouts {
			ids[i] = m.open(d)
		}
		start := time.Now()
		w.watch(10 * time.Second)
		for i, d := range timeouts {
			// At most four steps for each different timeout so far. Each is committed and looked
			// at.
			w.wantExpired(ids[i], start, d, time.Duration(4*(i+1))*(latency+5*time.Millisecond))
		}
	})
}

func TestMemberThatBeatsNeverExpires(t *testing.T) {
	withWatchman(t, 10*time.Millisecond, func(t *testing.T, w *watchman) {
		const timeout = 4 * time.Second
		m := w.joined(2, 1)
		id := m.open(timeout)
		for range 30 {
			w.watch(timeout / keeper.BeatsPerTimeout)
			if len(w.onWay) > 0 {
				t.Fatal("its silence was measured")
			}
			m.batch()
		}
		start := time.Now()
		for range 3 { // late, but in time: the silence begins anew
			w.watch(timeout - 100*time.Millisecond)
			m.batch()
			start = time.Now()
		}
		w.watch(2 * timeout)
		w.wantExpired(id, start, timeout, 100*time.Millisecond)
	})
}

// A member starts again, and the sessions of its clients stay. Its silence begins anew with its
// Register: what has passed since its last batch does not count.
func TestSilenceBeginsAnewWithAStart(t *testing.T) {
	withWatchman(t, 10*time.Millisecond, func(t *testing.T, w *watchman) {
		const timeout = 4 * time.Second
		m := w.joined(2, 1)
		id := tree.SessionID(zxidOf(w.shard) + 1)
		m.batch(command.Request{Kind: command.RequestOpen, Timeout: timeout, Remote: true})
		w.watch(timeout - 100*time.Millisecond)
		w.joined(2, 2)
		start := time.Now()
		w.watch(2 * timeout)
		w.wantExpired(id, start, timeout, 100*time.Millisecond)
	})
}

// Repeats, gaps and batches of a retired start are no signs of life.
func TestRefusedBatchesDoNotEndASilence(t *testing.T) {
	withWatchman(t, 10*time.Millisecond, func(t *testing.T, w *watchman) {
		const timeout = 4 * time.Second
		m := w.joined(2, 1)
		id := m.open(timeout)
		start := time.Now()
		for range 50 {
			m.again(1)
			m.again(7)
			w.watch(timeout / 40)
		}
		w.wantExpired(id, start, timeout, 100*time.Millisecond)
	})
}

func TestStepThatRaftRefusesIsProposedAgainSoon(t *testing.T) {
	withWatchman(t, 0, func(t *testing.T, w *watchman) {
		const timeout = 4 * time.Second
		id := w.joined(2, 1).open(timeout)
		start := time.Now()
		w.watch(timeout - 10*time.Millisecond)
		w.log.Refuse(enginetest.ErrRefused)
		w.watch(50 * time.Millisecond)
		w.log.Refuse(nil)
		w.watch(timeout)
		w.wantExpired(id, start, timeout, 150*time.Millisecond)
	})
}

func TestStepThatIsDroppedIsProposedAgainSoon(t *testing.T) {
	withWatchman(t, 20*time.Millisecond, func(t *testing.T, w *watchman) {
		const timeout = 4 * time.Second
		id := w.joined(2, 1).open(timeout)
		start := time.Now()
		w.watch(timeout - 100*time.Millisecond)
		for range 20 {
			w.watch(10 * time.Millisecond)
			if len(w.onWay) > 0 {
				w.onWay[0].Lost.Store(true)
				break
			}
		}
		w.watch(timeout)
		w.wantExpired(id, start, timeout, 300*time.Millisecond)
	})
}

// A1.2: a step that is lost silently is proposed again, but not faster than a slow disk can take
// it.
func TestStepThatIsLostIsProposedAgain(t *testing.T) {
	withWatchman(t, 0, func(t *testing.T, w *watchman) {
		w.joined(2, 1).open(4 * time.Second)
		enginetest.Pass(time.Second)
		first := time.Now()
		enginetest.Pass(10 * time.Second)
		ps := w.log.Drain()
		if len(ps) < 5 || len(ps) > 12 {
			t.Fatalf("proposed %d times in %v", len(ps), time.Since(first))
		}
		w.apply(ps...)
		if o, _ := tableOf(w.shard).Origin(2); o.Steps != 1 || o.Silence != time.Second {
			t.Fatalf("the copies count as %d steps, %v", o.Steps, o.Silence)
		}
	})
}

// A leader that loses the leadership forgets its proposals. When it leads again they may be lost,
// and nothing would say so.
func TestStepIsProposedAgainByALeaderThatIsBack(t *testing.T) {
	withWatchman(t, 0, func(t *testing.T, w *watchman) {
		w.joined(2, 1).open(4 * time.Second)
		enginetest.Pass(time.Second)
		if got := len(w.log.Drain()); got != 1 {
			t.Fatalf("%d steps proposed", got)
		}
		w.lead(enginetest.Other)
		w.lead(enginetest.Member)
		enginetest.Pass(replica.PollInterval)
		if got := len(w.log.Drain()); got != 1 {
			t.Errorf("%d steps proposed at once when it leads again", got)
		}
	})
}

// A7: a new leader continues from the last step that its replica applied. What the old leader
// measured and could not commit is lost.
func TestLeaderChangesDelayAnExpiryByAStepAtMost(t *testing.T) {
	const timeout, moves = 8 * time.Second, 3
	withWatchman(t, 10*time.Millisecond, func(t *testing.T, w *watchman) {
		id := w.joined(2, 1).open(timeout)
		start := time.Now()
		for range moves {
			w.watch(timeout / 5)
			w.lead(0)
			w.watch(time.Second)
			w.onWay = nil
			w.lead(enginetest.Member)
		}
		w.watch(2 * timeout)
		w.wantExpired(id, start, timeout, moves*timeout/4+100*time.Millisecond)
	})
}

// A9: the leader goes on with due sessions without waiting.
func TestFurtherPortionsFollowAtOnce(t *testing.T) {
	withWatchman(t, 10*time.Millisecond, func(t *testing.T, w *watchman) {
		m := w.joined(2, 1)
		const sessions = 12
		for s := range sessions {
			id := m.open(4 * time.Second)
			ops := make([]tree.Op, replica.EndPortion/2)
			for i := range ops {
				ops[i] = ephemeral(fmt.Sprintf("/e%d-%d", s, i))
			}
			m.batch(txn(id, ops...))
		}
		w.joined(2, 2) // makes all due; two are closed at once
		start := time.Now()
		w.watch(time.Second)
		if len(w.expired) != sessions {
			t.Fatalf("after %v, %d of %d sessions are gone", time.Since(start), len(w.expired), sessions)
		}
	})
}

// A1.1, A1.2, A1.3: members take turns in believing that they lead. Their logs lag, lose, repeat
// and reorder. A session never expires before its timeout has passed since the newest batch of its
// node was committed. In the end it does expire.
func TestSessionsNeverExpireEarlyWhoeverLeads(t *testing.T) {
	for _, seed := range enginetest.Seeds(t, 15) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { expireUnderChaos(t, rand.New(rand.NewPCG(seed, 5))) })
		})
	}
}

func expireUnderChaos(t *testing.T, rng *rand.Rand) {
	const timeout, tick = 2 * time.Second, 10 * time.Millisecond
	truth := newNodeOf(t, session.Origin{Member: 9, Start: 1})
	var expired time.Time
	truth.cfg.SessionExpired = func(tree.SessionID) { expired = time.Now() }
	var watchmen []*node
	for m := range session.MemberID(3) {
		n := newNodeOf(t, session.Origin{Member: m + 1, Start: 1})
		n.loops.Go(func() { n.shard.ExpireLoop(n.stop, n.done) })
		watchmen = append(watchmen, n)
	}
	var log []command.Command
	applied := make([]int, len(watchmen))
	commit := func(c command.Command) {
		log = append(log, c)
		truth.applyCommand(c)
	}
	o := session.Origin{Member: 7, Start: 1, Directory: [16]byte{7}, Level: LevelMin}
	commit(command.Command{Kind: command.KindRegister, Origin: o, Rules: enginetest.Rules()})
	seq := uint64(1)
	commit(command.Command{Kind: command.KindBatch, Origin: o, Seq: seq, Requests: []command.Request{{Kind: command.RequestOpen, Timeout: timeout}}})
	alive := time.Now() // when its newest batch was committed
	dies := alive.Add(time.Duration(rng.IntN(6000)) * time.Millisecond)

	var onWay []command.Command
	for expired.IsZero() && time.Since(dies) < time.Minute {
		enginetest.Pass(tick)
		for i, n := range watchmen {
			for _, p := range n.log.Drain() {
				if c := enginetest.Decode(t, p.Cmd); c.Kind == command.KindSilence {
					onWay = append(onWay, c)
				}
			}
			if rng.IntN(40) == 0 { // each member has its own opinion of who leads
				n.log.Elect([]MemberID{MemberID(i + 1), 8}[rng.IntN(2)])
				n.leaderChanged(command.HomeShard, n.log.Leader(command.HomeShard))
			}
			for rng.IntN(3) > 0 && applied[i] < len(log) {
				n.applyCommand(log[applied[i]])
				applied[i]++
			}
		}
		for len(onWay) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(onWay))
			commit(onWay[i])
			if rng.IntN(3) > 0 { // otherwise it comes again
				onWay = append(onWay[:i], onWay[i+1:]...)
			}
		}
		if time.Now().Before(dies) && rng.IntN(int(timeout/tick)) == 0 {
			seq++
			commit(command.Command{Kind: command.KindBatch, Origin: o, Seq: seq})
			if expired.IsZero() {
				alive = time.Now()
			}
		}
	}
	if expired.IsZero() {
		t.Fatal("the session of a dead node is alive after a minute")
	}
	if got := expired.Sub(alive); got < timeout {
		t.Fatalf("the session expired %v after its node's newest batch, before its timeout of %v", got, timeout)
	}
}

// Each member has its own smallest timeout. A leader also measures other members' sessions that are
// shorter than its own minimum.
func TestExpiryIsPunctualWithAnotherMinimum(t *testing.T) {
	withWatchman(t, 30*time.Millisecond, func(t *testing.T, w *watchman) {
		short := SessionTimeoutFloor(DefaultTick)
		w.lead(enginetest.Other)
		w.lead(enginetest.Member)
		m := w.joined(2, 1)
		w.watch(20 * time.Millisecond)
		id := m.open(short)
		start := time.Now()
		w.watch(30 * time.Second)
		w.wantExpired(id, start, short, time.Second)
	})
}
