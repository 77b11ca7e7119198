package replication

import (
	"fmt"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
)

// roster maps a replica to the UUID of its member. It is fixed at the founding. Nothing that
// arrives by message or is found in the log can change it.
type roster struct {
	uuids   map[uint64]string
	streams uint64 // connections per peer; the shards are spread over them
}

var (
	_ raftio.INodeRegistry       = (*roster)(nil)
	_ config.NodeRegistryFactory = (*roster)(nil)
)

func newRoster(digest [32]byte, members []MemberID) *roster {
	r := &roster{uuids: make(map[uint64]string, len(members)), streams: 1}
	for _, m := range members {
		r.uuids[uint64(m)] = UUID(digest, m)
	}
	return r
}

// Create returns the roster itself. A roster serves one NodeHost.
func (r *roster) Create(_ string, streams uint64, _ config.TargetValidator) (raftio.INodeRegistry, error) {
	r.streams = max(streams, 1)
	return r, nil
}

// Resolve returns the member's UUID and the key of the send queue for this shard.
func (r *roster) Resolve(shard, replica uint64) (target, key string, err error) {
	uuid, ok := r.uuids[replica]
	if !ok {
		return "", "", fmt.Errorf("replica %d is no member", replica)
	}
	return uuid, fmt.Sprintf("%s-%d", uuid, shard%r.streams), nil
}

// Add, Remove and RemoveShard report members found in the log and in messages. The roster ignores
// them.
func (r *roster) Add(_, _ uint64, _ string) {}
func (r *roster) Remove(_, _ uint64)        {}
func (r *roster) RemoveShard(uint64)        {}
func (r *roster) Close() error              { return nil }
