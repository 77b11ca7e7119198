package engine

import (
	"crypto/tls"
	"log/slog"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// MemberID names a member of the ensemble.
type MemberID = replication.MemberID

// ShardID names a shard, from 1.
type ShardID = replication.ShardID

// Leader says who leads a shard, as far as this node knows.
type Leader = replication.Leader

// Defaults of Config.
const (
	DefaultTick                   = replication.DefaultTick
	DefaultRequestTimeout         = 5 * time.Second
	DefaultSessionTimeout         = 10 * time.Second
	DefaultMaxTimeout             = 60 * time.Second
	DefaultMaxDataSize            = 1 << 20
	DefaultContainerCheckInterval = replica.DefaultContainerCheckInterval
	MaxDataSizeMax                = 8 << 20 // a transaction of a few such still fits in one log entry
)

// PathMax bounds the bytes of a path.
const PathMax = keeper.PathMax

// requestOverhead is the room that a transaction has beside the data of its largest znode.
const requestOverhead = 3 << 20

// MaxShards bounds the shards of a node.
const MaxShards = replication.MaxShards

// Config is one node's settings, checked and complete: embed fills in the defaults. The fields are embed.Config's.
type Config struct {
	Dir      string
	Member   MemberID
	Members  map[MemberID]string
	Alone    bool // no other members, no port
	Listen   string
	Ensemble string
	Shards   int
	TLS      *tls.Config

	Tick                   time.Duration
	RequestTimeout         time.Duration
	MinSessionTimeout      time.Duration
	MaxSessionTimeout      time.Duration
	MaxDataSize            int
	MaxTreeSize            int64
	ContainerCheckInterval time.Duration
	Schemes                tree.Schemes

	Logger         *slog.Logger
	LeaderChanged  func(ShardID, Leader)
	SessionExpired func(tree.SessionID)

	Seams Seams
}

// Seams are where a test takes the place of the machine. The zero value is the real thing.
type Seams struct {
	Network func(transport.Network) transport.Network // given TCP, returns what is used instead
	Clock   clock.Clock                               // instead of the system's
	Fault   func(op disk.Op, name string) error       // asked before every mutating call of the disk
	Unread  func(op disk.Op, name string) error       // asked before every call of the disk that reads
	Lack    time.Duration                             // instead of lackPatience
	Started func(*Engine)                             // told when the node runs
	Keep    uint64                                    // entries that a cut log leaves for members that lag, instead of megabytes of them
}

// LongestElection is how long members can take to agree on a new leader with this tick: one full randomised election
// timeout after the last heartbeat, and a few ticks for the votes.
func LongestElection(tick time.Duration) time.Duration {
	return time.Duration(2*replication.DefaultElectionTicks+4) * tick
}

// SessionTimeoutFloor is the least session timeout that survives the crash of a leader.
func SessionTimeoutFloor(tick time.Duration) time.Duration { return 3 * LongestElection(tick) }

// closeMin is the least that a node gets to stop in: a disk that is merely busy is no reason to leave anything behind, and one may take
// more than 5 s for an fsync.
const closeMin = 10 * time.Second

// closeTimeout bounds each half of a Close: Raft's, and the rest.
func (c *Config) closeTimeout() time.Duration { return max(c.RequestTimeout, closeMin) }

func (c *Config) requestBytesMax() int { return c.MaxDataSize + requestOverhead }

func (c *Config) memberIDs() []MemberID {
	ids := make([]MemberID, 0, len(c.Members))
	for id := range c.Members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (c *Config) founding() [32]byte {
	return replication.Founding(c.Ensemble, c.memberIDs(), c.Shards)
}
