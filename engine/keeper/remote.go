package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/command"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// # Sessions of remote clients
//
// Such a session is attached to the member that its client is connected to, by a transaction; see package session. Each attachment
// is a Session of its own here, which ends with ErrSessionMoved when the log attaches the session elsewhere or anew. What was queued for
// it is never sent; what was sent is applied before the new attachment or refused.
//
// Nothing here judges such a session by this node's own deadline: its client judges for itself, and moves. Suspended says only that
// the client should: this node has not been heard for a third of the session's timeout, so whoever has the connection answers no
// pings and closes it. The session ends when the log says so, or when its client has said nothing for its timeout. That is
// counted in ticks. The node closes it then in the log, at home only, and names the attachment: the home shard alone knows whether that is
// still the newest one. The other shards are told by the purger.
//
// How silence is counted, and how long a session lives at most whose client has gone, is in silence.go.
//
// A node that starts again gives all its clients their full timeout, for it does not know when its predecessor heard them. So one that
// starts again before the timeout is over, and again, keeps a client that never comes back until it stops doing so, as ZooKeeper does with
// leaders that follow one another as fast. What would bound that is silence which outlives the node, in the log: entries of idle nodes for
// clients of which all but few are back at once. While the node is away the log counts, and a client that is elsewhere is not concerned.

// remote is what the session of a remote client has beside others.
type remote struct {
	// Immutable from the moment the keeper has the session.
	password [16]byte
	attached tree.Zxid
	orphan   bool // nobody here ever had it: it has no requests

	class *class // nil: the keeper never had it

	heard atomic.Int64 // by the class's clock, when its client was heard last
	busy  atomic.Int64 // the tick after that since which nobody listens to its client; zero: somebody does

	// Guarded by the keeper's mu.
	place   int   // in class.list
	renewed int64 // when its client had its timeout anew for this node's sake; negative: never
}

// remotes are the sessions of remote clients that are attached to this node. They are guarded by the keeper's mu.
//
// Invariants:
//  1. they are those that the home shard's table as applied here has attached to this incarnation, but for those that ended here first;
//  2. byID and the lists of classes hold the same ones, and each is at its place in its class's list;
//  3. classes are in the order of their timeouts, and none is empty.
type remotes struct {
	byID     map[tree.SessionID]*Session
	classes  []*class
	timeouts timeouts
	proved   time.Duration // as the keeper's, but known as soon as a session is attached
	ticked   time.Duration // when the newest tick was
	late     bool          // it did not count
}

// attachLocked takes charge of a session that a batch first sent at sent has attached to this node.
func (k *Keeper) attachLocked(s *Session, sent time.Duration) {
	r := &k.mu.remotes
	if len(r.byID) == 0 {
		r.ticked = k.clock.Boot()
	}
	r.proved = max(r.proved, sent)
	r.byID[s.id] = s
	r.timeouts.add(s.timeout)
	r.classOf(s.timeout, k.tick).add(s, k.tick)
	k.Signal()
}

// detachLocked does nothing to a session that the keeper does not have.
func (k *Keeper) detachLocked(s *Session) {
	r := &k.mu.remotes
	if r.byID[s.id] != s {
		return
	}
	delete(r.byID, s.id)
	r.timeouts.remove(s.timeout)
	r.leave(s)
}

// takes returns why no session can be attached any more.
func (k *Keeper) closedErr() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closedErrLocked()
}

// resumed is told that a Reattach of this node was applied, on the apply goroutine.
func (k *Keeper) reattached(s *Session, call *outbox.Call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.remote.attached = call.Zxid
	if k.mu.closed != nil {
		k.endLocked(s, session.Closed, k.mu.closed)
		return
	}
	k.attachLocked(s, call.Sent)
}

// Adopt takes charge of the remote sessions that the home shard's table has attached to this member and that the keeper does not have:
// those of the incarnation before, and those whose attachment a snapshot swallowed. This member has registered, or it could be
// somebody else's by now.
func (k *Keeper) Adopt(table *session.Table) {
	me := k.home.Origin.Member
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed != nil {
		return
	}
	for _, r := range table.Sessions(me) {
		if r.Remote() && k.mu.remotes.byID[r.ID] == nil && table.Usable(r.ID, me) == nil {
			s := newSession(k, r.Timeout, &remote{password: r.Password, attached: r.Attached, orphan: true}, r.Identities)
			s.id = r.ID
			k.attachLocked(s, 0)
		}
	}
}

// Left is told that a session is attached elsewhere, or anew here. What was queued for it is not sent any more. What was sent has its true
// outcome once that comes in the log: if the session is attached here again, it may be behind the Move in this node's stream, and applied.
func (k *Keeper) Left(id tree.SessionID) {
	k.mu.Lock()
	s := k.mu.remotes.byID[id]
	if s != nil {
		k.endLocked(s, session.Closed, outbox.ErrSessionMoved)
	}
	k.mu.Unlock()
	if s != nil && !s.remote.orphan { // or every client that comes back after a start would cost a look at all that waits
		k.cancelQueued(outbox.ErrSessionMoved, s)
	}
}

// reconcileRemotesLocked ends the sessions that have ended in a table that was installed, and those that have another attachment there.
func (k *Keeper) reconcileRemotesLocked(table *session.Table) (gone, moved []*Session) {
	for id, s := range k.mu.remotes.byID {
		switch err := table.CheckAttachment(id, k.home.Origin.Member, s.remote.attached); {
		case err == nil:
		case errors.Is(err, session.ErrAttachedElsewhere):
			k.endLocked(s, session.Closed, outbox.ErrSessionMoved)
			moved = append(moved, s)
		default:
			k.endLocked(s, session.Expired, outbox.ErrSessionExpired)
			gone = append(gone, s)
		}
	}
	return gone, moved
}

