package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A Session is an in-process session of this node, or a remote client's session while it is
// attached to this node: see remote.go. Its methods may be called by any number of goroutines.
type Session struct {
	// Immutable; id from the moment the keeper has the session.
	keeper  *Keeper
	id      tree.SessionID
	timeout time.Duration
	Owner   *outbox.Owner // of its calls
	remote  *remote       // nil for an in-process session

	identities atomic.Pointer[[]tree.Identity] // nil is nobody

	// Guarded by the keeper's mu. There may be 100,000 sessions, so what most of them never need is
	// created on first use.
	life          session.Life
	offset        time.Duration   // while Suspended: the clocks' offset when the last jump was judged
	changed       chan struct{}   // closed when the state changes; nil until asked for
	onStateChange func()          // called then; may be nil
	ctx           context.Context // ends with the session; nil until asked for
	cancel        context.CancelCauseFunc
	end           error                           // why it ended
	abandoned     bool                            // its opener gave up
	lost          int                             // number of claims lost since it was last Connected
	closing       []closeCall                     // the calls that close it for its owner
	introducing   map[*outbox.Call]*outbox.Outbox // calls on their way that introduce it
	claims        map[string]*Claim
	watches       watches
}

// A closeCall is a call on its way that closes a session on one shard.
type closeCall struct {
	outbox *outbox.Outbox
	call   *outbox.Call
}

// newSession returns a session that is not open yet. remote is nil for an in-process session.
func newSession(k *Keeper, timeout time.Duration, remote *remote, identities []tree.Identity) *Session {
	s := &Session{keeper: k, timeout: timeout, remote: remote, Owner: outbox.NewOwner(len(k.outboxes), remote != nil)}
	s.Owner.SetKnown(command.HomeShard)
	if len(identities) > 0 {
		s.identities.Store(&identities)
	}
	return s
}

// expiryLevel returns the level at which the session's expiry is logged. The expiry of a remote
// session matters to its client, not to this node.
func (s *Session) expiryLevel() slog.Level {
	if s.remote != nil {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Identities returns what the session has authenticated as.
func (s *Session) Identities() []tree.Identity {
	if identities := s.identities.Load(); identities != nil {
		return *identities
	}
	return nil
}

// Attached returns the transaction that attached a remote session to this node. It is zero for an
// in-process session.
func (s *Session) Attached() tree.Zxid {
	if s.remote == nil {
		return 0
	}
	return s.remote.attached
}

// stateChangedLocked notifies everyone who waits for a change of the state.
func (s *Session) stateChangedLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	if s.onStateChange != nil {
		s.onStateChange()
	}
}

// OnStateChange has notify called from now on whenever the state has changed; nil ends that. notify
// runs under a lock: it must return quickly and call nothing of this package.
func (s *Session) OnStateChange(notify func()) {
	k := s.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	s.onStateChange = notify
}

// contextLocked returns the context that ends with the session.
func (s *Session) contextLocked() context.Context {
	if s.ctx == nil {
		s.ctx, s.cancel = context.WithCancelCause(context.Background())
		if s.end != nil {
			s.cancel(s.end)
		}
	}
	return s.ctx
}

// ID returns the session's id, which is never used again.
func (s *Session) ID() tree.SessionID { return s.id }

// Timeout returns how long the ensemble waits in silence before it expires the session.
func (s *Session) Timeout() time.Duration { return s.timeout }

// Meters returns what counts the sessions of this node.
func (s *Session) Meters() *Meters { return &s.keeper.Meters }

// Context compares the clock and returns a context that ends with the session. Its cause is why the
// session ended.
func (s *Session) Context() context.Context {
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return s.contextLocked()
}

// Done compares the clock and returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.Context().Done() }

// Err compares the clock and returns why the session ended, or nil while it has not.
func (s *Session) Err() error {
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return s.end
}

// State compares the clock and returns the session's state, and a channel that is closed when the
// state changes. For a remote session, Suspended means less than for others: see remote.go.
func (s *Session) State() (session.State, <-chan struct{}) {
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return k.stateLocked(s), s.changed
}

// CurrentState is State without the channel, which most remote sessions never need.
func (s *Session) CurrentState() session.State {
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return k.stateLocked(s)
}

// stateLocked returns the state of a session now.
func (k *Keeper) stateLocked(s *Session) session.State {
	state := s.life.State()
	if s.remote == nil || state.Final() {
		return state
	}
	if k.judgeLocked(s.remote.class, k.clock.Boot()); s.remote.class.suspended {
		return session.Suspended
	}
	return session.Connected
}

// Close ends the session: here at once, in the ensemble with the next batch. It waits until the
// session's ephemerals are gone, at most for the node's request timeout. The ephemerals that a
// remote session has on other shards than the home shard go soon after.
//
// If a remote session turns out to be attached elsewhere, it lives on there, and Close returns
// session.ErrMoved.
func (s *Session) Close() error {
	k := s.keeper
	k.lookAndLock() // claims that were lost before are not given up
	if s.end == nil {
		k.closeLocked(s)
	}
	closing := s.closing
	k.mu.Unlock()
	if closing == nil {
		return nil // it ended before this call
	}
	k.cancelQueued(session.ErrClosed, s)
	k.pumpAll()
	ctx, cancel := context.WithTimeout(context.Background(), s.keeper.options.RequestTimeout)
	defer cancel()
	err := waitClosed(ctx, closing)
	if err != nil {
		k.abandonSent(s) // the calls before the close have no outcome yet either
	}
	return err
}

// waitClosed waits until the calls that close a session have been applied.
func waitClosed(ctx context.Context, closing []closeCall) error {
	for _, end := range closing {
		// The ensemble may have expired the session first, and so closed it.
		if err := end.outbox.Wait(ctx, end.call, 0); err != nil && err != session.ErrExpired {
			return err
		}
	}
	return nil
}

// Submit queues ops as one transaction, unless ctx has ended. The Pending gets the outcome.
// Transactions of a session are applied in the order of their Submit calls.
func (s *Session) Submit(ctx context.Context, ops []tree.Op) Pending {
	return s.submit(ctx, ops, nil, nil)
}

// SubmitWith is Submit for a transaction that is related to claims.
func (s *Session) SubmitWith(ctx context.Context, ops []tree.Op, with *With) Pending {
	return s.submit(ctx, ops, with, nil)
}

// SubmitThen is Submit, and has then called when the outcome is known; then may be nil. It runs on
// the apply goroutine or on the caller's, maybe under a lock. It must return quickly and call
// nothing of this package.
func (s *Session) SubmitThen(ctx context.Context, ops []tree.Op, then func()) Pending {
	return s.submit(ctx, ops, nil, then)
}

func (s *Session) submit(ctx context.Context, ops []tree.Op, with *With, then func()) Pending {
	shard, err := s.keeper.node.Route(ops)
	p := Pending{session: s, outbox: s.keeper.outboxes[shard-1], call: s.newTxn(ops, with)}
	p.call.Then = then
	s.send(p.outbox, p.call, s.admissible(ctx, p.call, ops, err))
	return p
}

// send submits a transaction to its shard, or refuses it if err is not nil. If the shard does not
// know the session yet, send has it introduced.
func (s *Session) send(o *outbox.Outbox, call *outbox.Call, err error) {
	if err != nil {
		o.Refuse(call, err)
		return
	}
	if first, _ := o.Submit(call); first { // an error becomes the call's outcome
		identities := s.Identities() // now: a change of them is queued behind the parked calls
		go s.introduce(o, identities)
	}
}

// ReleaseThen ends an ephemeral of the session, as Claim.Release ends those of a claim: the znode is
// deleted, or lingers if it was lost and has a TTL. It succeeds if the znode is gone, or was created
// anew. It is for remote sessions, whose claims are with their clients. then is as in SubmitThen.
func (s *Session) ReleaseThen(path string, czxid tree.Zxid, lost bool, then func()) Pending {
	k, ops := s.keeper, []tree.Op{{Kind: tree.KindDelete, Path: path}}
	shard, err := k.node.Route(ops)
	p := Pending{session: s, outbox: k.outboxes[shard-1],
		call: outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestRelease, Session: s.id, Path: path, Czxid: czxid, Lost: lost})}
	p.call.Then = then
	if err := s.admissible(context.Background(), p.call, ops, err); err != nil {
		p.outbox.Refuse(p.call, err)
		return p
	}
	if lost {
		k.mu.Lock()
		if s.end == nil { // the end of a session is what forgets the loss
			k.noteLossLocked(s, p.call)
		}
		k.mu.Unlock()
		p.outbox.QueueEnd(p.call) // ahead of the holder's queued writes
	} else {
		p.outbox.QueueRelease(p.call)
	}
	p.outbox.Pump()
	return p
}

