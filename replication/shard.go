package replication

import (
	"fmt"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/client"

	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// shard is this member's replica of one Raft group.
type shard struct {
	id         ShardID
	starting   rank.Mutex[rank.Starting] // held while StartShard runs
	started    atomic.Bool
	reading    chan struct{} // capacity 1; full while a call of Membership has not ended
	takingOver atomic.Bool   // takeOverLoop runs

	// Set before started.
	session          *client.Session // dragonboat's "no session": it does not remember proposals
	machine          *machine
	committedAtStart uint64 // see Host.CommittedAtStart

	log     retention
	barrier barrier
	meters  Meters

	heralded heralded

	mu struct {
		rank.Mutex[rank.Leader]
		leader  Leader
		changed chan struct{} // closed and replaced at every change of leader
	}
}

func newShard(id ShardID) *shard {
	s := &shard{id: id, reading: make(chan struct{}, 1)}
	s.mu.changed = make(chan struct{})
	return s
}

func (s *shard) leader() Leader {
	l, _ := s.leadership()
	return l
}

// leadership returns the leader and a channel that is closed when it changes.
func (s *shard) leadership() (Leader, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.leader, s.mu.changed
}

// setLeader records a leader. It reports whether that is a change.
func (s *shard) setLeader(l Leader) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.leader == l {
		return false
	}
	s.mu.leader = l
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
	return true
}

// Meters time and count what this member does for a shard.
type Meters struct {
	Barriers  meter.Histogram // calls of Host.Barrier that succeeded
	Cuts      meter.Counter   // cuts of the log that were begun
	Snapshots meter.Counter   // states that were sent to members that lag behind

	Streaming meter.Work // of a state to a member that lags behind
}

// Meters returns the meters of a shard that exists.
func (h *Host) Meters(id ShardID) *Meters { return &h.shards[id-1].meters }

// closeError returns what is wrong with the shard after its NodeHost was closed.
func (s *shard) closeError() error {
	if !s.started.Load() {
		return nil
	}
	if !s.machine.closed.Load() {
		return fmt.Errorf("state machine of shard %d is still busy and stays open", s.id)
	}
	return s.machine.closeErr
}
