package keeper

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/timers"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A Keeper keeps the sessions of this node. It knows the moment that keeps them alive: when the
// newest applied batch of this node was first handed to Raft. All sessions share that moment, so a
// beat costs per node, not per session. Moving the moment costs the same for one session and for a
// hundred thousand.
//
// Every question about a session or a claim first compares the clock. The keeper also compares the
// clock before the moment moves. So a session whose deadline had passed by then was suspended, even
// if nobody asked in between.
//
// Invariants, under mu:
//  1. a session in suspended is Suspended, every other one in sessions is Connected;
//  2. timeouts are those of sessions;
//  3. a held claim's session is Connected, and has been since the claim was held;
//  4. while the clocks stay within calm, no session's state changes with time.
type Keeper struct {
	// Immutable once all outboxes are added.
	node     Node
	options  Options
	clock    clock.Clock
	home     *outbox.Outbox   // of the home shard: its batches keep the sessions alive
	outboxes []*outbox.Outbox // of all shards
	wake     chan struct{}    // capacity 1: a nearer deadline or a beat may be due
	tick     time.Duration    // how often the silence of remote clients is counted

	timers timers.Pool
	Meters Meters

	// mu guards the lives, claims and watches of all sessions of this node.
	mu struct {
		rank.Mutex[rank.Keeper]
		provedAt  time.Duration               // boot clock
		offset    time.Duration               // wall clock minus boot clock at that moment
		sessions  map[tree.SessionID]*Session // in-process ones
		suspended map[*Session]struct{}
		timeouts  timeouts
		remotes   remotes
		calm      calm
		shown     shown
		anchor    clock.Anchor                // of the newest look at all clocks
		losing    map[*Session][]*outbox.Call // calls that end lost claims, or inherit from them
		ending    ending                      // sessions that have ended here, not yet for the ensemble
		unknown   []*Claim                    // without an outcome, until Reconcile has looked for their znodes
		opening   map[*Session]*outbox.Call   // the calls that open them
		claims    ClaimCounts                 // of all sessions
		closing   bool                        // new sessions are refused
		closed    error
		defect    bool // one was found
	}
}

// Options are what New needs.
type Options struct {
	Node            Node
	Clock           clock.Clock
	RequestTimeout  time.Duration // bounds calls whose ctx has no deadline
	RequestBytesMax int           // of an encoded transaction
	LeastTimeout    time.Duration // of a session

	// Jumped is called when the wall clock has jumped by JumpMin or more, in either direction. It
	// must not block. The keeper looks at the clocks when it looks at its sessions, and when batches
	// of the home shard are applied. A JumpMin of zero means never.
	JumpMin time.Duration
	Jumped  func(by time.Duration)
	// Noted, if not nil, is called when sessions were suspended or resumed, with their number. It
	// must not block.
	Noted func(suspended bool, n int)
}

// A Node is what a keeper asks of its node.
type Node interface {
	// Route returns the shard of a transaction. With an error it returns any shard.
	Route(ops []tree.Op) (replication.ShardID, error)
	// ShardsOf returns the shards that a session uses. The keeper calls it on the apply goroutine,
	// while an entry is applied.
	ShardsOf(id tree.SessionID) []uint32
	// Tell has a line logged. It does not block.
	Tell(level slog.Level, message string, args ...any)
}

// New returns a keeper without outboxes. Call AddOutbox for each shard, the home shard first.
func New(o Options) *Keeper {
	k := &Keeper{node: o.Node, options: o, clock: o.Clock, wake: make(chan struct{}, 1), tick: RemoteTick(o.LeastTimeout)}
	k.mu.sessions = make(map[tree.SessionID]*Session)
	k.mu.remotes.byID = make(map[tree.SessionID]*Session)
	k.mu.suspended = make(map[*Session]struct{})
	k.mu.losing = make(map[*Session][]*outbox.Call)
	k.mu.opening = make(map[*Session]*outbox.Call)
	k.mu.provedAt = k.clock.Boot()
	k.mu.offset = k.clock.Offset()
	return k
}

// AddOutbox adds the outbox of the next shard. The first one is the home shard's.
func (k *Keeper) AddOutbox(o *outbox.Outbox) {
	if k.home == nil {
		k.home = o
	}
	k.outboxes = append(k.outboxes, o)
}

