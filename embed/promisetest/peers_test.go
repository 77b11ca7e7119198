package promisetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The tests of this file replay bugs of other coordination systems. testdata/peers.md lists the
// bugs and their tests, including tests in other files.

// breathe lets a bubble's time pass in a loop. Requests alone take none there.
func breathe() { <-time.After(time.Millisecond) }

// Sessions of candidates are Suspended, come back, and are Suspended again before the candidates
// have reacted. Curator's latches answered each reconnect with a reset of their own. Two resets
// interleaved, and a latch led whose znode had just been given up (CURATOR-620, CURATOR-652,
// CURATOR-653), or two latches reset one another for ever (CURATOR-504, CURATOR-644, CURATOR-645).
func TestPeers_TwoReconnectsInterleave(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		var mu sync.Mutex
		var leaderships []*election.Leadership
		leaders := func() (now []*election.Leadership) {
			for _, l := range leaderships {
				if l.Err() == nil {
					now = append(now, l)
				}
			}
			return now
		}
		var sessions []*embed.Session
		var wg sync.WaitGroup
		for _, id := range []embed.MemberID{1, 1, 2} {
			s := ens.Session(id, embed.SessionOptions{Timeout: 6 * time.Second})
			sessions = append(sessions, s)
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := election.New(s, "/election").Campaign(ctx, nil)
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					if now := leaders(); len(now) > 0 && l.Err() == nil {
						t.Errorf("%v leads beside %v", l.Token(), now[0].Token())
					}
					if last := len(leaderships) - 1; last >= 0 && l.Token().Compare(leaderships[last].Token()) <= 0 {
						t.Errorf("token %v after %v", l.Token(), leaderships[last].Token())
					}
					leaderships = append(leaderships, l)
					mu.Unlock()
					select {
					case <-l.Done():
					case <-ctx.Done():
					}
				}
			})
		}
		led := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(leaderships)
		}
		of := map[embed.SessionID]embed.MemberID{sessions[0].ID(): 1, sessions[1].ID(): 1, sessions[2].ID(): 2}
		for round := range 12 {
			ens.Until("somebody to lead", func() bool { mu.Lock(); defer mu.Unlock(); return len(leaders()) == 1 })
			_, err := sessions[0].Sync(ctx, "/election") // its member may lag behind the leader
			must(t, err)
			now, err := election.New(sessions[0], "/election").Leader(ctx)
			must(t, err)
			victim, lost := of[now.Owner], led()
			for jump := range 4 {
				ens.Faults(victim).SetWallClock(time.Duration(1-jump%2) * time.Hour)
				sessions[victim].State() // compares the clock for all sessions of its member
				if jump == round%4 {     // sometimes it recovers in between
					testkit.Reaches(t, sessions[victim].State, embed.Connected)
				}
			}
			ens.Until("the next leadership", func() bool { return led() > lost })
		}
		ens.Until("one to lead and all others to wait", func() bool {
			names, _, err := sessions[0].Children(ctx, "/election")
			mu.Lock()
			defer mu.Unlock()
			return err == nil && len(names) == len(sessions) && len(leaders()) == 1
		})
		stays := led()
		for _, id := range ens.Members() { // some heartbeats of each member, and nobody resets anything
			embedkit.Write(t, ens.Node(id), fmt.Sprint("/after-", id))
		}
		if n := led(); n != stays {
			t.Errorf("%d leaderships, and %d after nothing had happened", stays, n)
		}
		for _, s := range sessions {
			must(t, s.Err())
		}
		cancel()
		wg.Wait()
	})
}

// calm waits until members have taken the snapshot that follows their start. A snapshot holds a
// mutex, and would stop the clock of a bubble if its fsync stood still.
func calm() {
	if !testkit.Night() {
		<-time.After(5 * time.Second)
	}
}

