package lock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// A kept is what a Mutex with Options.Keep has of its lock: a contender that is first, and stays so between one Hold and the next.
//
// Invariants, under mu:
//  1. there is no hold without a contender, and the contender is not given up while its hold lives;
//  2. callers queue only while there is a hold, or somebody is entering.
type kept struct {
	mutex *Mutex // immutable

	mu struct {
		rank.Mutex[rank.Kept]
		contender *queue.Contender
		token     Token // of its newest Hold
		hold      *Hold // not released yet
		entering  bool  // a caller is on its way to become first
		queue     []*caller
		foreign   bool // somebody else waits
		yield     bool // and has for long enough
	}
}

// A caller waits for its turn among those of its Mutex.
type caller struct {
	ctx  context.Context
	turn chan *Hold // capacity 1; nil: it has to enter by itself
}

func newKept(m *Mutex) *kept { return &kept{mutex: m} }

// lock waits for a Hold.
func (k *kept) lock(ctx context.Context) (*Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("lock", k.mutex.path, err)
	}
	k.mu.Lock()
	if h := k.grantLocked(ctx); h != nil {
		k.mu.Unlock()
		return h, nil
	}
	if k.freeLocked() {
		k.mu.entering = true
		k.mu.Unlock()
		return k.enter(ctx, "lock", k.mutex.commit)
	}
	c := &caller{ctx: ctx, turn: make(chan *Hold, 1)}
	k.mu.queue = append(k.mu.queue, c)
	k.mu.Unlock()
	select {
	case h := <-c.turn:
		if h != nil {
			return h, nil
		}
		return k.enter(ctx, "lock", k.mutex.commit)
	case <-ctx.Done():
	}
	k.quit(c)
	return nil, wrap("lock", k.mutex.path, ctx.Err())
}

// quit takes out a caller who has lost patience; if it is its turn already, that is the next one's.
func (k *kept) quit(c *caller) {
	k.mu.Lock()
	i := slices.Index(k.mu.queue, c)
	if i >= 0 {
		k.mu.queue = slices.Delete(k.mu.queue, i, i+1)
	}
	k.mu.Unlock()
	if i >= 0 {
		return
	}
	if h := <-c.turn; h != nil {
		go h.Release() // which may wait
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.entering = false
	k.nextLocked()
}

// try takes a Hold if that can be had at once.
func (k *kept) try(ctx context.Context) (*Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("try lock", k.mutex.path, err)
	}
	k.mu.Lock()
	if h := k.grantLocked(ctx); h != nil {
		k.mu.Unlock()
		return h, nil
	}
	if !k.freeLocked() {
		k.mu.Unlock()
		return nil, wrap("try lock", k.mutex.path, ErrHeld)
	}
	k.mu.entering = true
	k.mu.Unlock()
	return k.enter(ctx, "try lock", k.mutex.tryCommit)
}

// freeLocked reports whether a caller may enter by itself.
func (k *kept) freeLocked() bool {
	return k.mu.contender == nil && !k.mu.entering && len(k.mu.queue) == 0
}

// grantLocked returns a Hold without a commit, or nil if there is none to be had.
func (k *kept) grantLocked(ctx context.Context) *Hold {
	if k.mu.contender == nil || k.mu.hold != nil || len(k.mu.queue) > 0 {
		return nil
	}
	return k.holdLocked(ctx)
}

// holdLocked begins a Hold of the contender, or forgets it and returns nil if its claim has ended: that, or a session that is not safe, which
// ends it, is all that can be wrong.
func (k *kept) holdLocked(ctx context.Context) *Hold {
	c := k.mu.contender
	tenure, err := c.Claim.Hold(true) // which compares the clock
	if err != nil {
		k.forgetLocked()
		return nil
	}
	k.mu.token.Local++
	k.mu.hold = &Hold{contender: c, tenure: tenure, token: k.mu.token, values: ctx, kept: k}
	return k.mu.hold
}

func (k *kept) forgetLocked() *queue.Contender {
	c := k.mu.contender
	k.mu.contender, k.mu.foreign, k.mu.yield = nil, false, false
	return c
}