// closedErrLocked returns why no session can be opened, or nil.
func (k *Keeper) closedErrLocked() error {
	if k.mu.closed == nil && k.mu.closing {
		return outbox.ErrClosed
	}
	return k.mu.closed
}

// Find returns this node's session with an id, or nil.
func (k *Keeper) Find(id tree.SessionID) *Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.findLocked(id)
}

// findLocked returns this node's session with an id, or nil.
func (k *Keeper) findLocked(id tree.SessionID) *Session {
	if s := k.mu.sessions[id]; s != nil {
		return s
	}
	return k.mu.remotes.byID[id]
}

// defectLocked has the first defect of this package logged. The next may come by the thousand.
func (k *Keeper) defectLocked(s *Session, what string) {
	if !k.mu.defect {
		k.mu.defect = true
		k.node.Tell(slog.LevelWarn, "defect in Vivarium: please report it", "session", s.id, "cause", what)
	}
}

// Signal wakes Loop. It does not block.
func (k *Keeper) Signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// closeLocked ends a session as its owner would. It counts everything that the session has as lost
// while a claim that it lost is on its way to linger. It does so too while a claim that inherits
// has not been held. On the claim's shard the close may come first, because home carries it there
// too.
func (k *Keeper) closeLocked(s *Session) {
	lost := slices.ContainsFunc(k.mu.losing[s], func(call *outbox.Call) bool { return !call.IsDone() })
	for _, c := range s.claims {
		lost = lost || c.LingersLocked()
	}
	for _, c := range k.mu.unknown {
		lost = lost || c.session == s && c.LingersLocked()
	}
	k.endLocked(s, session.Closed, session.ErrClosed)
	s.closing = k.queueCloseLocked(s, lost)
}

// noteLossLocked records a call by which something of a session is lost.
func (k *Keeper) noteLossLocked(s *Session, call *outbox.Call) {
	losing := k.mu.losing[s]
	if len(losing) == cap(losing) { // not each time: a session may lose very many claims at once
		losing = slices.DeleteFunc(losing, (*outbox.Call).IsDone)
		losing = slices.Grow(losing, len(losing)+1)
	}
	k.mu.losing[s] = append(losing, call)
}

// queueCloseLocked queues the calls that close a session, which has ended here. One goes to the
// home shard, which decides for all shards. For an in-process session, others go to every shard
// that knows it, so these need not wait for home. A remote session is closed only at home, because
// another shard may not know of a newer attachment yet.
//
// The calls tell the ensemble whether the session was lost to silence: that is an expiry.
func (k *Keeper) queueCloseLocked(s *Session, lost bool) (closing []closeCall) {
	for _, o := range k.outboxes {
		if o == k.home || s.remote == nil && s.Owner.Known(o.Shard) {
			call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestClose, Session: s.id, Attached: s.Attached(), Lost: lost})
			o.QueueEnd(call)
			closing = append(closing, closeCall{o, call})
		}
	}
	k.mu.ending.add(s, closing)
	return closing
}

func (k *Keeper) removeLocked(s *Session) {
	if s.remote != nil {
		k.detachLocked(s)
		return
	}
	if k.mu.sessions[s.id] != s {
		return
	}
	delete(k.mu.sessions, s.id)
	delete(k.mu.suspended, s)
	k.mu.timeouts.remove(s.timeout)
}

// pumpAll sends what can be sent on every shard.
func (k *Keeper) pumpAll() {
	for _, o := range k.outboxes {
		o.Pump()
	}
}

// signalAll has every shard's loop send what can be sent.
func (k *Keeper) signalAll() {
	for _, o := range k.outboxes {
		o.Signal()
	}
}

// cancelQueued cancels every queued call of the sessions on every shard, except their ends.
func (k *Keeper) cancelQueued(err error, sessions ...*Session) {
	for _, o := range k.outboxes {
		o.CancelQueued(err, ownersOf(sessions)...)
	}
}

func ownersOf(sessions []*Session) []*outbox.Owner {
	list := make([]*outbox.Owner, len(sessions))
	for i, s := range sessions {
		list[i] = s.Owner
	}
	return list
}

