package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A Claim is the ephemeral znodes of one transaction with which a session stands in queues. The
// session may hold the claim for a while. In the end the znodes are always deleted, or linger if
// they were lost and have a TTL. The keeper is responsible for them from the moment the transaction
// is submitted, so a caller who loses patience while the outcome is unknown leaves nothing behind.
//
//	             applied                 Hold
//	submitted ─────────────▶ standing ◀──────────▶ held
//	    │                     │   ▲    Tenure.End   │
//	    │        With.Release │   │ Undo            │
//	    │                     ▼   │                 │
//	    │                    leaving                │
//	    ▼                       ▼                   ▼
//	  over, from every state: failed, released, deleted, lost, or its session ended
//
// Invariants, under the keeper's mu:
//  1. tenure is set exactly while the claim is held, and err exactly once it is over;
//  2. the session's claims are those that are standing, held or leaving, under each of their paths;
//  3. a claim that is over never leaves that state. If its transaction is applied only then, its
//     znodes are deleted.
type Claim struct {
	// Immutable.
	session *Session
	outbox  *outbox.Outbox // of the claim's shard
	call    *outbox.Call
	asked   []tree.Op // the creates of ephemerals, without their data
	heir    bool      // it takes the place of something lost, and is lost itself until it is held
	kind    ClaimKind // for the metrics only

	// The outcome. Read it after the call is done.
	results []tree.Result

	// Guarded by the keeper's mu.
	state   claimState
	paths   []string // of the znodes, once they are created
	czxid   tree.Zxid
	wasHeld bool    // it is held, or was
	again   bool    // the newest Hold allowed others after it
	tenure  *Tenure // the current one
	err     error   // why the claim is over
	done    chan struct{}
	ends    []*outbox.Call // the calls that end its znodes
}

// A claimState is where a claim is in its life.
type claimState uint8

// The states of a claim.
const (
	claimSubmitted claimState = iota // its transaction has no outcome here yet
	claimStanding                    // its znodes stand in their queues
	claimHeld                        // a tenure lasts
	claimLeaving                     // a transaction of its owner that deletes its znodes is on its way
	claimOver                        // ended on this node; its znodes may still exist
)

// claimSteps has for each state the states that may follow.
var claimSteps = [...][]claimState{
	claimSubmitted: {claimStanding, claimOver},
	claimStanding:  {claimHeld, claimLeaving, claimOver},
	claimHeld:      {claimStanding, claimOver},
	claimLeaving:   {claimStanding, claimOver},
	claimOver:      nil,
}

// goToLocked moves the claim to its next state. A step that Claim does not draw is a defect of this
// package. It must not take down the process, which belongs to the service: the log says so, and
// the claim takes the step, but a claim that is over stays over.
func (c *Claim) goToLocked(next claimState) {
	if !slices.Contains(claimSteps[c.state], next) {
		c.session.keeper.defectLocked(c.session, fmt.Sprintf("a claim in state %d goes to %d", c.state, next))
		if c.state == claimOver {
			return
		}
	}
	c.countLocked(-1)
	c.state = next
	c.countLocked(1)
}

// countLocked adds n to what counts claims in the claim's state. A claim that was held before does
// not wait: its znodes keep others out.
func (c *Claim) countLocked(n int) {
	k := c.session.keeper
	switch {
	case c.state == claimHeld:
		k.mu.claims.Held[c.kind] += n
	case !c.wasHeld && (c.state == claimStanding || c.state == claimLeaving):
		k.mu.claims.Standing[c.kind] += n
	}
}

// ephemerals returns the creates among ops that a claim stands for.
func ephemerals(ops []tree.Op) (asked []tree.Op) {
	for _, op := range ops {
		if op.Kind == tree.KindCreate && op.Mode.IsEphemeral() {
			asked = append(asked, tree.Op{Path: op.Path, Mode: op.Mode})
		}
	}
	return asked
}

