package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	life "github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A claim is the ephemerals of one transaction with which the session stands in queues. It has the
// states of keeper.Claim, and the same promises but one: what a broken connection leaves behind is
// found and deleted only when the session is connected again, or ends.
type claim struct {
	// Immutable.
	s     *session
	call  *call
	asked []tree.Op // the creates of ephemerals, without their data
	heir  bool      // it takes the place of something lost, and is lost itself until it is held

	// The outcome. Read it after the call is done.
	results []tree.Result

	// Guarded by the session's mu.
	state   claimState
	paths   []string
	czxid   tree.Zxid
	wasHeld bool
	again   bool
	settled uint64 // the session's cuts that are known to reach the claim's shard no more
	tenure  *tenure
	err     error
	done    chan struct{}
	ends    []*call // that end its znodes
}

type claimState uint8

const (
	claimSubmitted claimState = iota // its transaction has no outcome here yet
	claimStanding                    // its znodes stand in their queues
	claimHeld                        // a tenure lasts
	claimLeaving                     // a transaction of its owner that deletes its znodes is on its way
	claimOver                        // ended here; its znodes may still exist
)

var (
	_ inside.Claim  = (*claim)(nil)
	_ inside.Tenure = (*tenure)(nil)
	_ inside.Terms  = (*terms)(nil)
)

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
	c := &claim{s: s, done: make(chan struct{}), heir: own != nil && own.inherits}
	for _, op := range ops {
		if op.Kind == tree.KindCreate && op.Mode.IsEphemeral() {
			c.asked = append(c.asked, tree.Op{Path: op.Path, Mode: op.Mode})
		}
	}
	c.call = s.submit(ctx, ops, t, c.applied)
	return c
}

// applied records the transaction's outcome, under the session's mu.
func (c *claim) applied(call *call) {
	results, err := outcome(call)
	if err != nil {
		c.finishLocked(engine.Single(err))
		if errors.Is(err, engine.ErrUnknownOutcome) && c.s.mu.end == nil {
			c.s.mu.unknown = append(c.s.mu.unknown, c)
		}
		return
	}
	c.results, c.settled = results, c.s.mu.cuts
	for _, r := range results {
		if r.Kind == tree.KindCreate && r.Stat.EphemeralOwner == c.s.mu.id {
			c.paths, c.czxid = append(c.paths, r.Path), r.Stat.Czxid
		}
	}
	switch {
	case c.s.mu.end != nil:
		c.finishLocked(c.s.mu.end)
		if c.lingersLocked() && c.s.mu.end == engine.ErrSessionClosed {
			c.removeLocked(c.paths, true) // before the session's end deletes them
		}
	case c.state == claimOver: // released before the outcome was known
		c.removeLocked(c.paths, c.lingersLocked())
	default:
		c.state = claimStanding
		for _, path := range c.paths {
			c.s.mu.claims[path] = c
			c.s.armLocked(path, watch.Persistent, c.armed(path))
		}
	}
}

// armed returns what is to be done when the server watches a znode of the claim.
func (c *claim) armed(path string) func(*call) {
	return func(call *call) {
		if call.err != nil {
			return // the connection is gone, and resumeClaimsLocked asks again
		}
		if call.reply.Native.Failure != 0 { // it would not be told of its end
			c.endLocked(fmt.Errorf("its znode cannot be watched: %w", engine.Single(answered(&call.reply))), false)
			return
		}
		if r := &call.reply.Native; !r.Flag || tree.Zxid(r.Stat.Czxid) != c.czxid || tree.SessionID(r.Stat.EphemeralOwner) != c.s.mu.id {
			c.goneLocked(path)
		}
	}
}

// lingersLocked reports whether the claim's znodes linger when it ends.
func (c *claim) lingersLocked() bool { return c.heir && !c.wasHeld }

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
	default:
		select {
		case <-c.call.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-expired:
			return nil, engine.ErrUnknownOutcome
		}
	}
	if _, err := outcome(c.call); err != nil {
		return nil, err
	}
	return c.results, nil
}

