package embed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// lastHeld asks a Hold over and over and says when it last asked and was told that it holds.
func lastHeld(h *lock.Hold) <-chan time.Time {
	out := make(chan time.Time, 1)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		last := time.Now()
		for asked := last; h.Err() == nil; asked = <-tick.C {
			last = asked
		}
		out <- last
	}()
	return out
}

// awaits waits until a session is in a state.
func awaits(t *testing.T, s *embed.Session, want embed.State) {
	t.Helper()
	ctx := bounded(t)
	for {
		now, changed := s.State()
		if now == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the session is %v, want %v", now, want)
		}
	}
}

// A member that holds a lock is cut off, in both directions or in one. Another one waits for the lock. When it is granted,
// whatever is asked of the first Hold is answered "lost", and was before. Healed, the member serves again without a
// restart, and nothing of the Hold revives.
func TestGuarantee_ToldFirst(t *testing.T) {
	cut := embedtest.Link{Cut: true}
	cuts := map[string]func(ens *embedtest.Ensemble, victim, other embed.MemberID){
		"is cut off":    func(ens *embedtest.Ensemble, victim, other embed.MemberID) { ens.Cut(victim, other) },
		"hears nothing": func(ens *embedtest.Ensemble, victim, other embed.MemberID) { ens.Faults(other).SetLink(victim, cut) },
		"is not heard":  func(ens *embedtest.Ensemble, victim, other embed.MemberID) { ens.Faults(victim).SetLink(other, cut) },
	}
	for name, leads := range map[string]bool{"a follower": false, "the leader": true} {
		for what, cut := range cuts {
			t.Run(name+" "+what, func(t *testing.T) { holderIsCutOff(t, leads, cut) })
		}
	}
}

func holderIsCutOff(t *testing.T, leads bool, cut func(ens *embedtest.Ensemble, victim, other embed.MemberID)) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{})
	ctx := bounded(t)
	const victim, other = embed.MemberID(1), embed.MemberID(2)
	if leads {
		ens.MoveLeader(victim)
	} else {
		ens.MoveLeader(other)
	}
	s := ens.Session(victim, embed.SessionOptions{Timeout: 1500 * time.Millisecond})
	hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
	must(t, err)
	waiter := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
	held := lastHeld(hold)
	cut(ens, victim, other)
	cut(ens, victim, 3)

	next, err := lock.NewMutex(waiter, "/lock").Lock(ctx)
	granted := time.Now()
	lost := hold.Err()
	must(t, err)
	if lost == nil {
		t.Error("two hold the lock")
	}
	if last := <-held; !last.Before(granted) {
		t.Errorf("the first Hold said that it holds %v after the second was granted", last.Sub(granted))
	}
	<-hold.Done()
	if !errors.Is(lost, embed.ErrSuspended) || !errors.Is(context.Cause(hold.Context()), embed.ErrSuspended) {
		t.Errorf("the Hold ended with %v, its context with %v", lost, context.Cause(hold.Context()))
	}
	if next.Token().Compare(hold.Token()) <= 0 {
		t.Errorf("token %v after %v", next.Token(), hold.Token())
	}
	if state, _ := s.State(); state != embed.Suspended && state != embed.Expired {
		t.Errorf("the session is %v", state)
	}

	ens.HealAll()
	awaits(t, s, embed.Expired)
	if !errors.Is(s.Err(), embed.ErrSessionExpired) || hold.Err() == nil {
		t.Errorf("session: %v, hold: %v", s.Err(), hold.Err())
	}
	must(t, next.Release())
	again, err := lock.NewMutex(ens.Session(victim, embed.SessionOptions{}), "/lock").Lock(ctx)
	must(t, err)
	if again.Token().Compare(next.Token()) <= 0 {
		t.Errorf("token %v after %v", again.Token(), next.Token())
	}
	_, err = waiter.Sync(ctx, "/")
	must(t, err)
	if names, _, err := waiter.Children(ctx, "/lock"); err != nil || len(names) != 1 {
		t.Errorf("in the queue: %v, %v", names, err)
	}
}

// A8.1: no member can reach another for longer than it takes to be Suspended, and nobody can have expired anything. The session
// and its ephemerals survive; what it held does not come back, and its place in the queue is given up.
func TestGuarantee_ToldFirst_ASuspendedSessionComesBackWithoutItsHolds(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{})
	ctx := bounded(t)
	s := ens.Session(1, embed.SessionOptions{Timeout: 3 * time.Second})
	hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
	must(t, err)
	_, err = s.Create(ctx, "/mine", nil, embed.Ephemeral)
	must(t, err)
	for _, id := range ens.Members() {
		ens.Isolate(id)
	}
	awaits(t, s, embed.Suspended)
	if !errors.Is(hold.Err(), embed.ErrSuspended) {
		t.Errorf("hold of a suspended session: %v", hold.Err())
	}
	ens.HealAll()
	awaits(t, s, embed.Connected)
	must(t, s.Err())
	if !errors.Is(hold.Err(), embed.ErrSuspended) {
		t.Errorf("the hold came back: %v", hold.Err())
	}
	must(t, hold.Release()) // its znode goes ahead of all else; now it certainly has
	other := ens.Session(2, embed.SessionOptions{})
	_, err = other.Sync(ctx, "/")
	must(t, err)
	if _, ok, err := other.Exists(ctx, hold.Path()); ok || err != nil {
		t.Errorf("the contender is still there: %v", err)
	}
	if _, ok, err := other.Exists(ctx, "/mine"); !ok || err != nil {
		t.Errorf("the ephemeral is gone: %v", err)
	}
	next, err := lock.NewMutex(s, "/lock").Lock(ctx)
	must(t, err)
	if next.Token().Compare(hold.Token()) <= 0 {
		t.Errorf("token %v after %v", next.Token(), hold.Token())
	}
}