// Claim submits a transaction that creates ephemerals, unless ctx has ended.
func (s *Session) Claim(ctx context.Context, ops []tree.Op, with *With) *Claim {
	at, err := s.keeper.node.Route(ops)
	c := &Claim{session: s, outbox: s.keeper.outboxes[at-1], asked: ephemerals(ops), done: make(chan struct{}), call: s.newTxn(ops, with)}
	c.call.OnOutcome = c.applied
	if with != nil {
		c.heir, c.kind = with.Inherits, with.Kind
	}
	if c.heir {
		k := s.keeper
		k.mu.Lock()
		if s.end == nil { // the end of a session is what forgets the loss
			k.noteLossLocked(s, c.call)
		}
		k.mu.Unlock()
	}
	s.send(c.outbox, c.call, s.admissible(ctx, c.call, ops, err))
	return c
}

// lingersLocked reports whether the claim's znodes linger when it ends. A claim that inherits has
// taken the place of something lost, whose owner may still have a call on its way to another shard.
// Only once the claim has been held is it certain that the call has arrived.
func (c *Claim) lingersLocked() bool { return c.heir && !c.wasHeld }

// applied records the transaction's outcome, before the caller gets it. If the transaction was
// applied, applied runs on the apply goroutine.
func (c *Claim) applied(call *outbox.Call) {
	k := c.session.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if call.Err != nil {
		c.finishLocked(Single(call.Err))
		if call.Err == outbox.ErrUnknownOutcome && c.session.end == nil {
			k.mu.unknown = append(k.mu.unknown, c)
		}
		return
	}
	c.results = call.Results
	for _, r := range c.results {
		if r.Kind == tree.KindCreate && r.Stat.EphemeralOwner == c.session.id {
			c.paths, c.czxid = append(c.paths, r.Path), r.Stat.Czxid
		}
	}
	switch {
	case c.session.end != nil:
		c.finishLocked(c.session.end)
	case c.state == claimOver: // released before the outcome was known
		c.removeLocked(c.paths, c.czxid, c.lingersLocked(), c.outbox.QueueEnd)
	default:
		c.goToLocked(claimStanding)
		if c.session.claims == nil {
			c.session.claims = make(map[string]*Claim)
		}
		for _, path := range c.paths {
			c.session.claims[path] = c
		}
	}
}

// Created waits for the transaction's outcome until ctx ends. If ctx has no deadline, it waits at
// most for the node's request timeout, and the outcome stays unknown.
func (c *Claim) Created(ctx context.Context) ([]tree.Result, error) {
	select {
	case <-c.call.Done:
		return c.results, c.call.Err
	default:
	}
	var expired <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		timers := &c.session.keeper.timers
		t := timers.Get(c.session.keeper.options.RequestTimeout)
		defer timers.Put(t)
		expired = t.C
	}
	select {
	case <-c.call.Done:
		return c.results, c.call.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-expired:
		return nil, outbox.ErrUnknownOutcome
	}
}

// Hold begins a tenure. The tenure lasts until the session's local deadline, the end of the session
// or of the claim, or Tenure.End.
//
// Hold fails if the znodes are not known to exist, if the session is not safe at this moment, or if
// the claim is held or was. With again at every Hold, the claim may be held again after each tenure
// has ended. A remote session is never safe: its client judges what it holds, and may reattach the
// session elsewhere before this node knows.
func (c *Claim) Hold(again bool) (*Tenure, error) {
	k := c.session.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	switch {
	case c.state == claimOver:
		return nil, c.err
	case c.state == claimSubmitted:
		return nil, outbox.ErrUnknownOutcome
	case c.session.remote != nil || c.session.life.State() != session.Connected:
		return nil, ErrSuspended
	case c.state != claimStanding || c.wasHeld && !(again && c.again):
		return nil, fmt.Errorf("%w: it is held already, or was", tree.ErrNotHeld)
	}
	c.goToLocked(claimHeld)
	c.wasHeld, c.again = true, again
	c.tenure = &Tenure{claim: c}
	return c.tenure, nil
}

