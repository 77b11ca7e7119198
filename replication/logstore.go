package replication

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// logStore is tan with five things mended.
//
// dragonboat leaves Update.State empty when it has not changed, and tan takes that for a changed term and vote:
// it would fsync once more after every commit. So the last saved State is filled in; a changed term or vote is
// always in the Update itself and is still synced, and a commit index needs no fsync.
//
// tan fsyncs "the current file" without its lock, so a snapshot record that switches to a new file in between
// would lose the fsync or close the file under it. So all writes go one at a time. One lock for all shards
// costs little: there is one step worker, which saves all shards in one call and waits for all of them.
//
// Once the switch is thrown writes end in parking, see contain.go. They never fail.
type logStore struct {
	raftio.ILogDB
	disk Disk

	write rank.Mutex[rank.LogWrite] // held while tan writes
	// Guarded by write.
	scratch []raftpb.Update

	mu struct {
		rank.Mutex[rank.LogShards]
		shards map[uint64]*shardLog
	}
}

// shardLog is what the store knows of a shard's log.
type shardLog struct {
	committed atomic.Uint64 // newest command known to be committed
	saved     raftpb.State  // last State saved; guarded by logStore.write

	mu struct {
		rank.Mutex[rank.ShardLog]
		stop  <-chan struct{} // closed when the shard is stopped; nil before its machine was opened
		saves uint64          // of entries, so far
		asked place           // whose term was asked for last, since the last of the saves
		held  Held            // what is known to be committed, without the entry's term
		last  uint64          // index of the last entry

		// Index of the newest snapshot that was received. What tan has up to it may be a tail that it replaced.
		received uint64

		snapshot raftpb.Snapshot // the newest record of one that was saved or read
	}
}

// noteSnapshot notes a record of a snapshot.
func (l *shardLog) noteSnapshot(ss raftpb.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ss.Index > l.mu.snapshot.Index {
		l.mu.snapshot = ss
	}
	if !ss.Dummy { // one of our own is a mere record
		l.mu.received = max(l.mu.received, ss.Index)
	}
}

func (l *shardLog) snapshot() raftpb.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.snapshot
}

// A place in the log has a term. The zero value is of none.
type place struct{ index, term uint64 }

// term returns an entry's term, zero if it is not known, and how many saves of entries there were.
func (l *shardLog) term(index uint64) (term, saves uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.asked.index == index {
		term = l.mu.asked.term
	}
	return term, l.mu.saves
}

// noteTerm notes what was read of an entry, if no entries were saved since there were so many saves of them.
func (l *shardLog) noteTerm(e raftpb.Entry, saves uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.saves == saves {
		l.mu.asked = place{e.Index, e.Term}
	}
}

// forgetTerm is told of other entries in the log: an entry that was there may have another term now.
func (l *shardLog) forgetTerm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.saves++
	l.mu.asked = place{}
}

// logFactory makes the NodeHost's log store and keeps hold of it.
type logFactory struct {
	disk  Disk
	store *logStore // set by Create
}

var _ config.LogDBFactory = (*logFactory)(nil)

// Create opens tan in dirs.
func (f *logFactory) Create(c config.NodeHostConfig, cb config.LogDBCallback, dirs, wals []string) (raftio.ILogDB, error) {
	db, err := tan.Factory.Create(c, cb, dirs, wals)
	if err != nil {
		return nil, err
	}
	f.store = newLogStore(db, f.disk)
	return f.store, nil
}

// Name is the log's type as dragonboat records it.
func (f *logFactory) Name() string { return tan.Factory.Name() }

func newLogStore(db raftio.ILogDB, d Disk) *logStore {
	s := &logStore{ILogDB: db, disk: d}
	s.mu.shards = make(map[uint64]*shardLog)
	return s
}

func (s *logStore) shard(id uint64) *shardLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.shards[id]
	if l == nil {
		l = &shardLog{}
		s.mu.shards[id] = l
	}
	return l
}

// opened tells the store the channel that is closed when the shard is stopped.
func (s *logStore) opened(shard uint64, stop <-chan struct{}) {
	l := s.shard(shard)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.stop = stop
}

// stopping returns a channel that is closed when the shards are stopped, nil before the first machine was opened. The
// NodeHost stops all of them before it waits for anything.
func (s *logStore) stopping() <-chan struct{} {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.mu.shards {
		l.mu.Lock()
		stop := l.mu.stop
		l.mu.Unlock()
		if stop != nil {
			return stop
		}
	}
	return nil
}

// park ends a piece of work for shards.
func (s *logStore) park(err error, shards ...uint64) {
	for _, id := range shards {
		l := s.shard(id)
		l.mu.Lock()
		stop := l.mu.stop
		l.mu.Unlock()
		parking{disk: s.disk, stop: stop}.afterWork(err)
	}
}

