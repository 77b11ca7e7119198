package replication

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
)

// roster maps a replica to the UUID of its member. It knows all members there can be, because a UUID
// follows from the founding and the member's id. Nothing that arrives by message or is found in the
// log can change it.
type roster struct {
	digest  [32]byte
	streams uint64   // connections per peer; the shards are spread over them
	uuids   sync.Map // of the members asked for, by replica: a digest for each message would cost
}

var (
	_ raftio.INodeRegistry       = (*roster)(nil)
	_ config.NodeRegistryFactory = (*roster)(nil)
)

func newRoster(digest [32]byte) *roster { return &roster{digest: digest, streams: 1} }

// Create returns the roster itself. A roster serves one NodeHost.
func (r *roster) Create(_ string, streams uint64, _ config.TargetValidator) (raftio.INodeRegistry, error) {
	r.streams = max(streams, 1)
	return r, nil
}

// Resolve returns the member's UUID and the key of the send queue for this shard.
func (r *roster) Resolve(shard, replica uint64) (target, key string, err error) {
	if replica == 0 {
		return "", "", errNoReplica
	}
	known, ok := r.uuids.Load(replica)
	if !ok {
		known, _ = r.uuids.LoadOrStore(replica, UUID(r.digest, MemberID(replica)))
	}
	uuid := known.(string)
	return uuid, fmt.Sprintf("%s-%d", uuid, shard%r.streams), nil
}

var errNoReplica = errors.New("replica 0 is no member")

// Add, Remove and RemoveShard report members found in the log and in messages. The roster ignores
// them.
func (r *roster) Add(_, _ uint64, _ string) {}
func (r *roster) Remove(_, _ uint64)        {}
func (r *roster) RemoveShard(uint64)        {}
func (r *roster) Close() error              { return nil }
