package keeper

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/timers"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// A Keeper is the owner's side of the sessions of this node. It knows what they live by: when the newest of this
// node's batches that was applied had been handed to Raft for the first time. All of them share that moment, so a beat
// costs per node, not per session, and moving it costs the same with one session and with a hundred thousand.
//
// Whoever asks anything of a session or a claim has the clock compared first. Before the moment moves, the clock is
// compared too: a session whose deadline had passed by then was suspended, even if nobody asked in between.
//
// Invariants, under mu:
//  1. a session in suspended is Suspended, every other one in sessions is Connected;
//  2. timeouts are those of sessions;
//  3. a held claim's session is Connected, and has been since it was held;
//  4. while the clocks are within calm they change no session's state.
type Keeper struct {
	// Immutable after Start.
	node     Node
	options  Options
	clock    clock.Clock
	home     *outbox.Outbox   // of the session table's shard: what it carries keeps the sessions alive
	outboxes []*outbox.Outbox // of all shards
	wake     chan struct{}    // capacity 1: a nearer deadline or a beat may be due
	tick     time.Duration    // in which the silence of remote clients is counted

	timers timers.Pool

	// mu guards the lives, claims and watches of all sessions of this node.
	mu struct {
		rank.Mutex[rank.Keeper]
		proved    time.Duration               // boot clock
		drift     time.Duration               // wall clock minus boot clock at that moment
		sessions  map[tree.SessionID]*Session // in-process ones
		suspended map[*Session]struct{}
		timeouts  timeouts
		remotes   remotes
		calm      calm
		anchor    clock.Anchor                // of the newest look at all clocks
		losing    map[*Session][]*outbox.Call // the requests by which claims that it lost end, or inherit what was lost
		unknown   []*Claim                    // their outcome is lost: until reconcile has looked for their znodes
		opening   map[*Session]*outbox.Call   // their requests
		closing   bool                        // no session is opened any more
		closed    error
	}
}

// Options are what a keeper is made of.
type Options struct {
	Node            Node
	Clock           clock.Clock
	RequestTimeout  time.Duration // bounds calls whose ctx has no deadline
	RequestBytesMax int           // of an encoded transaction
	LeastTimeout    time.Duration // of a session
}

// A Node is what a keeper asks of its node.
type Node interface {
	// Route returns the shard of a transaction. With an error it is any shard.
	Route(ops []tree.Op) (replication.ShardID, error)
	// ShardsOf returns the shards that a session uses. It is called on the apply goroutine, while an entry is applied.
	ShardsOf(id tree.SessionID) []uint32
	// Tell has a line logged. It does not block.
	Tell(level slog.Level, message string, args ...any)
}

// New returns the keeper of a node that has no shard yet: addShard follows for each, the home shard first.
func New(o Options) *Keeper {
	k := &Keeper{node: o.Node, options: o, clock: o.Clock, wake: make(chan struct{}, 1), tick: RemoteTick(o.LeastTimeout)}
	k.mu.sessions = make(map[tree.SessionID]*Session)
	k.mu.remotes.byID = make(map[tree.SessionID]*Session)
	k.mu.suspended = make(map[*Session]struct{})
	k.mu.losing = make(map[*Session][]*outbox.Call)
	k.mu.opening = make(map[*Session]*outbox.Call)
	k.mu.proved = k.clock.Boot()
	k.mu.drift = k.clock.Drift()
	return k
}

// AddOutbox adds the outbox of the next shard.
func (k *Keeper) AddOutbox(o *outbox.Outbox) {
	if k.home == nil {
		k.home = o
	}
	k.outboxes = append(k.outboxes, o)
}

// takesLocked returns why no session can be opened any more.
func (k *Keeper) closedErrLocked() error {
	if k.mu.closed == nil && k.mu.closing {
		return outbox.ErrClosed
	}
	return k.mu.closed
}

// opens is told of a session that is about to be opened by a request.
func (k *Keeper) noteOpening(s *Session, call *outbox.Call) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.closedErrLocked(); err != nil {
		return err
	}
	k.mu.opening[s] = call
	return nil
}