// every calls fn at intervals until the context ends.
func every(ctx context.Context, interval time.Duration, fn func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fn()
		case <-ctx.Done():
			return
		}
	}
}

// A1.1, A7: leaders that come and go each count the silence anew or twice: etcd's leases never ended under churn, and all ended when
// a deposed leader went on counting. Here the leadership moves every half timeout for ten timeouts, and goes with a member
// that dies. No session of a live member ends, and that of the dead one does within the bound.
//
// The bound is computed from what happened: the timeout, a commit for each of its four steps, and for every change of leader a
// step that was lost and has to be committed again, or the time without a leader if that is longer. No commit and no time
// without a leader was longer than the slowest write of the witness. A second is for goroutines that wait for their turn.
func TestGuarantee_ExpiryBounded_ALiveSessionOutlivesLeaders(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{})
	const timeout, moves, killedAt = 1500 * time.Millisecond, 20, 6
	const victim = embed.MemberID(3)
	sessions := make(map[embed.MemberID]*embed.Session)
	for _, id := range ens.Members() {
		sessions[id] = ens.Session(id, embed.SessionOptions{Timeout: timeout})
		_, err := sessions[id].Create(bounded(t), fmt.Sprint("/of-", id), nil, embed.Ephemeral)
		must(t, err)
	}
	witness := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	_, err := witness.Sync(bounded(t), "/")
	must(t, err)
	gone, err := witness.Watch(bounded(t), fmt.Sprint("/of-", victim), embed.WatchOnce)
	must(t, err)
	term := func() uint64 { return ens.Node(1).Status().Shards[0].Term }
	writing, stop := context.WithCancel(bounded(t))
	var slowest time.Duration
	var beside sync.WaitGroup
	beside.Go(func() {
		every(writing, 10*time.Millisecond, func() {
			began := time.Now()
			if _, err := witness.Set(context.Background(), "/", nil, embed.AnyVersion); err != nil {
				t.Error(err)
			}
			slowest = max(slowest, time.Since(began))
		})
	})
	ens.MoveLeader(victim)
	live := len(ens.Members())
	var alive, killed, expired time.Time
	var before, after uint64 // terms
	beside.Go(func() {
		select {
		case <-gone.Events():
			expired, after = time.Now(), term()
		case <-writing.Done():
		}
	})
	n := 0
	moving, done := context.WithCancel(bounded(t))
	every(moving, timeout/2, func() {
		if n == killedAt { // and leads
			alive = time.Now()
			_, err := sessions[victim].Set(bounded(t), "/", nil, embed.AnyVersion)
			must(t, err)
			before, killed = term(), time.Now()
			ens.Kill(victim)
			live--
		}
		ens.MoveLeader(ens.Leader()%embed.MemberID(live) + 1)
		if n++; n == moves {
			done()
		}
	})
	stop()
	beside.Wait()
	for id, s := range sessions {
		if err := s.Err(); err != nil && id != victim {
			t.Errorf("the session of member %d, which lives, ended: %v", id, err)
		}
		if _, ok, err := witness.Exists(bounded(t), fmt.Sprint("/of-", id)); ok == (id == victim) || err != nil {
			t.Errorf("the ephemeral of member %d is there: %t, %v", id, ok, err)
		}
	}
	if expired.IsZero() {
		t.Fatalf("%v after its member was killed the session is there", time.Since(killed))
	}
	took, changes := expired.Sub(killed), time.Duration(after-before) // a term has one leader at most
	bound := timeout + 4*slowest + changes*(slowest+max(timeout/4, slowest)) + time.Second
	t.Logf("expired %v after the kill, %d terms later; writes took up to %v, the bound is %v", took, changes, slowest, bound)
	if took > bound {
		t.Errorf("expired %v after the kill, the bound is %v", took, bound)
	}
	if lived := expired.Sub(alive); lived < timeout {
		t.Errorf("expired %v after its last word was sent, its timeout is %v", lived, timeout)
	}
}

