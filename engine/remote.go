package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
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
// What counts is never more than the client was silent for while this node could hear it:
//   - a tick counts one tick, however long the node was stopped in it, and one that comes late does not count at all unless the one
//     before was late too: what has arrived meanwhile is read first;
//   - while nobody listens to a client, because a request of it takes its time, it is not silent;
//   - while a session is Suspended its client is kept away by this node, so no silence is counted, and afterwards the client has its
//     full timeout anew, if it was heard since it had it last: a client that never comes back is not kept by a node that is cut off again
//     and again.
//
// A node that starts again gives all its clients their full timeout, for it does not know when its predecessor heard them. So one that
// starts again before the timeout is over, and again, keeps a client that never comes back until it stops doing so, as ZooKeeper does with
// leaders that follow one another as fast. What would bound that is silence which outlives the node, in the log: entries of idle nodes for
// clients of which all but few are back at once. While the node is away the log counts, and a client that is elsewhere is not concerned.

const (
	// ticksPerTimeout is how exactly silence is counted: a session ends up to two ticks late.
	ticksPerTimeout = 20
	remoteTickMin   = 100 * time.Millisecond
	// suspendedParts is the part of its timeout after which a remote session is Suspended. Twice as long as an idle node takes to
	// prove itself alive; and then its client has as much left as it needs.
	suspendedParts = 3
)

// remote is what the session of a remote client has beside others.
type remote struct {
	// Immutable from the moment the keeper has the session.
	password [16]byte
	attached tree.Zxid
	orphan   bool // nobody here ever had it: it has no requests

	heard atomic.Uint64 // tick in which its client was heard last
	busy  atomic.Uint64 // the tick after that since which nobody listens to its client; zero: somebody does

	// Guarded by the keeper's mu.
	place     int // in remotes.list
	suspended bool
	renewed   uint64 // tick in which its client had its timeout anew for this node's sake
}

// remotes are the sessions of remote clients that are attached to this node. They are guarded by the keeper's mu.
//
// Invariants:
//  1. they are those that the home shard's table as applied here has attached to this incarnation, but for those that ended here first;
//  2. byID and list hold the same ones, and each is at its place in the list.
type remotes struct {
	byID     map[tree.SessionID]*Session
	list     []silent
	timeouts timeouts
	proved   time.Duration // as the keeper's, but known as soon as a session is attached
	ticked   time.Duration // when the newest tick was
	late     bool          // it did not count
	cut      bool          // somebody may be Suspended
}

// silent is a session whose client has to be heard before a tick. A tick looks at these alone, which lie side by side: see
// BenchmarkTick.
type silent struct {
	due uint64
	s   *Session
}

// remoteTick is how often silence is counted.
func remoteTick(least time.Duration) time.Duration { return max(least/ticksPerTimeout, remoteTickMin) }

// due is the tick in which a session has been silent for its timeout if it was heard in one: that one may have been over soon after.
func (k *keeper) due(s *Session, heard uint64) uint64 {
	return heard + 1 + uint64((s.timeout+k.tick-1)/k.tick)
}

// anewLocked gives a session's client its full timeout.
func (k *keeper) anewLocked(s *Session) {
	s.Heard()
	k.mu.remotes.list[s.remote.place].due = k.due(s, k.ticks.Load())
}

// attachLocked takes charge of a session that a batch first sent at sent has attached to this node.
func (k *keeper) attachLocked(s *Session, sent time.Duration) {
	r := &k.mu.remotes
	if len(r.list) == 0 {
		r.ticked = k.clock.Boot()
	}
	r.proved = max(r.proved, sent)
	r.byID[s.id] = s
	s.remote.place = len(r.list)
	r.list = append(r.list, silent{s: s})
	r.timeouts.add(s.timeout)
	k.anewLocked(s)
	k.signal()
}

// detachLocked does nothing to a session that the keeper does not have.
func (k *keeper) detachLocked(s *Session) {
	r := &k.mu.remotes
	if r.byID[s.id] != s {
		return
	}
	delete(r.byID, s.id)
	last := len(r.list) - 1
	r.list[s.remote.place] = r.list[last]
	r.list[s.remote.place].s.remote.place = s.remote.place
	r.list[last] = silent{}
	r.list = r.list[:last]
	r.timeouts.remove(s.timeout)
}

// takes returns why no session can be attached any more.
func (k *keeper) takes() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.takesLocked()
}

// resumed is told that a Move of this node was applied, on the apply goroutine, and returns the shards that the session uses.
func (k *keeper) resumed(s *Session, w *waiter, table *session.Table) []uint32 {
	r, _ := table.Get(s.id)
	k.mu.Lock()
	defer k.mu.Unlock()
	s.remote.attached = w.zxid
	if k.mu.closed != nil {
		k.endLocked(s, session.Closed, k.mu.closed)
		return nil
	}
	k.attachLocked(s, w.sent)
	return r.Shards
}

