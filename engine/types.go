package engine

import (
	"errors"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/backupfile"
	"github.com/vivarium-go/vivarium/engine/backups"
	"github.com/vivarium-go/vivarium/engine/census"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/governor"
	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/identity"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/engine/seeding"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// MemberID names a member of the ensemble.
type MemberID = replication.MemberID

// ShardID names a shard, from 1.
type ShardID = replication.ShardID

// Leader says who leads a shard, as far as this node knows.
type Leader = replication.Leader

// Types of the rooms below that package embed uses.
type (
	// A Claim is the ephemeral znodes with which a session stands in queues.
	Claim = keeper.Claim
	// A Tenure is one period for which a claim is held.
	Tenure = keeper.Tenure
	// With says how a transaction depends on claims.
	With = keeper.With
	// A Pending is a transaction in flight.
	Pending = keeper.Pending
	// An Audited is one thing that a shard did, for the audit.
	Audited = replica.Audited
	// A Member is what a node knows of a member of the ensemble.
	Member = ask.Member
	// A Candidate is what a node that wants to be a member says of itself.
	Candidate = governor.Candidate
	// A Visit is how a process asks that is no member.
	Visit = ask.Visit
	// A Reconfig is a change of the members that a person asks for.
	Reconfig = ask.Reconfig
	// An Occurrence is something that happened to a node.
	Occurrence = health.Occurrence
	// Health says whether a node serves now.
	Health = health.Health
	// A Kind is what happened.
	Kind = health.Kind
	// A Watch is a stream of events that ends with its session.
	Watch = keeper.Watch
)

// Types of backups.
type (
	// BackupInfo says what a backup has.
	BackupInfo = backupfile.Info
	// BackupShard says what a backup has of one shard.
	BackupShard = backupfile.ShardInfo
)

// Types of Tables.
type (
	// A Census has the sessions of the ensemble for monitoring.
	Census = census.Census
	// SessionCensus is a session of the ensemble.
	SessionCensus = census.SessionCensus
	// A SessionRecord is what this node knows of a session of the ensemble.
	SessionRecord = census.SessionRecord
)

// Types of reads.
type (
	// A Peek reads this node's replicas without a session.
	Peek = forest.Peek
	// RemoteWatches are the watches of one connection of ZooKeeper's protocol.
	RemoteWatches = forest.RemoteWatches
	// A Still shows all shards as they are at one moment.
	Still = forest.Still
)

// ShardOf returns the shard of a path in an ensemble of n shards.
func ShardOf(path string, n int) ShardID { return command.ShardOf(path, n) }

// The feature levels that this build reads and writes.
const (
	LevelMin = command.LevelMin
	LevelMax = command.LevelMax
)

// ErrLevel says that the ensemble is at a feature level that this build does not read, or that the
// config wants to hold it below, or that a member keeps it down.
var ErrLevel = command.ErrLevel

// Levels are the feature levels that this build reads.
var Levels = transport.Levels{Min: LevelMin, Max: LevelMax}

// AuditGap is the Op of an Audited that says what the audit lacks.
const AuditGap = replica.AuditGap

// Types of Figures.
type (
	// An Outcome is how a request ended.
	Outcome = outbox.Outcome
	// An EndCause is why a session ended.
	EndCause = keeper.EndCause
	// A LossCause is why something that was held was lost.
	LossCause = keeper.LossCause
	// A ClaimKind is what a claim is for.
	ClaimKind = keeper.ClaimKind
	// ClaimCounts count claims by their kind.
	ClaimCounts = keeper.ClaimCounts
)

// The kinds of claims, and how many there are.
const (
	ClaimOther     = keeper.ClaimOther
	ClaimMutex     = keeper.ClaimMutex
	ClaimRead      = keeper.ClaimRead
	ClaimWrite     = keeper.ClaimWrite
	ClaimSemaphore = keeper.ClaimSemaphore
	ClaimElection  = keeper.ClaimElection
	ClaimTask      = keeper.ClaimTask
	ClaimKinds     = keeper.ClaimKinds
)

// IsAddress reports whether an address can stand in tree.ConfigPath: a host name or IP address, and
// a number as the port.
func IsAddress(s string) bool { return session.IsAddress(s) }

// Single returns the error of a transaction of one operation without its index.
func Single(err error) error { return keeper.Single(err) }

// Errors of the engine.
var (
	// ErrFailed means that the node has failed and refuses requests. Err says why it failed.
	ErrFailed = errors.New("node failed")
)

// Errors of the rooms below. Package embed knows them by these names.
var (
	ErrCrossShard     = forest.ErrCrossShard
	ErrSlowBackup     = backups.ErrSlow
	ErrNoSession      = census.ErrNoSession
	ErrUnsafe         = ask.ErrUnsafe
	ErrConfigChanged  = ask.ErrConfigChanged
	ErrReconfiguring  = ask.ErrReconfiguring
	ErrUnavailable    = outbox.ErrUnavailable
	ErrUnknownOutcome = outbox.ErrUnknownOutcome
	ErrSessionExpired = session.ErrExpired
	ErrSessionClosed  = session.ErrClosed
	ErrSessionMoved   = session.ErrMoved
	ErrClosed         = outbox.ErrClosed
	ErrSuspended      = keeper.ErrSuspended
	ErrDeleted        = keeper.ErrDeleted
	ErrReleased       = keeper.ErrReleased
	ErrTooLarge       = keeper.ErrTooLarge
	ErrNotMember      = session.ErrNotMember
	ErrObserver       = session.ErrObserver
	ErrNotSeeded      = seeding.ErrNotSeeded
	ErrJoining        = roster.ErrJoining
	ErrRemoved        = roster.ErrRemoved
	ErrSuperseded     = roster.ErrSuperseded
)

// Mendable reports whether a node that failed with err, or could not start for it, may be started
// again as soon as somebody has mended the disk. Config.Directory is to be set then: a volume that
// is being mended may not be mounted.
func Mendable(err error) bool { return disk.Mendable(err) || errors.Is(err, identity.ErrEmpty) }