// The leader's disk stands still in the middle of an fsync, for twice the timeout of all sessions.
// The others elect a new leader. When the old leader goes on, its count of their silence is worth
// nothing. (etcd#15247: it revoked everybody's leases.)
func TestPeers_ADeposedLeaderWithAStuckDiskExpiresNobody(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		const timeout = embedkit.LivesAWhile // longer than the election
		var live []*embed.Session
		for _, id := range []embed.MemberID{2, 3} {
			s := ens.Session(id, embed.SessionOptions{Timeout: timeout})
			_, err := s.Create(bounded(t), fmt.Sprint("/mine-", id), nil, embed.Ephemeral)
			must(t, err)
			live = append(live, s)
		}
		stuck := ens.Session(1, embed.SessionOptions{Timeout: timeout})
		hold, err := lock.NewMutex(stuck, "/lock").Lock(bounded(t))
		must(t, err)
		calm()
		ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: time.Hour})
		ens.Until("another leader", func() bool { return ens.Leader() != 1 })
		<-stuck.Done() // it cannot read the log, so twice its timeout has passed
		ens.Faults(1).SetDisk(embedtest.Disk{})
		if hold.Err() == nil {
			t.Error("the hold of an expired session")
		}
		ens.Ready(1)
		for i, s := range live {
			must(t, s.Err())
			for _, id := range ens.Members() {
				reader := ens.Session(id, embed.SessionOptions{})
				_, err := reader.Sync(bounded(t), "/")
				must(t, err)
				if stat, ok, err := reader.Exists(bounded(t), fmt.Sprint("/mine-", i+2)); !ok || err != nil || stat.EphemeralOwner != s.ID() {
					t.Errorf("member %d: the ephemeral of a live session is gone: %v", id, err)
				}
			}
		}
	})
}

// The leader is cut off in the middle of Syncs and reads. The others elect another and write.
// Whatever the old leader's Sync answers, a read after it is no older than what was acknowledged
// when the Sync was called. (etcd#20418: a leader that had been paused read what was no longer so.
// consul#54 and etcd 0.4.1 likewise.)
func TestPeers_ADeposedLeaderServesNoStaleSync(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		writer := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		reader := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := writer.Create(ctx, "/x", []byte("0"), embed.Persistent)
		must(t, err)
		var acked, served, refused atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					least := acked.Load()
					step, stop := context.WithTimeout(ctx, 100*time.Millisecond)
					_, err := reader.Sync(step, "/x")
					stop()
					if err != nil {
						refused.Add(1)
						breathe()
						continue
					}
					data, _, err := reader.Get(ctx, "/x")
					if ctx.Err() != nil {
						return
					}
					if n, bad := strconv.ParseInt(string(data), 10, 64); bad != nil || err != nil || n < least {
						t.Errorf("read %q, %v after a Sync; %d was acknowledged before it", data, err, least)
						return
					}
					served.Add(1)
					breathe()
				}
			})
		}
		wg.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				if _, err := writer.Set(ctx, "/x", strconv.AppendInt(nil, n, 10), embed.AnyVersion); err == nil {
					acked.Store(n)
				}
				breathe()
			}
		})
		// more waits until there is more of something.
		more := func(what string, n *atomic.Int64) {
			before := n.Load()
			ens.Until(what, func() bool { return n.Load() > before+20 || t.Failed() })
		}
		for range 3 {
			ens.TransferLeadership(1)
			more("Syncs of the leader", &served)
			ens.Isolate(1)
			more("writes without it", &acked)
			ens.HealAll()
			more("Syncs of one that led", &served)
		}
		cancel()
		wg.Wait()
		t.Logf("%d Syncs served, %d not, %d writes", served.Load(), refused.Load(), acked.Load())
	})
}

// News is what a watch on everything below /w is told.
type news struct {
	typ  embed.EventType
	path string
}

