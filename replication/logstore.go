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

// logStore is tan with these changes:
//
//   - It fills in Update.State. dragonboat leaves it empty when it has not changed, and tan treats
//     that as a changed term and vote. tan would fsync once more after every commit. A changed term
//     or vote is always in the Update itself and is still synced; a commit index needs no fsync.
//   - It makes one call of a log at a time. tan fsyncs "the current file" without its lock. A
//     snapshot record that switches to a new file in between would lose the fsync or close the file.
//     A read beyond the last entry would find half a record there. One lock for all shards costs
//     little: there is one step worker, which saves all shards in one call and waits for all of them.
//   - A write never fails. Once the switch is thrown it ends in parking; see contain.go.
//   - A read of entries is short; see readEntries. The term of the last entry comes from memory;
//     see IterateEntries.
//   - A read that fails throws the switch; see afterRead.
type logStore struct {
	raftio.ILogDB
	disk Disk

	turn rank.LongMutex[rank.LogTurn] // held while tan reads or writes a log
	// Guarded by turn.
	scratch []raftpb.Update

	mu struct {
		rank.Mutex[rank.LogShards]
		shards map[uint64]*shardLog
	}
}

// shardLog is what the store knows about a shard's log.
type shardLog struct {
	committed atomic.Uint64 // newest command known to be committed
	saved     raftpb.State  // last State saved; guarded by logStore.turn

	mu struct {
		rank.Mutex[rank.ShardLog]
		stop  <-chan struct{} // closed when the shard is stopped; nil before its machine was opened
		asked place           // the entry whose term was read last; empty after each save
		held  Held            // what is known to be committed, without the term and checksum of the entry
		last  uint64          // index of the last entry
		grows chan struct{}   // closed when more is saved; nil if nobody waits for that
		sent  place           // how far this node has sent the log in the newest term that it led

		// Index of the newest snapshot that was received. Entries up to it that tan still has may
		// be a tail that the snapshot replaced.
		received uint64

		snapshot raftpb.Snapshot // the newest snapshot record that was saved or read
	}
}

// noteSnapshot records a snapshot record.
func (l *shardLog) noteSnapshot(ss raftpb.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ss.Index > l.mu.snapshot.Index {
		l.mu.snapshot = ss
	}
	if !ss.Dummy { // a snapshot of our own is only a record
		l.mu.received = max(l.mu.received, ss.Index)
	}
}

func (l *shardLog) snapshot() raftpb.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.snapshot
}

// A place is an entry's index and term. The zero value means none.
type place struct{ index, term uint64 }

// term returns an entry's term, or zero if it is not known.
func (l *shardLog) term(index uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.asked.index == index {
		return l.mu.asked.term
	}
	return 0
}

// noteTerm records the term of an entry that was read, in the turn of the read.
func (l *shardLog) noteTerm(e raftpb.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.asked = place{e.Index, e.Term}
}

// forgetTerm forgets the remembered term when entries are saved, because an entry may then have
// another term.
func (l *shardLog) forgetTerm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.asked = place{}
}

// logFactory creates the NodeHost's log store and keeps it.
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

// Name returns the log's type as dragonboat records it.
func (f *logFactory) Name() string { return tan.Factory.Name() }

func newLogStore(db raftio.ILogDB, d Disk) *logStore {
	s := &logStore{ILogDB: db, disk: d, turn: rank.NewLongMutex[rank.LogTurn]()}
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

// opened records the channel that is closed when the shard is stopped.
func (s *logStore) opened(shard uint64, stop <-chan struct{}) {
	l := s.shard(shard)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.stop = stop
}

// stopping returns a channel that is closed when the shards are stopped. It returns nil before the
// first machine was opened. The NodeHost stops all shards before it waits for anything.
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

// park does afterWork for a piece of work on several shards.
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
	var rs raftio.RaftState
	err := s.inTurn(func() (err error) {
		rs, err = s.ILogDB.ReadRaftState(shard, replica, last)
		s.shard(shard).forgetTerm() // a replica starts here, and its log may differ from the last one
		if err == nil {
			s.shard(shard).saved = rs.State
			s.shard(shard).noteFound(rs, last)
		}
		return err
	})
	return rs, s.afterRead(err)
}

