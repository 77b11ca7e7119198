package outbox

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/replication"
)

// An Owner is a session as the outboxes of its node know it.
type Owner struct {
	// Immutable.
	remote bool       // a client elsewhere has it
	at     []standing // by ShardID - 1

	ended atomic.Pointer[error] // why the session ended; nil while it goes on
}

// standing is what one outbox knows of a session.
type standing struct {
	known atomic.Bool // the shard knows the session; written under the outbox's mu
	// Guarded by the outbox's mu.
	inRest int32 // its requests in the rest of the queue
	onWay  int32 // its requests, ends aside, that have no outcome yet
}

// NewOwner returns the owner of a new session, which no shard knows.
func NewOwner(shards int, remote bool) *Owner {
	return &Owner{remote: remote, at: make([]standing, shards)}
}

// SetKnown records that a shard knows the session.
func (o *Owner) SetKnown(id replication.ShardID) { o.at[id-1].known.Store(true) }

// Known reports whether a shard knows the session.
func (o *Owner) Known(id replication.ShardID) bool { return o.at[id-1].known.Load() }

// End records why the session has ended. From then on no outbox queues a request of it.
func (o *Owner) End(why error) { o.ended.Store(&why) }

// Err returns why the session has ended, nil while it goes on. It takes no lock.
func (o *Owner) Err() error {
	if end := o.ended.Load(); end != nil {
		return *end
	}
	return nil
}