// Members take snapshots all the time, and sometimes one is cut off. A watch tells every change
// once, in order: creations, deletions, and the changes of one Multi. (etcd#15271: it told again
// what it had told when its member had been cut off; etcd#18089, etcd#19179: a deletion was missing
// if the log was cut just there; etcd#17247: a change of a transaction was told twice. Curator's
// caches miss what happens while they are cut off.)
func TestPeers_AWatchMissesNothingWhileLogsAreCut(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		ens.TransferLeadership(1)
		writer := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := writer.Create(ctx, "/w", nil, embed.Persistent)
		must(t, err)
		told, count := make(map[embed.MemberID]chan []news), make(map[embed.MemberID]*atomic.Int64)
		for _, id := range ens.Members() {
			s := ens.Session(id, embed.SessionOptions{Timeout: time.Minute})
			_, err := s.Sync(ctx, "/")
			must(t, err)
			w, err := s.Watch(ctx, "/w", embed.WatchRecursive)
			must(t, err)
			told[id], count[id] = make(chan []news, 1), new(atomic.Int64)
			go func() {
				var got []news
				last := w.Zxid()
				for e := range w.Events() {
					if e.Zxid < last {
						t.Errorf("member %d: %v after zxid %d", id, e, last)
					}
					last = e.Zxid
					got = append(got, news{e.Type, e.Path})
					count[id].Add(1)
					if e.Path == "/w" {
						break // the last change: its deletion
					}
				}
				if err := w.Err(); err != nil {
					t.Errorf("member %d: the watch ended: %v", id, err)
				}
				told[id] <- got
			}()
		}
		var beside sync.WaitGroup
		for _, id := range ens.Members() {
			beside.Go(func() { embedkit.Every(ctx, 3*time.Millisecond, func() { _ = ens.Snapshot(id) }) })
		}
		var made []news
		// caughtUp waits until members have told of all changes except the newest few. So the
		// changes of other writers fit into a watch's buffer, however far a replica or a goroutine
		// is behind.
		caughtUp := func(but int, ids ...embed.MemberID) {
			for _, id := range ids {
				ens.Until(fmt.Sprintf("member %d to tell", id), func() bool { return t.Failed() || count[id].Load() >= int64(len(made)-but) })
			}
		}
		for i := range 60 {
			switch i % 30 {
			case 10:
				caughtUp(0, 3)
				ens.Isolate(3)
			case 16: // the changes that it missed fit into a watch's buffer
				ens.HealAll()
				ens.Ready(3)
				caughtUp(0, 3)
			}
			caughtUp(embedkit.WatchBuffer/2, 1, 2)
			if i%30 < 10 || i%30 >= 16 {
				caughtUp(embedkit.WatchBuffer/2, 3)
			}
			breathe()
			p, q := fmt.Sprint("/w/p-", i), fmt.Sprint("/w/q-", i)
			_, err := writer.Create(ctx, p, nil, embed.Persistent)
			must(t, err)
			_, err = writer.Set(ctx, p, nil, embed.AnyVersion)
			must(t, err)
			must(t, writer.Delete(ctx, p, embed.AnyVersion))
			_, err = writer.Multi(ctx, embed.OpCreate(p, nil, embed.Persistent), embed.OpCreate(q, nil, embed.Persistent),
				embed.OpDelete(p, embed.AnyVersion), embed.OpSet(q, nil, embed.AnyVersion), embed.OpSet(q, nil, embed.AnyVersion))
			must(t, err)
			made = append(made, news{embed.NodeCreated, p}, news{embed.NodeDataChanged, p}, news{embed.NodeDeleted, p},
				news{embed.NodeCreated, p}, news{embed.NodeCreated, q}, news{embed.NodeDeleted, p}, news{embed.NodeDataChanged, q}, news{embed.NodeDataChanged, q})
		}
		for i := range 60 {
			breathe()
			q := fmt.Sprint("/w/q-", i)
			caughtUp(embedkit.WatchBuffer/2, ens.Members()...)
			must(t, writer.Delete(ctx, q, embed.AnyVersion))
			made = append(made, news{embed.NodeDeleted, q})
		}
		must(t, writer.Delete(ctx, "/w", embed.AnyVersion))
		made = append(made, news{embed.NodeDeleted, "/w"})
		for id, c := range told {
			select {
			case got := <-c:
				if !slices.Equal(got, made) {
					t.Errorf("member %d told of %d changes, %d were made; not the same", id, len(got), len(made))
				}
			case <-ctx.Done():
				t.Fatalf("member %d has not told of all changes", id)
			}
		}
		cancel()
		beside.Wait()
	})
}

