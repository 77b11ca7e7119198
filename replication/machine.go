package replication

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/statemachine"
)

// Entry is a committed command.
type Entry struct {
	Index uint64
	Cmd   []byte
}

// StateMachine is where a shard's committed commands are applied. Apply, Sync, Snapshot and Install
// are never called two at a time. If a method panics, or Sync or Install fails, the node fails.
type StateMachine interface {
	// Applied returns the index of the newest command in the durable image. It is called once,
	// before all other methods.
	Applied() uint64
	// Apply applies commands in order. The slice belongs to the caller again when Apply returns.
	// So do the bytes of the commands: Apply must not keep them.
	Apply(entries []Entry)
	// Sync makes everything applied so far durable.
	Sync() error
	// Snapshot returns the state at this point. Apply stops meanwhile, so Snapshot must be cheap.
	// If it fails, or the writing does, the member that needs the state has to wait.
	Snapshot() (Snapshot, error)
	// Install replaces the state with the one that a Snapshot wrote on another member. When it
	// returns nil, the new state is durable and in use. It may give up with any error once stop is
	// closed.
	Install(r io.Reader, stop <-chan struct{}) error
	// Close is called once, after everything else.
	Close() error
}

// Snapshot is a state at one point in time.
type Snapshot interface {
	// WriteTo writes the state, at least one byte. It runs at the same time as Apply. It gives up
	// with any error once stop is closed.
	WriteTo(w io.Writer, stop <-chan struct{}) error
	Close() error
}

// commandsKept bounds the memory that is kept for the commands of the next batch.
const commandsKept = 1 << 20

// errNotMine is returned by methods that the machine does not support.
var errNotMine = errors.New("not supported")

// machine is a StateMachine as dragonboat sees it. It returns no errors, because dragonboat answers
// an error with a panic; see contain.go.
type machine struct {
	// Immutable after Host.adapt.
	shard  uint64
	m      StateMachine
	disk   Disk
	log    *slog.Logger
	meters *Meters
	opened func(stop <-chan struct{})
	grown  func(entries, bytes int, index uint64) // called after entries were applied; must not block

	// Set by Open, before any other call but Close.
	stop <-chan struct{}

	// Owned by the apply worker.
	batch    []Entry
	commands []byte // of the batch, without their masks

	closeOnce sync.Once
	closed    atomic.Bool
	closeErr  error // set before closed
}

var _ statemachine.IOnDiskStateMachine = (*machine)(nil)

func (a *machine) parking() parking { return parking{disk: a.disk, stop: a.stop} }

// Open returns the index of the image. The image itself was opened before the shard was started.
func (a *machine) Open(stop <-chan struct{}) (uint64, error) {
	a.stop = stop
	a.opened(stop)
	var applied uint64
	err := guard(func() error { applied = a.m.Applied(); return nil })
	a.parking().afterWork(err)
	if err != nil {
		return 0, statemachine.ErrOpenStopped
	}
	return applied, nil
}

// Update applies entries. If the switch is thrown, the log may only have pretended to save them. So
// they are not applied.
func (a *machine) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	if a.parking().failed() {
		a.parking().afterWork(nil)
		return entries, nil
	}
	size, commands := 0, 0
	for _, e := range entries {
		size += len(e.Cmd) + entryCost
		commands += len(e.Cmd)
	}
	a.commands = slices.Grow(a.commands[:0], commands) // or Entries would point to where it has been
	for _, e := range entries {
		from := len(a.commands)
		a.commands = appendUnmasked(a.commands, e.Cmd)
		a.batch = append(a.batch, Entry{Index: e.Index, Cmd: a.commands[from:]})
	}
	err := guard(func() error { a.m.Apply(a.batch); return nil })
	clear(a.batch)
	a.batch = a.batch[:0]
	if cap(a.commands) > commandsKept {
		a.commands = nil
	}
	a.parking().afterWork(err)
	a.grown(len(entries), size, entries[len(entries)-1].Index)
	return entries, nil
}

// Sync makes the image durable.
func (a *machine) Sync() error {
	a.parking().afterWork(guard(a.m.Sync))
	return nil
}

// preparedSnapshot is what PrepareSnapshot returns for SaveSnapshot.
type preparedSnapshot struct {
	snapshot Snapshot
	err      error // why there is no snapshot
}

// PrepareSnapshot fixes the point in time of the state that SaveSnapshot writes. It never fails.
// dragonboat would leave the stream open that it has begun, and would never begin another to that
// member. SaveSnapshot reports the error.
func (a *machine) PrepareSnapshot() (any, error) {
	var p preparedSnapshot
	p.err = guard(func() (err error) { p.snapshot, err = a.m.Snapshot(); return err })
	a.parking().afterWork(onlyBroken(p.err))
	return p, nil
}

// SaveSnapshot streams the prepared state to a member that lags behind. If it cannot be read, the
// stream breaks off and the receiver asks again.
func (a *machine) SaveSnapshot(prepared any, w io.Writer, stop <-chan struct{}) error {
	p := prepared.(preparedSnapshot)
	if p.err == nil {
		a.meters.Streaming.Begin()
		defer a.meters.Streaming.End()
		p.err = guard(func() error { return p.snapshot.WriteTo(w, stop) })
		p.err = errors.Join(p.err, guard(p.snapshot.Close))
	}
	a.parking().afterWork(onlyBroken(p.err))
	if p.err == nil {
		a.meters.Snapshots.Inc()
	}
	switch {
	case isClosed(stop):
		return statemachine.ErrSnapshotStopped
	case p.err == nil, isStreamError(p.err):
		return p.err
	}
	a.log.Warn("state was not streamed to a member that lags behind", "shard", a.shard, "cause", p.err)
	return fmt.Errorf("%w: %w", statemachine.ErrSnapshotAborted, p.err)
}

// onlyBroken returns err if it is a broken invariant, and nil otherwise. It is for work whose other
// errors do not throw the switch.
func onlyBroken(err error) error {
	if errors.Is(err, errBroken) {
		return err
	}
	return nil
}

// isStreamError reports whether dragonboat treats err as the end of one stream. dragonboat panics
// over all other errors.
func isStreamError(err error) bool {
	return errors.Is(err, statemachine.ErrSnapshotStopped) || errors.Is(err, statemachine.ErrSnapshotAborted) ||
		errors.Is(err, statemachine.ErrSnapshotStreaming)
}

// RecoverFromSnapshot installs a stream from another member.
func (a *machine) RecoverFromSnapshot(r io.Reader, stop <-chan struct{}) error {
	err := guard(func() error { return a.m.Install(r, stop) })
	if isClosed(stop) && !errors.Is(err, errBroken) {
		return statemachine.ErrSnapshotStopped
	}
	a.parking().afterWork(err)
	if err != nil || isClosed(stop) {
		return statemachine.ErrSnapshotStopped
	}
	return nil
}

// Lookup is not used. Reads are served from the machine itself.
func (a *machine) Lookup(any) (any, error) { return nil, errNotMine }

// Close closes the machine. dragonboat calls it when its last worker has left the shard.
func (a *machine) Close() error {
	a.closeOnce.Do(func() {
		a.closeErr = guard(a.m.Close)
		a.closed.Store(true)
	})
	return nil
}
