package replication

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// survivor makes an ensemble of three voters and a learner, writes, and loses all of it but one
// directory.
func survivor(t *testing.T, shards int, compacted bool) (e *ensemble, voter, learner *node) {
	e = found(t, 3, shards)
	e.startAll()
	learner = e.newcomer()
	for shard := range ShardID(shards) {
		e.change(shard+1, AddLearner, learner.id)
	}
	e.start(learner)
	for shard := range ShardID(shards) {
		for _, n := range e.nodes {
			e.write(n, shard+1, fmt.Sprintf("write of %d", n.id))
			if compacted {
				e.compact(n, shard+1)
			}
		}
	}
	e.same(t)
	for _, n := range e.nodes {
		e.stop(n)
	}
	return e, e.node(1), learner
}

// compact makes a snapshot of a shard, and cuts the log of a node that keeps nothing for others.
func (e *ensemble) compact(n *node, shard ShardID) {
	e.t.Helper()
	n.host.keepEntries, n.host.keepBytes = 1, 0
	if err := n.host.RequestSnapshot(shard); err != nil {
		e.t.Fatal(err)
	}
	eventually(e.t, "a snapshot", func() bool {
		ss, err := n.host.store.ILogDB.GetSnapshot(uint64(shard), uint64(n.id))
		return err == nil && ss.Index > 0
	})
}

// view returns the config of a stopped node, whose directory is not changed through it.
func (e *ensemble) view(n *node) Config {
	e.t.Helper()
	d, err := disk.Open(files.OS, n.dir)
	if err != nil {
		e.t.Fatal(err)
	}
	c := e.config(n)
	c.Disk = d.View()
	return c
}