// The fsync of the log stands still: on a single node, or on two members of three. Until it ends, a
// write is neither acknowledged nor shown. (etcd#14370: alone, a write was acknowledged before it
// was on disk.)
func TestPeers_NothingIsAcknowledgedBeforeItsFsync(t *testing.T) {
	for name, c := range map[string]struct {
		members int
		stuck   []embed.MemberID
	}{
		"alone":        {1, []embed.MemberID{1}},
		"two of three": {3, []embed.MemberID{2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ens := embedtest.New(t, c.members, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = time.Minute }})
				ens.TransferLeadership(1)
				s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
				// Now the shard knows the session.
				_, err := s.Create(bounded(t), embedkit.LastPlace(), nil, embed.Persistent)
				must(t, err)
				calm()
				for _, id := range c.stuck {
					ens.Faults(id).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: time.Hour})
				}
				p := s.Submit(bounded(t), embed.OpCreate(embedkit.LastPlace()+"/x", nil, embed.Persistent))
				if c.members > 1 {
					// A member whose fsync stands still cannot vote either.
					ens.Until("the leader to notice that it has no quorum", func() bool { return ens.Node(1).Status().Shards[len(embedkit.Places())-1].Leader == 0 })
				}
				enough := time.After(200 * time.Millisecond)
				select {
				case <-p.Done():
					_, err := p.Result()
					t.Errorf("answered without an fsync: %v", err)
				case <-enough:
				}
				if _, ok, err := s.Exists(bounded(t), embedkit.LastPlace()+"/x"); ok || err != nil {
					t.Errorf("shown without an fsync: %v", err)
				}
				for _, id := range c.stuck {
					ens.Faults(id).SetDisk(embedtest.Disk{})
				}
				_, err = p.Result()
				must(t, err)
			})
		})
	}
}

// A member takes snapshots one after the other and is killed while it does, again and again. When
// it is back, everything acknowledged exists once, and its zxid has not shrunk. (etcd#13766: the
// index of what was applied was saved apart from the data, and a crash in between applied entries
// twice; etcd#17780: a crash while the log was cut brought old revisions back.)
func TestPeers_SnapshotsInQuickSuccessionAndACrash(t *testing.T) {
	for name, members := range map[string]int{"alone": 1, "one of three": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ens := embedtest.New(t, members, embedtest.Options{})
				n := embedkit.LastPlace()
				embedkit.Write(t, ens.Node(1), n)
				var last embed.Zxid
				for round := range 6 {
					s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
					snapshots, enough := context.WithCancel(bounded(t))
					var beside sync.WaitGroup
					beside.Go(func() { embedkit.Every(snapshots, time.Millisecond, func() { _ = ens.Snapshot(1) }) })
					for range 60 {
						<-time.After(500 * time.Microsecond) // so that snapshots are begun meanwhile
						path, err := s.Create(bounded(t), n+"/x-", nil, embed.Sequential)
						must(t, err)
						stat, _, err := s.Exists(bounded(t), path)
						must(t, err)
						last = stat.Czxid
					}
					enough()
					_ = ens.Snapshot(1)
					beside.Wait()
					ens.Kill(1)
					if z := ens.Restart(1).Status().Shards[len(embedkit.Places())-1].Zxid; z < last {
						t.Errorf("at zxid %d after a crash, it was at %d", z, last)
					}
					s = ens.Session(1, embed.SessionOptions{})
					stat, _, err := s.Exists(bounded(t), n)
					must(t, err)
					if want := 60 * (round + 1); stat.NumChildren != int32(want) || stat.Cversion != int32(want) {
						t.Errorf("%d children after %d creations, want %d", stat.NumChildren, stat.Cversion, want)
					}
				}
			})
		})
	}
}