// A7: the bound is the timeout and one commit for each of its steps, a second in all; each change of leader adds at most a
// step that was not committed and the time without a leader. What a commit takes here and now is measured beside it.
func TestGuarantee_ExpiryBounded(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	for name, c := range map[string]struct {
		leads bool // the member that dies
	}{
		"of a follower": {},
		"of the leader": {leads: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ens := embedtest.New(t, 3, embedtest.Options{})
			ctx := bounded(t)
			const victim = embed.MemberID(3)
			ens.MoveLeader(1)
			if c.leads {
				ens.MoveLeader(victim)
			}
			s := ens.Session(victim, embed.SessionOptions{Timeout: timeout})
			witness := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
			before := time.Now()
			path, err := s.Create(ctx, "/mine", nil, embed.Ephemeral)
			must(t, err)
			_, err = witness.Sync(ctx, "/")
			must(t, err)
			gone, err := witness.Watch(ctx, path, embed.WatchOnce)
			must(t, err)

			ens.Kill(victim)
			killed := time.Now()
			var slowest time.Duration // commit
			changes := 0
			var beside sync.WaitGroup
			watching, done := context.WithCancel(ctx)
			beside.Go(func() {
				every(watching, 10*time.Millisecond, func() {
					began := time.Now()
					if _, err := witness.Set(ctx, "/", nil, embed.AnyVersion); err != nil {
						t.Error(err)
					}
					slowest = max(slowest, time.Since(began))
				})
			})
			select {
			case <-gone.Events():
			case <-ctx.Done():
				t.Fatal("the session never expired")
			}
			expired := time.Now()
			done()
			beside.Wait()
			if lived := expired.Sub(before); lived < timeout {
				t.Errorf("expired %v after its last word was sent, its timeout is %v", lived, timeout)
			}
			if c.leads {
				changes++
			}
			leaderless := engine.LongestElection(embedtest.DefaultTick)
			bound := timeout + 5*slowest + time.Second + time.Duration(changes)*(timeout/4+leaderless)
			t.Logf("expired %v after the kill; commits took up to %v, %d changes of leader", expired.Sub(killed), slowest, changes)
			if took := expired.Sub(killed); took > bound {
				t.Errorf("expired %v after the kill, the bound is %v", took, bound)
			}
		})
	}
}

// A6.1: the image's disk fails on the leader, and its log's disk is well. The node is out of Raft at once, though its process
// lives on and closes nothing: another member leads, and the sessions of the failed one expire.
func TestGuarantee_ExpiryBounded_ALeaderThatFails(t *testing.T) {
	t.Parallel()
	const leader, other, timeout = 1, 2, 1500 * time.Millisecond
	var broken faultyDisk
	ens := embedtest.New(t, 3, embedtest.Options{Inside: func(id embed.MemberID) inside.Seams {
		if id != leader {
			return inside.Seams{}
		}
		return inside.Seams{Fault: broken.ask}
	}})
	ens.MoveLeader(leader)
	path, err := ens.Session(leader, embed.SessionOptions{Timeout: timeout}).Create(bounded(t), "/of-the-failed", nil, embed.Ephemeral)
	must(t, err)
	s := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
	_, err = s.Sync(bounded(t), "/")
	must(t, err)
	gone, err := s.Watch(bounded(t), path, embed.WatchOnce)
	must(t, err)
	broken.fails(disk.OpCreate, "/image/", syscall.EROFS)
	must(t, ens.Snapshot(leader))
	<-ens.Node(leader).Done()
	const bound = timeout + 10*time.Second // with room for a machine that is busy; without the mend there is no bound
	select {
	case <-gone.Events():
	case <-time.After(bound):
		t.Errorf("the session of a failed member is alive %v later", bound)
	}
	if ens.Leader() == leader {
		t.Error("the failed member leads")
	}
}

// A6.2: the image's disk stands still on the leader while its log's disk is well, so that Raft keeps it in office and its machine
// applies nothing. It hands the leadership over, and the sessions of a member that died expire.
func TestGuarantee_ExpiryBounded_ALeaderThatDoesNotApply(t *testing.T) {
	t.Parallel()
	const leader, dead, other = 1, 2, 3
	h := newHanging(disk.OpSync, "/image/", 0)
	ens := embedtest.New(t, 3, embedtest.Options{Inside: func(id embed.MemberID) inside.Seams {
		if id != leader {
			return inside.Seams{}
		}
		return inside.Seams{Fault: h.ask}
	}})
	ens.MoveLeader(leader)
	_, err := ens.Session(dead, embed.SessionOptions{Timeout: time.Second}).Create(bounded(t), "/of-the-dead", nil, embed.Ephemeral)
	must(t, err)
	s := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
	_, err = s.Sync(bounded(t), "/")
	must(t, err)
	h.begin()
	defer close(h.free)
	must(t, ens.Snapshot(leader)) // which has the machine wait for the image's disk
	<-h.hit
	ens.Kill(dead)
	ens.Until("the dead member's session to expire", func() bool {
		_, there, err := s.Exists(bounded(t), "/of-the-dead")
		must(t, err)
		return !there
	})
	if got := ens.Leader(); got != other {
		t.Errorf("member %d leads", got)
	}
}
