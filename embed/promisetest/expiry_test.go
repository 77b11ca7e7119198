package promisetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// lastHeld asks again and again whether something holds. It sends the time of the last question
// that was answered yes.
func lastHeld(holds func() bool) <-chan time.Time {
	out := make(chan time.Time, 1)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		last := time.Now()
		for asked := last; holds(); asked = <-tick.C {
			last = asked
		}
		out <- last
	}()
	return out
}

// cutOff cuts the links between a member and the others: those on which it sends, those on which it
// receives, or both.
func cutOff(ens *embedtest.Ensemble, victim embed.MemberID, out, in bool) {
	for _, id := range ens.Places() {
		if id == victim {
			continue
		}
		ens.Faults(victim).SetLink(id, embedtest.Link{Cut: out})
		ens.Faults(id).SetLink(victim, embedtest.Link{Cut: in})
	}
}

// A member whose session holds a lock, a leadership and an ephemeral is cut off from the other two:
// in both directions, or only what it sends is lost, or only what it receives. When somebody else
// has one of the three, every question about it on the first member is answered "lost", and was
// before. Reads stay available there. After the links are whole, the member serves again without a
// restart, and nothing that was lost comes back.
//
// (CURATOR-604, CURATOR-206, consul#2332: two had the lock after a reconnect, and one was never
// told. etcd#10811, etcd#6127, go-zookeeper#190: no way to learn that a lock is lost. consul#1843,
// jgroups-raft#79: a leader that was cut off went on.)
func TestGuarantee_ToldFirst(t *testing.T) {
	for name, c := range map[string]struct{ out, in, leads bool }{
		"a follower is cut off":   {out: true, in: true},
		"the leader is cut off":   {out: true, in: true, leads: true},
		"nobody hears a follower": {out: true},
		"nobody hears the leader": {out: true, leads: true},
		"a follower hears nobody": {in: true},
		"the leader hears nobody": {in: true, leads: true},
	} {
		run(t, name, func(t *testing.T) {
			ens := embedtest.New(t, 3, embedtest.Options{})
			ctx := bounded(t)
			const victim, other = embed.MemberID(1), embed.MemberID(2)
			if c.leads {
				ens.TransferLeadership(victim)
			} else {
				ens.TransferLeadership(other)
			}
			s := ens.Session(victim, embed.SessionOptions{Timeout: embedkit.LivesAWhile})
			hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
			must(t, err)
			leadership, err := election.New(s, "/election").Campaign(ctx, nil)
			must(t, err)
			mine, err := s.Create(ctx, "/mine", nil, embed.Ephemeral)
			must(t, err)
			reader := ens.Session(victim, embed.SessionOptions{Timeout: time.Minute})
			witness := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
			_, err = witness.Sync(ctx, "/")
			must(t, err)
			gone, err := witness.Watch(ctx, mine, embed.WatchOnce)
			must(t, err)
			connected := func() bool {
				state, _ := s.State()
				return state == embed.Connected
			}
			saidHold := lastHeld(func() bool { return hold.Err() == nil })
			saidLeader := lastHeld(func() bool { return leadership.Err() == nil })
			saidConnected := lastHeld(connected)

			cutOff(ens, victim, c.out, c.in)
			granted := func(what string, said <-chan time.Time) {
				at := time.Now()
				if last := <-said; !last.Before(at) {
					t.Errorf("the %s was there %v after somebody else was granted it", what, last.Sub(at))
				}
			}
			var beside sync.WaitGroup
			beside.Go(func() {
				_, err := election.New(witness, "/election").Campaign(ctx, nil)
				granted("leadership", saidLeader)
				if err != nil {
					t.Error(err)
				}
			})
			beside.Go(func() {
				select {
				case <-gone.Events():
					granted("session", saidConnected)
				case <-ctx.Done():
					t.Error("the ephemeral is still there")
				}
			})
			next, err := lock.NewMutex(witness, "/lock").Lock(ctx)
			must(t, err)
			granted("hold", saidHold)
			beside.Wait()
			<-hold.Done()
			for _, lost := range []error{hold.Err(), context.Cause(hold.Context()), leadership.Err()} {
				if !errors.Is(lost, embed.ErrSuspended) {
					t.Errorf("lost for %v", lost)
				}
			}
			if next.Token().Compare(hold.Token()) <= 0 {
				t.Errorf("token %v after %v", next.Token(), hold.Token())
			}
			if state, _ := s.State(); state != embed.Suspended && state != embed.Expired {
				t.Errorf("the session is %v", state)
			}
			must(t, reader.Err())
			if _, _, err := reader.Get(ctx, "/lock"); err != nil {
				t.Errorf("a read while the member is cut off: %v", err)
			}
			_, err = witness.Create(ctx, "/meanwhile", nil, embed.Persistent)
			must(t, err)

			ens.HealAll()
			testkit.Reaches(t, s.State, embed.Expired)
			if !errors.Is(s.Err(), embed.ErrSessionExpired) || hold.Err() == nil || leadership.Err() == nil {
				t.Errorf("session: %v, hold: %v, leadership: %v", s.Err(), hold.Err(), leadership.Err())
			}
			_, err = reader.Sync(ctx, "/")
			must(t, err)
			if _, ok, err := reader.Exists(ctx, "/meanwhile"); !ok || err != nil {
				t.Errorf("what was written meanwhile is there: %t, %v", ok, err)
			}
			must(t, next.Release())
			again, err := lock.NewMutex(ens.Session(victim, embed.SessionOptions{}), "/lock").Lock(ctx)
			must(t, err)
			if again.Token().Compare(next.Token()) <= 0 {
				t.Errorf("token %v after %v", again.Token(), next.Token())
			}
			_, err = witness.Sync(ctx, "/")
			must(t, err)
			if names, _, err := witness.Children(ctx, "/lock"); err != nil || len(names) != 1 {
				t.Errorf("in the queue: %v, %v", names, err)
			}
		})
	}
}

