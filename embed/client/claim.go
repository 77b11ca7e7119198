package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	rules "github.com/vivarium-go/vivarium/engine/claim"
	"github.com/vivarium-go/vivarium/internal/wire"
	life "github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A claim is the ephemerals of one transaction with which the session stands in queues. It has the
// life of every claim, and the same promises but one: what a broken connection leaves behind is
// found and deleted only when the session is connected again, or ends.
type claim struct {
	rules.Life

	// Immutable.
	s    *session
	call *call

	// The outcome. Read it after the call is done.
	results []tree.Result
	refused error

	// Guarded by the session's mu.
	settled uint64  // the session's cuts that are known to reach the claim's shard no more
	ends    []*call // that end its znodes
}

var (
	_ inside.Claim = (*claim)(nil)
	_ inside.Terms = (*terms)(nil)
)

// A claim is the rules.Owner of its life.

func (c *claim) LookAndLock() { c.s.lookAndLock() }
func (c *claim) Unlock()      { c.s.mu.Unlock() }

func (c *claim) Ready() error {
	switch {
	case c.StateLocked() == rules.Submitted:
		return engine.ErrUnknownOutcome
	case c.s.mu.life.State() != life.Connected:
		return engine.ErrSuspended
	}
	return nil
}

// Stepped lists the claim, and has the server watch its znodes.
func (c *claim) Stepped(from rules.State, _ error) {
	paths, _ := c.ZnodesLocked()
	for _, path := range paths {
		switch {
		case c.StateLocked() == rules.Over && c.s.mu.claims[path] == c:
			delete(c.s.mu.claims, path)
			c.s.disarmLocked(path, watch.Persistent, false)
		case c.StateLocked() == rules.Standing && from == rules.Submitted:
			c.s.mu.claims[path] = c
			c.s.armLocked(path, watch.Persistent, c.armed(path))
		}
	}
}

// Defect has the first one logged. The next may come by the thousand.
func (c *claim) Defect(what string) {
	if !c.s.mu.defect {
		c.s.mu.defect = true
		c.s.client.log.Warn("defect in Vivarium: please report it", "session", c.s.mu.id, "cause", what)
	}
}

// Submit sends a transaction.
func (s *session) Submit(ctx context.Context, ops []tree.Op, t inside.Terms) inside.Pending {
	return pending{s.submit(ctx, ops, t, nil)}
}

// Do sends a transaction and waits for it.
func (s *session) Do(ctx context.Context, ops []tree.Op, t inside.Terms) ([]tree.Result, error) {
	c := s.submit(ctx, ops, t, nil)
	if err := s.wait(ctx, c); err != nil {
		return nil, err
	}
	return outcome(c)
}

func (s *session) submit(ctx context.Context, ops []tree.Op, t inside.Terms, then func(*call)) *call {
	own, _ := t.(*terms)
	n := wire.Native{Kind: wire.NativeSubmit, Ops: native.AppendOps(make([]wire.NativeOp, 0, len(ops)), ops)}
	for i := range n.Ops {
		n.Ops[i].Data = slices.Clone(n.Ops[i].Data) // the caller may reuse it
	}
	c := nativeCall(n)
	c.write, c.terms = true, own
	c.then = func(c *call) {
		s.mu.made.note(c)
		s.pruneLocked()
		if own != nil && c.err == nil {
			own.doneLocked(c.reply.Native.Failure == 0)
		}
		if then != nil {
			then(c)
		}
	}
	s.enqueue(ctx, c)
	return c
}

// outcome returns the outcome of a transaction that is known.
func outcome(c *call) ([]tree.Result, error) {
	if c.err != nil {
		return nil, c.err
	}
	if err := answered(&c.reply); err != nil {
		return nil, err
	}
	return native.Results(c.reply.Native.Results), nil
}

// A pending is a transaction on its way.
type pending struct{ c *call }

func (p pending) Done() <-chan struct{} { return p.c.done }

