package replication

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// Remains are what one directory has of a shard whose other members may be lost.
type Remains struct {
	// Term and Last are the term and the index of the last entry that the member had as part of its
	// ensemble. What Recover has written does not count.
	Term, Last uint64
	Committed  uint64 // index of the newest entry that the log knows to be committed
	// Members are those after the last entry, whether it is committed or not.
	Members Membership
}

// ReadRemains returns what the log of a shard holds. It calls each for every command, if each is not
// nil, with whether the log knows it to be committed. It opens the log through c.Disk and changes
// files, as CheckLog does, so give it a View. It does not look for damage; CheckLog does.
func ReadRemains(c Config, shard ShardID, each func(e Entry, committed bool) error) (r Remains, err error) {
	err = withLog(c, shard, each, func(l *offlineLog) error { r = l.remains(); return nil })
	return r, err
}

// Recover makes this member the only one of a shard. The caller holds the directory's lock, and has
// checked the log. Recover may be interrupted at any time and called again. It does nothing if it
// has been done.
//
// It writes one record behind the last entry: changes that let this member vote and remove all
// others, and a state in which everything up to them is committed. So the next start applies all
// that the log holds, with the entries that were not known to be committed. Some of them may have
// been acknowledged, and nobody is left to tell which.
func Recover(c Config, shard ShardID) error {
	c = c.withDefaults()
	if err := prepareRaftDir(c); err != nil { // what was never synced must be, before it counts as committed
		return err
	}
	err := withLog(c, shard, nil, func(l *offlineLog) error { return l.seclude(UUID(c.Digest, c.Member)) })
	return errors.Join(err, c.Disk.Err())
}

// An offlineLog is the log of one shard, opened without a Host.
type offlineLog struct {
	db             raftio.ILogDB
	shard, replica uint64
	state          raftpb.State
	term, last     uint64 // of the last entry
	roll           roll   // after it
	had            logEnd // of the log without what Recover has written
}

// A logEnd is where a log ends: the term and the index of an entry.
type logEnd struct{ term, last uint64 }