// Sessions are closed, expire, and end with their process. Meanwhile members take snapshots, one is
// killed while it does, and another is cut off. No member shows an ephemeral of an ended session,
// then or after a restart from its disk. No member has lost an ephemeral of a live session.
// (ZOOKEEPER-2355, ZOOKEEPER-3144, ZOOKEEPER-4837: a snapshot that was taken while a session was
// closed, or log that was cut off, left its ephemerals on one server for ever; dCache#5523: an
// embedded server found them again at its start.)
func TestPeers_EphemeralsEndWithTheirSessionsOnEveryMember(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Inside = &inside.Seams{Keep: 5} }})
		ens.TransferLeadership(1)
		keeper := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		for _, path := range []string{"/live", "/closed", "/killed", "/expired"} {
			_, err := keeper.Create(bounded(t), path, nil, embed.Persistent)
			must(t, err)
		}
		own := func(s *embed.Session, parent string) {
			t.Helper()
			for range 3 {
				_, err := s.Create(bounded(t), parent+"/e-", nil, embed.EphemeralSequential)
				must(t, err)
			}
		}
		snapshots, enough := context.WithCancel(bounded(t))
		var beside sync.WaitGroup
		for _, id := range []embed.MemberID{1, 3} {
			beside.Go(func() { embedkit.Every(snapshots, 2*time.Millisecond, func() { _ = ens.Snapshot(id) }) })
		}
		const rounds = 4
		for round := range rounds {
			own(keeper, "/live")
			// This session ends with its process.
			own(ens.Session(2, embed.SessionOptions{Timeout: time.Minute}), "/killed")
			expires, timeout := round == rounds/2, time.Minute
			if expires {
				timeout = embedkit.LivesAWhile
			}
			silent := ens.Session(3, embed.SessionOptions{Timeout: timeout})
			own(silent, "/expired")
			brief := ens.Session(1, embed.SessionOptions{})
			own(brief, "/closed")
			_ = ens.Snapshot(2)
			ens.Kill(2)
			must(t, func() error { ens.Start(2); ens.Ready(2); return brief.Close() }())
			if expires {
				ens.Isolate(3) // its sessions expire, and it will need a snapshot
				ens.Until("the expiry", func() bool {
					names, _, err := keeper.Children(bounded(t), "/expired")
					return err == nil && len(names) == 0
				})
				ens.HealAll()
				ens.Ready(3)
			} else {
				must(t, silent.Close())
			}
		}
		enough()
		beside.Wait()
		check := func(what string, live int) {
			t.Helper()
			for _, id := range ens.Members() {
				ens.Ready(id)
				s := ens.Session(id, embed.SessionOptions{})
				for path, want := range map[string]int{"/live": live, "/closed": 0, "/killed": 0, "/expired": 0} {
					names, _, err := s.Children(bounded(t), path)
					must(t, err)
					if len(names) != want {
						t.Errorf("%s, member %d: %d ephemerals in %s, want %d", what, id, len(names), path, want)
					}
				}
				must(t, s.Close())
			}
		}
		check("before the restart", 3*rounds)
		must(t, keeper.Err())
		for _, id := range ens.Members() {
			ens.Kill(id)
		}
		for _, id := range ens.Members() {
			ens.Start(id)
		}
		check("after the restart", 0)
	})
}

// More children than a 16-bit number counts, and a watch over all of them. (CURATOR-690: a cache of
// more than 65,535 znodes could not be filled.)
func TestPeers_MoreChildrenThan65535(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		const n = 1<<16 + 10
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(ctx, "/w", nil, embed.Persistent)
		must(t, err)
		var pending []*embed.Pending
		for i := range n {
			pending = append(pending, s.Submit(ctx, embed.OpCreate("/w/n-", nil, embed.Sequential)))
			if i >= 4000 { // more at a time would be refused
				_, err := pending[i-4000].Result()
				must(t, err)
			}
		}
		for _, p := range pending {
			_, err := p.Result()
			must(t, err)
		}
		names, stat, err := s.Children(ctx, "/w")
		last := fmt.Sprintf("n-%010d", n-1)
		if err != nil || len(names) != n || stat.NumChildren != n || names[n-1] != last {
			t.Errorf("%d children, %d by the Stat, %v", len(names), stat.NumChildren, err)
		}
		if count, err := s.CountDescendants(ctx, "/w"); err != nil || count != n {
			t.Errorf("%d descendants, %v", count, err)
		}
		w, err := s.Watch(ctx, "/w", embed.WatchRecursive)
		must(t, err)
		for _, name := range []string{names[0], names[1<<16], last} {
			_, err := s.Set(ctx, "/w/"+name, nil, embed.AnyVersion)
			must(t, err)
			if e := <-w.Events(); e.Path != "/w/"+name {
				t.Errorf("told of %v, want %s", e, name)
			}
		}
	})
}