// adopt takes charge of the remote sessions that the home shard's table has attached to this member and that the keeper does not have:
// those of the incarnation before, and those whose attachment a snapshot swallowed. This member has registered, or it could be
// somebody else's by now.
func (k *keeper) adopt(table *session.Table) {
	me := k.home.register.Member
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed != nil {
		return
	}
	for _, r := range table.Sessions(me) {
		if r.Remote() && k.mu.remotes.byID[r.ID] == nil && table.Usable(r.ID, me) == nil {
			s := newSession(k.engine, r.Timeout, r.Identities)
			s.id, s.remote = r.ID, &remote{password: r.Password, attached: r.Attached, orphan: true}
			k.attachLocked(s, 0)
		}
	}
}

// left is told that a session is attached elsewhere, or anew here. What was queued for it is not sent any more. What was sent has its true
// outcome once that comes in the log: if the session is attached here again, it may be behind the Move in this node's stream, and applied.
func (k *keeper) left(id tree.SessionID) {
	k.mu.Lock()
	s := k.mu.remotes.byID[id]
	if s != nil {
		k.endLocked(s, session.Closed, ErrSessionMoved)
	}
	k.mu.Unlock()
	if s != nil && !s.remote.orphan { // or every client that comes back after a start would cost a look at all that waits
		k.cancel(ErrSessionMoved, s)
	}
}

// reconcileRemotesLocked ends the sessions that have ended in a table that was installed, and those that have another attachment there.
func (k *keeper) reconcileRemotesLocked(table *session.Table) (gone, moved []*Session) {
	for id, s := range k.mu.remotes.byID {
		switch err := table.Closable(id, k.home.register.Member, s.remote.attached); {
		case err == nil:
		case errors.Is(err, session.ErrMoved):
			k.endLocked(s, session.Closed, ErrSessionMoved)
			moved = append(moved, s)
		default:
			k.endLocked(s, session.Expired, ErrSessionExpired)
			gone = append(gone, s)
		}
	}
	return gone, moved
}

// countSilence counts a tick if it is time to, and closes the sessions whose clients have been silent for their timeout.
func (k *keeper) countSilence() {
	k.mu.Lock()
	gone := k.tickLocked(k.clock.Boot())
	k.mu.Unlock()
	k.drop(gone)
	if len(gone) > 0 {
		k.home.pump()
	}
}

func (k *keeper) tickLocked(now time.Duration) (gone []*Session) {
	r := &k.mu.remotes
	took := now - r.ticked
	if len(r.list) == 0 || took < k.tick {
		return nil
	}
	r.ticked = now
	k.judgeLocked(now)
	if r.late = took >= 2*k.tick && !r.late; r.late {
		return nil
	}
	if now-r.proved >= r.timeouts.least/suspendedParts {
		return nil
	}
	n := k.ticks.Add(1)
	for i := 0; i < len(r.list); i++ {
		if r.list[i].due > n {
			continue
		}
		s := r.list[i].s
		if since := s.remote.busy.Load(); since > 0 && n > since { // for a whole tick at least
			s.remote.heard.Store(n)
		}
		if r.list[i].due = k.due(s, s.remote.heard.Load()); r.list[i].due > n {
			continue
		}
		k.endLocked(s, session.Expired, ErrSessionExpired)
		k.queueCloseLocked(s, true)
		gone = append(gone, s)
		i-- // another has its place
	}
	return gone
}

// judgeLocked tells who is Suspended now, and who is not any more.
func (k *keeper) judgeLocked(now time.Duration) {
	r := &k.mu.remotes
	cut := now-r.proved >= r.timeouts.least/suspendedParts
	if cut || r.cut {
		for _, one := range r.list {
			k.judgeOneLocked(one.s, now)
		}
	}
	r.cut = cut
}

func (k *keeper) judgeOneLocked(s *Session, now time.Duration) {
	suspended := now-k.mu.remotes.proved >= s.timeout/suspendedParts
	if suspended == s.remote.suspended {
		return
	}
	s.remote.suspended = suspended
	k.mu.remotes.cut = true // somebody has to be told when it is over
	if r := s.remote; !suspended && (r.renewed == 0 || r.heard.Load() > r.renewed) {
		k.anewLocked(s)
		r.renewed = k.ticks.Load()
	}
	s.turnLocked()
}

// stateLocked is the state of a session now.
func (k *keeper) stateLocked(s *Session) session.State {
	state := s.life.State()
	if s.remote == nil || state.Final() {
		return state
	}
	if k.judgeOneLocked(s, k.clock.Boot()); s.remote.suspended {
		return session.Suspended
	}
	return session.Connected
}

// OpenRemote opens a session for a remote client with a timeout within the configured bounds. It outlives this node; whoever knows
// its id and password may Resume it, here or elsewhere. Heard keeps it from being closed.
func (e *Engine) OpenRemote(ctx context.Context, timeout time.Duration, who ...tree.Identity) (*Session, error) {
	return e.openSession(ctx, timeout, &remote{}, who)
}

