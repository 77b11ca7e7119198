package replication

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"
)

// newcomer adds a member to an ensemble that is open, and does not start it.
func (e *ensemble) newcomer() *node {
	n := &node{id: MemberID(len(e.nodes) + 1), later: true, dir: e.t.TempDir()}
	e.nodes = append(e.nodes, n)
	return n
}

// membership returns the members of a shard as one of them knows them.
func (e *ensemble) membership(n *node, shard ShardID) (m Membership) {
	e.t.Helper()
	eventually(e.t, "the members", func() bool {
		var err error
		m, err = n.host.Membership(e.t.Context(), shard)
		return err == nil
	})
	return m
}

// leading returns the member that leads a shard, as it says itself.
func (e *ensemble) leading(shard ShardID) (leader *node) {
	e.t.Helper()
	eventually(e.t, "a leader", func() bool {
		i := slices.IndexFunc(e.nodes, func(n *node) bool { return n.host != nil && n.host.Leads(shard) })
		if i >= 0 {
			leader = e.nodes[i]
		}
		return i >= 0
	})
	return leader
}

// change changes the members of a shard, whoever leads it.
func (e *ensemble) change(shard ShardID, kind ChangeKind, of MemberID) {
	e.t.Helper()
	eventually(e.t, fmt.Sprintf("change %d of member %d", kind, of), func() bool {
		leader := e.leading(shard)
		m, err := leader.host.Membership(e.t.Context(), shard)
		if err != nil {
			return false
		}
		if in := map[ChangeKind][]MemberID{AddLearner: m.Learners, Promote: m.Voters, Remove: m.Removed}[kind]; slices.Contains(in, of) {
			return true
		}
		err = leader.host.Change(shard, Change{kind, of, m.Change})
		if err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNotLeader) {
			e.t.Fatal(err)
		}
		return false
	})
}

// M8: a newcomer learns, then votes, then leads, and the founder that began alone is removed. Each
// can be stopped and started again at every step. What was written is on all of them. No leader
// removes itself.
func TestMembership_OneBecomesThreeAndTheFounderGoes(t *testing.T) {
	t.Parallel()
	const shards = 2
	e := found(t, 1, shards)
	e.alone = false
	e.startAll()
	written := 0
	write := func(n *node) {
		for shard := range ShardID(shards) {
			written++
			e.write(n, shard+1, fmt.Sprint("write ", written))
		}
	}
	again := func(n *node) {
		e.stop(n)
		e.start(n)
		write(n)
	}
	write(e.node(1))
	for id := MemberID(2); id <= 3; id++ {
		n := e.newcomer()
		for shard := range ShardID(shards) {
			e.change(shard+1, AddLearner, id)
		}
		e.start(n)
		write(n)
		again(n)
	}
	for shard := range ShardID(shards) {
		m := e.membership(e.node(3), shard+1)
		if want := (Membership{m.Change, []MemberID{1}, []MemberID{2, 3}, nil}); !reflect.DeepEqual(m, want) {
			t.Fatalf("members %+v, want %+v", m, want)
		}
		for id := MemberID(2); id <= 3; id++ {
			e.change(shard+1, Promote, id)
		}
	}
	for _, n := range e.nodes {
		again(n)
	}
	e.same(t)
	for shard := range ShardID(shards) {
		eventually(t, "another leader", func() bool {
			if !e.node(1).host.Leads(shard + 1) {
				return e.node(1).host.Leader(shard+1).Member > 1
			}
			if err := e.node(1).host.Change(shard+1, Change{Kind: Remove, Member: 1}); !errors.Is(err, ErrSelf) && !errors.Is(err, ErrNotLeader) {
				t.Errorf("a leader removes itself: %v", err)
			}
			_ = e.node(1).host.TransferLeader(shard+1, 2)
			return false
		})
	}
	e.stop(e.node(1))
	for shard := range ShardID(shards) {
		e.change(shard+1, Remove, 1)
	}
	e.nodes = e.nodes[1:]
	for _, n := range e.nodes {
		again(n)
		m := e.membership(n, 1)
		if want := (Membership{m.Change, []MemberID{2, 3}, nil, []MemberID{1}}); !reflect.DeepEqual(m, want) {
			t.Errorf("members %+v, want %+v", m, want)
		}
	}
	e.same(t)
}

