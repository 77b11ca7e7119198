package replication

import (
	"time"

	"github.com/lni/dragonboat/v4/raftpb"
)

// takeOverPause is the pause before a successor is told again for the first time. Applying what is
// committed mostly takes less.
const takeOverPause = time.Millisecond

// takeOverShare is the part of an election timeout for which a successor is told again. On slow links
// the votes must come back before the leader gives the transfer up, or they would depose it for
// nothing.
const takeOverShare = 5

// takeOver repeats a TimeoutNow, with which a leader tells this member to take over. m was passed to
// dragonboat once, and again passes it once more.
//
// dragonboat does not stand for election while it has not applied all that it knows to be
// committed. It forgets that it was told, and the leader does not learn that. The leader refuses all
// proposals until it gives the transfer up, after an election timeout. Under load this happened to
// every other transfer: the leader sends the TimeoutNow when the successor has its last entry. The
// successor's answer often commits that entry too, so the commit comes with the TimeoutNow.
//
// Raft allows repeated messages. A replica that has stood for election ignores this one, because
// its term is over.
func (h *Host) takeOver(m raftpb.Message, again func()) {
	s, err := h.running(ShardID(m.ShardID))
	if err != nil || !s.takingOver.CompareAndSwap(false, true) {
		return
	}
	err = h.call(func() error {
		h.loops.Go(func() { h.takeOverLoop(s, m, again) })
		return nil
	})
	if err != nil {
		s.takingOver.Store(false)
	}
}

// takeOverLoop ends when the term is over, after a fifth of an election timeout, or when the log has
// grown. A leader adds nothing to its log while it transfers. If it has given the transfer up, a
// successor that lacks an entry would depose it for nothing.
func (h *Host) takeOverLoop(s *shard, m raftpb.Message, again func()) {
	defer s.takingOver.Store(false)
	log := h.store.shard(m.ShardID)
	_, end := log.progress()
	over := time.NewTimer(time.Duration(h.electionTicks()) * h.cfg.Tick / takeOverShare)
	defer over.Stop()
	for pause := takeOverPause; ; pause = min(2*pause, h.cfg.Tick) {
		if !h.stillToTakeOver(s, m.Term, pause, over.C) {
			return
		}
		if _, last := log.progress(); last != end {
			return
		}
		again()
	}
}

// stillToTakeOver waits for a pause. It returns false at once when the term, the time or the host
// is over.
func (h *Host) stillToTakeOver(s *shard, term uint64, pause time.Duration, over <-chan time.Time) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		leader, changed := s.leadership()
		if leader.Term > term {
			return false
		}
		select {
		case <-timer.C:
			select {
			case <-over: // the process stood still
				return false
			default:
				return true
			}
		case <-changed:
		case <-over:
			return false
		case <-h.done:
			return false
		}
	}
}
