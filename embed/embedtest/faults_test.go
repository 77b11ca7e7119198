package embedtest_test

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

// create creates a sequential znode and returns its name.
func create(t *testing.T, s *embed.Session) string {
	t.Helper()
	name, err := s.Create(bounded(t), "/job-", nil, embed.Sequential)
	must(t, err)
	return name
}

func has(t *testing.T, s *embed.Session, paths ...string) {
	t.Helper()
	_, err := s.Sync(bounded(t), "/")
	must(t, err)
	for _, path := range paths {
		if _, ok, err := s.Exists(bounded(t), path); !ok || err != nil {
			t.Errorf("%s exists: %v, %v", path, ok, err)
		}
	}
}

func failed(n *embed.Node) bool {
	select {
	case <-n.Done():
		return true
	default:
		return false
	}
}

// A leader that nobody hears is replaced, and so is a leader that hears nobody. Once the link is
// whole it follows. A leader that only a minority does not hear stays.
func TestFaults_LinkCutOneWay(t *testing.T) {
	t.Parallel()
	cut := embedtest.Link{Cut: true}
	for name, c := range map[string]struct {
		cut   func(ens *embedtest.Ensemble, leader, one, other embed.MemberID)
		stays bool
	}{
		"not heard": {cut: func(ens *embedtest.Ensemble, leader, one, other embed.MemberID) {
			ens.Faults(leader).SetLink(one, cut)
			ens.Faults(leader).SetLink(other, cut)
		}},
		"hears nobody": {cut: func(ens *embedtest.Ensemble, leader, one, other embed.MemberID) {
			ens.Faults(one).SetLink(leader, cut)
			ens.Faults(other).SetLink(leader, cut)
		}},
		"not heard by one": {stays: true, cut: func(ens *embedtest.Ensemble, leader, one, _ embed.MemberID) {
			ens.Faults(leader).SetLink(one, cut)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ens := embedtest.New(t, 3, embedtest.Options{})
				const leader, one, other = 1, 2, 3
				ens.TransferLeadership(leader)
				s := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
				term := ens.Node(leader).Status().Shards[0].Term
				c.cut(ens, leader, one, other)
				if c.stays {
					ens.Until("the member that does not hear its leader to notice", func() bool {
						return ens.Node(one).Status().Shards[0].Leader == 0
					})
					create(t, s)
					ens.HealAll()
					ens.Ready(one)
					if now := ens.Node(leader).Status().Shards[0]; now.Leader != leader || now.Term != term {
						t.Errorf("the leader was replaced: %+v, term %d before", now, term)
					}
					return
				}
				ens.Until("another to lead", func() bool { return ens.Leader() != leader })
				made := create(t, s)
				ens.HealAll()
				ens.Ready(leader)
				has(t, ens.Session(leader, embed.SessionOptions{}), made)
			})
		})
	}
}

// Nearly a third of all messages vanish, and each write is applied once.
func TestFaults_LossyLinks(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		var sessions []*embed.Session
		for _, id := range ens.Members() {
			sessions = append(sessions, ens.Session(id, embed.SessionOptions{Timeout: time.Minute}))
		}
		for _, a := range ens.Members() {
			for _, b := range ens.Members() {
				ens.Faults(a).SetLink(b, embedtest.Link{Loss: 0.3})
			}
		}
		const each = 10
		var mu sync.Mutex
		var names []string
		var wg sync.WaitGroup
		for _, s := range sessions {
			wg.Go(func() {
				for range each {
					name, err := s.Create(bounded(t), "/job-", nil, embed.Sequential)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					names = append(names, name)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		ens.HealAll()
		slices.Sort(names)
		for i, name := range names {
			if want := fmt.Sprintf("/job-%010d", i); name != want {
				t.Fatalf("create %d made %s, want %s", i, name, want)
			}
		}
		has(t, ens.Session(1, embed.SessionOptions{}), names...)
		there, _, err := ens.Session(2, embed.SessionOptions{}).Children(bounded(t), "/")
		must(t, err)
		jobs := slices.DeleteFunc(there, func(name string) bool { return name == "zookeeper" })
		if len(jobs) != 3*each {
			t.Errorf("%d znodes of %d creates", len(jobs), 3*each)
		}
	})
}

// A write crosses slow links twice, and succeeds.
func TestFaults_SlowLinks(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		leader := ens.Leader()
		s := ens.Session(leader, embed.SessionOptions{Timeout: time.Minute})
		const delay = 20 * time.Millisecond
		for _, a := range ens.Members() {
			for _, b := range ens.Members() {
				ens.Faults(a).SetLink(b, embedtest.Link{Delay: delay})
			}
		}
		for range 10 {
			began := time.Now()
			create(t, s)
			if took := time.Since(began); took < 2*delay {
				t.Errorf("a write took %v over links of %v", took, delay)
			}
		}
	})
}

