package outbox

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/replication"
)

// An Owner is a session as the outboxes of its node know it: the owner of calls.
type Owner struct {
	// Immutable.
	remote bool         // the session belongs to a client outside this process
	shards []ownerState // indexed by ShardID - 1

	ended atomic.Pointer[error] // why the session ended; nil while it lives
}

// ownerState is what the outbox of one shard knows of a session.
type ownerState struct {
	known atomic.Bool // the shard knows the session
	// Guarded by the outbox's mu.
	inBack  int32 // its calls in the queue's back lane
	pending int32 // its calls without an outcome, ends not counted
}

// NewOwner returns the owner for a new session. No shard knows the session yet.
func NewOwner(shards int, remote bool) *Owner {
	return &Owner{remote: remote, shards: make([]ownerState, shards)}
}

// SetKnown records that the shard knows the session.
func (s *Owner) SetKnown(id replication.ShardID) { s.shards[id-1].known.Store(true) }

// Known reports whether the shard knows the session.
func (s *Owner) Known(id replication.ShardID) bool { return s.shards[id-1].known.Load() }

// End records why the session has ended. After that, Submit refuses the session's calls.
func (s *Owner) End(why error) { s.ended.Store(&why) }

// Err returns why the session has ended, or nil while it lives. It takes no lock.
func (s *Owner) Err() error {
	if end := s.ended.Load(); end != nil {
		return *end
	}
	return nil
}