// newestCommitted returns the index of the newest command that a shard's log knows to be committed,
// or zero. It is called before the replica is started.
func (s *logStore) newestCommitted(shard, replica uint64) (index uint64, err error) {
	err = s.serially(func() error {
		ss, err := s.ILogDB.GetSnapshot(shard, replica)
		if err != nil {
			return err
		}
		rs, err := s.ILogDB.ReadRaftState(shard, replica, ss.Index)
		if err != nil {
			return err
		}
		index = ss.OnDiskIndex // the image has the commands up to it
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

// GetSnapshot reads a shard's newest snapshot record. If the read fails, it returns the record that
// it remembers. That is enough to remove older snapshots, and it does not delay Close.
func (s *logStore) GetSnapshot(shard, replica uint64) (raftpb.Snapshot, error) {
	l := s.shard(shard)
	var ss raftpb.Snapshot
	err := s.inTurn(func() (err error) {
		ss, err = s.ILogDB.GetSnapshot(shard, replica)
		return err
	})
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

// One read of entries ends after readEntries, or when it has more than readBytes. For each answer
// of a member that lags, the leader reads the missing entries again, on the one step worker. tan
// opens the file again for every record. A member that returns after a pause has dozens of answers
// queued, and the leader would be silent for longer than an election. The next term would be no
// better: a silent leader owes all the heartbeats it has missed, and each is answered.
const (
	readEntries = 64
	readBytes   = 1 << 20
)

// IterateEntries reads at least one entry of a shard, from low up to high. It ends at its own
// limits as it ends at maxSize. dragonboat then asks for the rest when it needs it, because a size
// above maxSize means more entries.
func (s *logStore) IterateEntries(ents []raftpb.Entry, size, shard, replica, low, high, maxSize uint64) ([]raftpb.Entry, uint64, error) {
	// With a maxSize of zero dragonboat asks for an entry's term, and looks at nothing else of the
	// entry. It asks for the last entry's term with each message of an election, only to log it. If
	// each of these reads took some MiB, an election on a busy machine would take longer than its
	// timeout, and no member would win.
	asksTerm := maxSize == 0 && high == low+1
	if asksTerm {
		if term := s.shard(shard).term(low); term > 0 {
			return append(ents, raftpb.Entry{Index: low, Term: term}), size, nil
		}
	}
	end, limit := min(high, low+readEntries), min(maxSize, readBytes)
	err := s.inTurn(func() (err error) {
		ents, size, err = s.ILogDB.IterateEntries(ents, size, shard, replica, low, end, limit)
		if err == nil && asksTerm && len(ents) > 0 {
			s.shard(shard).noteTerm(ents[0])
		}
		return err
	})
	if err == nil && len(ents) > 0 {
		next := ents[len(ents)-1].Index + 1
		if next < high && (next == end || size > limit) {
			size = max(size, maxSize+1)
		}
	}
	return ents, size, s.afterRead(err)
}

// afterRead handles the error of a read. On a goroutine of ours, while a shard is started, it
// returns the error. dragonboat's own goroutines would panic. So afterRead throws the switch and
// keeps the goroutine, because it has no entries to go on with. Close then ends by its timeout.
func (s *logStore) afterRead(err error) error {
	if err == nil || errors.Is(err, raftio.ErrNoSavedLog) || guarded() {
		return err
	}
	s.disk.Fail(fmt.Errorf("reading the raft log: %w", err))
	select {}
}

// SaveRaftState saves the new parts of updates. It never fails.
func (s *logStore) SaveRaftState(updates []raftpb.Update, worker uint64) error {
	err := s.serially(func() error { return s.save(updates, worker) })
	if err == nil && !isClosed(s.disk.Failed()) {
		s.noteCommitted(updates)
		return nil
	}
	s.park(err, shardsOf(updates)...)
	return nil
}

// save is called in turn.
func (s *logStore) save(updates []raftpb.Update, worker uint64) error {
	filled := s.fill(updates)
	defer clear(filled) // the scratch slice must not keep entries alive
	if len(filled) == 0 {
		return nil
	}
	defer s.forgetTerms(filled) // also for entries that were saved before an error
	if err := s.ILogDB.SaveRaftState(filled, worker); err != nil {
		return err
	}
	for _, u := range filled {
		if !raftpb.IsEmptyState(u.State) {
			s.shard(u.ShardID).saved = u.State
		}
		s.shard(u.ShardID).noteSnapshot(u.Snapshot) // a received one
		s.shard(u.ShardID).noteSaved(&u)
	}
	return nil
}

// forgetTerms is called after entries may have been saved.
func (s *logStore) forgetTerms(updates []raftpb.Update) {
	for i := range updates {
		if len(updates[i].EntriesToSave) > 0 {
			s.shard(updates[i].ShardID).forgetTerm()
		}
	}
}

// fill returns copies of the updates that have something to save, each with a State. It does not
// change the caller's slice, which dragonboat still reads.
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

// isCommand reports whether an entry reaches the machine. A new leader's empty entry and a change
// of members do not.
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

// RemoveEntriesTo removes a shard's entries up to index. It never fails.
func (s *logStore) RemoveEntriesTo(shard, replica, index uint64) error {
	s.park(s.serially(func() error { return s.ILogDB.RemoveEntriesTo(shard, replica, index) }), shard)
	return nil
}

// RemoveNodeData removes a stopped replica. dragonboat calls it under the NodeHost's lock. Close
// needs that lock, so RemoveNodeData does not park.
func (s *logStore) RemoveNodeData(shard, replica uint64) error {
	return s.unlessFailed(func() error {
		defer s.forget(shard)
		return s.ILogDB.RemoveNodeData(shard, replica)
	})
}

// ImportSnapshot begins a replica's log again from a snapshot. It is used on a store without a
// NodeHost.
func (s *logStore) ImportSnapshot(snapshot raftpb.Snapshot, replica uint64) error {
	return s.serially(func() error {
		defer s.forget(snapshot.ShardID)
		return s.ILogDB.ImportSnapshot(snapshot, replica)
	})
}

// forget removes what the store knows about a log that was replaced, perhaps partly because of an
// error.
func (s *logStore) forget(shard uint64) {
	l := s.shard(shard)
	l.saved = raftpb.State{}
	l.noteFound(raftio.RaftState{}, 0)
	l.forgetTerm()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.snapshot = raftpb.Snapshot{}
}

var errNoTurn = errors.New("the node has failed while the raft log was read or written")

// inTurn calls tan while nothing else does.
func (s *logStore) inTurn(call func() error) error {
	s.turn.Lock(nil)
	defer s.turn.Unlock()
	return call()
}

// serially is inTurn for a call whose panic is an error.
func (s *logStore) serially(call func() error) error {
	return s.inTurn(func() error { return guard(call) })
}

// unlessFailed is serially for calls that Close waits for before it stops the shards. When the node
// fails, the goroutine that has the turn may stay in tan until then: see fileSystem.afterRead. So
// unlessFailed does not wait for it.
func (s *logStore) unlessFailed(call func() error) error {
	if !s.turn.Lock(s.disk.Failed()) {
		return errNoTurn
	}
	defer s.turn.Unlock()
	return guard(call)
}