// Flush waits until everything that the session submitted before, on the claim's shard, has been
// applied or refused here. It costs a commit, or nothing if there is nothing to wait for.
//
// Flush waits at most for the node's request timeout, after at most as long for the claim's own
// outcome.
func (c *Claim) Flush() error {
	if !c.outbox.Busy(c.session.Owner) {
		return nil
	}
	if _, err := c.Created(context.Background()); err != nil {
		return err
	}
	p := c.session.Submit(context.Background(), []tree.Op{{Kind: tree.KindGuard, Path: c.paths[0], Czxid: c.czxid}})
	_, err := p.Wait(context.Background())
	if errors.Is(err, tree.ErrNotHeld) {
		return nil // the znode is gone, so everything before is applied or refused
	}
	return err
}

// Done compares the clock and returns a channel that is closed when the claim has ended.
func (c *Claim) Done() <-chan struct{} {
	c.session.keeper.CheckDeadlines()
	return c.done
}

// Err compares the clock and returns why the claim ended, or nil while it has not.
func (c *Claim) Err() error {
	k := c.session.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return c.err
}

// Release gives the claim up. A transaction that was not sent yet is cancelled. Otherwise the
// znodes are deleted as soon as its outcome is known. The deletion overtakes every queued call
// except the session's own.
//
// If the claim was held, Release waits until the znodes are deleted, at most for the node's request
// timeout. Release is idempotent, and deletes only the claim's own znodes. It compares the clock
// first: a claim whose deadline has passed was lost, and Err goes on saying so.
func (c *Claim) Release() error {
	k := c.session.keeper
	k.CheckDeadlines() // a claim that was lost before is not given up
	if c.outbox.Cancel(c.call, ErrReleased) {
		return nil
	}
	k.mu.Lock()
	c.endLocked(ErrReleased, false, c.outbox.QueueRelease)
	deletions, held := c.ends, c.wasHeld
	k.mu.Unlock()
	if len(deletions) == 0 {
		return nil
	}
	c.outbox.Pump()
	if !held {
		return nil // the claim kept nobody out, and a caller that leaves a queue may have no time left
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.session.keeper.options.RequestTimeout)
	defer cancel()
	for _, call := range deletions {
		if err := c.outbox.Wait(ctx, call, 0); err != nil {
			return err
		}
	}
	return nil
}

// leave prepares for a transaction of session s that deletes the claim's znodes, and returns the
// operations that do so. The tenure ends now, whatever the transaction's outcome: others may see
// the znodes gone before this node does.
func (c *Claim) leave(s *Session) ([]tree.Op, error) {
	if c == nil {
		return nil, fmt.Errorf("%w: there is no claim", tree.ErrNotHeld)
	}
	if c.session != s {
		return nil, fmt.Errorf("%w: a claim is given up by its own session", tree.ErrNotHeld)
	}
	k := s.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	switch {
	case c.state == claimOver:
		return nil, fmt.Errorf("%w: %w", tree.ErrNotHeld, c.err)
	case c.state == claimSubmitted || c.state == claimLeaving:
		return nil, fmt.Errorf("%w: a claim is given up once, when its znodes are there", tree.ErrNotHeld)
	}
	if c.tenure != nil {
		c.tenure.endLocked(ErrReleased)
	}
	c.goToLocked(claimLeaving)
	ops := make([]tree.Op, len(c.paths))
	for i, path := range c.paths {
		ops[i] = tree.Op{Kind: tree.KindDelete, Path: path, Version: tree.AnyVersion, Czxid: c.czxid}
	}
	return ops, nil
}

// stay records that the transaction failed that was to delete the claim's znodes.
func (c *Claim) stay() {
	k := c.session.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.state == claimLeaving {
		c.goToLocked(claimStanding)
	}
	if c.state == claimOver && c.session.end == nil { // the transaction failed because somebody deleted one of the znodes
		c.removeLocked(c.paths, c.czxid, c.lingersLocked(), c.outbox.QueueEnd)
		c.outbox.Signal()
	}
}