// ReadRaftState reads a shard's last State and the extent of its log.
func (s *logStore) ReadRaftState(shard, replica, last uint64) (raftio.RaftState, error) {
	s.write.Lock()
	defer s.write.Unlock()
	rs, err := s.ILogDB.ReadRaftState(shard, replica, last)
	s.shard(shard).forgetTerm() // a replica starts here, and it may be another one than before
	if err == nil {
		s.shard(shard).saved = rs.State
		s.shard(shard).noteFound(rs, last)
	}
	return rs, s.afterRead(err)
}

// newestCommitted is the index of the newest command that a shard's log knows to be committed, zero if there is none. It is asked before
// the replica is started.
func (s *logStore) newestCommitted(shard, replica uint64) (index uint64, err error) {
	err = guard(func() error {
		s.write.Lock()
		defer s.write.Unlock()
		ss, err := s.ILogDB.GetSnapshot(shard, replica)
		if err != nil {
			return err
		}
		rs, err := s.ILogDB.ReadRaftState(shard, replica, ss.Index)
		if err != nil {
			return err
		}
		index = ss.OnDiskIndex // the image has that
		for i := rs.State.Commit; i > ss.Index && rs.EntryCount > 0; i-- {
			found, _, err := s.ILogDB.IterateEntries(nil, 0, shard, replica, i, i+1, readBytes)
			if err != nil {
				return err
			}
			if len(found) == 0 || isCommand(&found[0]) {
				index = max(index, i)
				break
			}
		}
		return nil
	})
	if errors.Is(err, raftio.ErrNoSavedLog) {
		return 0, nil
	}
	return index, err
}

// GetSnapshot reads a shard's newest snapshot record. If it cannot be read, who drops older snapshots is content with
// the one that is remembered, and does not keep Close.
func (s *logStore) GetSnapshot(shard, replica uint64) (raftpb.Snapshot, error) {
	l := s.shard(shard)
	ss, err := s.ILogDB.GetSnapshot(shard, replica)
	if err == nil {
		l.noteSnapshot(ss)
		return ss, nil
	}
	if known := l.snapshot(); known.Index > 0 && !guarded() {
		s.disk.Fail(fmt.Errorf("reading the raft log: %w", err))
		return known, nil
	}
	return ss, s.afterRead(err)
}

// One read of entries ends after this many entries, or when it has more than this many bytes. A leader reads what a member
// lacks anew for each of its answers, on the one step worker, and tan opens the file again for every record: for a member
// that comes back after a pause, with dozens of answers queued, it would be silent for longer than an election. And again in the
// next term: a silent leader owes all the heartbeats it has missed, and each is answered.
const (
	readEntries = 64
	readBytes   = 1 << 20
)

// IterateEntries reads entries of a shard from low on, up to high, at least one. It ends early at its own limits as at
// maxSize, and dragonboat asks for the rest when it needs it: a size above maxSize says that there is more.
func (s *logStore) IterateEntries(ents []raftpb.Entry, size, shard, replica, low, high, maxSize uint64) ([]raftpb.Entry, uint64, error) {
	// A size of zero is how dragonboat asks for an entry's term, and it looks at nothing else of the entry. It asks for the last one's with
	// each message of an election, if only for a line of a log that nobody reads: if that means to read some MiB each time, an election
	// takes longer on a busy machine than its timeout, and none is ever won.
	var saves uint64
	asksTerm := maxSize == 0 && high == low+1
	if asksTerm {
		var term uint64
		if term, saves = s.shard(shard).term(low); term > 0 {
			return append(ents, raftpb.Entry{Index: low, Term: term}), size, nil
		}
	}
	end, limit := min(high, low+readEntries), min(maxSize, readBytes)
	read := func() ([]raftpb.Entry, uint64, error) {
		return s.ILogDB.IterateEntries(ents, size, shard, replica, low, end, limit)
	}
	found, foundSize, err := read()
	if err != nil {
		// tan reads on behind the last entry, where the snapshot worker may have written the first half of a record.
		s.write.Lock()
		found, foundSize, err = read()
		s.write.Unlock()
	}
	ents, size = found, foundSize
	if err == nil && len(ents) > 0 {
		next := ents[len(ents)-1].Index + 1
		if next < high && (next == end || size > limit) {
			size = max(size, maxSize+1)
		}
		if asksTerm {
			s.shard(shard).noteTerm(ents[0], saves)
		}
	}
	return ents, size, s.afterRead(err)
}

// afterRead hands the error of a read on where it can be told: to a goroutine of ours, while a shard is started.
// dragonboat's own have no answer to it but a panic, so the switch is thrown and the goroutine ends here: there
// are no entries it could go on with. Close then ends by its timeout.
func (s *logStore) afterRead(err error) error {
	if err == nil || errors.Is(err, raftio.ErrNoSavedLog) || guarded() {
		return err
	}
	s.disk.Fail(fmt.Errorf("reading the raft log: %w", err))
	select {}
}