// stateLocked is the state of a session now.
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

// Open opens a session, of a remote client if remote says so, for somebody who has shown to be the identities.
func (k *Keeper) Open(ctx context.Context, timeout time.Duration, isRemote bool, identities []tree.Identity) (*Session, error) {
	r := command.Request{Kind: command.RequestOpen, Timeout: timeout, Remote: isRemote, Identities: identities}
	if _, err := rand.Read(r.Password[:]); err != nil {
		return nil, err
	}
	var client *remote
	if isRemote {
		client = &remote{password: r.Password}
	}
	s := newSession(k, timeout, client, identities)
	opening := outbox.NewCall(nil, &r)
	opening.OnOutcome = func(call *outbox.Call) { k.opened(s, call) }
	if err := k.noteOpening(s, opening); err != nil {
		return nil, err
	}
	if _, err := k.home.Submit(opening); err != nil {
		return nil, err
	}
	if err := k.home.Wait(ctx, opening, k.options.RequestTimeout); err != nil {
		k.abandon(s)
		return nil, err
	}
	return s, nil
}

// Reattach attaches a remote client's session to this node, and introduces it anew to the shards that it uses. After any error but
// ErrSessionExpired the session may be attached here with nobody to speak for it.
func (k *Keeper) Reattach(ctx context.Context, id tree.SessionID, password [16]byte, timeout time.Duration, identities []tree.Identity) (*Session, error) {
	if err := k.closedErr(); err != nil {
		return nil, err
	}
	s := newSession(k, timeout, &remote{password: password}, identities)
	s.id = id
	var shards []uint32
	call := outbox.NewCall(nil, &command.Request{Kind: command.RequestReattach, Session: id, Password: password, Timeout: timeout, Identities: identities})
	call.OnOutcome = func(call *outbox.Call) {
		if call.Err == nil { // so it is being applied
			k.reattached(s, call)
			shards = k.node.ShardsOf(id)
		}
	}
	if _, err := k.home.Submit(call); err != nil {
		return nil, err
	}
	if err := k.home.Wait(ctx, call, k.options.RequestTimeout); err != nil {
		return nil, err
	}
	return s, s.introduceToAll(ctx, shards)
}

// enter introduces a session to the shards that it uses, and returns the first error there was in their order.
func (s *Session) introduceToAll(ctx context.Context, shards []uint32) error {
	errs := make([]error, len(shards))
	var all sync.WaitGroup
	for i, shard := range shards {
		all.Go(func() { errs[i] = s.introduceTo(ctx, s.keeper.outboxes[shard-1]) })
	}
	all.Wait()
	if err := s.Live(); err != nil {
		return err // somebody else has it by now
	}
	return cmp.Or(errs...)
}

func (s *Session) introduceTo(ctx context.Context, o *outbox.Outbox) error {
	err := s.keeper.introduce(ctx, s, o, s.Identities())
	if err == nil && !o.Introduced(s.Owner) {
		return s.Err()
	}
	return err
}

// Password is what a remote client has to know to Resume its session; zero for an in-process one, which nobody can.
func (s *Session) Password() [16]byte {
	if s.remote == nil {
		return [16]byte{}
	}
	return s.remote.password
}

// Heard tells that a remote client has said something. It is cheap.
func (s *Session) Heard() {
	r := s.remote
	if r == nil || r.class == nil {
		return
	}
	if now := r.class.clock.Load(); r.heard.Load() != now { // mostly it is: the line stays where it is
		r.heard.Store(now)
	}
}

// Busy says whether nobody listens to a remote client for a while, because what it has asked for takes its time: it is not silent then. It is
// cheap.
func (s *Session) Busy(is bool) {
	r := s.remote
	if r == nil || r.class == nil {
		return
	}
	switch since, now := r.busy.Load(), r.class.clock.Load(); {
	case is == (since > 0):
	case is:
		r.busy.Store(now + int64(s.keeper.tick))
	default:
		if now > since { // as a tick would have it: what it has said meanwhile is still to be read
			r.heard.Store(now)
		}
		r.busy.Store(0)
	}
}

// errInProcess refuses to let an in-process session be somebody else.
var errInProcess = errors.New("an in-process session keeps the identities that it was opened with")

// SetIdentities replaces what a remote client has authenticated as. What was submitted for the session before the call is judged by what it was
// before, what is submitted after it by what it is now, and so is what is read on this node once it has returned. After an error it is
// unknown which it is: the connection should be closed.
func (s *Session) SetIdentities(ctx context.Context, identities ...tree.Identity) error {
	if s.remote == nil {
		return errInProcess
	}
	k := s.keeper
	call, err := k.setIdentities(s, identities)
	if err != nil {
		return err
	}
	k.pumpAll()
	return k.home.Wait(ctx, call, s.keeper.options.RequestTimeout)
}

// setIdentities queues new identities of a session on all shards behind what it has there; its first request on another will bring them along.
func (k *Keeper) setIdentities(s *Session, identities []tree.Identity) (*outbox.Call, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.end != nil {
		return nil, s.end
	}
	s.identities.Store(&identities)
	for _, o := range k.outboxes[1:] {
		k.introduceLocked(s, o, identities, o.QueueIfUsed)
	}
	call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestSetIdentities, Session: s.id, Attached: s.Attached(), Identities: identities})
	k.home.Queue(call)
	return call, nil
}

// Remotes returns how many remote sessions are attached to this node.
func (k *Keeper) Remotes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.mu.remotes.byID)
}
