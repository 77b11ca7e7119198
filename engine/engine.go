package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// An Engine is one running node. It has a replica and an outbox for each shard, and the node's
// sessions.
type Engine struct {
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
	shards     []*replica.Replica     // indexed by ShardID - 1
	registries watch.Shards           // of all shards
	keeper     *keeper.Keeper
	purger     *replica.Purger

	schemePanics <-chan schemePanic // panics to log

	host    atomic.Pointer[replication.Host]
	leaders leaders
	news    news
	started time.Time
	stop    chan struct{} // closed by Close; ends the loops
	loops   sync.WaitGroup
	done    chan struct{} // closed when the node has failed or was closed

	// identity is the content of the identity file. The transport's goroutines add peers to it.
	identity struct {
		rank.Mutex[rank.Identity]
		now replication.Identity
	}

	end struct {
		sync.Once
		rank.Mutex[rank.End]
		err error // why the node failed
	}
	closing sync.Once
	left    error // the error of Close
}

// run starts the node's loops. Close stops them.
func (e *Engine) run() {
	e.loops.Go(e.failureLoop)
	e.loops.Go(func() { e.keeper.Loop(e.stop) })
	for _, r := range e.shards {
		e.loops.Go(r.Outbox.Loop)
		e.loops.Go(func() { r.ExpireLoop(e.stop, e.done) })
		e.loops.Go(func() { r.ReapLoop(e.stop, e.done) })
	}
	e.loops.Go(func() { e.purger.Loop(e.stop, e.done) })
	e.loops.Go(e.reportLoop)
	e.loops.Go(e.whenReady)
	e.loops.Go(func() { schemesLoop(e.log, e.schemePanics, e.stop) })
	e.loops.Go(e.spreadLoop)
	for _, r := range e.shards {
		r.Outbox.Signal()
	}
}

// failureLoop waits until the disk's switch is thrown. By then the transport is shut: nothing that
// this node could still say reaches anyone.
func (e *Engine) failureLoop() {
	select {
	case <-e.disk.Failed():
		cause := e.disk.Err()
		e.finish(ErrFailed, cause) // before the log call, which may block
		e.log.Error("node failed", "cause", cause)
	case <-e.stop:
	}
}

// finish ends all sessions and calls, and marks the node as over. Sessions and calls get the error
// why. Err returns cause.
func (e *Engine) finish(why, cause error) {
	e.end.Do(func() {
		for _, r := range e.shards {
			r.Outbox.Close(why)
		}
		e.keeper.Close(why)
		e.end.Lock()
		e.end.err = cause
		e.end.Unlock()
		close(e.done)
		e.forgetLeaders()
	})
}

// lackPatience is how long a running node waits for disk space or a file descriptor before it
// fails. Meanwhile it is silent, as on a disk that hangs: the others elect another leader, and its
// sessions end by their own clocks. A minute outlasts the usual peaks: a log rotation, a build, a
// burst of connections.
const lackPatience = time.Minute

// diskWaiting logs that the node waits for what it lacks. With nil it logs that the wait is over.
func (e *Engine) diskWaiting(lacking error) {
	if lacking != nil {
		e.log.Warn("no disk space or no file descriptors: the node waits", "cause", lacking)
		return
	}
	e.log.Info("disk space and file descriptors are back: the node continues")
}

// fail makes the node fail: it throws the disk's switch, which triggers the rest. It does not
// block.
func (e *Engine) fail(cause error) { e.disk.Fail(cause) }

// Kill fails the node as a crash would: from then on nothing reaches its disk or its peers. It is
// for tests.
func (e *Engine) Kill() { e.fail(errors.New("killed")) }

// Done returns a channel that is closed when the node has failed or was closed.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err returns why the node failed. It is nil while the node runs and after Close.
func (e *Engine) Err() error {
	e.end.Lock()
	defer e.end.Unlock()
	return e.end.err
}

// home returns the replica of the home shard, which has the session table.
func (e *Engine) home() *replica.Replica { return e.shards[command.HomeShard-1] }