// remains returns what a stopped node has.
func (e *ensemble) remains(n *node, shard ShardID) Remains {
	e.t.Helper()
	r, err := ReadRemains(e.view(n), shard, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// appendTail writes entries to the log of a stopped node: commands, and the admission of another
// member. A leader has sent them, and nobody has heard yet whether they are committed.
func (e *ensemble) appendTail(n *node, shard ShardID, newcomer MemberID, cmds ...string) {
	e.t.Helper()
	c := e.config(n)
	c.Disk = realDisk(e.t)(n.dir)
	err := withLog(c, shard, nil, func(l *offlineLog) error {
		cc := raftpb.ConfigChange{ConfigChangeId: l.roll.change, Type: raftpb.AddNonVoting, ReplicaID: uint64(newcomer), Address: UUID(e.digest, newcomer)}
		entries := []raftpb.Entry{{Type: raftpb.ConfigChangeEntry, Term: l.state.Term, Index: l.last + 1, Cmd: raftpb.MustMarshal(&cc)}}
		for i, cmd := range cmds {
			entries = append(entries, raftpb.Entry{Type: raftpb.EncodedEntry, Term: l.state.Term, Index: l.last + 2 + uint64(i), Key: 7, ClientID: 7, Cmd: append([]byte{0}, cmd...)})
		}
		return l.db.SaveRaftState([]raftpb.Update{{ShardID: l.shard, ReplicaID: l.replica, State: l.state, EntriesToSave: entries}}, 1)
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// recoverNode recovers a stopped node, and starts it as the only one.
func (e *ensemble) recoverNode(n *node) {
	e.t.Helper()
	c := e.config(n)
	c.Disk = realDisk(e.t)(n.dir)
	for shard := range ShardID(e.shards) {
		if err := Recover(c, shard+1); err != nil {
			e.t.Fatal(err)
		}
	}
	e.nodes = []*node{n}
	e.start(n)
}

// M30: a voter or a learner goes on alone, with everything in its log, whether it was committed or
// not. Others can join it, and vote. It may be recovered again.
func TestRecover(t *testing.T) {
	t.Parallel()
	const shards, stranger = 2, 9
	for _, compacted := range []bool{false, true} {
		for _, who := range []string{"voter", "learner"} {
			if compacted != (who == "learner") && !testkit.Night() {
				continue
			}
			t.Run(fmt.Sprintf("%s/compacted=%v", who, compacted), func(t *testing.T) {
				t.Parallel()
				e, n, learner := survivor(t, shards, compacted)
				if who == "learner" {
					n = learner
				}
				var lost []MemberID
				for shard := range ShardID(shards) {
					e.appendTail(n, shard+1, stranger, "tail 1", "tail 2")
					r := e.remains(n, shard+1)
					want := Membership{r.Members.Change, []MemberID{1, 2, 3}, []MemberID{4, stranger}, nil}
					if !reflect.DeepEqual(r.Members, want) || r.Last < r.Committed+3 {
						t.Fatalf("before: %+v, want members %+v", r, want)
					}
					lost = slices.DeleteFunc([]MemberID{1, 2, 3, 4, stranger}, func(m MemberID) bool { return m == n.id })
				}
				e.recoverNode(n)
				for shard := range ShardID(shards) {
					e.write(n, shard+1, "alone")
					for _, cmd := range []string{"tail 1", "tail 2", "alone"} {
						if times := n.tapes[shard].times(cmd); times != 1 {
							t.Errorf("%q was applied %d times", cmd, times)
						}
					}
					m := e.membership(n, shard+1)
					if want := (Membership{m.Change, []MemberID{n.id}, nil, lost}); !reflect.DeepEqual(m, want) {
						t.Errorf("members %+v, want %+v", m, want)
					}
				}
				next := &node{id: 10, later: true, dir: t.TempDir()}
				e.nodes = append(e.nodes, next)
				for shard := range ShardID(shards) {
					e.change(shard+1, AddLearner, next.id)
				}
				e.start(next)
				for shard := range ShardID(shards) {
					e.write(next, shard+1, "of the newcomer")
					e.change(shard+1, Promote, next.id)
					e.write(next, shard+1, "of the voter")
				}
				e.same(t)
				e.stop(n)
				e.stop(next)
				e.recoverNode(next)
				e.write(next, 1, "alone again")
			})
		}
	}
}

// M30: the disk fails at each call of a recovery that changes it. A second run finishes it, or
// finds it done, and nothing in the log is lost.
func TestRecover_AtAnyCall(t *testing.T) {
	t.Parallel()
	e, n, _ := survivor(t, 2, false)
	e.appendTail(n, 1, 9, "tail")
	source := n.dir
	step := int64(1)
	if !testkit.Night() {
		step = 4
	}
	done := false
	for at := int64(1); !done; at += step {
		n.dir = filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(n.dir, os.DirFS(source)); err != nil {
			t.Fatal(err)
		}
		before := e.remains(n, 1)
		n.disk = realDisk(t)(n.dir)
		failAt(n, at)
		c := e.config(n)
		err := Recover(c, 1)
		switch {
		case err == nil:
			done = true
		case !errors.Is(err, errInjected):
			t.Fatalf("call %d: %v", at, err)
		}
		if after := e.remains(n, 1); after.Last < before.Last || len(after.Members.Voters) != 1 && !reflect.DeepEqual(after, before) {
			t.Fatalf("call %d leaves %+v of %+v", at, after, before)
		}
		if !done && at%9 != 0 { // to start it takes time
			c.Disk = realDisk(t)(n.dir)
			if err := Recover(c, 1); err != nil {
				t.Fatalf("after call %d: %v", at, err)
			}
			if after := e.remains(n, 1); after.Last != before.Last || after.Committed != after.Last || len(after.Members.Voters) != 1 {
				t.Fatalf("a second run after call %d leaves %+v of %+v", at, after, before)
			}
			continue
		}
		e.recoverNode(n)
		e.write(n, 1, "alone")
		if times := n.tapes[0].times("tail"); times != 1 {
			t.Fatalf("call %d: the tail was applied %d times", at, times)
		}
		e.stop(n)
		if done {
			t.Logf("%d calls", at-1)
			if at < 3 {
				t.Error("nothing was written")
			}
		}
	}
}

// A recovery that was done changes nothing more.
func TestRecover_Again(t *testing.T) {
	t.Parallel()
	e, n, _ := survivor(t, 1, false)
	c := e.config(n)
	c.Disk = realDisk(t)(n.dir)
	if err := Recover(c, 1); err != nil {
		t.Fatal(err)
	}
	first := e.remains(n, 1)
	c.Disk = realDisk(t)(n.dir)
	if err := Recover(c, 1); err != nil {
		t.Fatal(err)
	}
	if second := e.remains(n, 1); !reflect.DeepEqual(first, second) {
		t.Errorf("%+v, then %+v", first, second)
	}
}

// Who was removed from a shard, or has not been added by what its log holds, cannot go on with it.
func TestRecover_HasNoPart(t *testing.T) {
	t.Parallel()
	e, n, learner := survivor(t, 1, false)
	c := e.config(n)
	c.Disk = realDisk(t)(n.dir)
	err := withLog(c, 1, nil, func(l *offlineLog) error {
		for _, out := range []uint64{2, 1} { // its own removal is the last entry
			cc := raftpb.ConfigChange{ConfigChangeId: l.roll.change, Type: raftpb.RemoveNode, ReplicaID: out}
			e := raftpb.Entry{Type: raftpb.ConfigChangeEntry, Term: l.state.Term, Index: l.last + 1, Cmd: raftpb.MustMarshal(&cc)}
			if err := l.db.SaveRaftState([]raftpb.Update{{ShardID: 1, ReplicaID: 1, State: l.state, EntriesToSave: []raftpb.Entry{e}}}, 1); err != nil {
				return err
			}
			l.last++
			l.roll.accept(cc, l.last)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Recover(c, 1); !errors.Is(err, ErrNotPart) {
		t.Errorf("removed: %v", err)
	}
	learner.dir = t.TempDir()
	if _, err := ReadRemains(e.view(learner), 1, nil); !errors.Is(err, ErrLog) {
		t.Errorf("empty: %v", err)
	}
	if names, err := fs.Glob(os.DirFS(learner.dir), "*"); err != nil || len(names) > 0 {
		t.Errorf("a look has made %v (%v)", names, err)
	}
}
