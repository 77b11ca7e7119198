package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// Held is what a member knows to be committed in a shard's log. The zero value means nothing.
type Held struct {
	Term       uint64 // the term in which it learned that, or a later one
	Commit     uint64 // index of the newest entry that it knows to be committed
	CommitTerm uint64 // the term of that entry; zero if the log no longer has it
	CommitSum  uint64 // checksum of that entry
}

// Held returns what this node knows to be committed in a shard. It counts only what is already
// saved. It reads the log, and a read waits for its turn. So a member that waits for its disk answers
// no handshake.
func (h *Host) Held(id ShardID) (held Held) {
	_ = h.call(func() error {
		held, _ = h.store.shard(uint64(id)).progress()
		held.CommitTerm, held.CommitSum = h.store.entryAt(uint64(id), uint64(h.cfg.Member), held.Commit)
		return nil
	})
	return held
}

// Contradicts reports whether this node's log shows that a committed entry was lost: another member
// knows the entry to be committed, and this log has a different entry in its place. It returns the
// index and the term of that different entry. Raft alone never causes this. Some member's log was
// put back to an earlier state.
//
// It looks for a breach of one of three rules:
//   - A leader has all entries that were committed in earlier terms, and adds its own behind them.
//   - An entry that two members know to be committed is the same on both.
//   - A term has one leader, so entries with the same index and term are equal. A member that has
//     forgotten its vote can break this.
func (h *Host) Contradicts(id ShardID, other Held) (index, term uint64, yes bool) {
	_ = h.call(func() error {
		own, last := h.store.shard(uint64(id)).progress()
		index = min(other.Commit, last)
		var sum uint64
		term, sum = h.store.entryAt(uint64(id), uint64(h.cfg.Member), index)
		switch {
		case term > other.Term:
			yes = true
		case index != other.Commit || other.CommitTerm == 0 || term == 0:
		case term != other.CommitTerm:
			yes = other.Commit <= own.Commit
		default:
			yes = sum != other.CommitSum
		}
		return nil
	})
	return index, term, yes
}

// entryAt reads the term and the checksum of an entry. Both are zero if the log lacks the entry or
// cannot read it.
//
// tan keeps the entries that a received snapshot replaces until that snapshot is installed. Some of
// those entries were never committed, so they count as lacking.
func (s *logStore) entryAt(shard, replica, index uint64) (term, sum uint64) {
	if index <= s.shard(shard).replaced() {
		return 0, 0
	}
	_ = s.unlessFailed(func() error {
		found, _, err := s.ILogDB.IterateEntries(nil, 0, shard, replica, index, index+1, 0)
		if err == nil && len(found) > 0 {
			term, sum = found[0].Term, entrySum(&found[0])
		}
		return err
	})
	return term, sum
}

// entrySum returns a checksum that tells apart entries of the same index and term.
func entrySum(e *raftpb.Entry) uint64 {
	key := binary.BigEndian.AppendUint64(nil, e.Key)
	return uint64(crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, e.Cmd))
}

// contradiction returns an error if a message of Raft shows that committed entries were lost.
// dragonboat itself does not notice.
func (s *logStore) contradiction(m *raftpb.Message) error {
	switch m.Type {
	case raftpb.Replicate:
		return s.overwritten(m)
	case raftpb.ReplicateResp:
		return s.unsent(m)
	}
	return nil
}

// overwritten returns an error if a leader's message has different entries in place of some that
// this node knows to be committed. The rules are those of Contradicts. dragonboat would answer that
// it has all these entries, and the leader would believe that they are its own.
func (s *logStore) overwritten(m *raftpb.Message) error {
	if len(m.Entries) == 0 {
		return nil
	}
	held, _ := s.shard(m.ShardID).progress()
	var last *raftpb.Entry // the last one that is committed here
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Index > held.Commit {
			break
		}
		if e.Term > held.Term {
			return contradictionError(m, e, held)
		}
		last = e
	}
	if last == nil {
		return nil
	}
	// Few messages have such an entry, so reading it is affordable.
	term, sum := s.entryAt(m.ShardID, m.To, last.Index)
	isCurrent := m.Term >= held.Term // an earlier leader has not heard yet what was committed since
	if term == last.Term && sum != entrySum(last) || term != last.Term && term != 0 && isCurrent {
		return contradictionError(m, last, held)
	}
	return nil
}

