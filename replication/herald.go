package replication

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// herald sends the heartbeats to learners that dragonboat leaves out. While a leader has a ReadIndex
// to be confirmed, dragonboat sends heartbeats to voters only. So learners would hear nothing while
// others read all the time. And they would never hear again of a leader that became the only voter
// with a ReadIndex under way: nobody is left to confirm it, so dragonboat keeps it. A learner that
// hears nothing takes its shard for one without a leader, and whoever says nothing is never promoted.
type herald struct {
	wake chan struct{} // holds a token once there are learners
	wire atomic.Pointer[outbound]

	// Owned by heraldLoop.
	lines map[MemberID]*line
}

// A line is a link to a learner. One that does not answer keeps its own waiting, and no other.
type line struct {
	link raftio.IConnection
	busy atomic.Bool // something is being sent
}

// heralded is what a shard has for the herald.
type heralded struct {
	learners atomic.Pointer[[]MemberID] // as last read; nil: none
	told     sync.Map                   // *atomic.Int64 by member: when a leader's message was last sent to it, in Unix ns
}

// note takes in a message that is sent.
func (s *heralded) note(m *raftpb.Message, now time.Time) {
	if s.learners.Load() == nil || m.Type != raftpb.Heartbeat && m.Type != raftpb.Replicate {
		return
	}
	at, ok := s.told.Load(MemberID(m.To))
	if !ok {
		at, _ = s.told.LoadOrStore(MemberID(m.To), new(atomic.Int64))
	}
	at.(*atomic.Int64).Store(now.UnixNano())
}

// silent returns how long ago a member was sent a leader's message.
func (s *heralded) silent(m MemberID, now time.Time) time.Duration {
	at, ok := s.told.Load(m)
	if !ok {
		return time.Duration(now.UnixNano())
	}
	return time.Duration(now.UnixNano() - at.(*atomic.Int64).Load())
}

// noteSent takes in the messages that are sent.
func (h *Host) noteSent(messages []raftpb.Message) bool {
	now := time.Now()
	for i := range messages {
		if s, err := h.shard(ShardID(messages[i].ShardID)); err == nil {
			s.heralded.note(&messages[i], now)
		}
	}
	return true
}

// setLearners records who learns, and forgets who does not take part any more.
func (h *Host) setLearners(s *shard, m Membership) {
	s.heralded.told.Range(func(id, _ any) bool {
		if !slices.Contains(m.Voters, id.(MemberID)) && !slices.Contains(m.Learners, id.(MemberID)) {
			s.heralded.told.Delete(id)
		}
		return true
	})
	if len(m.Learners) == 0 {
		s.heralded.learners.Store(nil)
		return
	}
	s.heralded.learners.Store(&m.Learners)
	select {
	case h.herald.wake <- struct{}{}:
	default:
	}
}

// heraldLoop looks once a heartbeat, while this member leads a shard that has learners. It ends with
// the host.
func (h *Host) heraldLoop() {
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	defer func() {
		cancel()
		sending.Wait()
		h.hangUp(nil)
	}()
	beat := time.Duration(h.heartbeatTicks()) * h.cfg.Tick
	for {
		select {
		case <-h.done:
			return
		case <-h.herald.wake:
		}
		ticker := time.NewTicker(beat)
		for learners := h.learners(); len(learners) > 0; learners = h.learners() {
			h.hangUp(learners)
			select {
			case <-h.done:
				ticker.Stop()
				return
			case now := <-ticker.C:
				h.proclaim(ctx, &sending, now, 2*beat)
			}
		}
		ticker.Stop()
		h.hangUp(nil)
	}
}

// learners returns who learns on a shard that this member leads. Who begins to lead reads the members
// anew, and wakes the loop.
func (h *Host) learners() map[MemberID]bool {
	all := make(map[MemberID]bool)
	for _, s := range h.shards {
		if learners := s.heralded.learners.Load(); learners != nil && s.leader().Member == h.cfg.Member {
			for _, m := range *learners {
				all[m] = true
			}
		}
	}
	return all
}

// proclaim sends a heartbeat to each learner that this leader has told nothing for some time.
func (h *Host) proclaim(ctx context.Context, sending *sync.WaitGroup, now time.Time, silence time.Duration) {
	due := make(map[MemberID][]raftpb.Message)
	for _, s := range h.shards {
		leader, learners := s.leader(), s.heralded.learners.Load()
		if leader.Member != h.cfg.Member || learners == nil {
			continue
		}
		for _, m := range *learners {
			if s.heralded.silent(m, now) > silence {
				due[m] = append(due[m], raftpb.Message{Type: raftpb.Heartbeat, ShardID: uint64(s.id),
					From: uint64(h.cfg.Member), To: uint64(m), Term: leader.Term})
			}
		}
	}
	for m, messages := range due {
		l := h.line(ctx, m)
		if l == nil || !l.busy.CompareAndSwap(false, true) {
			continue
		}
		sending.Go(func() {
			defer l.busy.Store(false)
			_ = l.link.SendMessageBatch(raftpb.MessageBatch{Requests: messages, DeploymentId: h.cfg.Deployment, BinVer: raftio.TransportBinVersion}) // it loses what it cannot send
		})
	}
}

// line returns a line to a member; nil if there can be none.
func (h *Host) line(ctx context.Context, m MemberID) *line {
	if l := h.herald.lines[m]; l != nil {
		return l
	}
	wire := h.herald.wire.Load()
	if wire == nil {
		return nil
	}
	link, err := wire.ITransport.GetConnection(ctx, h.cfg.Names.UUID(m)) // not wire's own: what the herald sends does not count as told
	if err != nil {
		return nil
	}
	if h.herald.lines == nil {
		h.herald.lines = make(map[MemberID]*line)
	}
	l := &line{link: link}
	h.herald.lines[m] = l
	return l
}

// hangUp closes the lines to all members but these. One that is in use is closed later.
func (h *Host) hangUp(but map[MemberID]bool) {
	for m, l := range h.herald.lines {
		if !but[m] && !l.busy.Load() {
			l.link.Close()
			delete(h.herald.lines, m)
		}
	}
}