// A disk that is full, does not write or does not sync fails its own member and no other. Once the
// disk works, the member comes back.
//
// It is in real time, because what a failed disk stops holds mutexes of dragonboat that others want.
func TestFaults_FailingDisk(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]embedtest.Disk{
		"full":                   {Err: syscall.ENOSPC, On: embedtest.Growth},
		"nothing can be changed": {Err: syscall.EIO},
		"nothing can be synced":  {Err: syscall.EIO, On: embedtest.Syncs, After: 3},
		"nothing can be read":    {Err: syscall.EIO, On: embedtest.Reads},
		"no descriptors":         {Err: syscall.EMFILE, On: embedtest.Descriptors},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ens := embedtest.New(t, 3, embedtest.Options{Config: embedkit.Patient})
			const victim, other = 2, 3
			s := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
			n := ens.Node(victim)
			ens.Faults(victim).SetDisk(d)
			var made []string
			ens.Until("the node to fail", func() bool { // one fsync may make several writes durable
				made = append(made, create(t, s))
				_ = ens.Snapshot(victim) // some files are read only to write a snapshot
				return failed(n)
			})
			if !errors.Is(n.Err(), d.Err) {
				t.Errorf("Err is %v, want %v", n.Err(), d.Err)
			}
			made = append(made, create(t, s))
			ens.Kill(victim)

			// A restart mends nothing.
			if n, err := ens.TryStart(victim); err == nil {
				ens.Until("the node to fail again", func() bool {
					create(t, s)
					_ = ens.Snapshot(victim)
					return failed(n)
				})
				ens.Kill(victim)
			}
			ens.Faults(victim).SetDisk(embedtest.Disk{})
			ens.Restart(victim)
			has(t, ens.Session(victim, embed.SessionOptions{}), made...)
		})
	}
}

// A disk that is full for less than Patience fails nobody. What waited for room is written later.
func TestFaults_DiskFullForAMoment(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		ens.Faults(1).SetDisk(embedtest.Disk{Err: syscall.ENOSPC, On: embedtest.Growth})
		p := s.Submit(bounded(t), embed.OpCreate("/a", nil, embed.Persistent))
		select {
		case <-p.Done():
			t.Error("a write was done without room")
		case <-time.After(embedtest.Patience / 20):
		}
		ens.Faults(1).SetDisk(embedtest.Disk{})
		_, err := p.Result()
		must(t, err)
		must(t, ens.Node(1).Err())
		has(t, s, "/a")
	})
}

// A slow disk delays calls and fails none. Once it is fast again, waiting calls go on at once.
func TestFaults_SlowDisk(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 1, embedtest.Options{Config: embedkit.Patient})
	s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	const delay = 50 * time.Millisecond
	ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: delay})
	made := ""
	for range 3 {
		began := time.Now()
		made = create(t, s)
		if took := time.Since(began); took < delay {
			t.Errorf("a write took %v on a disk of %v", took, delay)
		}
	}
	ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: time.Hour})
	p := s.Submit(bounded(t), embed.OpCreate(made+"/a", nil, embed.Persistent))
	select {
	case <-p.Done():
		t.Error("a write was done on a disk that hangs")
	case <-time.After(2 * delay):
	}
	ens.Faults(1).SetDisk(embedtest.Disk{})
	_, err := p.Result()
	must(t, err)
	must(t, ens.Node(1).Err())
}