// Hold begins a tenure.
func (c *claim) Hold(again bool) (inside.Tenure, error) {
	c.s.lookAndLock()
	defer c.s.mu.Unlock()
	switch {
	case c.state == claimOver:
		return nil, c.err
	case c.state == claimSubmitted:
		return nil, engine.ErrUnknownOutcome
	case c.s.mu.life.State() != life.Connected:
		return nil, engine.ErrSuspended
	case c.state != claimStanding || c.wasHeld && !(again && c.again):
		return nil, fmt.Errorf("%w: it is held already, or was", tree.ErrNotHeld)
	}
	c.state, c.wasHeld, c.again = claimHeld, true, again
	c.tenure = &tenure{claim: c}
	return c.tenure, nil
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
	isWrite := func(c *call) bool { return c.write }
	busy := c.settled != cuts || slices.ContainsFunc(c.s.mu.sent, isWrite) || slices.ContainsFunc(c.s.mu.queue, isWrite)
	c.s.mu.Unlock()
	if !busy {
		return nil
	}
	_, err := c.s.Do(context.Background(), []tree.Op{{Kind: tree.KindGuard, Path: c.paths[0], Czxid: c.czxid}}, nil)
	if err != nil && !errors.Is(err, tree.ErrNotHeld) { // if the znode is gone, the rest is over too
		return err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.settled = max(c.settled, cuts)
	return nil
}

// Done compares the clock and returns a channel that is closed when the claim has ended.
func (c *claim) Done() <-chan struct{} {
	c.s.lookAndLock()
	defer c.s.mu.Unlock()
	return c.done
}

// Err compares the clock and returns why the claim ended, or nil.
func (c *claim) Err() error {
	c.s.lookAndLock()
	defer c.s.mu.Unlock()
	return c.err
}

// Release gives the claim up. If it was held, Release waits until its znodes are deleted.
func (c *claim) Release() error {
	c.s.lookAndLock() // a claim that was lost before is not given up
	if c.s.cancelLocked(c.call, engine.ErrReleased) {
		c.s.mu.Unlock()
		return nil
	}
	c.endLocked(engine.ErrReleased, false)
	ends, held := c.ends, c.wasHeld
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
func (c *claim) goneLocked(path string) {
	switch c.state {
	case claimOver:
		return
	case claimLeaving:
		c.finishLocked(engine.ErrReleased)
		return
	}
	c.finishLocked(engine.ErrDeleted)
	if rest := slices.DeleteFunc(slices.Clone(c.paths), func(p string) bool { return p == path }); len(rest) > 0 {
		c.removeLocked(rest, c.lingersLocked()) // a claim ends as a whole
	}
}

// endLocked ends the claim. Its znodes are deleted, or linger if the claim was lost.
func (c *claim) endLocked(why error, lost bool) {
	if c.state == claimOver {
		return
	}
	created := c.state != claimSubmitted
	c.finishLocked(why)
	if created && c.s.mu.end == nil {
		c.removeLocked(c.paths, lost || c.lingersLocked())
	}
}

func (c *claim) finishLocked(why error) {
	if c.state == claimOver {
		return
	}
	c.state, c.err = claimOver, why
	for _, path := range c.paths {
		if c.s.mu.claims[path] == c {
			delete(c.s.mu.claims, path)
			c.s.disarmLocked(path, watch.Persistent)
		}
	}
	close(c.done)
	if c.tenure != nil {
		c.tenure.endLocked(why)
	}
}

// removeLocked queues the calls that end znodes of the claim, ahead of the session's other calls.
func (c *claim) removeLocked(paths []string, lost bool) {
	for _, path := range paths {
		c.ends = append(c.ends, c.s.releaseLocked(path, c.czxid, lost))
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
		settle := nativeCall(wire.Native{Kind: wire.NativeSubmit, Ops: native.AppendOps(nil, []tree.Op{{Kind: tree.KindCheck, Path: c.asked[0].Path, Version: tree.AnyVersion}})})
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
				if c.mayHave(path) && (by == nil || c.heir) {
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
	if c.heir {
		s.mu.looks++
	}
	look.then = func(look *call) {
		if c.heir {
			s.mu.looks--
		}
		czxid := tree.Zxid(look.reply.Stat.Czxid)
		if look.err != nil || look.reply.Err != wire.OK || s.mu.end != nil || s.mu.made.has(path, czxid) {
			return
		}
		s.releaseLocked(path, czxid, c.lingersLocked())
	}
	s.queueLocked(look)
}

// mayHave reports whether the claim may have created path.
func (c *claim) mayHave(path string) bool {
	return slices.ContainsFunc(c.asked, func(op tree.Op) bool {
		if op.Mode != tree.EphemeralSequential {
			return path == op.Path
		}
		suffix, ok := strings.CutPrefix(path, op.Path)
		return ok && len(suffix) == 10 && strings.Trim(suffix, "0123456789") == ""
	})
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

// A tenure is one period for which a claim is held.
type tenure struct {
	claim *claim

	// Guarded by the session's mu. done, ctx and cancel are made on first use.
	err    error
	done   chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Context compares the clock and returns a context that ends with the tenure.
func (t *tenure) Context() context.Context {
	t.claim.s.lookAndLock()
	defer t.claim.s.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancelCause(context.Background())
		if t.err != nil {
			t.cancel(t.err)
		}
	}
	return t.ctx
}

// Done compares the clock and returns a channel that is closed when the tenure has ended.
func (t *tenure) Done() <-chan struct{} {
	t.claim.s.lookAndLock()
	defer t.claim.s.mu.Unlock()
	if t.done == nil {
		t.done = make(chan struct{})
		if t.err != nil {
			close(t.done)
		}
	}
	return t.done
}

// Err compares the clock and returns why the tenure ended, or nil.
func (t *tenure) Err() error {
	t.claim.s.lookAndLock()
	defer t.claim.s.mu.Unlock()
	return t.err
}

// End ends the tenure with ErrReleased, unless it has ended.
func (t *tenure) End() {
	t.claim.s.lookAndLock()
	defer t.claim.s.mu.Unlock()
	t.endLocked(engine.ErrReleased)
}

func (t *tenure) endLocked(why error) {
	if t.err != nil {
		return
	}
	t.err = why
	t.claim.tenure = nil
	if t.claim.state == claimHeld {
		t.claim.state = claimStanding
	}
	if t.done != nil {
		close(t.done)
	}
	if t.cancel != nil {
		t.cancel(why)
	}
}

// terms are the inside.Terms of a transaction of a client's session.
type terms struct {
	s        *session
	inherits bool
	tenures  []*tenure
	leaves   []*claim
}

// NewTerms returns the terms of a transaction.
func (s *session) NewTerms() inside.Terms { return &terms{s: s} }

// Set keeps whether a claim inherits. The members count no claims of clients.
func (t *terms) Set(inherits bool, _ engine.ClaimKind) { t.inherits = inherits }

// Guard returns operations that refuse the transaction unless the tenure lasts.
func (t *terms) Guard(by inside.Tenure) ([]tree.Op, error) {
	if by == nil {
		return nil, fmt.Errorf("%w: there is no tenure", tree.ErrNotHeld)
	}
	own, ok := by.(*tenure)
	if !ok || own.claim.s != t.s {
		return nil, fmt.Errorf("%w: over a connection, a tenure guards transactions of its own session only", tree.ErrNotHeld)
	}
	t.s.lookAndLock()
	defer t.s.mu.Unlock()
	if own.err != nil {
		return nil, fmt.Errorf("%w: %w", tree.ErrNotHeld, own.err)
	}
	t.tenures = append(t.tenures, own)
	return own.claim.ops(tree.KindGuard), nil
}

// ops returns operations about the claim's znodes.
func (c *claim) ops(kind tree.OpKind) []tree.Op {
	ops := make([]tree.Op, len(c.paths))
	for i, path := range c.paths {
		ops[i] = tree.Op{Kind: kind, Path: path, Czxid: c.czxid}
		if kind == tree.KindDelete {
			ops[i].Version = tree.AnyVersion
		}
	}
	return ops
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
	t.s.lookAndLock()
	defer t.s.mu.Unlock()
	switch c.state {
	case claimOver:
		return nil, fmt.Errorf("%w: %w", tree.ErrNotHeld, c.err)
	case claimSubmitted, claimLeaving:
		return nil, fmt.Errorf("%w: a claim is given up once, when its znodes are there", tree.ErrNotHeld)
	}
	if c.tenure != nil {
		c.tenure.endLocked(engine.ErrReleased)
	}
	c.state = claimLeaving
	t.leaves = append(t.leaves, c)
	return c.ops(tree.KindDelete), nil
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
		if c.state == claimLeaving {
			c.state = claimStanding
		} else if c.state == claimOver && t.s.mu.end == nil { // it failed because somebody deleted one of the znodes
			c.removeLocked(c.paths, c.lingersLocked())
		}
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
		c.finishLocked(engine.ErrReleased)
	}
	t.leaves = nil
}

// heldLocked fails if a tenure has ended since its guard was made. It is asked when the transaction
// is queued: whatever a later tenure guards is queued later.
func (t *terms) heldLocked() error {
	if t == nil {
		return nil
	}
	for _, own := range t.tenures {
		if own.err != nil {
			return fmt.Errorf("%w: %w", tree.ErrNotHeld, own.err)
		}
	}
	return nil
}

// keptLocked fails if a tenure was lost since its guard was made. It is asked when the transaction
// is sent. What the owner queued before it gave a tenure up is sent all the same.
func (t *terms) keptLocked() error {
	if t == nil {
		return nil
	}
	for _, own := range t.tenures {
		if own.err != nil && own.err != engine.ErrReleased {
			return fmt.Errorf("%w: %w", tree.ErrNotHeld, own.err)
		}
	}
	return nil
}