// withLog opens the log of a shard and reads all of it.
func withLog(c Config, shard ShardID, each func(e Entry, committed bool) error, work func(l *offlineLog) error) (err error) {
	bridge.set()
	c = c.withDefaults()
	dir, exists, err := logDir(c)
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("%w: shard %d in %s: there is no log", ErrLog, shard, c.Dir)
	}
	files := newFileSystem(c.Disk)
	defer func() { err = errors.Join(err, files.closeAll()) }()
	err = guard(func() (err error) {
		if err := cutTails(c.Disk, dir, func(string, int64) {}); err != nil {
			return err
		}
		nhc := config.NodeHostConfig{Expert: config.ExpertConfig{FS: files, LogDB: logConfig()}}
		db, err := tan.Factory.Create(nhc, nil, []string{dir}, []string{dir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		l := &offlineLog{db: db, shard: uint64(shard), replica: uint64(c.Member)}
		if err := l.read(each); err != nil {
			return err
		}
		return work(l)
	})
	if err != nil {
		return fmt.Errorf("shard %d in %s: %w", shard, dir, err)
	}
	return nil
}

// read reads the state, the last entry and all changes of the members. It calls each for commands.
func (l *offlineLog) read(each func(e Entry, committed bool) error) error {
	ss, err := l.db.GetSnapshot(l.shard, l.replica)
	if err != nil {
		return err
	}
	rs, err := l.db.ReadRaftState(l.shard, l.replica, ss.Index)
	if errors.Is(err, raftio.ErrNoSavedLog) {
		return fmt.Errorf("%w: it has no entries", ErrLog)
	}
	if err != nil {
		return err
	}
	l.state, l.term, l.last = rs.State, ss.Term, ss.Index
	l.state.Commit = max(l.state.Commit, ss.Index)
	l.roll = newRoll(ss.Membership)
	l.had = logEnd{ss.Term, ss.Index}
	if rs.EntryCount == 0 {
		return nil
	}
	for next, end := rs.FirstIndex, rs.FirstIndex+rs.EntryCount; next < end; next = l.last + 1 {
		entries, _, err := l.db.IterateEntries(nil, 0, l.shard, l.replica, next, end, checkBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return fmt.Errorf("%w: entry %d is missing", ErrLog, next)
		}
		for _, e := range entries {
			// A leader begins its term with an entry that is no change of the members. Recover does not.
			if e.Type != raftpb.ConfigChangeEntry || e.Term == l.had.term {
				l.had = logEnd{e.Term, e.Index}
			}
			l.term, l.last = e.Term, e.Index
			if err := l.roll.apply(e); err != nil {
				return err
			}
			if each == nil || e.Type != raftpb.EncodedEntry || len(e.Cmd) == 0 {
				continue
			}
			cmd := appendUnmasked(nil, e.Cmd[1:]) // for the first byte see checkEntry
			if err := each(Entry{Index: e.Index, Cmd: cmd}, e.Index <= l.state.Commit); err != nil {
				return fmt.Errorf("entry %d: %w", e.Index, err)
			}
		}
	}
	return nil
}

func (l *offlineLog) remains() Remains {
	return Remains{Term: l.had.term, Last: l.had.last, Committed: min(l.state.Commit, l.had.last), Members: l.roll.membership()}
}

// seclude appends the record of Recover. target is this member's name.
func (l *offlineLog) seclude(target string) error {
	if err := l.roll.mayStay(l.replica); err != nil {
		return err
	}
	state := raftpb.State{Term: l.state.Term + 1, Vote: l.replica, Commit: l.last}
	var entries []raftpb.Entry
	change := func(cc raftpb.ConfigChange) {
		state.Commit++
		cc.ConfigChangeId = l.roll.change
		cmd := raftpb.MustMarshal(&cc)
		entries = append(entries, raftpb.Entry{Type: raftpb.ConfigChangeEntry, Term: state.Term, Index: state.Commit, Cmd: cmd})
		l.roll.accept(cc, state.Commit)
	}
	if l.roll.learners[l.replica] { // before the last voter goes: dragonboat panics where nobody votes
		change(raftpb.ConfigChange{Type: raftpb.AddNode, ReplicaID: l.replica, Address: target})
	}
	for _, other := range l.roll.others(l.replica) {
		change(raftpb.ConfigChange{Type: raftpb.RemoveNode, ReplicaID: other})
	}
	if len(entries) == 0 && l.state.Commit == l.last {
		return nil
	}
	return l.db.SaveRaftState([]raftpb.Update{{ShardID: l.shard, ReplicaID: l.replica, State: state, EntriesToSave: entries}}, 1)
}

// A roll is the membership of a shard, computed from its log by dragonboat's rules.
type roll struct {
	change                    uint64 // index of the newest change
	voters, learners, removed map[uint64]bool
}

func newRoll(m raftpb.Membership) roll {
	r := roll{m.ConfigChangeId, make(map[uint64]bool), make(map[uint64]bool), make(map[uint64]bool)}
	for id := range m.Addresses {
		r.voters[id] = true
	}
	for id := range m.NonVotings {
		r.learners[id] = true
	}
	for id := range m.Removed {
		r.removed[id] = true
	}
	return r
}

// apply applies an entry, which may be a change of the members.
func (r *roll) apply(e raftpb.Entry) error {
	if e.Type != raftpb.ConfigChangeEntry {
		return nil
	}
	var cc raftpb.ConfigChange
	if err := cc.Unmarshal(e.Cmd); err != nil {
		return fmt.Errorf("%w: entry %d: %w", ErrLog, e.Index, err)
	}
	r.accept(cc, e.Index)
	return nil
}

// accept carries out a change, unless it comes out of its order or cannot be. Names need no look: a
// member's name follows from its id.
func (r *roll) accept(cc raftpb.ConfigChange, index uint64) {
	id := cc.ReplicaID
	if cc.ConfigChangeId != r.change && !cc.Initialize || r.removed[id] && cc.Type != raftpb.RemoveNode {
		return
	}
	switch cc.Type {
	case raftpb.AddNode:
		if r.voters[id] {
			return
		}
		r.voters[id] = true
		delete(r.learners, id)
	case raftpb.AddNonVoting:
		if r.voters[id] || r.learners[id] {
			return
		}
		r.learners[id] = true
	case raftpb.RemoveNode:
		if r.voters[id] && len(r.voters) == 1 {
			return
		}
		delete(r.voters, id)
		delete(r.learners, id)
		r.removed[id] = true
	default:
		return // witnesses, which nobody adds
	}
	r.change = index
}

// mayStay returns why a member cannot be the only one of the shard, or nil.
func (r *roll) mayStay(id uint64) error {
	switch {
	case r.removed[id]:
		return fmt.Errorf("%w: member %d was removed from it", ErrNotPart, id)
	case !r.voters[id] && !r.learners[id]:
		return fmt.Errorf("%w: the log does not reach to where member %d was added", ErrNotPart, id)
	}
	return nil
}

// others returns all members but one, sorted.
func (r *roll) others(id uint64) []uint64 {
	all := slices.AppendSeq(slices.Collect(maps.Keys(r.voters)), maps.Keys(r.learners))
	slices.Sort(all)
	return slices.DeleteFunc(all, func(m uint64) bool { return m == id })
}

func (r *roll) membership() Membership {
	return Membership{Change: r.change, Voters: ids(r.voters), Learners: ids(r.learners), Removed: ids(r.removed)}
}
