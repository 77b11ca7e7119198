package replication

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
)

// Names maps members to the UUIDs under which dragonboat knows them, and back. It knows the UUIDs
// of all members there can be, because they follow from the founding and the member's id. Nothing
// that arrives by message or is found in the log can change them. Its methods may be called from
// any goroutine.
type Names struct {
	digest [32]byte
	known  atomic.Pointer[knownNames]
}

// knownNames are names that UUID has returned: a digest for each message would cost.
type knownNames struct {
	uuids   sync.Map // string by member
	members sync.Map // MemberID by UUID, of the same
	n       atomic.Int64
}

// namesMax bounds the names that are known. Members come and go, and a message may name anybody.
// When there are too many, all are forgotten: dragonboat asks for a name each time before it uses it.
const namesMax = 4096

// NewNames returns the names of the members of an ensemble.
func NewNames(digest [32]byte) *Names {
	n := &Names{digest: digest}
	n.known.Store(&knownNames{})
	return n
}

// UUID returns the name of a member.
func (n *Names) UUID(m MemberID) string {
	k := n.known.Load()
	if uuid, ok := k.uuids.Load(m); ok {
		return uuid.(string)
	}
	if k.n.Add(1) > namesMax {
		n.known.CompareAndSwap(k, &knownNames{})
		k = n.known.Load()
		k.n.Add(1)
	}
	uuid := UUID(n.digest, m)
	k.members.Store(uuid, m)
	k.uuids.Store(m, uuid)
	return uuid
}

// Member returns the member with a name that UUID has returned lately, and false for any other.
func (n *Names) Member(uuid string) (MemberID, bool) {
	m, ok := n.known.Load().members.Load(uuid)
	if !ok {
		return 0, false
	}
	return m.(MemberID), true
}

// roster is what dragonboat asks for the name of a replica's member, and what it tells of changes.
type roster struct {
	names   *Names
	streams uint64 // connections per peer; the shards are spread over them
	// removed is called when this member applies its own removal from a shard. No command behind the
	// removal is applied before it returns, and the shard's machine is closed soon after.
	removed func(ShardID)
}

var (
	_ raftio.INodeRegistry       = (*roster)(nil)
	_ config.NodeRegistryFactory = (*roster)(nil)
)

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
	uuid := r.names.UUID(MemberID(replica))
	return uuid, fmt.Sprintf("%s-%d", uuid, shard%r.streams), nil
}

var errNoReplica = errors.New("replica 0 is no member")

// Add and Remove report members found in the log and in messages. The roster ignores them.
func (r *roster) Add(_, _ uint64, _ string) {}
func (r *roster) Remove(_, _ uint64)        {}

// RemoveShard reports that this member has applied its own removal from a shard.
func (r *roster) RemoveShard(shard uint64) { r.removed(ShardID(shard)) }

// Close does nothing.
func (r *roster) Close() error { return nil }