// barrier waits until this node has applied everything that any node had acknowledged on the shard
// before the call.
func (e *Engine) barrier(ctx context.Context, id ShardID) error {
	err := e.host.Load().Barrier(ctx, id, e.cfg.RequestTimeout)
	switch {
	case err == nil:
		return nil
	case e.over() != nil:
		return e.over()
	}
	return e.lacking(id, unavailable(ctx, err))
}

// bounded returns ctx with the request timeout as its deadline, or ctx itself if it has a deadline.
func (e *Engine) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.cfg.RequestTimeout)
}

// unavailable returns the error for a call that was cancelled, or that got no answer in time.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
}

// silenced reports whether this node reaches no one any more. It is over, or its disk has failed
// and it will be over soon.
func (e *Engine) silenced() bool { return e.disk.Err() != nil || e.over() != nil }

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

// Ready waits until this node's Register is applied, and until it has applied everything that was
// committed at the time of the call. If ctx ends first, the error says what is missing.
func (e *Engine) Ready(ctx context.Context) error {
	for {
		err := e.tryReady(ctx)
		if over := e.over(); over != nil {
			return errors.Join(over, e.Err())
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return e.notReady(ctx.Err())
		}
	}
}

func (e *Engine) tryReady(ctx context.Context) error {
	for _, r := range e.shards {
		select {
		case <-r.Outbox.Ready:
		case <-e.done:
			return e.over()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	step, cancel := context.WithTimeout(ctx, e.cfg.RequestTimeout)
	defer cancel()
	return e.eachShard(func(r *replica.Replica) error { return e.host.Load().Barrier(step, r.Shard, 0) })
}

// eachShard runs fn for all shards at the same time. It returns the first error in the order of the
// shards.
func (e *Engine) eachShard(fn func(r *replica.Replica) error) error {
	if len(e.shards) == 1 {
		return fn(e.home())
	}
	errs := make([]error, len(e.shards))
	var all sync.WaitGroup
	for i, r := range e.shards {
		all.Go(func() { errs[i] = fn(r) })
	}
	all.Wait()
	return cmp.Or(errs...)
}

// OpenSession opens an in-process session with the given identities. The timeout is clamped to the
// configured bounds.
func (e *Engine) OpenSession(ctx context.Context, timeout time.Duration, who ...tree.Identity) (*Session, error) {
	return e.session(e.keeper.Open(ctx, e.timeoutWithin(timeout), false, who))
}

// OpenRemote opens a session for a remote client. The timeout is clamped to the configured bounds.
// The session outlives this node: anyone who knows its id and password may Resume it, here or on
// another node. The session ends unless Heard is called in time.
func (e *Engine) OpenRemote(ctx context.Context, timeout time.Duration, who ...tree.Identity) (*Session, error) {
	return e.session(e.keeper.Open(ctx, e.timeoutWithin(timeout), true, who))
}

// session adds the reads to a session of the keeper.
func (e *Engine) session(k *keeper.Session, err error) (*Session, error) {
	if err != nil {
		return nil, err
	}
	return &Session{Session: k, engine: e}, nil
}

// Resume attaches a remote session to this node, even if it is attached here already. It sets the
// timeout, within the configured bounds, and the identities. The Session that it had before ends
// with ErrSessionMoved. When Resume returns, all shards that the session uses know of the
// attachment.
//
// Resume returns ErrSessionExpired if the session does not exist, is an in-process session, or has
// another password. While the outcome is unknown, it asks again: until ctx ends, or until the
// request timeout if ctx has no deadline. After any error but ErrSessionExpired the session may be
// attached here while no Session speaks for it. Then its client must try again.
func (e *Engine) Resume(ctx context.Context, id tree.SessionID, password [16]byte, timeout time.Duration, who ...tree.Identity) (*Session, error) {
	bounded, cancel := e.bounded(ctx)
	defer cancel()
	for {
		s, err := e.session(e.keeper.Reattach(bounded, id, password, e.timeoutWithin(timeout), who))
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, ErrUnknownOutcome // not err: it names a ctx that the caller does not know
		case !errors.Is(err, ErrUnknownOutcome) || bounded.Err() != nil:
			return nil, err
		}
	}
}

// timeoutWithin clamps a session's timeout to the configured bounds.
func (e *Engine) timeoutWithin(timeout time.Duration) time.Duration {
	return min(max(timeout, e.cfg.MinSessionTimeout), e.cfg.MaxSessionTimeout)
}

// ShardStatus is what a node knows of one shard.
type ShardStatus struct {
	Shard         ShardID
	Leader        Leader
	Applied       uint64 // index in the Raft log
	Zxid          tree.Zxid
	TreeSize      int64  // see tree.Weight
	OverSoftQuota uint64 // since the start, in transactions
}

// Status returns what this node knows of each shard now.
func (e *Engine) Status() []ShardStatus {
	list := make([]ShardStatus, len(e.shards))
	for i, r := range e.shards {
		f := r.Figures()
		list[i] = ShardStatus{Shard: r.Shard, Leader: e.Leader(r.Shard), Applied: f.Applied, Zxid: f.Zxid, TreeSize: f.TreeSize, OverSoftQuota: f.OverSoftQuota}
	}
	return list
}

// RequestSnapshot asks for a snapshot of every shard, which compacts its log.
func (e *Engine) RequestSnapshot() error {
	var errs []error
	for _, r := range e.shards {
		errs = append(errs, e.host.Load().RequestSnapshot(r.Shard))
	}
	return errors.Join(errs...)
}

// Shutdown closes the sessions of this node, transfers its leaderships, and calls Close. Before
// Close it takes no longer than ctx, or the request timeout if ctx has no deadline. The error also
// says which sessions it could not close.
func (e *Engine) Shutdown(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.cfg.RequestTimeout)
		defer cancel()
	}
	err := e.keeper.CloseAll(ctx)
	e.transferAll(ctx)
	return errors.Join(err, e.Close())
}