// SaveRaftState saves what is new in updates. It never fails.
func (s *logStore) SaveRaftState(updates []raftpb.Update, worker uint64) error {
	err := guard(func() error { return s.save(updates, worker) })
	if err == nil && !isClosed(s.disk.Failed()) {
		s.noteCommitted(updates)
		return nil
	}
	s.park(err, shardsOf(updates)...)
	return nil
}

func (s *logStore) save(updates []raftpb.Update, worker uint64) error {
	s.write.Lock()
	defer s.write.Unlock()
	filled := s.fill(updates)
	defer clear(filled) // the scratch must not keep entries alive
	if len(filled) == 0 {
		return nil
	}
	defer s.forgetTerms(filled) // also of what was saved before an error
	if err := s.ILogDB.SaveRaftState(filled, worker); err != nil {
		return err
	}
	for _, u := range filled {
		if !raftpb.IsEmptyState(u.State) {
			s.shard(u.ShardID).saved = u.State
		}
		s.shard(u.ShardID).noteSnapshot(u.Snapshot) // one that was received
		s.shard(u.ShardID).noteSaved(&u)
	}
	return nil
}

// forgetTerms is told that entries may have been saved. Not before: a read in between would be remembered.
func (s *logStore) forgetTerms(updates []raftpb.Update) {
	for i := range updates {
		if len(updates[i].EntriesToSave) > 0 {
			s.shard(updates[i].ShardID).forgetTerm()
		}
	}
}

// fill returns copies of the updates that have something to save, each with a State. The caller's slice is not
// touched: dragonboat still reads it.
func (s *logStore) fill(updates []raftpb.Update) []raftpb.Update {
	s.scratch = s.scratch[:0]
	for _, u := range updates {
		if raftpb.IsEmptyState(u.State) {
			if len(u.EntriesToSave) == 0 && raftpb.IsEmptySnapshot(u.Snapshot) {
				continue
			}
			u.State = s.shard(u.ShardID).saved
		}
		s.scratch = append(s.scratch, u)
	}
	return s.scratch
}

func (s *logStore) noteCommitted(updates []raftpb.Update) {
	for i := range updates {
		entries := updates[i].CommittedEntries
		for j := len(entries) - 1; j >= 0; j-- {
			if isCommand(&entries[j]) {
				s.shard(updates[i].ShardID).committed.Store(entries[j].Index)
				break
			}
		}
	}
}

// isCommand says whether an entry reaches the machine: not the empty entry of a new leader, nor a change of
// members.
func isCommand(e *raftpb.Entry) bool {
	return (e.Type == raftpb.ApplicationEntry || e.Type == raftpb.EncodedEntry) && len(e.Cmd) > 0
}

func shardsOf(updates []raftpb.Update) []uint64 {
	ids := make([]uint64, len(updates))
	for i := range updates {
		ids[i] = updates[i].ShardID
	}
	return ids
}

// SaveSnapshots records snapshots. It never fails.
func (s *logStore) SaveSnapshots(updates []raftpb.Update) error {
	err := s.serially(func() error { return s.ILogDB.SaveSnapshots(updates) })
	for i := range updates {
		s.shard(updates[i].ShardID).noteSnapshot(updates[i].Snapshot)
	}
	s.park(err, shardsOf(updates)...)
	return nil
}

// RemoveEntriesTo drops a shard's entries up to index. It never fails.
func (s *logStore) RemoveEntriesTo(shard, replica, index uint64) error {
	s.park(s.serially(func() error { return s.ILogDB.RemoveEntriesTo(shard, replica, index) }), shard)
	return nil
}

// RemoveNodeData removes a stopped replica. dragonboat calls it under the NodeHost's lock, which Close needs:
// it does not park.
func (s *logStore) RemoveNodeData(shard, replica uint64) error {
	return s.serially(func() error {
		defer s.forget(shard)
		return s.ILogDB.RemoveNodeData(shard, replica)
	})
}

// ImportSnapshot starts a replica's log anew from a snapshot. It is used on a store no NodeHost runs on.
func (s *logStore) ImportSnapshot(snapshot raftpb.Snapshot, replica uint64) error {
	return s.serially(func() error {
		defer s.forget(snapshot.ShardID)
		return s.ILogDB.ImportSnapshot(snapshot, replica)
	})
}

// forget drops what the store knows of a log that is another one now, or partly so after an error.
func (s *logStore) forget(shard uint64) {
	l := s.shard(shard)
	l.saved = raftpb.State{}
	l.noteFound(raftio.RaftState{}, 0)
	l.forgetTerm()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.snapshot = raftpb.Snapshot{}
}

func (s *logStore) serially(work func() error) error {
	s.write.Lock()
	defer s.write.Unlock()
	return guard(work)
}