// goneLocked ends the claim because one of its znodes is gone, or is about to be.
func (c *Claim) goneLocked(path string) {
	switch c.state {
	case claimOver:
		return
	case claimLeaving:
		c.finishLocked(ErrReleased)
		return
	}
	c.finishLocked(ErrDeleted)
	if rest := slices.DeleteFunc(slices.Clone(c.paths), func(p string) bool { return p == path }); len(rest) > 0 {
		c.removeLocked(rest, c.czxid, c.lingersLocked(), c.outbox.QueueEnd) // a claim ends as a whole
		c.outbox.Signal()
	}
}

// endLocked ends the claim. Its znodes are deleted, or linger if the claim was lost. queue queues
// the calls for that.
func (c *Claim) endLocked(why error, lost bool, queue func(*outbox.Call)) {
	if c.state == claimOver {
		return
	}
	created := c.state != claimSubmitted
	c.finishLocked(why)
	if created && c.session.end == nil {
		c.removeLocked(c.paths, c.czxid, lost || c.lingersLocked(), queue)
	}
}

// findLocked deletes the znodes of a claim whose outcome never reached this node, because a
// snapshot replaced that part of the log. It looks for znodes that came with the snapshot and
// belong to the session. Their names are those asked for, and no other claim has them. found has
// the znodes that were found for other claims.
func (c *Claim) findLocked(old, next *tree.Tree, found map[string]bool) {
	if c.session.end != nil {
		return // the end of the session deletes its znodes
	}
	for i := range c.asked {
		if path, czxid, ok := c.session.findCreated(&c.asked[i], old, next, found); ok {
			found[path] = true
			c.removeLocked([]string{path}, czxid, c.lingersLocked(), c.outbox.QueueEnd) // the caller already has its outcome, which is unknown
		}
	}
}

// findCreated returns a znode of the session that came with a snapshot and that op may have
// created.
func (s *Session) findCreated(op *tree.Op, old, next *tree.Tree, found map[string]bool) (path string, czxid tree.Zxid, ok bool) {
	parent := tree.Parent(op.Path)
	names, _, err := next.Children(parent)
	if err != nil {
		return "", 0, false
	}
	for _, name := range names {
		path := strings.TrimSuffix(parent, "/") + "/" + name
		if !mayBe(op, path) || found[path] || s.claims[path] != nil {
			continue
		}
		stat, _ := next.Exists(path)
		before, was := old.Exists(path)
		if stat.EphemeralOwner != s.id || was && before.Czxid == stat.Czxid {
			continue
		}
		return path, stat.Czxid, true
	}
	return "", 0, false
}

// mayBe reports whether op may have created path.
func mayBe(op *tree.Op, path string) bool {
	if op.Mode != tree.EphemeralSequential {
		return path == op.Path
	}
	suffix, ok := strings.CutPrefix(path, op.Path)
	return ok && len(suffix) == 10 && strings.Trim(suffix, "0123456789") == ""
}

// removeLocked queues the calls that end znodes of the claim.
func (c *Claim) removeLocked(paths []string, czxid tree.Zxid, lost bool, queue func(*outbox.Call)) {
	s := c.session
	for _, path := range paths {
		call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestRelease, Session: s.id, Path: path, Czxid: czxid, Lost: lost})
		if lost {
			s.keeper.noteLossLocked(s, call)
		}
		c.ends = append(c.ends, call)
		queue(call)
	}
}

// finishLocked ends the claim. It deletes nothing: its znodes are gone, go with the session, or are
// the caller's to end.
func (c *Claim) finishLocked(why error) {
	if c.state == claimOver {
		return
	}
	c.goToLocked(claimOver)
	c.err = why
	for _, path := range c.paths {
		delete(c.session.claims, path)
	}
	close(c.done)
	if c.tenure != nil {
		c.tenure.endLocked(why)
	}
}