func (p pending) Result() ([]tree.Result, error) {
	<-p.c.done
	return outcome(p.c)
}

// Claim sends a transaction that creates ephemerals.
func (s *session) Claim(ctx context.Context, ops []tree.Op, t inside.Terms) inside.Claim {
	own, _ := t.(*terms)
	c := &claim{s: s}
	c.Begin(c, ops, own != nil && own.inherits)
	c.call = s.submit(ctx, ops, t, c.applied)
	return c
}

// applied records the transaction's outcome, under the session's mu.
func (c *claim) applied(call *call) {
	c.results, c.refused = outcome(call)
	if c.refused != nil {
		c.FinishLocked(engine.Single(c.refused))
		if errors.Is(c.refused, engine.ErrUnknownOutcome) && c.s.mu.end == nil {
			c.s.mu.unknown = append(c.s.mu.unknown, c)
		}
		return
	}
	c.settled = c.s.mu.cuts
	r := c.AppliedLocked(c.results, c.s.mu.id, c.s.mu.end)
	if r.Lost && c.s.mu.end == engine.ErrSessionClosed {
		c.queueEndsLocked(r) // before the session's end deletes them
	} else {
		c.removeLocked(r)
	}
}

// armed returns what is to be done when the server watches a znode of the claim.
func (c *claim) armed(path string) func(*call) {
	return func(call *call) {
		if call.err != nil {
			return // the connection is gone, and resumeClaimsLocked asks again
		}
		if call.reply.Native.Failure != 0 { // it would not be told of its end
			c.removeLocked(c.EndLocked(fmt.Errorf("its znode cannot be watched: %w", engine.Single(answered(&call.reply)))))
			return
		}
		_, czxid := c.ZnodesLocked()
		if r := &call.reply.Native; !r.Flag || tree.Zxid(r.Stat.Czxid) != czxid || tree.SessionID(r.Stat.EphemeralOwner) != c.s.mu.id {
			c.goneLocked(path)
		}
	}
}

// Created waits for the transaction's outcome until ctx ends, or at most for the request timeout if
// ctx has no deadline. Then the outcome stays unknown.
func (c *claim) Created(ctx context.Context) ([]tree.Result, error) {
	var expired <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		t := time.NewTimer(c.s.client.config.RequestTimeout)
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-c.call.done:
		return c.results, c.refused
	default:
	}
	select {
	case <-c.call.done:
		return c.results, c.refused
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-expired:
		return nil, engine.ErrUnknownOutcome
	}
}

