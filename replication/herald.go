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
	links map[MemberID]raftio.IConnection
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
	defer cancel()
	beat := time.Duration(h.heartbeatTicks()) * h.cfg.Tick
	for {
		select {
		case <-h.done:
			return
		case <-h.herald.wake:
		}
		ticker := time.NewTicker(beat)
		for h.anyLearns() {
			select {
			case <-h.done:
				ticker.Stop()
				cancel()
				h.hangUp(nil)
				return
			case now := <-ticker.C:
				h.proclaim(ctx, now, 2*beat)
			}
		}
		ticker.Stop()
		h.hangUp(nil)
	}
}

// anyLearns reports whether some shard has learners.
func (h *Host) anyLearns() bool {
	return slices.ContainsFunc(h.shards, func(s *shard) bool { return s.heralded.learners.Load() != nil })
}

// proclaim sends a heartbeat to each learner that this leader has told nothing for some time.
func (h *Host) proclaim(ctx context.Context, now time.Time, silence time.Duration) {
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
	h.hangUp(due)
	for m, messages := range due {
		if link := h.line(ctx, m); link != nil {
			_ = link.SendMessageBatch(raftpb.MessageBatch{Requests: messages, DeploymentId: h.cfg.Deployment, BinVer: raftio.TransportBinVersion}) // it loses what it cannot send
		}
	}
}

// line returns a link to a member.
func (h *Host) line(ctx context.Context, m MemberID) raftio.IConnection {
	if link := h.herald.links[m]; link != nil {
		return link
	}
	wire := h.herald.wire.Load()
	if wire == nil {
		return nil
	}
	link, err := wire.ITransport.GetConnection(ctx, h.cfg.Names.UUID(m)) // not wire's own: what the herald sends does not count as told
	if err != nil {
		return nil
	}
	if h.herald.links == nil {
		h.herald.links = make(map[MemberID]raftio.IConnection)
	}
	h.herald.links[m] = link
	return link
}

// hangUp closes the links to all members but these.
func (h *Host) hangUp(but map[MemberID][]raftpb.Message) {
	for m, link := range h.herald.links {
		if but[m] == nil {
			link.Close()
			delete(h.herald.links, m)
		}
	}
}