func (s *Session) newTxn(ops []tree.Op, with *With) *outbox.Call {
	call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestTxn, Session: s.id, Ops: ops})
	if with != nil {
		call.Terms = with
	}
	return call
}

// admissible returns why the transaction is refused before it is queued, or nil. It returns err if
// that is not nil.
func (s *Session) admissible(ctx context.Context, call *outbox.Call, ops []tree.Op, err error) error {
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range ops {
		if n := len(ops[i].Path); n > PathMax {
			return fmt.Errorf("%w: the path of operation %d has %d bytes, at most %d are allowed", ErrTooLarge, i, n, PathMax)
		}
	}
	if n, most := len(call.Encoded), s.keeper.options.RequestBytesMax; n > most {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, n, most)
	}
	return s.Live()
}

// A Pending is a transaction on its way.
type Pending struct {
	session *Session
	outbox  *outbox.Outbox
	call    *outbox.Call
}

// Single returns the error of a transaction of one operation without its index.
func Single(err error) error {
	if err == nil {
		return nil // and nothing is allocated
	}
	var refused *tree.MultiError
	if errors.As(err, &refused) {
		return refused.Err
	}
	return err
}

// Done returns a channel that is closed when the outcome is known.
func (p Pending) Done() <-chan struct{} { return p.call.Done }

// Known reports whether the outcome is known.
func (p Pending) Known() bool { return p.call.IsDone() }

// Result waits for the outcome and returns it.
func (p Pending) Result() ([]tree.Result, error) {
	<-p.call.Done
	return p.call.Results, p.call.Err
}

// Zxid waits for the outcome. It returns the newest transaction at the moment when this one was
// applied, which is this one if it succeeded. It returns zero if this one was never applied.
func (p Pending) Zxid() tree.Zxid {
	<-p.call.Done
	return p.call.Zxid
}

// Wait waits for the outcome until ctx ends, or at most for the node's request timeout if ctx has
// no deadline. It returns the outcome, or an error that says whether the transaction can still be
// applied.
func (p Pending) Wait(ctx context.Context) ([]tree.Result, error) {
	if err := p.outbox.Wait(ctx, p.call, p.session.keeper.options.RequestTimeout); err != nil {
		return nil, err
	}
	return p.call.Results, nil
}

// Live returns why nothing can be read through the session, or nil. Ask after reading: a node that
// ends drops its trees, but only after its sessions have ended. Live takes no lock and compares no
// clock, because a reader may hold a lock below the keeper's.
func (s *Session) Live() error { return s.Owner.Err() }