// enter takes the lock with a commit, for the caller that has entering.
func (k *kept) enter(ctx context.Context, op string, commit func(context.Context) (*Hold, error)) (*Hold, error) {
	h, err := commit(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.entering = false
	if err != nil {
		k.nextLocked()
		return nil, wrap(op, k.mutex.path, err)
	}
	h.kept = k
	k.mu.contender, k.mu.hold, k.mu.token = h.contender, h, h.token
	go k.watchLoop(h.contender)
	return h, nil
}

// release ends a Hold. The lock is the next caller's, or is given up if somebody else waits.
func (k *kept) release(h *Hold) error {
	h.tenure.End()
	k.mu.Lock()
	own := k.mu.hold == h
	k.mu.Unlock()
	if !own {
		return nil
	}
	unflushed := h.contender.Claim.Flush() // what it wrote without waiting is there for the next one
	k.mu.Lock()
	var given *queue.Contender
	if k.mu.hold == h {
		k.mu.hold = nil
		k.mu.yield = k.mu.yield || unflushed != nil || h.wasAsked() // or the next one would not see it, or be asked for what another was
		given = k.giveLocked()
		k.nextLocked()
	}
	k.mu.Unlock()
	return cmp.Or(giveUp(given), unflushed)
}

// giveLocked returns the contender, forgotten, if it has to be given up now.
func (k *kept) giveLocked() *queue.Contender {
	if k.mu.hold == nil && (k.mu.yield || k.mu.foreign && len(k.mu.queue) == 0) {
		return k.forgetLocked()
	}
	return nil
}

func giveUp(c *queue.Contender) error {
	if c == nil {
		return nil
	}
	return c.Claim.Release()
}

// forget has the lock given up: at once, or when its Hold is released.
func (k *kept) forget() error {
	k.mu.Lock()
	k.mu.yield = k.mu.contender != nil
	given := k.giveLocked()
	k.mu.Unlock()
	return giveUp(given)
}

// nextLocked gives the next caller its turn, if nobody has one.
func (k *kept) nextLocked() {
	if k.mu.hold != nil || k.mu.entering || len(k.mu.queue) == 0 {
		return
	}
	c := k.mu.queue[0]
	k.mu.queue[0] = nil
	k.mu.queue = k.mu.queue[1:] // append makes room where this has left some: a turn costs the same however many wait
	if k.mu.contender != nil {
		if h := k.holdLocked(c.ctx); h != nil {
			c.turn <- h
			return
		}
	}
	k.mu.entering = true
	c.turn <- nil
}

// watchLoop gives the lock up when somebody else wants it: at once if nobody here does, else after Keep. It ends with the contender.
func (k *kept) watchLoop(c *queue.Contender) {
	if k.foreign(c) {
		k.told(c, &k.mu.foreign)
		t := time.NewTimer(k.mutex.options.Keep)
		defer t.Stop()
		select {
		case <-t.C:
			k.told(c, &k.mu.yield)
		case <-c.Claim.Done():
		}
	}
	<-c.Claim.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.contender == c { // lost
		k.forgetLocked()
		k.mu.hold = nil // which has ended
		k.nextLocked()
	}
}

// told sets what has come to be known of others who wait behind a contender.
func (k *kept) told(c *queue.Contender, what *bool) {
	k.mu.Lock()
	var given *queue.Contender
	if k.mu.contender == c {
		*what = true
		given = k.giveLocked()
		k.nextLocked()
	}
	k.mu.Unlock()
	_ = giveUp(given) // if it cannot be sent now the node goes on trying
}

// foreign waits until somebody else stands behind a contender, or may: what ends the watch has this look again. It is false if the contender's
// claim has ended.
func (k *kept) foreign(c *queue.Contender) bool {
	ctx := c.Session.Context()
	for {
		w, err := c.Session.Watch(ctx, k.mutex.path, embed.WatchOnce)
		if err != nil {
			return true
		}
		names, _, err := c.Session.Children(ctx, k.mutex.path)
		if others := len(queue.Sorted(names)) > 1; err != nil || others {
			_ = w.Close()
			return true
		}
		select {
		case <-w.Events():
		case <-c.Claim.Done():
		}
		_ = w.Close()
		if c.Claim.Err() != nil {
			return false
		}
	}
}