// opened is told of the outcome of a session's open, on the apply goroutine if it was applied: before any later entry
// could concern the session.
func (k *Keeper) opened(s *Session, call *outbox.Call) {
	if call.Err == nil {
		k.add(s, tree.SessionID(call.Zxid), call.Sent, call.Drift)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.mu.opening, s)
}

// add takes charge of a session that was opened by a batch of this node first sent at sent, when the clocks differed by
// drift. It closes it again if its opener has lost patience.
func (k *Keeper) add(s *Session, id tree.SessionID, sent, drift time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.id = id
	s.life = *session.NewLife(s.timeout, sent)
	if k.mu.closed != nil {
		k.endLocked(s, session.Closed, k.mu.closed)
		return
	}
	if s.remote != nil {
		s.remote.attached = tree.Zxid(id)
		k.attachLocked(s, sent)
	} else {
		k.keepLocked(s, drift)
	}
	if s.abandoned || k.mu.closing {
		k.closeLocked(s)
		k.home.Signal()
	}
}

// keepLocked takes charge of an in-process session.
func (k *Keeper) keepLocked(s *Session, drift time.Duration) {
	if len(k.mu.sessions) == 0 {
		k.mu.drift = drift // what the clocks did while nobody lived by them is no jump
	}
	k.mu.sessions[s.id] = s
	k.mu.timeouts.add(s.timeout)
	k.mu.calm.narrow(s.life.Deadline(), k.mu.drift, session.Margin(s.timeout))
	k.Signal()
}

// findLocked returns the session of this node with an id.
func (k *Keeper) findLocked(id tree.SessionID) *Session {
	if s := k.mu.sessions[id]; s != nil {
		return s
	}
	return k.mu.remotes.byID[id]
}

// Signal wakes Loop. It does not block.
func (k *Keeper) Signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// abandon closes a session whose opener lost patience: now if it is open, else as soon as it is.
func (k *Keeper) abandon(s *Session) {
	k.mu.Lock()
	s.abandoned = true
	if s.id != 0 && s.end == nil {
		k.closeLocked(s)
	}
	k.mu.Unlock()
	k.home.Pump()
}

// closeLocked ends a session as its owner would. While a claim that it lost is on its way to linger, or has inherited what was lost and not had
// its turn, all that it has is lost: on the claim's shard the end may come first, by way of home.
func (k *Keeper) closeLocked(s *Session) {
	lost := slices.ContainsFunc(k.mu.losing[s], func(call *outbox.Call) bool { return !call.IsDone() })
	for _, c := range s.claims {
		lost = lost || c.lingersLocked()
	}
	for _, c := range k.mu.unknown {
		lost = lost || c.session == s && c.lingersLocked()
	}
	k.endLocked(s, session.Closed, outbox.ErrSessionClosed)
	s.closing = k.queueCloseLocked(s, lost)
}

// losingLocked notes a request of a session by which something of it is lost.
func (k *Keeper) noteLossLocked(s *Session, call *outbox.Call) {
	k.mu.losing[s] = append(slices.DeleteFunc(k.mu.losing[s], (*outbox.Call).IsDone), call)
}

// queueCloseLocked has a session closed that has ended here: at home, which decides it for all shards, and on every shard that
// knows it, which spares the way over home. A remote one only at home: another shard may not know of a newer attachment yet. The ensemble
// is told if it was lost, to silence: that is an expiry.
func (k *Keeper) queueCloseLocked(s *Session, lost bool) (closing []closeCall) {
	for _, o := range k.outboxes {
		if o == k.home || s.remote == nil && s.Owner.Known(o.Shard) {
			call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestClose, Session: s.id, Attached: s.Attached(), Lost: lost})
			o.QueueEnd(call)
			closing = append(closing, closeCall{o, call})
		}
	}
	return closing
}