// abandonSent completes the calls of the sessions that were sent: their outcome may never be known.
func (k *Keeper) abandonSent(sessions ...*Session) {
	for _, o := range k.outboxes {
		o.AbandonSent(outbox.ErrUnknownOutcome, ownersOf(sessions)...)
	}
}

// endLocked ends a session on this node for good. Its claims and watches end with why.
func (k *Keeper) endLocked(s *Session, state session.State, why error) {
	if s.end != nil {
		return
	}
	s.end = why
	k.Meters.noteEnd(why)
	if why == session.ErrExpired {
		k.node.Tell(s.expiryLevel(), "session expired", "session", s.id, "timeout", s.timeout, "claims", len(s.claims)+s.lost, "watches", s.watches.n)
	}
	if state == session.Expired {
		s.life.Expire()
	} else {
		s.life.Close()
	}
	k.removeLocked(s)
	s.stateChangedLocked()
	for _, c := range s.claims {
		c.FinishLocked(why)
	}
	s.watches.endAll(why)
	for call, o := range s.introducing {
		o.Abandon(call, why) // before anyone can know of the end: see replica/purger.go
	}
	s.claims, s.introducing = nil, nil
	delete(k.mu.losing, s)
	s.Owner.End(why)
	if s.cancel != nil {
		s.cancel(why)
	}
}

// dropCalls ends the calls of sessions that expired here. Queued ones are cancelled. The outcome of
// those that were sent may never be known.
func (k *Keeper) dropCalls(expired []*Session) {
	if len(expired) == 0 {
		return
	}
	k.cancelQueued(session.ErrExpired, expired...)
	k.abandonSent(expired...)
}

// Ended ends sessions that have ended in a shard's log. Calls of theirs that this node has not
// applied yet come later in that log, if at all, and are refused there. In the log of another shard
// they may come before the end.
func (k *Keeper) Ended(at replication.ShardID, why error, ids ...tree.SessionID) {
	gone := k.endAll(why, ids)
	if len(gone) == 0 {
		return
	}
	k.cancelQueued(why, gone...)
	k.outboxes[at-1].AbandonSent(why, ownersOf(gone)...)
	k.abandonSent(gone...)
}

func (k *Keeper) endAll(why error, ids []tree.SessionID) (gone []*Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	state := session.Closed
	if why == session.ErrExpired {
		state = session.Expired
	}
	for _, id := range ids {
		if s := k.findLocked(id); s != nil {
			k.endLocked(s, state, why)
			gone = append(gone, s)
		}
	}
	return gone
}

// allLocked yields the sessions of this node, in no order.
func (k *Keeper) allLocked() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for _, all := range []map[tree.SessionID]*Session{k.mu.sessions, k.mu.remotes.byID} {
			for _, s := range all {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// Close ends every session with why and refuses further ones.
func (k *Keeper) Close(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed != nil {
		return
	}
	k.mu.closed = why
	for s := range k.allLocked() {
		k.endLocked(s, session.Closed, why)
	}
}

// CloseAll closes all in-process sessions as their owners would, also those that are still being
// opened. After that, no session can be opened. Remote sessions stay, so that their clients can
// reattach them to another member. CloseAll waits until the ensemble has closed the sessions, or
// ctx ends. It also waits for those that had ended here before: nobody else would tell the
// ensemble.
func (k *Keeper) CloseAll(ctx context.Context) error {
	k.lookAndLock() // as in Session.Close
	k.mu.closing = true
	opening := slices.Collect(maps.Values(k.mu.opening))
	open := slices.Collect(maps.Values(k.mu.sessions))
	for _, s := range open {
		k.closeLocked(s)
	}
	k.mu.Unlock()
	k.cancelQueued(session.ErrClosed, open...)
	k.pumpAll()
	for _, call := range opening {
		_ = k.home.Wait(ctx, call, 0) // it may have opened a session, which add has closed
	}
	k.mu.Lock()
	ending := k.mu.ending.left()
	k.mu.Unlock()
	for i, closing := range ending {
		// A session that has moved is another member's.
		if err := waitClosed(ctx, closing); err != nil && err != session.ErrMoved {
			return fmt.Errorf("%d of %d sessions may stay until their timeouts: %w", len(ending)-i, len(ending), err)
		}
	}
	return nil
}