// M9, M10: a change that names another one than the newest does nothing, and nobody but the leader
// proposes.
func TestMembership_ChangesAreOrdered(t *testing.T) {
	e := found(t, 3, 1)
	e.startAll()
	leader := e.leading(1)
	before := e.membership(leader, 1)
	for _, n := range e.nodes {
		if err := n.host.Change(1, Change{AddLearner, 4, before.Change - 1}); n == leader && err != nil || n != leader && !errors.Is(err, ErrNotLeader) {
			t.Errorf("member %d: %v", n.id, err)
		}
	}
	e.write(leader, 1, "behind the change")
	if after := e.membership(leader, 1); !reflect.DeepEqual(after, before) {
		t.Fatalf("members %+v, want %+v", after, before)
	}
	e.change(1, AddLearner, 4)
	e.change(1, Remove, 4)
	after := e.membership(e.node(1), 1)
	if want := (Membership{after.Change, []MemberID{1, 2, 3}, nil, []MemberID{4}}); !reflect.DeepEqual(after, want) {
		t.Fatalf("members %+v, want %+v", after, want)
	}

	// Without a quorum nobody knows the members, and the question ends.
	e.stop(e.node(1))
	e.stop(e.node(2))
	ctx, cancel := context.WithTimeout(t.Context(), 5*e.tick)
	defer cancel()
	if m, err := e.node(3).host.Membership(ctx, 1); err == nil {
		t.Errorf("alone it knows of %+v", m)
	}
}

// M64: a voter that is alone commits an entry as soon as it appends it, and sends both to its
// learners before the entry is on its disk. If it died then, it would begin another history, and the
// learners would have applied an entry that is not in it. So no commit travels before its entry is
// saved.
func TestMembership_ALoneVoterTellsOnlyWhatItHasSaved(t *testing.T) {
	t.Parallel()
	e := found(t, 1, 1)
	e.alone = false
	var slow atomic.Bool
	early := make(chan raftpb.Message, 1)
	overtake := func(string) {
		if !slow.Load() {
			return
		}
		select {
		case m := <-early:
			early <- m
		case <-time.After(20 * time.Millisecond): // for a message that does not wait for the disk
		}
	}
	e.newDisk = func(string) testDisk {
		d := newPlainDisk(t)
		if len(e.nodes) == 1 {
			d.onSync = overtake
		}
		return d
	}
	e.startAll()
	lone := e.node(1)
	e.change(1, AddLearner, 2)
	learner := e.newcomer()
	e.start(learner)
	e.write(learner, 1, "warm")
	e.carrier.observe(func(_ string, b *raftpb.MessageBatch) {
		for _, m := range b.Requests {
			if m.Type != raftpb.Replicate {
				continue
			}
			if _, last := lone.host.store.shard(1).progress(); m.Commit > last {
				select {
				case early <- m:
				default:
				}
			}
		}
	})
	slow.Store(true)
	for i := range 10 {
		e.write(learner, 1, fmt.Sprint("write ", i))
	}
	slow.Store(false)
	select {
	case m := <-early:
		t.Errorf("the learner heard that entry %d is committed before the lone voter had saved it", m.Commit)
	default:
	}
}

// M59: a question for the members that nobody answers does not hold up Close, and ends with it.
func TestMembership_EndsWithTheHost(t *testing.T) {
	e := found(t, 3, 1)
	e.startAll()
	leader := e.leading(1)
	for _, n := range e.nodes {
		if n != leader {
			e.stop(n) // without a quorum the question waits
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	asked, host := make(chan error, 1), leader.host
	go func() {
		_, err := host.Membership(ctx, 1)
		asked <- err
	}()
	s := host.shards[0]
	eventually(t, "the question", func() bool { return len(s.reading) > 0 || len(asked) > 0 })
	e.stop(leader)
	err := <-asked
	slow := errors.Is(err, ErrNoLeader) || errors.Is(err, context.DeadlineExceeded) // it was over before the stop
	if !slow && !errors.Is(err, ErrClosed) {
		t.Errorf("the question ended with %v, want %v", err, ErrClosed)
	}
}

// M154: whoever asks often for the members does not keep others from an answer.
func TestMembership_TakesTurns(t *testing.T) {
	e := found(t, 3, 1)
	e.startAll()
	leader := e.leading(1)
	var asking sync.WaitGroup
	for range 16 {
		asking.Go(func() {
			if _, err := leader.host.Membership(t.Context(), 1); err != nil && !errors.Is(err, ErrNoLeader) {
				t.Error(err)
			}
		})
	}
	asking.Wait()
}

// M48: one that others may join is not tuned for being alone: its elections take as long as theirs,
// and it keeps a log for them.
func TestMembership_OneThatOthersMayJoinIsNotAlone(t *testing.T) {
	settings := func(alone bool) []uint64 {
		e := found(t, 1, 1)
		e.alone = alone
		h := newHost(e.config(e.nodes[0]).withDefaults())
		return []uint64{uint64(h.heartbeatTicks()), uint64(h.electionTicks()), h.keepEntries, uint64(h.keepBytes)}
	}
	if got, want := settings(false), []uint64{2, DefaultElectionTicks, keepEntries, keepBytes}; !slices.Equal(got, want) {
		t.Errorf("its ticks, and what it keeps, are %v, want %v", got, want)
	}
	if got, want := settings(true), []uint64{1, 3, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("those of one that is alone for ever are %v, want %v", got, want)
	}
}