// A member stands still for longer than its session's timeout. Its Hold is lost and another session
// gets the lock. When the member goes on, it serves again.
func TestFaults_Pause(t *testing.T) {
	t.Parallel()
	for name, leads := range map[string]bool{"leader": true, "follower": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ens := embedtest.New(t, 3, embedtest.Options{Config: embedkit.Patient})
			const victim, other = 1, 2
			if leads {
				ens.TransferLeadership(victim)
			} else {
				ens.TransferLeadership(other)
			}
			waiter := ens.Session(other, embed.SessionOptions{Timeout: time.Minute})
			var s *embed.Session
			var hold *lock.Hold
			ens.Until("a hold that lasts until the pause", func() bool { // a busy machine may end it before
				ens.Resume(victim)
				s = ens.Session(victim, embed.SessionOptions{Timeout: time.Second})
				var err error
				hold, err = lock.NewMutex(s, "/lock").Lock(bounded(t))
				if err != nil {
					return false
				}
				ens.Pause(victim)
				return hold.Err() == nil
			})
			p := s.Submit(bounded(t), embed.OpCreate("/a", nil, embed.Persistent))
			next, err := lock.NewMutex(waiter, "/lock").Lock(bounded(t))
			if hold.Err() == nil {
				t.Error("two hold the lock")
			}
			must(t, err)
			if _, err := p.Result(); err == nil {
				t.Error("a member that stands still has written")
			}
			ens.Resume(victim)
			testkit.Reaches(t, s.State, embed.Expired)
			ens.Ready(victim)
			create(t, ens.Session(victim, embed.SessionOptions{}))
			must(t, next.Err())
		})
	}
}

// What a member sends while it stands still arrives when it goes on, and not before, even if other
// members stand still meanwhile.
func TestFaults_PauseForAMoment(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{Config: embedkit.Patient})
	ens.TransferLeadership(2)
	s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	other := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	made := create(t, s)
	ens.Pause(1)
	ens.Pause(2)
	ens.Resume(2)
	p := s.Submit(bounded(t), embed.OpCreate(made+"/a", nil, embed.Persistent))
	select {
	case <-p.Done():
		t.Error("a member that stands still has written")
	case <-time.After(5 * embedtest.DefaultTick):
	}
	create(t, other)
	if _, ok, err := other.Exists(bounded(t), made+"/a"); ok || err != nil {
		t.Errorf("what a member that stands still has sent is there: %v, %v", ok, err)
	}
	ens.Resume(1)
	_, err := p.Result()
	must(t, err)
	must(t, s.Err())

	// A member that stands still can crash like any other. After its restart it does not stand
	// still.
	ens.Pause(1)
	ens.Kill(1)
	create(t, ens.Session(3, embed.SessionOptions{}))
	ens.Restart(1)
	create(t, ens.Session(1, embed.SessionOptions{}))
}

// Somebody sets the clock of one member. Its holds are lost, its sessions come back, and the other
// members go on.
func TestFaults_WallClock(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		other := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		kept, err := lock.NewMutex(other, "/other").Lock(bounded(t))
		must(t, err)
		for _, offset := range []time.Duration{time.Hour, -time.Hour, 0} {
			hold, err := lock.NewMutex(s, "/lock").Lock(bounded(t))
			must(t, err)
			ens.Faults(1).SetWallClock(offset)
			if err := hold.Err(); !errors.Is(err, embed.ErrSuspended) {
				t.Errorf("a hold after a jump to %v: %v", offset, err)
			}
			testkit.Reaches(t, s.State, embed.Connected)
			before := time.Now().Add(offset - time.Minute)
			_, stat, err := s.Get(bounded(t), create(t, s))
			must(t, err)
			if made := stat.Ctime; made.Before(before) || made.After(before.Add(2*time.Minute)) {
				t.Errorf("a znode was made at %v by a clock that is off by %v", made, offset)
			}
		}
		must(t, s.Err())
		must(t, kept.Err())
	})
}

