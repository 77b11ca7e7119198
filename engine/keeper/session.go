package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/command"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// A Session is an in-process session of this node, or a remote client's for as long as it is attached to this node: see remote.go. Its
// methods may be called by any number of goroutines.
type Session struct {
	// Immutable; id from the moment the keeper has the session.
	keeper  *Keeper
	id      tree.SessionID
	timeout time.Duration
	Owner   *outbox.Owner // of its requests
	remote  *remote       // nil for an in-process session

	identities atomic.Pointer[[]tree.Identity] // nil is nobody

	// Guarded by the keeper's mu. What is not made before it is asked for most sessions never have: there may be 100,000 of them.
	life          session.Life
	drift         time.Duration   // while Suspended: of the clocks when a jump was last looked for
	changed       chan struct{}   // closed when the state is another; nil until asked for
	onStateChange func()          // told then; may be nil
	ctx           context.Context // ends with the session; nil until asked for
	cancel        context.CancelCauseFunc
	end           error                           // why it ended
	abandoned     bool                            // its opener lost patience
	lost          int                             // claims that it has lost since it was last Connected
	closing       []closeCall                     // the requests that close it for its owner, once it does
	introducing   map[*outbox.Call]*outbox.Outbox // on their way to shards that it uses from now on
	claims        map[string]*Claim
	watches       watches
}

// ends are requests on their way that end something.
type closeCall struct {
	outbox *outbox.Outbox
	call   *outbox.Call
}

// newSession returns a session of a remote client if it is given what such a one has.
func newSession(k *Keeper, timeout time.Duration, remote *remote, identities []tree.Identity) *Session {
	s := &Session{keeper: k, timeout: timeout, remote: remote, Owner: outbox.NewOwner(len(k.outboxes), remote != nil)}
	s.Owner.SetKnown(command.HomeShard)
	if len(identities) > 0 {
		s.identities.Store(&identities)
	}
	return s
}

// loss is the level at which it is logged that the session has expired. That of a remote client is its client's affair.
func (s *Session) expiryLevel() slog.Level {
	if s.remote != nil {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Identities are what the session has authenticated as.
func (s *Session) Identities() []tree.Identity {
	if identities := s.identities.Load(); identities != nil {
		return *identities
	}
	return nil
}

// Attached is the transaction that attached a remote client's session to this node, zero for an in-process one.
func (s *Session) Attached() tree.Zxid {
	if s.remote == nil {
		return 0
	}
	return s.remote.attached
}

// stateChangedLocked tells whoever waits on the state that it is another.
func (s *Session) stateChangedLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	if s.onStateChange != nil {
		s.onStateChange()
	}
}

// OnStateChange has turned called from now on whenever the state is another, which State says then; nil ends that. It runs under a lock: it must
// be short, and call nothing here.
func (s *Session) OnStateChange(turned func()) {
	k := s.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	s.onStateChange = turned
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

// Context compares the clock and returns a context that ends with the session; its cause says why.
func (s *Session) Context() context.Context {
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return s.contextLocked()
}

// Done compares the clock and returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.Context().Done() }

// Err returns why the session ended, nil while it has not.
func (s *Session) Err() error {
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return s.end
}

// State compares the clock and returns the session's state, with a channel that is closed when it is another. Suspended says less of a
// remote client's session than of others: see remote.go.
func (s *Session) State() (session.State, <-chan struct{}) {
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return k.stateLocked(s), s.changed
}

// CurrentState is State without the channel, which most remote clients' sessions never need.
func (s *Session) CurrentState() session.State {
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return k.stateLocked(s)
}

// Close ends the session: here at once, in the ensemble with the next batch. It waits until its ephemerals are gone,
// at most the node's request timeout. Those that a remote client's session has on other shards than the first go soon after. Close
// returns ErrSessionMoved if such a session turns out to be attached elsewhere: there it goes on.
func (s *Session) Close() error {
	k := s.keeper
	k.lookAndLock() // what its claims lost before, they did not lose by this
	if s.end == nil {
		k.closeLocked(s)
	}
	closing := s.closing
	k.mu.Unlock()
	if closing == nil {
		return nil // it had ended before
	}
	k.cancelQueued(outbox.ErrSessionClosed, s)
	k.pumpAll()
	ctx, cancel := context.WithTimeout(context.Background(), s.keeper.options.RequestTimeout)
	defer cancel()
	err := waitClosed(ctx, closing)
	if err != nil {
		k.abandonSent(s) // the requests before it have no outcome yet either
	}
	return err
}

// closed waits until the requests that close a session have been applied.
func waitClosed(ctx context.Context, closing []closeCall) error {
	for _, end := range closing {
		// An expired session has been closed by the ensemble, which was faster.
		if err := end.outbox.Wait(ctx, end.call, 0); err != nil && err != outbox.ErrSessionExpired {
			return err
		}
	}
	return nil
}

// Submit queues ops as one transaction. ctx bounds admission only; the Pending gets the true outcome. Transactions of
// a session are applied in the order of their Submit calls.
func (s *Session) Submit(ctx context.Context, ops []tree.Op) Pending {
	return s.submit(ctx, ops, nil, nil)
}

// SubmitWith is Submit of a transaction that has to do with claims.
func (s *Session) SubmitWith(ctx context.Context, ops []tree.Op, with *With) Pending {
	return s.submit(ctx, ops, with, nil)
}

// SubmitThen is Submit, and has then called when the outcome is known, unless it is nil. It runs on the apply goroutine or on the caller's,
// maybe under a lock: it must be short, and call nothing here.
func (s *Session) SubmitThen(ctx context.Context, ops []tree.Op, then func()) Pending {
	return s.submit(ctx, ops, nil, then)
}

func (s *Session) submit(ctx context.Context, ops []tree.Op, with *With, then func()) Pending {
	at, err := s.keeper.node.Route(ops)
	p := Pending{session: s, outbox: s.keeper.outboxes[at-1], call: s.newTxn(ops, with)}
	p.call.Then = then
	s.send(p.outbox, p.call, s.admissible(ctx, p.call, ops, err))
	return p
}

// send submits a transaction to its shard, or refuses it if err is not nil. On a shard that does not know the session it has the
// session introduced.
func (s *Session) send(o *outbox.Outbox, call *outbox.Call, err error) {
	if err != nil {
		o.Refuse(call, err)
		return
	}
	if first, _ := o.Submit(call); first { // an error is call's outcome
		identities := s.Identities() // now: what it may become is behind what waits
		go s.introduce(o, identities)
	}
}

func (s *Session) newTxn(ops []tree.Op, with *With) *outbox.Call {
	call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestTxn, Session: s.id, Ops: ops})
	if with != nil {
		call.Terms = with
	}
	return call
}