// The ensemble removes empty containers while sessions watch them and queue in them. The containers
// come back with the next contender. (curator@21b08778: a cache was dead when its root had been
// removed so; curator@9261ee62: a consumer waited for ever; Netflix/curator#29,
// Netflix/curator#307: before there were containers, nothing removed them.)
func TestPeers_AContainerIsReapedUnderItsWatchers(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.ContainerCheckInterval = c.Tick }})
		ctx := bounded(t)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		w, err := s.Watch(ctx, "/locks/x", embed.WatchPersistent)
		must(t, err)
		counts := make(map[embed.EventType]int)
		var mu sync.Mutex
		go func() {
			for e := range w.Events() {
				mu.Lock()
				counts[e.Type]++
				mu.Unlock()
			}
		}()
		elected := make(chan string, 100)
		go func() {
			for l, err := range election.New(s, "/elections/x").Observe(ctx) {
				if err != nil {
					return
				}
				elected <- string(l.Value)
			}
		}()
		const rounds = 5
		for i := range rounds {
			hold, err := lock.NewMutex(other, "/locks/x").Lock(ctx)
			must(t, err)
			leader, err := election.New(other, "/elections/x").Campaign(ctx, fmt.Append(nil, i))
			must(t, err)
			if got := <-elected; got != fmt.Sprint(i) {
				t.Errorf("%q leads, want %d", got, i)
			}
			must(t, errors.Join(hold.Release(), leader.Resign()))
			// A read-write lock, and a semaphore for which somebody had to wait.
			reader, err := lock.NewRWMutex(other, "/locks/rw").RLock(ctx)
			must(t, err)
			permits := lock.NewSemaphore(other, "/permits/x", 1)
			permit, err := permits.Acquire(ctx, 1)
			must(t, err)
			next := make(chan error, 1)
			go func() {
				h, err := permits.Acquire(ctx, 1)
				if err == nil {
					err = h.Release()
				}
				next <- err
			}()
			ens.Until("somebody to wait", func() bool {
				list, err := lock.Waiters(ctx, other, "/permits/x")
				return err == nil && len(list) == 1
			})
			must(t, errors.Join(reader.Release(), permit.Release(), <-next))
			for _, path := range []string{"/locks", "/elections", "/permits"} {
				ens.Until(path+" to be reaped", func() bool {
					_, ok, err := s.Exists(ctx, path)
					return err == nil && !ok
				})
			}
		}
		must(t, w.Close())
		ens.Until("the events", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return counts[embed.NodeDeleted] == rounds && counts[embed.NodeCreated] == rounds
		})
	})
}

// Sessions are closed before their creates are answered. Other sessions are opened after their
// opener has stopped waiting. Nothing of them stays. (curator@e5afda58: a node that was closed
// before its creation was answered stayed.)
func TestPeers_CloseBeforeACreateIsAnswered(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		rng := testkit.Rand(t)
		witness := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		_, err := witness.Create(bounded(t), "/q", nil, embed.Persistent)
		must(t, err)
		ens.Ready(1)
		applied := 0
		for range 60 {
			s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
			p := s.Submit(bounded(t), embed.OpCreate("/q/e-", nil, embed.EphemeralSequential))
			made, err := claim.New(bounded(t), s, embed.OpCreate("/q/c-", nil, embed.EphemeralSequential))
			must(t, err)
			impatient, cancel := context.WithTimeout(bounded(t), time.Duration(rng.IntN(2000))*time.Microsecond)
			opening := make(chan error)
			go func() {
				s, err := ens.Node(1).NewSession(impatient, embed.SessionOptions{Timeout: time.Minute})
				if err == nil {
					_, err = s.Create(bounded(t), "/q/o-", nil, embed.EphemeralSequential)
					err = errors.Join(err, s.Close(), s.Close())
				} else if errors.Is(err, context.DeadlineExceeded) {
					err = nil
				}
				opening <- err
			}()
			if rng.IntN(2) == 0 {
				<-impatient.Done()
			}
			must(t, errors.Join(s.Close(), s.Close()))
			switch _, err := p.Result(); {
			case err == nil:
				applied++
			case !errors.Is(err, embed.ErrSessionClosed) && !errors.Is(err, embed.ErrUnknownOutcome):
				t.Errorf("a create of a closed session: %v", err)
			}
			if _, err := made.Hold(false); !errors.Is(err, embed.ErrSessionClosed) {
				t.Errorf("a claim of a closed session: %v", err)
			}
			must(t, made.Release())
			must(t, <-opening)
			cancel()
		}
		t.Logf("%d of 60 creates were applied before the close", applied)
		ens.Until("all of it to be gone", func() bool {
			names, _, err := witness.Children(bounded(t), "/q")
			return err == nil && len(names) == 0
		})
	})
}

