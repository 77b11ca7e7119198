package engine

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/backups"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/seeding"
	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// Defaults of Config.
const (
	DefaultTick                   = replication.DefaultTick
	DefaultRequestTimeout         = 5 * time.Second
	DefaultSessionTimeout         = 10 * time.Second
	DefaultMaxTimeout             = 60 * time.Second
	DefaultMaxDataSize            = 1 << 20
	DefaultContainerCheckInterval = replica.DefaultContainerCheckInterval
	MaxDataSizeMax                = command.DataMax
)

// Bounds of what each member says of itself.
const (
	NameMax    = ask.NameMax
	AddressMax = ask.AddressMax
)

// PathMax bounds the bytes of a path.
const PathMax = keeper.PathMax

// MaxShards bounds the shards of a node.
const MaxShards = replication.MaxShards

// Config has the settings of one node, checked and complete: embed fills in the defaults. The
// fields are those of embed.Config.
type Config struct {
	Dir      string
	Member   MemberID
	Members  map[MemberID]string
	Alone    bool // no other members, no port
	Listen   string
	Ensemble string
	Shards   int
	TLS      *certs.Store // between members; nil means plain text
	PlainToo bool         // with TLS: in plain text with members that have none

	Tick                   time.Duration
	RequestTimeout         time.Duration
	SessionTimeout         time.Duration // of sessions that ask for none
	MinSessionTimeout      time.Duration
	MaxSessionTimeout      time.Duration
	MaxDataSize            int
	MaxTreeSize            int64
	ContainerCheckInterval time.Duration
	Schemes                tree.Schemes
	HoldLevel              uint32 // zero: not held

	Join       []string // where members may be
	Advertise  string
	Name, Zone string
	Observer   bool
	Ephemeral  bool
	Voters     int
	DeadAfter  time.Duration // zero: never
	Found      func(context.Context) (bool, error)
	Admit      func(context.Context, Candidate) error

	// Seed returns the backup that a new ensemble begins with; nil: it begins empty.
	Seed func(context.Context) (io.ReadCloser, error)

	// Slow is from when on the log warns of a slow disk, and of other slow work; zero: never.
	Slow time.Duration

	Version        string       // of the build, for the log
	Logger         *slog.Logger // must not block or panic
	LeaderChanged  func(ShardID, Leader)
	MembersChanged func()
	SessionExpired func(tree.SessionID)
	Audit          func(Audited) // must not block; nil: nobody wants to know

	// Directory is the id that Dir must have, as Engine.Directory of an earlier node returned it.
	// Then Start founds nothing if Dir is empty. Zero: any.
	Directory [16]byte

	Seams Seams
}

// Seams let a test replace parts of the system. The zero value replaces nothing.
type Seams struct {
	Network func(transport.Network) transport.Network           // gets the TCP network, returns its replacement
	Listen  func(network, address string) (net.Listener, error) // instead of net.Listen, for the gateway
	Clock   clock.Clock                                         // instead of the system's
	Files   files.System                                        // instead of the operating system's
	Fault   func(op disk.Op, name string) error                 // called before every disk call that writes
	Unread  func(op disk.Op, name string) error                 // called before every disk call that reads
	Lack    time.Duration                                       // instead of lackPatience
	Close   time.Duration                                       // instead of closeMin, even if RequestTimeout is longer
	Keep    uint64                                              // how many entries a cut log keeps for members that lag, instead of megabytes
	Portion int                                                 // instead of replica.EndPortion; the same on all members
	Behind  int64                                               // instead of backups.BehindMax
	Part    int                                                 // instead of seeding.PartSize; the same on all members
	Next    bool                                                // a build to come: it reads command.LevelNext and speaks transport.VersionNext
}

// ShortestElection is how long members are without a leader at least before they stand for
// election.
func ShortestElection(tick time.Duration) time.Duration {
	return replication.DefaultElectionTicks * tick
}

// LongestElection is how long members can take to agree on a new leader with this tick. That is one
// full randomised election timeout after the last heartbeat, and a few ticks for the votes.
func LongestElection(tick time.Duration) time.Duration {
	return time.Duration(2*replication.DefaultElectionTicks+4) * tick
}

// SessionTimeoutFloor is the smallest session timeout that survives the crash of a leader.
func SessionTimeoutFloor(tick time.Duration) time.Duration { return 3 * LongestElection(tick) }

// backupBehind returns how far the images may go ahead of a backup.
func (c *Config) backupBehind() int64 { return cmp.Or(c.Seams.Behind, backups.BehindMax) }

// seedPart returns when a part of a backup is full, in bytes.
func (c *Config) seedPart() int { return cmp.Or(c.Seams.Part, seeding.PartSize) }

// levelRead returns the highest feature level that this build reads.
func (c *Config) levelRead() uint32 {
	if c.Seams.Next {
		return command.LevelNext
	}
	return LevelMax
}

// levelMax returns the highest feature level that this node agrees to.
func (c *Config) levelMax() uint32 { return cmp.Or(c.HoldLevel, c.levelRead()) }

// closeMin is the least time that a node gets to stop. A disk that is merely busy should not make
// it leave anything behind, and a busy disk may take more than 5 s for an fsync.
const closeMin = 10 * time.Second

// closeTimeout bounds each half of Close: stopping Raft, and the rest.
func (c *Config) closeTimeout() time.Duration {
	return cmp.Or(c.Seams.Close, max(c.RequestTimeout, closeMin))
}

func (c *Config) requestBytesMax() int { return c.MaxDataSize + command.Overhead }

// levels returns the feature levels that this node agrees to.
func (c *Config) levels() transport.Levels { return transport.Levels{Min: LevelMin, Max: c.levelMax()} }

// timeoutWithin clamps a session's timeout to the configured bounds.
func (c *Config) timeoutWithin(timeout time.Duration) time.Duration {
	return min(max(timeout, c.MinSessionTimeout), c.MaxSessionTimeout)
}
