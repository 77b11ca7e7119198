package replication

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// realDisk opens a disk as nodes have it.
func realDisk(t testing.TB) func(dir string) testDisk {
	return func(dir string) testDisk {
		d, err := disk.Open(files.OS, dir)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

var errInjected = errors.New("injected")

// failAt throws the switch of a node at its n-th mutating call from now.
func failAt(n *node, at int64) {
	var calls atomic.Int64
	n.disk.(*disk.Disk).SetFault(func(disk.Op, string) error {
		if calls.Add(1) == at {
			return errInjected
		}
		return nil
	})
}

// closes checks that a failed node ends quickly and leaves nothing behind.
func closes(t *testing.T, n *node) {
	t.Helper()
	host := n.host
	n.host = nil
	if err := host.Close(patience); err != nil {
		stacks := make([]byte, 1<<20)
		t.Fatalf("close: %v\n%s", err, stacks[:runtime.Stack(stacks, true)])
	}
}

// C1.1, C1.2, C1.4: The n-th mutating call of one of three members fails, while all members write
// and make snapshots. The process and the other members go on. The failed member ends, and
// afterwards no acknowledged write is missing.
func TestFrozenDisk_AtAnyCall(t *testing.T) {
	t.Parallel()
	points := []int64{1, 8, 21, 144, 377}
	if testkit.Night() {
		points = []int64{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610}
	}
	for _, at := range points {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			frozenAt(t, at)
		})
	}
}

func frozenAt(t *testing.T, at int64) {
	e := found(t, 3, 1)
	e.newDisk = realDisk(t)
	e.startAll()
	for i, n := range e.nodes {
		e.write(n, 1, fmt.Sprintf("warm-%d", i))
	}
	victim := e.node(awaitLeader(t, e.nodes[0], 1).Member)
	if at%2 == 0 {
		victim = e.nodes[victim.id%3] // not the leader
	}
	failAt(victim, at)

	stop := make(chan struct{})
	var acked sync.Map
	var wg sync.WaitGroup
	for _, n := range e.nodes {
		wg.Go(func() { writeUntil(e, n, stop, &acked) })
	}
	select {
	case <-victim.disk.Failed():
	case <-time.After(patience):
		t.Fatalf("call %d was never made", at)
	}
	others := slicesWithout(e.nodes, victim)
	for i, n := range others {
		e.write(n, 1, fmt.Sprintf("without-%d", i))
	}
	close(stop)
	wg.Wait()

	if _, err := victim.host.Propose(1, []byte("x")); !errors.Is(err, ErrFailed) {
		t.Errorf("propose on the failed node: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := victim.host.Barrier(ctx, 1, time.Minute); !errors.Is(err, ErrFailed) {
		t.Errorf("barrier on the failed node: %v", err)
	}
	closes(t, victim)
	if !victim.tapes[0].closed {
		t.Error("machine of the failed node is not closed")
	}

	// The disk is repaired: the directory is what a crash would have left.
	e.start(victim)
	e.write(victim, 1, "again")
	e.same(t)
	acked.Range(func(cmd, _ any) bool {
		if others[0].tapes[0].times(cmd.(string)) == 0 {
			t.Errorf("%q was applied somewhere and is lost", cmd)
		}
		return true
	})
}

// writeUntil writes on n, sometimes requests a snapshot, and records the applied commands.
func writeUntil(e *ensemble, n *node, stop <-chan struct{}, acked *sync.Map) {
	host, m := n.host, n.tapes[0]
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if i%10 == 0 {
			_ = host.RequestSnapshot(1)
		}
		cmd := fmt.Sprintf("%d/%d", n.id, i)
		p, err := host.Propose(1, []byte(cmd))
		if errors.Is(err, ErrFailed) {
			return
		}
		if err != nil {
			<-time.After(time.Millisecond) // nobody leads
			continue
		}
		if e.appliedUnless(m, cmd, p, host.cfg.Disk.Failed()) {
			acked.Store(cmd, true)
		}
	}
}