// Flush waits until everything that the session submitted before is applied or refused. A broken
// connection may have taken a write along that still reaches the member. It comes before what the
// next connection sends, if it comes at all.
func (c *claim) Flush() error {
	if _, err := c.Created(context.Background()); err != nil {
		return err
	}
	c.s.mu.Lock()
	cuts := c.s.mu.cuts
	busy := c.settled != cuts || c.s.mu.writes > 0
	guards := c.OpsLocked(tree.KindGuard)
	c.s.mu.Unlock()
	if !busy {
		return nil
	}
	_, err := c.s.Do(context.Background(), guards, nil)
	if err != nil && !errors.Is(err, tree.ErrNotHeld) { // if the znode is gone, the rest is over too
		return err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.settled = max(c.settled, cuts)
	return nil
}

// Release gives the claim up. If it was held, Release waits until its znodes are deleted.
func (c *claim) Release() error {
	c.s.lookAndLock() // a claim that was lost before is not given up
	if c.s.cancelLocked(c.call, engine.ErrReleased) {
		c.s.mu.Unlock()
		return nil
	}
	c.removeLocked(c.EndLocked(engine.ErrReleased))
	ends, held := c.ends, c.WasHeldLocked()
	c.s.mu.Unlock()
	if !held {
		return nil // it kept nobody out
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.s.client.config.RequestTimeout)
	defer cancel()
	for _, call := range ends {
		err := c.s.wait(ctx, call)
		if errors.Is(err, engine.ErrSessionExpired) {
			continue // its znodes have ended with the session
		}
		if err != nil {
			return err
		}
		if err := answered(&call.reply); err != nil {
			return engine.Single(err)
		}
	}
	return nil
}

// goneLocked ends the claim because one of its znodes is gone.
func (c *claim) goneLocked(path string) { c.removeLocked(c.GoneLocked(path)) }

// removeLocked ends what a claim leaves behind, unless the session has ended, which ends it too.
func (c *claim) removeLocked(r rules.Remains) {
	if c.s.mu.end == nil {
		c.queueEndsLocked(r)
	}
}

// queueEndsLocked queues the calls that end znodes of the claim, ahead of the session's other calls.
func (c *claim) queueEndsLocked(r rules.Remains) {
	for _, path := range r.Paths {
		c.ends = append(c.ends, c.s.releaseLocked(path, r.Czxid, r.Lost))
	}
}

// releaseLocked queues a call that ends an ephemeral of the session.
func (s *session) releaseLocked(path string, czxid tree.Zxid, lost bool) *call {
	call := nativeCall(wire.Native{Kind: wire.NativeRelease, Path: path, Zxid: int64(czxid), Flag: lost})
	call.owed = true
	delete(s.mu.made, path)
	s.queueLocked(call)
	return call
}

// resumeClaimsLocked looks after the claims on a new connection: some may be gone, and some may be
// there whose outcome the last connection took along.
func (s *session) resumeClaimsLocked() {
	for path, c := range s.mu.claims {
		s.armAgainLocked(place{path, watch.Persistent}, c.armed(path))
	}
	if len(s.mu.unknown) == 0 {
		return
	}
	// What the last connection still has on its way comes before these, if it comes at all.
	for _, c := range s.mu.unknown {
		settle := nativeCall(wire.Native{Kind: wire.NativeSubmit, Ops: native.AppendOps(nil, []tree.Op{{Kind: tree.KindCheck, Path: c.Asked()[0].Path, Version: tree.AnyVersion}})})
		settle.owed = true
		s.queueLocked(settle)
	}
	list := pathCall(wire.OpGetEphemerals, "")
	list.dropped = true
	list.then = func(list *call) {
		if list.err != nil || list.reply.Err != wire.OK || s.mu.end != nil {
			return // the next connection asks again
		}
		unknown := s.mu.unknown
		s.mu.unknown = nil
		for _, path := range list.reply.Names {
			var by *claim // an heir if there is one: its znode must not go at once
			for _, c := range unknown {
				if c.mayHave(path) && (by == nil || c.LingersLocked()) {
					by = c
				}
			}
			if by != nil {
				s.findLocked(path, by)
			}
		}
	}
	s.queueLocked(list)
}

// findLocked deletes an ephemeral of the session that a claim with an unknown outcome may have
// created, unless somebody knows that it is another's.
func (s *session) findLocked(path string, c *claim) {
	look := pathCall(wire.OpExists, path)
	look.owed = true
	if c.LingersLocked() {
		s.mu.looks++
	}
	look.then = func(look *call) {
		if c.LingersLocked() {
			s.mu.looks--
		}
		czxid := tree.Zxid(look.reply.Stat.Czxid)
		if look.err != nil || look.reply.Err != wire.OK || s.mu.end != nil || s.mu.made.has(path, czxid) {
			return
		}
		s.releaseLocked(path, czxid, c.LingersLocked())
	}
	s.queueLocked(look)
}

// mayHave reports whether the claim may have created path.
func (c *claim) mayHave(path string) bool {
	return slices.ContainsFunc(c.Asked(), func(op tree.Op) bool { return rules.MayBe(&op, path) })
}

// made are the ephemerals that the session is known to have created, with their creations. It
// forgets those that the session has deleted.
type made map[string]tree.Zxid

func (m *made) has(path string, czxid tree.Zxid) bool { return (*m)[path] == czxid }

// note takes in the outcome of a transaction.
func (m *made) note(c *call) {
	if c.err != nil || c.reply.Native.Failure != 0 {
		return
	}
	for i := range c.reply.Native.Results {
		r := &c.reply.Native.Results[i]
		switch op := &c.request.Native.Ops[i]; {
		case tree.OpKind(op.Kind) == tree.KindDelete:
			delete(*m, op.Path)
		case tree.OpKind(op.Kind) == tree.KindCreate && r.Stat.EphemeralOwner != 0:
			if *m == nil {
				*m = make(made)
			}
			(*m)[r.Path] = tree.Zxid(r.Stat.Czxid)
		}
	}
}

// madeMin is from how many on the session asks which of its ephemerals others have deleted.
const madeMin = 1000

// pruneLocked forgets ephemerals that others have deleted, when there may be as many of them as of
// those that are left.
func (s *session) pruneLocked() {
	if len(s.mu.made) < max(madeMin, s.mu.pruneAt) || s.mu.end != nil {
		return
	}
	s.mu.pruneAt = 2 * len(s.mu.made)
	list := pathCall(wire.OpGetEphemerals, "")
	list.dropped = true
	list.then = func(list *call) {
		if list.err != nil || list.reply.Err != wire.OK {
			return
		}
		kept := make(made)
		for _, path := range list.reply.Names {
			if czxid, ok := s.mu.made[path]; ok {
				kept[path] = czxid
			}
		}
		s.mu.made, s.mu.pruneAt = kept, 2*len(kept)
	}
	s.queueLocked(list)
}

// terms are the inside.Terms of a transaction of a client's session.
type terms struct {
	s        *session
	inherits bool
	guards   rules.Guards // the tenures that guard it
	leaves   []*claim     // whose znodes it deletes
}

// NewTerms returns the terms of a transaction.
func (s *session) NewTerms() inside.Terms { return &terms{s: s} }

// Set keeps whether a claim inherits. The members count no claims of clients.
func (t *terms) Set(inherits bool, _ engine.ClaimKind) { t.inherits = inherits }

// Guard returns operations that refuse the transaction unless the tenure lasts.
func (t *terms) Guard(by *engine.Tenure) ([]tree.Op, error) {
	if by == nil {
		return nil, fmt.Errorf("%w: there is no tenure", tree.ErrNotHeld)
	}
	if c, ok := by.Owner().(*claim); !ok || c.s != t.s {
		return nil, fmt.Errorf("%w: over a connection, a tenure guards transactions of its own session only", tree.ErrNotHeld)
	}
	ops, err := by.Guard(true)
	if err == nil {
		t.guards = append(t.guards, by)
	}
	return ops, err
}

// Release returns operations that delete a claim's znodes. Its tenure ends now.
func (t *terms) Release(of inside.Claim) ([]tree.Op, error) {
	if of == nil {
		return nil, fmt.Errorf("%w: there is no claim", tree.ErrNotHeld)
	}
	c, ok := of.(*claim)
	if !ok || c.s != t.s {
		return nil, fmt.Errorf("%w: a claim is given up by its own session", tree.ErrNotHeld)
	}
	ops, err := c.Leave()
	if err == nil {
		t.leaves = append(t.leaves, c)
	}
	return ops, err
}

// Undo is called if the transaction is not sent.
func (t *terms) Undo() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.undoLocked()
}

// undoLocked is called when the transaction has failed, or may have.
func (t *terms) undoLocked() {
	for _, c := range t.leaves {
		c.removeLocked(c.StayLocked())
	}
	t.leaves = nil
}

// doneLocked is called when the transaction was applied or refused.
func (t *terms) doneLocked(applied bool) {
	if !applied {
		t.undoLocked()
		return
	}
	for _, c := range t.leaves {
		c.FinishLocked(engine.ErrReleased)
	}
	t.leaves = nil
}

// tenures returns the tenures that guard the transaction.
func (t *terms) tenures() rules.Guards {
	if t == nil {
		return nil
	}
	return t.guards
}
