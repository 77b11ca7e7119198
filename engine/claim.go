package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A Claim is an ephemeral znode that stands for its owner in a queue: created, perhaps held for a while, and certainly
// deleted again. The node takes charge of it from the moment its create is submitted, so that a caller who loses
// patience while the outcome is unknown leaves nothing behind.
type Claim struct {
	// Immutable.
	session *Session
	pipe    *pipeline // of its shard
	waiter  *waiter
	path    string // asked for
	mode    tree.CreateMode

	// The outcome of the create; read after the waiter is done.
	result tree.Result

	// Guarded by the keeper's mu.
	created bool
	held    bool
	over    bool
	err     error
	done    chan struct{}
	ctx     context.Context // of a held claim: ends with it, the cause says why
	cancel  context.CancelCauseFunc
	release *waiter // the deletion on its way
}

// Claim submits the creation of an ephemeral znode. ctx bounds admission only.
func (s *Session) Claim(ctx context.Context, path string, data []byte, mode tree.CreateMode) *Claim {
	ops := []tree.Op{{Kind: tree.KindCreate, Path: path, Data: data, Mode: mode}}
	m, err := s.engine.route(ops)
	c := &Claim{session: s, pipe: m.pipe, path: path, mode: mode, done: make(chan struct{}), waiter: s.newTxn(ops)}
	c.waiter.applied = c.applied
	c.pipe.take(c.waiter, s.admissible(ctx, c.waiter, ops, err))
	return c
}

// applied takes note of the outcome of the create. It runs before the create's caller is told, on the apply goroutine
// if the create was applied.
func (c *Claim) applied(w *waiter) {
	k := c.session.engine.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.err != nil {
		c.finishLocked(Single(w.err))
		if w.err == ErrUnknownOutcome && c.session.end == nil {
			k.mu.unknown = append(k.mu.unknown, c)
		}
		return
	}
	c.result = w.results[0]
	c.created = true
	switch {
	case c.session.end != nil:
		c.finishLocked(c.session.end)
	case c.over: // released before the outcome was known
		c.removeLocked(c.result.Path, c.result.Stat.Czxid, c.pipe.queueEnd)
	default:
		if c.session.claims == nil {
			c.session.claims = make(map[string]*Claim)
		}
		c.session.claims[c.result.Path] = c
	}
}

// Created waits for the create's outcome, no longer than ctx, or if that has no deadline than the node's request timeout, which
// leaves the outcome unknown.
func (c *Claim) Created(ctx context.Context) (tree.Result, error) {
	select {
	case <-c.waiter.done:
		return c.result, Single(c.waiter.err)
	default:
	}
	var expired <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		t := c.pipe.timers.Get(c.session.engine.cfg.RequestTimeout)
		defer c.pipe.timers.Put(t)
		expired = t.C
	}
	select {
	case <-c.waiter.done:
		return c.result, Single(c.waiter.err)
	case <-ctx.Done():
		return tree.Result{}, ctx.Err()
	case <-expired:
		return tree.Result{}, ErrUnknownOutcome
	}
}

// Hold makes the claim held from now until it ends: at the session's local deadline, with the session, by Release, or
// when somebody deletes the znode. It fails if the znode is not known to exist, or the session is not safe at this moment. A remote
// client's session never is: what it holds is the client's to judge, which may take it elsewhere before this node knows.
func (c *Claim) Hold() error {
	k := c.session.engine.keeper
	k.look()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case c.over:
		return c.err
	case !c.created:
		return ErrUnknownOutcome
	case c.session.remote != nil || c.session.life.State() != session.Connected:
		return ErrSuspended
	}
	if !c.held {
		c.held = true
		c.ctx, c.cancel = context.WithCancelCause(context.Background())
	}
	return nil
}

// Guard returns an operation that makes its transaction fail unless the claim's znode is there when it is applied. It fails
// with ErrNotHeld, and says why, if the claim is not held at this moment.
func (c *Claim) Guard() (tree.Op, error) {
	k := c.session.engine.keeper
	k.look()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case c.err != nil:
		return tree.Op{}, fmt.Errorf("%w: %w", tree.ErrNotHeld, c.err)
	case !c.held:
		return tree.Op{}, tree.ErrNotHeld
	}
	return tree.Op{Kind: tree.KindGuard, Path: c.result.Path, Czxid: c.result.Stat.Czxid}, nil
}