// slicesWithout returns the nodes without one of them.
func slicesWithout(nodes []*node, out *node) []*node {
	var rest []*node
	for _, n := range nodes {
		if n != out {
			rest = append(rest, n)
		}
	}
	return rest
}

// C1.4: A member that is alone commits all that its log store reports as saved. Once the switch is
// thrown it applies nothing more.
func TestFrozenDisk_SingleMemberAppliesNothingMore(t *testing.T) {
	t.Parallel()
	random := testkit.Rand(t)
	for range 6 {
		e := found(t, 1, 1)
		e.newDisk = realDisk(t)
		n := e.nodes[0]
		var late atomic.Int64
		e.prepare = func(n *node) {
			n.tapes[0].onApply = func(Entry) {
				if isClosed(n.disk.Failed()) {
					late.Add(1)
				}
			}
		}
		e.start(n)
		e.write(n, 1, "warm")
		failAt(n, 1+random.Int64N(40))
		for i := 0; !isClosed(n.disk.Failed()); i++ {
			_, _ = n.host.Propose(1, fmt.Appendf(nil, "%d", i))
		}
		m := n.tapes[0]
		closes(t, n)
		// Commands saved before the switch was thrown may be applied at that moment. Later ones may
		// not.
		if late.Load() > 0 {
			t.Logf("%d commands saved before the switch were applied after it", late.Load())
		}
		applied := m.state().count

		e.prepare = nil
		e.start(n)
		e.barrier(n, 1)
		if got := n.tapes[0].state().count; got < applied {
			t.Fatalf("%d commands after the restart, %d were applied before", got, applied)
		}
		e.stop(n)
	}
}

// C1.8: Our own code on dragonboat's goroutines must not end the process either.
func TestMachine_PanicsAndErrorsFailTheNode(t *testing.T) {
	boom := func(Entry) { panic("boom") }
	for name, c := range map[string]struct {
		prepare func(n *node)
		act     func(n *node)
		want    string
	}{
		"apply panics": {
			func(n *node) { n.tapes[0].onApply = boom },
			func(n *node) { _, _ = n.host.Propose(1, []byte("x")) }, "boom"},
		"sync fails": {
			func(n *node) { n.tapes[0].onSync = func() error { return errInjected } },
			func(n *node) { _, _ = n.host.Propose(1, []byte("x")); _ = n.host.RequestSnapshot(1) }, "injected"},
		"sync panics": {
			func(n *node) { n.tapes[0].onSync = func() error { panic("boom") } },
			func(n *node) { _, _ = n.host.Propose(1, []byte("x")); _ = n.host.RequestSnapshot(1) }, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			e := found(t, 1, 1)
			e.newDisk = realDisk(t)
			e.prepare = c.prepare
			n := e.nodes[0]
			e.start(n)
			eventually(t, "failure", func() bool { c.act(n); return isClosed(n.disk.Failed()) })
			if err := n.disk.Err(); !strings.Contains(err.Error(), c.want) {
				t.Errorf("the switch was thrown by %v, want %q", err, c.want)
			}
			closes(t, n)
		})
	}
}

// If the switch is thrown during a write of the log, the write may have reached memory only, although
// it reports no error. Nothing may follow from it, so it does not return before the shard is stopped.
func TestLogStore_AWriteThatThrowsTheSwitchDoesNotReturn(t *testing.T) {
	commit := raftpb.Update{ShardID: 1, ReplicaID: 1, State: raftpb.State{Term: 1, Commit: 1},
		CommittedEntries: entriesOf(1, 1, 1, "ours")}
	for name, write := range map[string]func(*logStore) error{
		"entries":    func(s *logStore) error { return s.SaveRaftState([]raftpb.Update{commit}, 1) },
		"a snapshot": func(s *logStore) error { return s.SaveSnapshots([]raftpb.Update{commit}) },
		"a removal":  func(s *logStore) error { return s.RemoveEntriesTo(1, 1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, stop, returned := newPlainDisk(t), make(chan struct{}), make(chan struct{})
				s := newLogStore(&failingLog{disk: d}, d)
				s.opened(1, stop)
				go func() {
					defer close(returned)
					if err := write(s); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
				if !isClosed(d.Failed()) || isClosed(returned) {
					t.Errorf("failed %v, returned %v", isClosed(d.Failed()), isClosed(returned))
				}
				if n := s.shard(1).committed.Load(); n != 0 {
					t.Errorf("command %d counts as committed", n)
				}
				close(stop)
				<-returned
			})
		})
	}
}