// admissible refuses what can be refused here; err is what has been found before.
func (s *Session) admissible(ctx context.Context, call *outbox.Call, ops []tree.Op, err error) error {
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range ops {
		if n := len(ops[i].Path); n > PathMax {
			return fmt.Errorf("%w: the path of operation %d has %d bytes, at most %d are taken", ErrTooLarge, i, n, PathMax)
		}
	}
	if n, most := len(call.Encoded), s.keeper.options.RequestBytesMax; n > most {
		return fmt.Errorf("%w: %d bytes, at most %d are taken", ErrTooLarge, n, most)
	}
	return s.Live()
}

// introduce makes a shard know the session, however long that takes: see purger. What waits there for it goes on then, judged by the
// identities; it is refused if the session ends before, or there is no room for the requests that it takes.
func (s *Session) introduce(o *outbox.Outbox, identities []tree.Identity) {
	ctx := s.Context()
	for {
		err := s.introduceOnce(ctx, o, identities)
		switch {
		case err == nil && o.Introduced(s.Owner):
			return
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case err == nil:
			err = s.Live() // why it was not let in; its ctx ends in a moment
		case errors.Is(err, outbox.ErrUnknownOutcome):
			continue // it may be asked for again
		}
		o.NotIntroduced(s.Owner, err)
		return
	}
}

// askFor has the home shard note that the session uses a shard, and then the shard admit it.
func (s *Session) introduceOnce(ctx context.Context, o *outbox.Outbox, identities []tree.Identity) error {
	home := s.keeper.home
	noted := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestAddShard, Session: s.id, Shard: uint32(o.Shard)})
	if _, err := home.Submit(noted); err != nil {
		return err
	}
	if err := home.Wait(ctx, noted, outbox.Forever); err != nil {
		return err
	}
	return s.keeper.introduce(ctx, s, o, identities)
}

// A Pending is a transaction on its way.
type Pending struct {
	session *Session
	outbox  *outbox.Outbox
	call    *outbox.Call
}

// Single is the error of a transaction of one operation without its index.
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

// Done is closed when the outcome is known.
func (p Pending) Done() <-chan struct{} { return p.call.Done }

// Known reports whether the outcome is known.
func (p Pending) Known() bool { return p.call.IsDone() }

// Result waits for the outcome and returns it.
func (p Pending) Result() ([]tree.Result, error) {
	<-p.call.Done
	return p.call.Results, p.call.Err
}

// Zxid waits for the outcome and returns the newest transaction of when this one was applied: itself if it succeeded. It is zero if this
// one was never applied.
func (p Pending) Zxid() tree.Zxid {
	<-p.call.Done
	return p.call.Zxid
}

// Wait waits for the outcome no longer than ctx, or the node's request timeout if ctx has no deadline, and returns it
// or an error that says whether the transaction can still be applied.
func (p Pending) Wait(ctx context.Context) ([]tree.Result, error) {
	if err := p.outbox.Wait(ctx, p.call, p.session.keeper.options.RequestTimeout); err != nil {
		return nil, err
	}
	return p.call.Results, nil
}

// Live returns why nothing can be read through the session any more. It is asked after what it is to vouch for was read: a node that ends
// drops its trees, but no sooner than its sessions are over. It takes no lock and compares no clock, for who reads may hold a lock that is
// below the keeper's.
func (s *Session) Live() error { return s.Owner.Err() }