// A8.1: a member is out of touch for long enough to be Suspended. It is back before anybody has
// counted a whole timeout of silence, or nobody was there who could count. The session and its
// ephemerals survive. Its holds do not come back, and its place in the queue is given up. Until
// then the member serves only reads, and the state tells so.
func TestGuarantee_ToldFirst_ASuspendedSessionComesBackWithoutItsHolds(t *testing.T) {
	for name, c := range map[string]struct {
		// Between Suspended and the end of the others' count lies a tenth of it.
		timeout time.Duration
		leader  embed.MemberID
		cut     func(*embedtest.Ensemble)
	}{
		"nobody reaches anybody": {3 * time.Second, 1, func(ens *embedtest.Ensemble) {
			for _, id := range ens.Members() {
				ens.Isolate(id)
			}
		}},
		"a follower is cut off":   {15 * time.Second, 2, func(ens *embedtest.Ensemble) { cutOff(ens, 1, true, true) }},
		"the leader hears nobody": {15 * time.Second, 1, func(ens *embedtest.Ensemble) { cutOff(ens, 1, false, true) }},
	} {
		run(t, name, func(t *testing.T) {
			ens := embedtest.New(t, 3, embedtest.Options{})
			ctx := bounded(t)
			ens.TransferLeadership(c.leader)
			s := ens.Session(1, embed.SessionOptions{Timeout: c.timeout})
			hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
			must(t, err)
			_, err = s.Create(ctx, "/mine", nil, embed.Ephemeral)
			must(t, err)
			alive := time.Now()
			_, err = s.Set(ctx, "/mine", []byte("mine"), embed.AnyVersion)
			must(t, err)
			c.cut(ens)
			testkit.Reaches(t, s.State, embed.Suspended)
			if !errors.Is(hold.Err(), embed.ErrSuspended) {
				t.Errorf("hold of a suspended session: %v", hold.Err())
			}
			if sessionsflag.Open == nil { // a client has nobody to ask
				if data, _, err := s.Get(ctx, "/mine"); string(data) != "mine" || err != nil {
					t.Errorf("a read of a suspended session: %q, %v", data, err)
				}
			}
			ens.HealAll()
			until(t, "the session to come back", func() bool {
				state, _ := s.State()
				return state != embed.Suspended
			})
			if err, silent := s.Err(), time.Since(alive); err != nil && silent > c.timeout {
				tooSlow(t, "on this machine it takes %v to notice, heal and elect: %v", silent, err)
			}
			must(t, s.Err())
			if !errors.Is(hold.Err(), embed.ErrSuspended) {
				t.Errorf("the hold came back: %v", hold.Err())
			}
			// The deletion of its znode overtakes all else; now it is applied.
			must(t, hold.Release())
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
		})
	}
}

// commits makes every shard commit something, and returns how long the slowest took.
func commits(ctx context.Context, t *testing.T, s *embed.Session) (slowest time.Duration) {
	for _, p := range append(embedkit.Places(), embedkit.OfSessions) {
		began := time.Now()
		if err := s.Delete(ctx, p+"/none", embed.AnyVersion); !errors.Is(err, embed.ErrNoNode) {
			t.Error(err)
		}
		slowest = max(slowest, time.Since(began))
	}
	return slowest
}

// carried returns how many commits it takes to bring a session's end to another shard.
func carried() int {
	if len(embedkit.Places()) == 1 {
		return 0
	}
	return 2
}