// Close ends all claims, sessions and calls of this node, and stops it. It is idempotent, and works
// without a quorum and on a failed node. It takes little more than twice the close timeout at
// worst. The error says what it left behind.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		if cause := e.disk.Err(); cause != nil {
			e.finish(ErrFailed, cause) // failureLoop may not have noticed yet
		}
		e.finish(outbox.ErrClosed, nil)
		close(e.stop)
		e.disk.Patience(0)
		e.left = e.release()
	})
	return e.left
}

// errHung is why Close gives up the node's directory: a call on it does not return.
var errHung = errors.New("could not be closed in time")

// release gives back what open acquired. The directory goes last, when nothing of this node can
// reach it any more.
func (e *Engine) release() error {
	ended := make(chan error, 1)
	go func() { ended <- e.releaseAll() }()
	patience := time.NewTimer(2 * e.cfg.closeTimeout())
	defer patience.Stop()
	var err error
	select {
	case err = <-ended:
	case <-patience.C:
		err = fmt.Errorf("%s %w", e.cfg.Dir, errHung)
	}
	if e.disk != nil && (errors.Is(err, errHung) || errors.Is(err, replication.ErrStillRunning)) {
		e.disk.Fail(err) // from here on, hanging calls cannot change anything
		if !e.disk.Quiet() {
			go e.unlockWhenQuiet()
			return fmt.Errorf("%w; the directory stays locked until its disk answers", err)
		}
	}
	return errors.Join(err, e.unlock())
}

// releaseAll closes everything except the directory, in reverse order of opening.
func (e *Engine) releaseAll() error {
	var errs []error
	if h := e.host.Load(); h != nil {
		errs = append(errs, h.Close(e.cfg.closeTimeout()))
	}
	e.loops.Wait()
	if e.transport != nil {
		errs = append(errs, e.transport.Close())
	}
	if e.listener != nil {
		errs = append(errs, e.listener.Close())
	}
	for _, r := range e.shards {
		errs = append(errs, r.CloseImage())
	}
	if e.disk != nil && e.disk.Err() != nil {
		// Err says why the node failed. Here every write that could not be done would repeat it.
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, e.disk.Err()) })
	}
	return errors.Join(errs...)
}

func (e *Engine) unlock() error {
	if e.lock == nil {
		return nil
	}
	return e.lock.Close()
}

// unlockWhenQuiet unlocks the directory when all hanging calls have returned. Another node could
// not tell what they will still do to it.
func (e *Engine) unlockWhenQuiet() {
	for !e.disk.Quiet() {
		time.Sleep(100 * time.Millisecond)
	}
	_ = e.unlock()
}