// However a node ends, everyone who waits on it gets an answer: futures, syncs, watches, waiters
// and observers. (CURATOR-673, CURATOR-677, CURATOR-665, CURATOR-675: a background call whose
// client was closed meanwhile was never answered.)
func TestPeers_EverybodyIsAnsweredWhenANodeEnds(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *embedtest.Ensemble){
		"close":                    func(t *testing.T, e *embedtest.Ensemble) { must(t, e.Node(1).Close()) },
		"crash":                    func(t *testing.T, e *embedtest.Ensemble) { e.Kill(1) },
		"shutdown":                 func(t *testing.T, e *embedtest.Ensemble) { e.Stop(1) },
		"close without a quorum":   func(t *testing.T, e *embedtest.Ensemble) { e.Isolate(1); must(t, e.Node(1).Close()) },
		"crash without a quorum":   func(t *testing.T, e *embedtest.Ensemble) { e.Isolate(1); e.Kill(1) },
		"crash while others crash": func(t *testing.T, e *embedtest.Ensemble) { e.Kill(2); e.Kill(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) { everybodyIsAnswered(t, embedtest.Options{}, end) })
		})
	}
	t.Run("close with a stuck disk", func(t *testing.T) {
		t.Parallel()
		// Members write under mutexes, so a slow disk needs real time.
		everybodyIsAnswered(t, embedkit.InMemory(embedtest.Options{}), func(t *testing.T, e *embedtest.Ensemble) {
			stick(e)
			must(t, e.Node(1).Close())
		})
	})
}

func everybodyIsAnswered(t *testing.T, o embedtest.Options, end func(*testing.T, *embedtest.Ensemble)) {
	ens := embedtest.New(t, 3, o)
	n, s := ens.Node(1), ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	ctx := bounded(t)
	_, err := lock.NewMutex(s, "/lock").Lock(ctx)
	must(t, err)
	w, err := s.Watch(ctx, "/w", embed.WatchPersistent)
	must(t, err)
	var waiting sync.WaitGroup
	var answered atomic.Int64
	for i := range 4 {
		waiting.Go(func() {
			for n.Err() == nil && s.Err() == nil {
				breathe()
				var pending []*embed.Pending
				for range 300 {
					pending = append(pending, s.Submit(ctx, embed.OpCreate(fmt.Sprintf("/n-%d-", i), nil, embed.EphemeralSequential)))
				}
				for _, p := range pending {
					_, err := p.Result()
					answered.Add(1)
					if err != nil && !endings(err) {
						t.Errorf("create: %v", err)
					}
				}
			}
		})
	}
	ask := func(what string, call func() error) {
		waiting.Go(func() {
			for {
				breathe()
				if err := call(); err != nil {
					if !endings(err) {
						t.Errorf("%s: %v", what, err)
					}
					if s.Err() != nil {
						return
					}
				}
			}
		})
	}
	ask("sync", func() error { _, err := s.Sync(ctx, "/"); return err })
	ask("lock", func() error { _, err := lock.NewMutex(s, "/lock").Lock(ctx); return err })
	ask("watch", func() error {
		for range w.Events() {
		}
		return w.Err()
	})
	ask("observe", func() (last error) {
		for _, err := range election.New(s, "/election").Observe(ctx) {
			last = err
		}
		return last
	})
	ens.Until("some answers", func() bool { return answered.Load() > 500 })
	end(t, ens)
	all := make(chan struct{})
	go func() { waiting.Wait(); close(all) }()
	select {
	case <-all:
	case <-ctx.Done():
		t.Error("somebody still waits")
	}
}

// stick makes the fsyncs of member 1 stand still for longer than a call may take.
func stick(e *embedtest.Ensemble) {
	e.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: 100 * time.Millisecond})
}

// endings reports whether a call may fail with an error when its node ends.
func endings(err error) bool {
	// A request applied after its session's end says that the session expired, whatever ended it.
	return slices.ContainsFunc([]error{embed.ErrClosed, embed.ErrFailed, embed.ErrSessionClosed, embed.ErrSessionExpired, embed.ErrUnknownOutcome, embed.ErrUnavailable},
		func(end error) bool { return errors.Is(err, end) })
}