// A7: each new leader counts the silence anew. etcd's leases never ended while leaders changed
// (etcd#9888), and an election cost consul's sessions (consul#1162, consul#1290, consul#912). Here
// the leadership is transferred every half timeout for ten timeouts, and once moves on because a
// member dies. No session of a live member ends, and that of the dead member ends within the bound.
//
// The bound is computed from what happened. It is the timeout, a commit for each of its four steps,
// and the commits that bring the end to another shard. Each change of leader adds a lost step that
// must be committed again, or the time without a leader if that is longer. No commit and no time
// without a leader is longer than the slowest write of the witnesses. A second is for goroutines
// that wait to run.
//
// Each live member has a witness, whose writes prove it alive. If those writes take so long that
// the silence may reach the whole timeout, the session may end.
func TestGuarantee_ExpiryBounded_ALiveSessionOutlivesLeaders(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		const timeout, transfers, killedAt = 1500 * time.Millisecond, 20, 6
		const victim = embed.MemberID(3)
		sessions, opened := make(map[embed.MemberID]*embed.Session), time.Now()
		for _, id := range ens.Members() {
			sessions[id] = ens.Session(id, embed.SessionOptions{Timeout: timeout})
			_, err := sessions[id].Create(bounded(t), fmt.Sprint("/of-", id), nil, embed.Ephemeral)
			must(t, err)
		}
		witness := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		witnesses := []*embed.Session{witness, ens.Session(2, embed.SessionOptions{Timeout: time.Minute})}
		_, err := witness.Sync(bounded(t), "/")
		must(t, err)
		gone, err := witness.Watch(bounded(t), fmt.Sprint("/of-", victim), embed.WatchOnce)
		must(t, err)
		term := func() uint64 { return ens.Node(1).Status().Shards[0].Term }
		ctx := bounded(t)
		var beside sync.WaitGroup
		defer beside.Wait()
		writing, stop := context.WithCancel(ctx)
		defer stop()
		// The longest times of each witness.
		took, silent := make([]time.Duration, len(witnesses)), make([]time.Duration, len(witnesses))
		for i, s := range witnesses {
			beside.Go(func() {
				heard := opened
				embedkit.Every(writing, 30*time.Millisecond, func() {
					began := time.Now()
					took[i] = max(took[i], commits(ctx, t, s))
					silent[i] = max(silent[i], time.Since(heard))
					heard = began
				})
				silent[i] = max(silent[i], time.Since(heard))
			})
		}
		ens.TransferLeadership(victim)
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
		embedkit.Every(moving, timeout/2, func() {
			if n == killedAt { // the member leads at this moment
				alive = time.Now()
				if _, err := sessions[victim].Set(bounded(t), embedkit.OfSessions, nil, embed.AnyVersion); err != nil {
					tooSlow(t, "on this machine it was silent before it was killed: %v", err)
				}
				before = term()
				ens.Kill(victim)
				killed = time.Now()
				live--
			}
			ens.TransferLeadership(ens.Leader()%embed.MemberID(live) + 1)
			if n++; n == transfers {
				done()
			}
		})
		stop()
		beside.Wait()
		slowest := slices.Max(took)
		for id, s := range sessions {
			if err := s.Err(); err != nil && id != victim {
				if quiet := silent[id-1]; quiet >= timeout {
					tooSlow(t, "on this machine member %d is silent for up to %v: %v", id, quiet, err)
				}
				t.Errorf("the session of member %d, which lives, ended: %v", id, err)
			}
			if _, ok, err := witness.Exists(bounded(t), fmt.Sprint("/of-", id)); ok == (id == victim) || err != nil {
				t.Errorf("the ephemeral of member %d is there: %t, %v", id, ok, err)
			}
		}
		if expired.IsZero() {
			t.Fatalf("%v after its member was killed the session is there", time.Since(killed))
		}
		// A term has one leader at most.
		lasted, changes := expired.Sub(killed), time.Duration(after-before)
		bound := timeout + time.Duration(4+carried())*slowest + changes*(slowest+max(timeout/4, slowest)) + time.Second
		t.Logf("expired %v after the kill, %d terms later; writes took up to %v, the bound is %v", lasted, changes, slowest, bound)
		if lasted > bound {
			t.Errorf("expired %v after the kill, the bound is %v", lasted, bound)
		}
		if lived := expired.Sub(alive); lived < timeout {
			t.Errorf("expired %v after its last word was sent, its timeout is %v", lived, timeout)
		}
	})
}

