package keeper

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// # Remote sessions
//
// A remote session is attached, by a transaction, to the member that its client is connected to:
// see package session. Each attachment is a Session of its own here. It ends with session.ErrMoved
// when the log attaches the session elsewhere or anew. What was queued for it is never sent. What
// was sent is applied before the new attachment, or refused.
//
// Nothing here judges a remote session by this node's own deadline: the client judges for itself,
// and reattaches. Suspended only says that the client should do so, because this node has not been
// heard for a third of the session's timeout. While a session is Suspended, the owner of its
// connection answers no pings and closes the connection.
//
// The session ends when the log says so, or when its client has been silent for its timeout,
// counted in ticks. In the second case the node closes the session in the log, at home only, and
// names the attachment. Only the home shard knows whether that is still the newest one. The purger
// tells the other shards.
//
// silence.go says how silence is counted, and how long a session can outlive its client.
//
// A node that starts again gives all its clients their full timeout, because it does not know when
// they were last heard. So a node that restarts again and again, each time before the timeout has
// passed, keeps the session of a client that never comes back. ZooKeeper does the same when leaders
// follow one another as fast. To bound it, silence would have to be kept in the log, and idle nodes
// would write entries for clients of which nearly all return at once. While the node is down the
// log counts its silence. A client that has reattached elsewhere is not affected.

// remote is what only a remote session has.
type remote struct {
	// Immutable from the moment the keeper has the session.
	password [16]byte
	attached tree.Zxid
	orphan   bool // no connection ever served it here, so it has no calls

	class *remoteClass // nil: the keeper never had it

	heard atomic.Int64 // when its client was last heard, by the class's clock
	busy  atomic.Int64 // one tick after nobody reads from its client; zero if somebody does

	// Guarded by the keeper's mu.
	place   int   // in its class.list
	renewed int64 // when its client got its full timeout again after a suspension; negative: never
}

// remotes are the remote sessions that are attached to this node. They are guarded by the keeper's
// mu.
//
// Invariants:
//  1. they are the sessions that the home shard's table, as applied here, has attached to this
//     incarnation, except those that ended here first;
//  2. byID and the lists of classes hold the same sessions, and each is at its place in its class's
//     list;
//  3. classes are in the order of their timeouts, and none is empty.
type remotes struct {
	byID     map[tree.SessionID]*Session
	classes  []*remoteClass
	timeouts timeouts
	provedAt time.Duration // like the keeper's, but known as soon as a session is attached
	ticked   time.Duration // when the newest tick was
	late     bool          // the newest tick did not count
}

// attachLocked adds a session that is now attached to this node. The batch that attached it was
// first sent at sent.
func (k *Keeper) attachLocked(s *Session, sent time.Duration) {
	r := &k.mu.remotes
	if len(r.byID) == 0 {
		r.ticked = k.clock.Boot()
	}
	r.provedAt = max(r.provedAt, sent)
	r.byID[s.id] = s
	r.timeouts.add(s.timeout)
	r.classOf(s.timeout, k.tick).add(s, k.tick)
	k.Signal()
}

// detachLocked removes a session. It does nothing if the keeper does not have the session.
func (k *Keeper) detachLocked(s *Session) {
	r := &k.mu.remotes
	if r.byID[s.id] != s {
		return
	}
	delete(r.byID, s.id)
	r.timeouts.remove(s.timeout)
	r.leave(s)
}

// closedErr returns why no session can be attached, or nil.
func (k *Keeper) closedErr() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closedErrLocked()
}

// reattached handles a Reattach call of this node that is applied, on the apply goroutine.
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

// Adopt adds the remote sessions that the home shard's table has attached to this member and that
// the keeper does not have. They are those of the previous incarnation, and those whose attachment
// came with a snapshot. This member must have registered: until then the table's entry may belong
// to another incarnation.
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

// Left ends the Session of an attachment because the session is attached elsewhere now, or anew
// here. What was queued for it is not sent. What was sent gets its true outcome from the log: if
// the session was attached here again, a call can follow the RequestReattach in this node's stream,
// and be applied.
func (k *Keeper) Left(id tree.SessionID) {
	k.mu.Lock()
	s := k.mu.remotes.byID[id]
	if s != nil {
		k.endLocked(s, session.Closed, session.ErrMoved)
	}
	k.mu.Unlock()
	if s != nil && !s.remote.orphan { // otherwise every client that returns after a start would cost a scan of the queues
		k.cancelQueued(session.ErrMoved, s)
	}
}

// Reattach attaches a remote session to this node, and introduces it anew to the shards that it
// uses. After any error except session.ErrExpired, the session may be attached here without a
// connection that serves it.
func (k *Keeper) Reattach(ctx context.Context, id tree.SessionID, password [16]byte, timeout time.Duration, identities []tree.Identity) (*Session, error) {
	if err := k.closedErr(); err != nil {
		return nil, err
	}
	s := newSession(k, timeout, &remote{password: password}, identities)
	s.id = id
	var shards []uint32
	call := outbox.NewCall(nil, &command.Request{Kind: command.RequestReattach, Session: id, Password: password, Timeout: timeout, Identities: identities})
	call.OnOutcome = func(call *outbox.Call) {
		if call.Err == nil { // the call is being applied
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

// Password returns what a remote client must present to reattach its session. It is zero for an
// in-process session, which cannot be reattached.
func (s *Session) Password() [16]byte {
	if s.remote == nil {
		return [16]byte{}
	}
	return s.remote.password
}

// Heard records that the remote client has said something. It is cheap.
func (s *Session) Heard() {
	r := s.remote
	if r == nil || r.class == nil {
		return
	}
	if now := r.class.clock.Load(); r.heard.Load() != now { // usually equal: without a write the cache line is not contended
		r.heard.Store(now)
	}
}

// Busy says whether nobody reads from the remote client for a while, because one of its requests
// takes its time. Then the client does not count as silent. Busy is cheap.
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
		if now > since { // as in silentLocked: what it has said meanwhile is not read yet
			r.heard.Store(now)
		}
		r.busy.Store(0)
	}
}

// errInProcess refuses to change the identities of an in-process session.
var errInProcess = errors.New("an in-process session keeps the identities that it was opened with")

// SetIdentities replaces what a remote client has authenticated as. What was submitted for the
// session before the call is judged by the old identities, and what is submitted after the call by
// the new ones. Reads on this node use the new ones once the call has returned. After an error it
// is unknown which identities apply: close the connection.
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

// setIdentities queues new identities of a session, behind its other calls, on all shards that it
// uses. Its first call on another shard brings them along.
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
