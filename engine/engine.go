package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/backups"
	"github.com/vivarium-go/vivarium/engine/census"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/entry"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/governor"
	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/levels"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/petition"
	"github.com/vivarium-go/vivarium/engine/presence"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/engine/seeding"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/watch"
)

// An Engine is one running node. It has a replica and an outbox for each shard, and the node's
// sessions.
type Engine struct {
	// Rooms that package embed uses as they are. Immutable after Start.
	Tables     *census.Tables       // sessions of others
	Petitioner *petition.Petitioner // changes of the ensemble
	Levels     *levels.Raiser       // the feature level
	Presence   *presence.Presence   // what this member says of itself

	// Immutable after Start.
	cfg        Config
	clock      clock.Clock
	log        *slog.Logger
	lock       *replication.DirLock
	disk       *disk.Disk
	network    transport.Network
	listener   net.Listener // nil once the transport has it
	transport  *transport.Transport
	found      []transport.ShardState // the state of the logs when this start opened them
	shards     forest.Forest          // indexed by ShardID - 1
	registries watch.Shards           // of all shards
	keeper     *keeper.Keeper
	purger     *replica.Purger
	seeding    *seeding.Loader
	backups    *backups.Maker
	above      forest.Node // of a Peek

	runID uint64 // a random id of this run

	identity *datadir.IdentityFile // the transport's goroutines add peers to it
	roster   *roster.Roster
	entry    *entry.Entry
	// Set before host is, by Start or by enter; immutable afterwards.
	governor *governor.Governor // nil while the node has yet to join
	names    *replication.Names

	cramped chan struct{} // capacity 1; the disk lacks room

	// Of a member that leaves.
	departure roster.Departure
	departing sync.Once     // closes departed
	departed  chan struct{} // closed when it is out of all shards
	noted     atomic.Bool   // its directory says so, or is about to

	entering chan struct{} // closed when enter ends; nil if there was nothing to enter

	// toGo says why the ensemble no longer registers this member, whose vote still counts; nil if it
	// does.
	toGo atomic.Pointer[string]

	host    atomic.Pointer[replication.Host]
	leaders leaders
	meters  meters
	space   spaceLook
	health  *health.Watcher
	started time.Time
	opened  chan struct{} // closed when Start has opened everything
	stop    chan struct{} // closed by Close; ends the loops
	// reach ends when this node reaches no one any more: its disk has failed, or it is stopped.
	reach    context.Context
	endReach context.CancelFunc
	loops    sync.WaitGroup
	done     chan struct{} // closed when the node is over for its users

	// ended is closed when the node has failed or was closed. A member that leaves is over for its users
	// before: whoever waits for the end may end the process, and the others need its vote still.
	ended   chan struct{}
	tellEnd sync.Once

	end struct {
		sync.Once
		rank.Mutex[rank.End]
		err error // why the node failed
		at  time.Time
	}
	closing atomic.Bool   // somebody has called Close
	closed  chan struct{} // closed when Close is done
	closeBy time.Time     // when Close was to be done; set before closed
	left    error         // the error of Close; set before closed
}

// fail makes the node fail: it throws the disk's switch, which triggers the rest. It does not
// block.
func (e *Engine) fail(cause error) { e.disk.Fail(cause) }

// Kill fails the node as a crash would: from then on nothing reaches its disk or its peers. It is
// for tests.
func (e *Engine) Kill() { e.fail(errors.New("killed")) }

// Done returns a channel that is closed when the node has failed or was closed.
func (e *Engine) Done() <-chan struct{} { return e.ended }

// Err returns why the node failed. It is nil while the node runs and after Close.
func (e *Engine) Err() error {
	e.end.Lock()
	defer e.end.Unlock()
	return e.end.err
}

// home returns the replica of the home shard, which has the session table.
func (e *Engine) home() *replica.Replica { return e.shards.Home() }

// bounded returns ctx with the request timeout as its deadline, or ctx itself if it has a deadline.
func (e *Engine) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return outbox.Bounded(ctx, e.cfg.RequestTimeout)
}

// silenced reports whether this node serves nobody any more. It is over, or its disk has failed and
// it will be over soon.
func (e *Engine) silenced() bool { return e.disk.Err() != nil || e.over() != nil }

// halted reports whether this node reaches no one any more. A member that leaves is over before.
func (e *Engine) halted() bool { return e.disk.Err() != nil || isDone(e.stop) }

// over returns ErrFailed or ErrClosed once the node is over, and nil before.
func (e *Engine) over() error {
	select {
	case <-e.done:
		if e.Err() != nil {
			return ErrFailed
		}
		return outbox.ErrClosed
	default:
		return nil
	}
}

// Backup is Maker.Backup of package backups.
func (e *Engine) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	return e.backups.Backup(ctx, w)
}

// RequestSnapshot asks for a snapshot of every shard, which compacts its log.
func (e *Engine) RequestSnapshot() error {
	host := e.host.Load()
	if host == nil {
		return ErrJoining
	}
	var errs []error
	for _, r := range e.shards {
		errs = append(errs, host.RequestSnapshot(r.Shard))
	}
	return errors.Join(errs...)
}

// Membership returns who takes part in a shard by its Raft, no older than the call.
func (e *Engine) Membership(ctx context.Context, id ShardID) (replication.Membership, error) {
	host := e.host.Load()
	if host == nil {
		return replication.Membership{}, ErrJoining
	}
	return host.Membership(ctx, id)
}

// leaders has the leaders as observers know them.
type leaders struct {
	rank.Mutex[rank.Leaders]
	over  bool       // there is nothing more to tell
	known []Leader   // indexed by ShardID - 1; empty before the first
	last  []MemberID // who leads, or led last; indexed by ShardID - 1, empty before the first
	since time.Time  // since when this node leads the first shard; zero: it does not
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