// Context ends with the held claim; its cause says why. Nil before Hold.
func (c *Claim) Context() context.Context {
	k := c.session.engine.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.ctx
}

// Done compares the clock and returns a channel that is closed when the claim has ended.
func (c *Claim) Done() <-chan struct{} {
	c.session.engine.keeper.look()
	return c.done
}

// Err compares the clock and says why the claim ended; nil while it has not.
func (c *Claim) Err() error {
	k := c.session.engine.keeper
	k.look()
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.err
}

// Release gives the claim up. A create that was not sent yet is taken back; otherwise the znode is deleted as soon as the
// create's outcome is known, ahead of everything that waits but the session's own requests. For a claim that was held
// Release waits until it is, at most the node's request timeout. It is idempotent, and deletes no znode but the claim's own.
// It compares the clock first: a claim whose deadline has passed was lost, and Err goes on saying so.
func (c *Claim) Release() error {
	k := c.session.engine.keeper
	k.look() // what was lost before was not given up
	if c.pipe.cancel(c.waiter, ErrReleased) {
		return nil
	}
	k.mu.Lock()
	c.endLocked(ErrReleased, c.pipe.queueRelease)
	w, held := c.release, c.held
	k.mu.Unlock()
	if w == nil {
		return nil
	}
	c.pipe.pump()
	if !held {
		return nil // nobody was kept out, so nobody has to know when; and who leaves a queue may be out of time
	}
	return c.pipe.wait(context.Background(), w, c.session.engine.cfg.RequestTimeout)
}

// endLocked ends the claim and has its znode deleted: queue takes the deletion.
func (c *Claim) endLocked(why error, queue func(*waiter)) {
	if c.over {
		return
	}
	c.finishLocked(why)
	if c.created && c.session.end == nil {
		c.removeLocked(c.result.Path, c.result.Stat.Czxid, queue)
	}
}

// findLocked deletes the znode of a claim whose outcome a snapshot swallowed: the one that the snapshot brought, of this
// session and of the name asked for, that no other claim has. taken are those that were found for others.
func (c *Claim) findLocked(old, next *tree.Tree, taken map[string]bool) {
	if c.session.end != nil {
		return // which takes it
	}
	parent := tree.Parent(c.path)
	names, _, err := next.Children(parent)
	if err != nil {
		return
	}
	for _, name := range names {
		path := strings.TrimSuffix(parent, "/") + "/" + name
		if !c.mayBe(path) || taken[path] || c.session.claims[path] != nil {
			continue
		}
		stat, _ := next.Exists(path)
		before, was := old.Exists(path)
		if stat.EphemeralOwner != c.session.id || was && before.Czxid == stat.Czxid {
			continue
		}
		taken[path] = true
		c.removeLocked(path, stat.Czxid, c.pipe.queueEnd) // result is read by now: nobody knows, it says
		return
	}
}

// mayBe reports whether a path is what the path asked for could have become.
func (c *Claim) mayBe(path string) bool {
	if c.mode != tree.EphemeralSequential {
		return path == c.path
	}
	suffix, ok := strings.CutPrefix(path, c.path)
	return ok && len(suffix) == 10 && strings.Trim(suffix, "0123456789") == ""
}

// removeLocked queues the deletion of the claim's znode.
func (c *Claim) removeLocked(path string, czxid tree.Zxid, queue func(*waiter)) {
	s := c.session
	c.release = newWaiter(s, &request{kind: requestRelease, session: s.id, path: path, czxid: czxid})
	queue(c.release)
}

// finishLocked ends the claim; its znode is gone or will go with its session.
func (c *Claim) finishLocked(why error) {
	if c.over {
		return
	}
	c.over = true
	c.err = why
	delete(c.session.claims, c.result.Path)
	close(c.done)
	if c.held {
		c.cancel(why)
	}
}
