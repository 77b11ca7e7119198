package replication

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/lni/dragonboat/v4/raftpb"
)

// C12.3: A member is told to take over while it applies an entry that it knows to be committed.
// dragonboat ignores that. The member takes over once it has applied the entry, and nobody has to
// ask again.
func TestTakeOver_OnceWhatIsCommittedIsApplied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := found(t, 3, 1)
		var slow atomic.Pointer[node]
		gate := make(chan struct{})
		e.prepare = func(n *node) {
			n.tapes[0].onApply = func(Entry) {
				if slow.Load() == n {
					<-gate
				}
			}
		}
		e.startAll()
		e.write(e.nodes[0], 1, "warm")
		leader := e.node(awaitLeader(t, e.nodes[0], 1).Member)
		next := e.node(leader.id%3 + 1)
		slow.Store(next)
		e.write(leader, 1, "late")
		synctest.Wait() // now the successor has the commit
		var told atomic.Int64
		e.carrier.observe(func(_ string, b *raftpb.MessageBatch) {
			for _, m := range b.Requests {
				if m.Type == raftpb.TimeoutNow {
					told.Add(1)
				}
			}
		})
		began := time.Now()
		if err := leader.host.TransferLeader(1, next.id); err != nil {
			t.Fatal(err)
		}
		<-time.After(e.tick)
		if l := leader.host.Leader(1); l.Member != leader.id || told.Load() != 1 {
			t.Fatalf("the successor was told %d times, and member %d leads before that one has applied the entry", told.Load(), l.Member)
		}
		close(gate)
		for leader.host.Leader(1).Member != next.id {
			<-time.After(time.Millisecond)
			if took := time.Since(began); took > DefaultElectionTicks/2*e.tick {
				t.Fatalf("it does not lead %v after it was told", took)
			}
		}
		e.write(leader, 1, "goes on")
	})
}

// What says that the leader has given the transfer up ends the repetition, and so does time.
func TestTakeOver_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := found(t, 3, 1)
		e.startAll()
		e.write(e.nodes[0], 1, "warm")
		leader := awaitLeader(t, e.nodes[0], 1)
		n := e.nodes[leader.Member%3]
		<-time.After(e.tick) // now it has the whole log
		began := time.Now()
		var told, last atomic.Int64
		again := func() {
			told.Add(1)
			last.Store(int64(time.Since(began)))
		}
		m := raftpb.Message{Type: raftpb.TimeoutNow, ShardID: 1, Term: leader.Term}
		const half = DefaultElectionTicks / 2

		n.host.takeOver(m, again)
		n.host.takeOver(m, again) // told twice, it repeats once
		<-time.After(4 * half * e.tick)
		if took := time.Duration(last.Load()); told.Load() < 2 || told.Load() > 2*half || took > DefaultElectionTicks/takeOverShare*e.tick {
			t.Errorf("repeated %d times, last after %v", told.Load(), took)
		}

		told.Store(0)
		n.host.takeOver(m, again)
		<-time.After(e.tick)
		before := told.Load()
		e.write(n, 1, "more")
		<-time.After(half * e.tick)
		if told.Load() != before || before == 0 {
			t.Errorf("repeated %d times before the log has grown, and %d times in all", before, told.Load())
		}

		told.Store(0)
		m.Term--
		n.host.takeOver(m, again)
		<-time.After(half * e.tick)
		if told.Load() != 0 {
			t.Errorf("repeated %d times in a later term", told.Load())
		}
	})
}

// A process that stood still finds its pause and its time over at once. It does not know how long
// ago the leader gave the transfer up.
func TestTakeOver_EndsWhileTheProcessStandsStill(t *testing.T) {
	t.Parallel()
	h, s := &Host{done: make(chan struct{})}, newShard(1)
	over := make(chan time.Time)
	close(over)
	for range 100 {
		if h.stillToTakeOver(s, 1, 0, over) {
			t.Fatal("repeated after its time")
		}
	}
}

// What came in one batch with a TimeoutNow is not kept as long as that is repeated.
func TestTakeOver_KeepsOneMessage(t *testing.T) {
	t.Parallel()
	var passed []raftpb.MessageBatch
	var again func()
	in := inbound{
		check:    func(*raftpb.Message) error { return nil },
		takeOver: func(_ raftpb.Message, f func()) { again = f },
	}
	entry := func() weak.Pointer[[1 << 20]byte] {
		cmd := new([1 << 20]byte)
		in.batch(func(b raftpb.MessageBatch) { passed = append(passed, b) })(raftpb.MessageBatch{DeploymentId: 7, Requests: []raftpb.Message{
			{Type: raftpb.Replicate, ShardID: 1, Entries: []raftpb.Entry{{Cmd: cmd[:]}}},
			{Type: raftpb.TimeoutNow, ShardID: 1, Term: 3},
		}})
		return weak.Make(cmd)
	}()
	passed = nil
	runtime.GC()
	if entry.Value() != nil {
		t.Error("the other message of the batch is kept")
	}
	again()
	if len(passed) != 1 || passed[0].DeploymentId != 7 || len(passed[0].Requests) != 1 || passed[0].Requests[0].Term != 3 {
		t.Errorf("repeated as %+v", passed)
	}
}