// introduce has a shard admit a session that has not ended, as somebody with the identities; ctx ends no later than the session.
func (k *Keeper) introduce(ctx context.Context, s *Session, o *outbox.Outbox, identities []tree.Identity) error {
	k.mu.Lock()
	if s.end != nil {
		k.mu.Unlock()
		return s.end
	}
	call := k.introduceLocked(s, o, identities, func(call *outbox.Call) bool { o.Queue(call); return true })
	k.mu.Unlock()
	o.Pump()
	return o.Wait(ctx, call, outbox.Forever)
}

// introduceLocked queues what has a shard admit a session, unless queue does not take it.
func (k *Keeper) introduceLocked(s *Session, o *outbox.Outbox, identities []tree.Identity, queue func(*outbox.Call) bool) *outbox.Call {
	call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestIntroduce, Session: s.id, Timeout: s.timeout, Attached: s.Attached(), Identities: identities})
	if !queue(call) {
		return nil
	}
	maps.DeleteFunc(s.introducing, func(call *outbox.Call, _ *outbox.Outbox) bool { return call.IsDone() })
	if s.introducing == nil {
		s.introducing = make(map[*outbox.Call]*outbox.Outbox)
	}
	s.introducing[call] = o
	return call
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

// cancel takes every queued request of the sessions out, on every shard, their ends excepted.
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

// giveUp completes the requests of the sessions that were sent: nobody may ever learn what became of them.
func (k *Keeper) abandonSent(sessions ...*Session) {
	for _, o := range k.outboxes {
		o.AbandonSent(outbox.ErrUnknownOutcome, ownersOf(sessions)...)
	}
}

// endLocked ends a session on this node for good: its claims and watches end with why.
func (k *Keeper) endLocked(s *Session, state session.State, why error) {
	if s.end != nil {
		return
	}
	s.end = why
	if why == outbox.ErrSessionExpired {
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
		c.finishLocked(why)
	}
	s.watches.endAll(why)
	for call, o := range s.introducing {
		o.Abandon(call, why) // before anybody can know of the end: see purger
	}
	s.claims, s.introducing = nil, nil
	delete(k.mu.losing, s)
	s.Owner.End(why)
	if s.cancel != nil {
		s.cancel(why)
	}
}

// drop ends the requests of sessions that expired here: those that are queued are taken out, of those that were sent
// nobody may ever learn what became of them.
func (k *Keeper) dropCalls(expired []*Session) {
	if len(expired) == 0 {
		return
	}
	k.cancelQueued(outbox.ErrSessionExpired, expired...)
	k.abandonSent(expired...)
}

// Ended is told by a shard's log that sessions have ended. What of their requests this node has not applied yet comes later in
// that log, if at all, and is refused there; in another it may come before the end.
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
	if why == outbox.ErrSessionExpired {
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

// allLocked are the sessions of this node, in no order.
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

// Close ends every session with why and takes no further ones.
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

// CloseAll ends all in-process sessions as their owners would, also those that are still being opened, and lets nobody open another.
// Those of remote clients stay, for their clients to take elsewhere. It waits until the ensemble has them closed, no longer than ctx.
func (k *Keeper) CloseAll(ctx context.Context) error {
	k.lookAndLock() // as Session.Close
	k.mu.closing = true
	opening := maps.Clone(k.mu.opening)
	open := slices.Collect(maps.Values(k.mu.sessions))
	for _, s := range open {
		k.closeLocked(s)
	}
	k.mu.Unlock()
	k.cancelQueued(outbox.ErrSessionClosed, open...)
	k.pumpAll()
	for s, call := range opening {
		if k.home.Wait(ctx, call, 0) == nil {
			open = append(open, s)
		}
	}
	for i, s := range open {
		k.mu.Lock()
		closing := s.closing // nothing if it expired meanwhile
		k.mu.Unlock()
		if err := waitClosed(ctx, closing); err != nil {
			return fmt.Errorf("%d of %d sessions may stay until their timeouts: %w", len(open)-i, len(open), err)
		}
	}
	return nil
}