// A7: the bound is the timeout and one commit for each of its steps, a second in all. Each change
// of leader adds at most a step that was not committed, and the time without a leader. The test
// also measures how long a commit takes here and now.
//
// (etcd#9888, etcd#9395, etcd#13294: a dead client's lease outlived it while elections went on,
// each of which counted anew; etcd#13491, etcd#17132: the mend worked for an election or two.)
func TestGuarantee_ExpiryBounded(t *testing.T) {
	const timeout = embedkit.LivesAWhile
	for name, c := range map[string]struct {
		leads bool // the member that dies
	}{
		"of a follower": {},
		"of the leader": {leads: true},
	} {
		run(t, name, func(t *testing.T) {
			ens := embedtest.New(t, 3, embedtest.Options{})
			ctx := bounded(t)
			const victim = embed.MemberID(3)
			ens.TransferLeadership(1)
			if c.leads {
				ens.TransferLeadership(victim)
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

			term := func() uint64 { return ens.Node(2).Status().Shards[0].Term }
			first := term()
			ens.Kill(victim)
			killed := time.Now()
			var slowest time.Duration // commit
			var beside sync.WaitGroup
			watching, done := context.WithCancel(ctx)
			beside.Go(func() {
				embedkit.Every(watching, 10*time.Millisecond, func() {
					slowest = max(slowest, commits(ctx, t, witness))
				})
			})
			select {
			case <-gone.Events():
			case <-ctx.Done():
				_, there, err := witness.Exists(context.Background(), path)
				t.Fatalf("nobody was told that the session ended; its ephemeral is there: %t, %v", there, err)
			}
			expired, last := time.Now(), term()
			done()
			beside.Wait()
			if lived := expired.Sub(before); lived < timeout {
				t.Errorf("expired %v after its last word was sent, its timeout is %v", lived, timeout)
			}
			// At most one leader a term; a busy machine has more than one change.
			changes := time.Duration(last - first)
			leaderless := engine.LongestElection(embedtest.DefaultTick)
			bound := timeout + time.Duration(5+carried())*slowest + time.Second + changes*(timeout/4+leaderless)
			t.Logf("expired %v after the kill; commits took up to %v, %d changes of leader", expired.Sub(killed), slowest, changes)
			if took := expired.Sub(killed); took > bound {
				t.Errorf("expired %v after the kill, the bound is %v", took, bound)
			}
		})
	}
}

// A6.1: on the leader the image's disk fails and the log's disk works. The node leaves Raft at
// once, although its process lives on and closes nothing. Another member leads, and the sessions of
// the failed member expire.
func TestGuarantee_ExpiryBounded_ALeaderThatFails(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		const leader, other, timeout = 1, 2, embedkit.LivesAWhile
		var broken embedkit.FaultyDisk
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			if c.ID == leader {
				c.Inside = &inside.Seams{Fault: broken.Ask}
			}
		}})
		ens.TransferLeadership(leader)
		path, err := ens.Session(leader, embed.SessionOptions{Timeout: timeout}).Create(bounded(t), "/of-the-failed", nil, embed.Ephemeral)
		must(t, err)
		s := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
		_, err = s.Sync(bounded(t), "/")
		must(t, err)
		gone, err := s.Watch(bounded(t), path, embed.WatchOnce)
		must(t, err)
		broken.Fails(disk.OpCreate, "/image/", syscall.EROFS)
		must(t, ens.Snapshot(leader))
		<-ens.Node(leader).Done()
		select {
		case <-gone.Events():
		case <-time.After(testkit.Patience): // before the mend there was no bound
			t.Error("the session of a failed member lives on")
		}
		if ens.Leader() == leader {
			t.Error("the failed member leads")
		}
	})
}

// A6.2: on the leader the image's disk stands still and the log's disk works. So Raft keeps the
// leader, but its machine applies nothing. It transfers the leadership, and the sessions of a
// member that died expire.
//
// This needs real time: dragonboat holds a mutex while the image's disk stands still.
func TestGuarantee_ExpiryBounded_ALeaderThatDoesNotApply(t *testing.T) {
	t.Parallel()
	const leader, dead, other = 1, 2, 3
	h := embedkit.NewHanging(disk.OpSync, "/image/", 0)
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		if c.ID == leader {
			c.Inside = &inside.Seams{Fault: h.Ask}
		}
	}})
	ens.TransferLeadership(leader)
	s := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
	const path = "/of-the-dead"
	ens.Until("a session with an ephemeral", func() bool { // on a busy machine it may expire at once
		_, err := ens.Session(dead, embed.SessionOptions{Timeout: time.Second}).Create(bounded(t), path, nil, embed.Ephemeral)
		return err == nil
	})
	_, err := s.Sync(bounded(t), "/")
	must(t, err)
	h.Begin()
	defer h.Free()
	ens.Until("the machine to wait for the image's disk", func() bool {
		s.Submit(bounded(t), embed.OpCreate("/x", nil, embed.Persistent)) // or there may be nothing to write
		must(t, ens.Snapshot(leader))
		return h.Hit()
	})
	ens.Kill(dead)
	ens.Until("the dead member's session to expire", func() bool {
		_, there, err := s.Exists(bounded(t), path)
		must(t, err)
		return !there
	})
	// An election may come between.
	ens.Until("the member that applies to lead", func() bool { return ens.Leader() == other })
}