// A failingLog throws the switch during each write, and reports no error.
type failingLog struct {
	raftio.ILogDB
	disk Disk
}

func (l *failingLog) SaveRaftState([]raftpb.Update, uint64) error { return l.fail() }
func (l *failingLog) SaveSnapshots([]raftpb.Update) error         { return l.fail() }
func (l *failingLog) RemoveEntriesTo(_, _, _ uint64) error        { return l.fail() }

func (l *failingLog) fail() error {
	l.disk.Fail(errInjected)
	return nil
}

// A log that cannot be read fails the node. dragonboat's goroutine has nothing to go on with, so it
// stops there. On a goroutine of ours, while a shard is started, it is an ordinary error.
func TestLogStore_UnreadableLogFailsTheNode(t *testing.T) {
	d := newPlainDisk(t)
	s := newLogStore(&unreadableLog{}, d)
	err := guard(func() error { _, err := s.GetSnapshot(1, 1); return err })
	if !errors.Is(err, errInjected) || d.Err() != nil {
		t.Errorf("on our goroutine: %v, disk %v", err, d.Err())
	}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, _, _ = s.IterateEntries(nil, 0, 1, 1, 1, 2, 0)
	}()
	<-d.Failed()
	if !errors.Is(d.Err(), errInjected) || isClosed(returned) {
		t.Errorf("on dragonboat's: disk %v, returned %v", d.Err(), isClosed(returned))
	}
}

type unreadableLog struct{ raftio.ILogDB }

func (unreadableLog) GetSnapshot(_, _ uint64) (raftpb.Snapshot, error) {
	return raftpb.Snapshot{}, errInjected
}
func (unreadableLog) IterateEntries(e []raftpb.Entry, _, _, _, _, _, _ uint64) ([]raftpb.Entry, uint64, error) {
	return e, 0, errInjected
}

// If the disk fails while a host is opened, Open returns the error and leaves nothing running.
func TestOpen_DiskFails(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	e.start(n)
	e.write(n, 1, "x")
	e.stop(n)
	goroutines, open := runtime.NumGoroutine(), descriptors(t)
	opened := false
	for at := int64(1); !opened; at++ {
		n.disk = realDisk(t)(n.dir)
		failAt(n, at)
		h, err := Open(e.config(n))
		switch {
		case err == nil:
			opened = true
			if err := h.Close(patience); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, errInjected):
			t.Errorf("call %d: %v", at, err)
		}
		eventually(t, "end of all goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
		if now := descriptors(t); now > open {
			t.Fatalf("call %d: %d descriptors, %d before", at, now, open)
		}
	}
	e.newDisk = realDisk(t)
	e.start(n)
	e.barrier(n, 1)
	if got := n.tapes[0].state().count; got != 1 {
		t.Errorf("%d commands are left", got)
	}
}

// A transport that cannot start is an ordinary error.
func TestOpen_TransportFails(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	n.disk = newPlainDisk(t)
	goroutines := runtime.NumGoroutine()
	c := e.config(n)
	c.Transport = deadFactory{}
	if _, err := Open(c); !errors.Is(err, errInjected) {
		t.Errorf("open: %v", err)
	}
	eventually(t, "end of all goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
	e.start(n)
	e.write(n, 1, "x")
}

type deadFactory struct{}

func (f deadFactory) Factory() config.TransportFactory { return f }
func (deadFactory) Shut()                              {}
func (deadFactory) Validate(string) bool               { return true }
func (deadFactory) Create(config.NodeHostConfig, raftio.MessageHandler, raftio.ChunkHandler) raftio.ITransport {
	return deadTransport{}
}

type deadTransport struct{ raftio.ITransport }

func (deadTransport) Name() string { return "dead" }
func (deadTransport) Start() error { return errInjected }
func (deadTransport) Close() error { return nil }
