package keeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine/claim"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A Claim is the ephemeral znodes of one transaction with which a session stands in queues: see
// claim.Life. A remote session's claim is never held: its client judges what it holds, and may
// reattach the session elsewhere before this node knows.
type Claim struct {
	claim.Life

	// Immutable.
	session *Session
	outbox  *outbox.Outbox // of the claim's shard
	call    *outbox.Call
	kind    ClaimKind // for the metrics only

	ends []*outbox.Call // the calls that end its znodes; guarded by the keeper's mu
}

// A Tenure is one period for which a claim is held.
type Tenure = claim.Tenure

// An owner is a Claim as its life knows it: a claim.Owner.
type owner Claim

func (o *owner) LookAndLock()       { o.session.keeper.lookAndLock() }
func (o *owner) Unlock()            { o.session.keeper.mu.Unlock() }
func (o *owner) Defect(what string) { o.session.keeper.defectLocked(o.session, what) }

func (o *owner) Ready() error {
	switch {
	case o.StateLocked() == claim.Submitted:
		return outbox.ErrUnknownOutcome
	case o.session.remote != nil || o.session.life.State() != session.Connected:
		return ErrSuspended
	}
	return nil
}

// Stepped lists the claim, counts it, and counts the end of a tenure.
func (o *owner) Stepped(from claim.State, why error) {
	s, now := o.session, o.StateLocked()
	o.countLocked(from, -1)
	o.countLocked(now, 1)
	if from == claim.Held {
		s.keeper.Meters.noteLoss(why)
	}
	paths, _ := o.ZnodesLocked()
	switch {
	case now == claim.Over:
		for _, path := range paths {
			delete(s.claims, path)
		}
	case from == claim.Submitted:
		if s.claims == nil {
			s.claims = make(map[string]*Claim)
		}
		for _, path := range paths {
			s.claims[path] = (*Claim)(o)
		}
	}
}

// countLocked adds n to what counts claims in a state. A claim that was held before does not wait:
// its znodes keep others out.
func (o *owner) countLocked(in claim.State, n int) {
	counts := &o.session.keeper.mu.claims
	switch {
	case in == claim.Held:
		counts.Held[o.kind] += n
	case !o.WasHeldLocked() && (in == claim.Standing || in == claim.Leaving):
		counts.Standing[o.kind] += n
	}
}

// Claim submits a transaction that creates ephemerals, unless ctx has ended.
func (s *Session) Claim(ctx context.Context, ops []tree.Op, with *With) *Claim {
	at, err := s.keeper.node.Route(ops)
	c := &Claim{session: s, outbox: s.keeper.outboxes[at-1], call: s.newTxn(ops, with)}
	c.call.OnOutcome = c.applied
	if with != nil {
		c.kind = with.Kind
	}
	c.Begin((*owner)(c), ops, with != nil && with.Inherits)
	if with != nil && with.Inherits {
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

// applied records the transaction's outcome, before the caller gets it. If the transaction was
// applied, applied runs on the apply goroutine.
func (c *Claim) applied(call *outbox.Call) {
	k := c.session.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if call.Err != nil {
		c.FinishLocked(Single(call.Err))
		if call.Err == outbox.ErrUnknownOutcome && c.session.end == nil {
			k.mu.unknown = append(k.mu.unknown, c)
		}
		return
	}
	c.removeLocked(c.AppliedLocked(call.Results, c.session.id, c.session.end), c.outbox.QueueEnd)
}

// Created waits for the transaction's outcome until ctx ends. If ctx has no deadline, it waits at
// most for the node's request timeout, and the outcome stays unknown.
func (c *Claim) Created(ctx context.Context) ([]tree.Result, error) {
	select {
	case <-c.call.Done:
		return c.call.Results, c.call.Err
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
		return c.call.Results, c.call.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-expired:
		return nil, outbox.ErrUnknownOutcome
	}
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
	p := c.session.Submit(context.Background(), c.OpsLocked(tree.KindGuard)) // its znodes no longer change
	_, err := p.Wait(context.Background())
	if errors.Is(err, tree.ErrNotHeld) {
		return nil // the znode is gone, so everything before is applied or refused
	}
	return err
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
	c.removeLocked(c.EndLocked(ErrReleased), c.outbox.QueueRelease)
	deletions, held := c.ends, c.WasHeldLocked()
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

// stay records that the transaction failed that was to delete the claim's znodes.
func (c *Claim) stay() {
	k := c.session.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.removeLocked(c.StayLocked(), c.outbox.QueueEnd) {
		c.outbox.Signal()
	}
}

// findLocked deletes the znodes of a claim whose outcome never reached this node, because a
// snapshot replaced that part of the log. It looks for znodes that came with the snapshot and
// belong to the session. Their names are those asked for, and no other claim has them. found has
// the znodes that were found for other claims.
func (c *Claim) findLocked(old, next *tree.Tree, found map[string]bool) {
	for i := range c.Asked() {
		if path, czxid, ok := c.session.findCreated(&c.Asked()[i], old, next, found); ok {
			found[path] = true
			c.removeLocked(claim.Remains{Paths: []string{path}, Czxid: czxid, Lost: c.LingersLocked()}, c.outbox.QueueEnd) // the caller already has its outcome, which is unknown
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
		if !claim.MayBe(op, path) || found[path] || s.claims[path] != nil {
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

// removeLocked queues the calls that end what a claim leaves behind, unless the session has ended,
// which ends it too. It reports whether there is any.
func (c *Claim) removeLocked(r claim.Remains, queue func(*outbox.Call)) bool {
	s := c.session
	if s.end != nil || len(r.Paths) == 0 {
		return false
	}
	for _, path := range r.Paths {
		call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestRelease, Session: s.id, Path: path, Czxid: r.Czxid, Lost: r.Lost})
		if r.Lost {
			s.keeper.noteLossLocked(s, call)
		}
		c.ends = append(c.ends, call)
		queue(call)
	}
	return true
}