// The machine under one member sleeps. Its holds are lost at the first question. After a short
// sleep the session still lives.
func TestFaults_Sleep(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		other := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		kept, err := lock.NewMutex(other, "/other").Lock(bounded(t))
		must(t, err)
		for timeouts, want := range map[time.Duration]embed.State{1: embed.Connected, 3: embed.Expired} {
			s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
			hold, err := lock.NewMutex(s, "/lock").Lock(bounded(t))
			must(t, err)
			ens.Faults(1).Sleep(timeouts * s.Timeout())
			if err := hold.Err(); err == nil {
				t.Errorf("a hold outlived a sleep of %d timeouts", timeouts)
			}
			testkit.Reaches(t, s.State, want)
		}
		must(t, kept.Err())
	})
}

// The virtual machine under one member pauses, and only the wall clock notices. A pause beyond the
// margin ends the hold, but not the session. The clock that stood still goes on, so that the next
// hold lasts.
func TestFaults_Freeze(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		for range 2 {
			hold, err := lock.NewMutex(s, "/lock").Lock(t.Context())
			must(t, err)
			<-time.After(20 * time.Second)
			must(t, hold.Err())
			ens.Faults(1).Freeze(true)
			ens.Pause(1)
			<-time.After(s.Timeout() / 2)
			ens.Resume(1)
			ens.Faults(1).Freeze(false)
			if err := hold.Err(); !errors.Is(err, embed.ErrSuspended) {
				t.Errorf("a hold after a pause of half a timeout: %v", err)
			}
			testkit.Reaches(t, s.State, embed.Connected)
		}
		must(t, s.Err())
	})
}

// leads waits until a member knows of a leader and returns it.
func leads(t *testing.T, n *embed.Node) embed.MemberID {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := bounded(t); ; {
		if leader := n.Status().Shards[0].Leader; leader != 0 {
			return leader
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("there is no leader")
		}
	}
}

// Members as in processes of their own: they use real connections, start with their Faults, and
// start again with the same Faults.
func TestStart(t *testing.T) {
	t.Parallel()
	// Ports that no outgoing connection occupies when a member comes back.
	addrs, err := child.FreeAddrs(3)
	must(t, err)
	members := make(map[embed.MemberID]string)
	for i, addr := range addrs {
		members[embed.MemberID(i+1)] = addr
	}
	dir := t.TempDir()
	faults, nodes := make(map[embed.MemberID]*embedtest.Faults), make(map[embed.MemberID]*embed.Node)
	start := func(id embed.MemberID) {
		t.Helper()
		cfg := embed.Config{
			Dir: filepath.Join(dir, fmt.Sprint(id)), ID: id, Members: members, Shards: shardsflag.N, Tick: embedtest.DefaultTick,
			Logger: slog.New(slog.DiscardHandler),
		}
		embedkit.Patient(&cfg)
		n, err := embedtest.Start(cfg, faults[id])
		must(t, err)
		nodes[id] = n
		t.Cleanup(func() { n.Close() })
	}
	open := func(id embed.MemberID) *embed.Session {
		t.Helper()
		s, err := nodes[id].NewSession(bounded(t), embed.SessionOptions{Timeout: time.Minute})
		must(t, err)
		return s
	}
	for id := range members {
		faults[id] = embedtest.NewFaults()
		start(id)
	}
	for _, n := range nodes {
		must(t, n.Ready(bounded(t)))
	}

	leader := leads(t, nodes[1])
	one, other := leader%3+1, (leader+1)%3+1
	cut := embedtest.Link{Cut: true}
	faults[leader].SetLink(one, cut)
	faults[leader].SetLink(other, cut)
	made := create(t, open(one))
	for _, to := range []embed.MemberID{one, other} {
		faults[leader].SetLink(to, embedtest.Link{})
	}
	has(t, open(leader), made)

	faults[one].SetDisk(embedtest.Disk{Err: syscall.ENOSPC, On: embedtest.Growth})
	made = create(t, open(other))
	select {
	case <-nodes[one].Done():
	case <-bounded(t).Done():
		t.Fatal("the node has not failed")
	}
	if err := nodes[one].Err(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Err is %v", err)
	}
	must(t, nodes[one].Close())
	faults[one].SetDisk(embedtest.Disk{})
	start(one)
	has(t, open(one), made)
}