// unsent returns an error if a follower acknowledges more than this node has sent as the leader of
// that term. A follower acknowledges what it was sent, or, if it knows of later commits, all of
// these, and a leader has every commit. So another leader of the same term has committed them: some
// member has forgotten its vote. This leader would count the answer for entries of its own that the
// follower does not have.
func (s *logStore) unsent(m *raftpb.Message) error {
	l := s.shard(m.ShardID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent := max(l.mu.sent.index, l.mu.last); !m.Reject && m.Term == l.mu.sent.term && m.LogIndex > sent {
		return fmt.Errorf("shard %d: member %d has entries up to %d, and this member has led term %d and has sent none after %d: another leader of that term has committed them, and acknowledged writes are lost here, because the directory of some member was put back to an earlier state, or its log has lost its end (docs/runbook.md: Two histories)",
			m.ShardID, m.From, m.LogIndex, m.Term, sent)
	}
	return nil
}

// hold is called with messages that are about to be sent. It records how far a leader's log reaches
// in them, and waits until all commits in them are saved. It returns false if they never will be.
//
// A leader sends entries before it saves them. Their commit comes with a later message, unless the
// leader is the only voter. Then dragonboat commits an entry when it appends it, and sends entry and
// commit together. If the leader died before it saved them, it would begin another history, and the
// learners would have applied an entry that is not in it.
func (s *logStore) hold(ctx context.Context, messages []raftpb.Message) bool {
	for i := range messages {
		m := &messages[i]
		if m.Type != raftpb.Replicate {
			continue // dragonboat sends all others after it has saved what they say
		}
		l := s.shard(m.ShardID)
		l.noteSent(place{index: m.LogIndex + uint64(len(m.Entries)), term: m.Term})
		for saved := l.untilSaved(m.Commit); saved != nil; saved = l.untilSaved(m.Commit) {
			select {
			case <-saved:
			case <-s.disk.Failed():
				return false
			case <-ctx.Done():
				return false
			}
		}
	}
	return true
}

// untilSaved returns nil if the log is saved up to an entry. Otherwise it returns a channel that is
// closed when more is saved.
func (l *shardLog) untilSaved(index uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index <= l.mu.last {
		return nil
	}
	if l.mu.grows == nil {
		l.mu.grows = make(chan struct{})
	}
	return l.mu.grows
}

func (l *shardLog) noteSent(to place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent := l.mu.sent; to.term > sent.term || to.term == sent.term && to.index > sent.index {
		l.mu.sent = to
	}
}

func contradictionError(m *raftpb.Message, e *raftpb.Entry, held Held) error {
	return fmt.Errorf("shard %d: its leader, member %d, has another entry %d, of term %d, than the one committed here (commits reach entry %d, in term %d): acknowledged writes are lost there, because the directory of some member was put back to an earlier state, or its log has lost its end (docs/runbook.md: Two histories)",
		m.ShardID, m.From, e.Index, e.Term, held.Commit, held.Term)
}

// progress returns what is known to be committed, without the term and checksum of the entry, and
// the index of the last entry.
func (l *shardLog) progress() (Held, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.held, l.mu.last
}

// replaced returns the index up to which a received snapshot stands for the log.
func (l *shardLog) replaced() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.received
}

// noteFound records what the log held behind the snapshot when the node started.
func (l *shardLog) noteFound(rs raftio.RaftState, snapshot uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.held, l.mu.last = Held{Term: rs.State.Term, Commit: rs.State.Commit}, snapshot
	if rs.EntryCount > 0 {
		l.mu.last = rs.FirstIndex + rs.EntryCount - 1
	}
}

// noteSaved records what an update has saved.
func (l *shardLog) noteSaved(u *raftpb.Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.State.Commit > l.mu.held.Commit {
		l.mu.held = Held{Term: u.State.Term, Commit: u.State.Commit}
	}
	if !raftpb.IsEmptySnapshot(u.Snapshot) {
		l.mu.last = u.Snapshot.Index
	}
	if n := len(u.EntriesToSave); n > 0 {
		l.mu.last = u.EntriesToSave[n-1].Index
	}
	if l.mu.grows != nil {
		close(l.mu.grows)
		l.mu.grows = nil
	}
}