// The newest writes are on two members of three, and a bit on the disk of one of them flips. That
// member may refuse to start, or fail, or serve what it has. Everything acknowledged is there
// whenever there is a quorum, even one of that member and the member that missed the newest writes.
// (NATS 2.12: a bit that turned on one server of a minority lost what had been acknowledged,
// everywhere.)
func TestPeers_ABitThatTurnsOnAMinority(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		base := t.TempDir()
		ens := embedtest.New(t, 3, embedtest.Options{Dir: filepath.Join(base, "now")})
		ens.TransferLeadership(2)
		s := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(bounded(t), "/w", nil, embed.Persistent)
		must(t, err)
		data := make([]byte, 200)
		written := 0
		more := func() {
			for range 100 {
				_, err := s.Create(bounded(t), "/w/n-", data, embed.Sequential)
				must(t, err)
				written++
			}
		}
		more()
		ens.Isolate(1)
		more()
		for _, id := range ens.Members() {
			ens.Kill(id)
		}
		ens.HealAll()
		pristine := filepath.Join(base, "pristine")
		embedkit.CopyDir(t, filepath.Join(base, "now"), pristine)

		rng := testkit.Rand(t)
		outcomes := make(map[string]int)
		rounds := 3
		if testkit.Night() {
			rounds = 10
		}
		for range rounds {
			must(t, os.RemoveAll(filepath.Join(base, "now")))
			embedkit.CopyDir(t, pristine, filepath.Join(base, "now"))
			name, at := flipBit(t, rng, ens.Dir(3))
			ens.Start(1)
			n, err := ens.TryStart(3)
			if err == nil {
				err = serves(t, n)
			}
			if err == nil {
				outcomes["it served"]++
			} else {
				outcomes["it was refused or failed"]++
				ens.Start(2)
			}
			s := ens.Session(1, embed.SessionOptions{})
			_, syncErr := s.Sync(bounded(t), "/")
			must(t, syncErr)
			if names, _, err := s.Children(bounded(t), "/w"); err != nil || len(names) != written {
				t.Errorf("byte %d of %s: %d of %d acknowledged writes are left, %v", at, name, len(names), written, err)
			}
			ens.Kill(1)
			if err != nil {
				ens.Kill(2)
			}
			if n != nil {
				ens.Kill(3)
			}
		}
		t.Logf("%v", outcomes)
	})
}

// flipBit flips a bit of a file below dir. In a log the bit is in the first half, because damage at
// the end looks like a write that a crash cut off.
func flipBit(t *testing.T, rng *rand.Rand, dir string) (name string, at int) {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, e := d.Info(); e == nil && info.Mode().IsRegular() && info.Size() > 0 {
			files = append(files, path)
		}
		return err
	}))
	name = files[rng.IntN(len(files))]
	embedkit.Flip(t, name, func(size int) int {
		at = rng.IntN((size + 1) / 2)
		return at
	})
	return name, at
}

// serves waits until a node is ready or has failed.
func serves(t *testing.T, n *embed.Node) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(bounded(t), 5*time.Second)
	defer cancel()
	return n.Ready(ctx)
}

// One after the other, every member gets the leadership, is shut down and starts again, while
// callers use the other two. Each of their writes is applied once. None is refused, and none times
// out. (dragonboat#270: in a rolling restart proposals were dropped; dragonboat#264: those that
// were lost on their way to the leader timed out, for days.)
func TestPeers_ARollingRestartDropsNothing(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = time.Minute }})
		embedkit.Write(t, ens.Node(1), "/n")
		var acked atomic.Int64
		for _, id := range ens.Members() {
			var over atomic.Bool
			var callers sync.WaitGroup
			for _, at := range ens.Members() {
				if at == id {
					continue
				}
				s := ens.Session(at, embed.SessionOptions{Timeout: time.Minute})
				for caller := range 8 {
					callers.Go(func() {
						for i := 0; !over.Load(); i++ {
							// A second create would be refused.
							path := fmt.Sprintf("/n/%d-%d-%d-%d", id, at, caller, i)
							if _, err := s.Create(context.Background(), path, nil, embed.Persistent); err != nil {
								t.Errorf("%s: %v", path, err)
								return
							}
							acked.Add(1)
							breathe()
						}
					})
				}
			}
			ens.TransferLeadership(id)
			for _, step := range []func(){func() { ens.Stop(id) }, func() { ens.Restart(id) }, func() {}} {
				before := acked.Load()
				ens.Until("some writes", func() bool { return acked.Load() > before+50 || t.Failed() })
				step()
			}
			over.Store(true)
			callers.Wait()
		}
		t.Logf("%d writes", acked.Load())
		for _, id := range ens.Members() {
			ens.Ready(id)
			names, stat, err := ens.Session(id, embed.SessionOptions{}).Children(bounded(t), "/n")
			must(t, err)
			if n := int(acked.Load()); len(names) != n || int(stat.Cversion) != n {
				t.Errorf("member %d: %d children after %d creations, want %d", id, len(names), stat.Cversion, n)
			}
		}
	})
}