// Resume attaches a remote client's session to this node, also if it is attached here already, with a timeout within the configured
// bounds and for somebody who has shown to be the identities. The Session it had before ends with ErrSessionMoved. When Resume returns, all
// shards that the session uses know of the attachment.
//
// It returns ErrSessionExpired for a session that there is not (any more), that is an in-process one, or that has another password. As
// long as the outcome is unknown it asks again: until ctx ends, or the node's request timeout if ctx has no deadline. After any error
// but ErrSessionExpired the session may be attached here with nobody to speak for it; it is for its client to try again.
func (e *Engine) Resume(ctx context.Context, id tree.SessionID, password [16]byte, timeout time.Duration, who ...tree.Identity) (*Session, error) {
	bounded, cancel := e.bounded(ctx)
	defer cancel()
	for {
		s, err := e.move(bounded, id, password, e.timeoutWithin(timeout), who)
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, ErrUnknownOutcome // which knows no ctx that the caller does not
		case !errors.Is(err, ErrUnknownOutcome) || bounded.Err() != nil:
			return nil, err
		}
	}
}

// move commits the attachment of a session to this node, and has the shards that it uses admit it anew.
func (e *Engine) move(ctx context.Context, id tree.SessionID, password [16]byte, timeout time.Duration, who []tree.Identity) (*Session, error) {
	if err := e.keeper.takes(); err != nil {
		return nil, err
	}
	s := newSession(e, timeout, who)
	s.id, s.remote = id, &remote{password: password}
	home := e.home()
	var shards []uint32
	w := newWaiter(nil, &request{kind: requestMove, session: id, password: password, timeout: timeout, identities: who})
	w.applied = func(w *waiter) {
		if w.err == nil { // so it is being applied, with the machine's mu held
			shards = e.keeper.resumed(s, w, home.mu.table)
		}
	}
	if err := home.pipe.submit(w); err != nil {
		return nil, err
	}
	if err := home.pipe.wait(ctx, w, e.cfg.RequestTimeout); err != nil {
		return nil, err
	}
	return s, s.enter(ctx, shards)
}

// enter has the shards that a session uses admit it, and returns the first error there was in their order.
func (s *Session) enter(ctx context.Context, shards []uint32) error {
	errs := make([]error, len(shards))
	var all sync.WaitGroup
	for i, shard := range shards {
		all.Go(func() { errs[i] = s.enterOne(ctx, s.engine.shards[shard-1].pipe) })
	}
	all.Wait()
	if err := s.live(); err != nil {
		return err // somebody else has it by now
	}
	return cmp.Or(errs...)
}

func (s *Session) enterOne(ctx context.Context, p *pipeline) error {
	err := s.engine.keeper.admit(ctx, s, p, s.identities())
	if err == nil && !p.letIn(s) {
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
	if s.remote == nil {
		return
	}
	if tick := s.engine.keeper.ticks.Load(); s.remote.heard.Load() != tick { // mostly it is: the line stays where it is
		s.remote.heard.Store(tick)
	}
}

// Busy says whether nobody listens to a remote client for a while, because what it has asked for takes its time: it is not silent then. It is
// cheap.
func (s *Session) Busy(is bool) {
	r := s.remote
	if r == nil {
		return
	}
	switch since, n := r.busy.Load(), s.engine.keeper.ticks.Load(); {
	case is == (since > 0):
	case is:
		r.busy.Store(n + 1)
	default:
		if n > since { // as a tick would have it: what it has said meanwhile is still to be read
			r.heard.Store(n)
		}
		r.busy.Store(0)
	}
}

// errInProcess refuses to let an in-process session be somebody else.
var errInProcess = errors.New("an in-process session keeps the identities that it was opened with")

// Identify replaces what a remote client has authenticated as. What was submitted for the session before the call is judged by what it was
// before, what is submitted after it by what it is now, and so is what is read on this node once it has returned. After an error it is
// unknown which it is: the connection should be closed.
func (s *Session) Identify(ctx context.Context, who ...tree.Identity) error {
	if s.remote == nil {
		return errInProcess
	}
	k := s.engine.keeper
	w, err := k.identify(s, who)
	if err != nil {
		return err
	}
	k.pumpAll()
	return k.home.wait(ctx, w, s.engine.cfg.RequestTimeout)
}

// identify queues new identities of a session on all shards behind what it has there; its first request on another will bring them along.
func (k *keeper) identify(s *Session, who []tree.Identity) (*waiter, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.end != nil {
		return nil, s.end
	}
	s.who.Store(&who)
	for _, p := range k.pipes[1:] {
		k.admitLocked(s, p, who, p.queueIfUsed)
	}
	w := newWaiter(s, &request{kind: requestIdentify, session: s.id, attached: s.attached(), identities: who})
	k.home.queueBehind(w)
	return w, nil
}
