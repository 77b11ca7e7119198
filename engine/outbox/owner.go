package outbox

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/replication"
)

// An Owner is a session as the outboxes of its node know it.
type Owner struct {
	// Immutable.
	remote bool         // a client elsewhere has it
	shards []ownerState // by ShardID - 1

	ended atomic.Pointer[error] // why the session ended; nil while it goes on
}

// standing is what one outbox knows of a session.
type ownerState struct {
	known atomic.Bool // the shard knows the session; written under the outbox's mu
	// Guarded by the outbox's mu.
	inBack  int32 // its requests in the rest of the queue
	pending int32 // its requests, ends aside, that have no outcome yet
}

// NewOwner returns the owner of a new session, which no shard knows.
func NewOwner(shards int, remote bool) *Owner {
	return &Owner{remote: remote, shards: make([]ownerState, shards)}
}

// SetKnown records that a shard knows the session.
func (s *Owner) SetKnown(id replication.ShardID) { s.shards[id-1].known.Store(true) }

// Known reports whether a shard knows the session.
func (s *Owner) Known(id replication.ShardID) bool { return s.shards[id-1].known.Load() }

// End records why the session has ended. From then on no outbox queues a request of it.
func (s *Owner) End(why error) { s.ended.Store(&why) }

// Err returns why the session has ended, nil while it goes on. It takes no lock.
func (s *Owner) Err() error {
	if end := s.ended.Load(); end != nil {
		return *end
	}
	return nil
}
