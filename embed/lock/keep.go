package lock

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// A kept is what a Mutex with Options.Keep has of its lock: a contender that is first in the queue,
// and stays there between one Hold and the next.
//
// Invariants, under mu:
//  1. There is a contender in the states held and idle only, and a hold in the state held only. So
//     the contender is not given up while its Hold lives.
//  2. Callers queue in the states entering and held only.
type kept struct {
	// Immutable after the first call.
	mutex *Mutex
	gone  func() // called when a contender has ended; nil for nobody

	mu struct {
		rank.Mutex[rank.Kept]
		state     keptState
		contender *queue.Contender
		hold      *Hold // released by nobody yet
		token     Token // of the contender's newest Hold
		demand    demand
		queue     list.List // of callers, in order
	}
}

// A keptState is what a Mutex has of the lock that it may keep.
type keptState uint8

const (
	keptFree     keptState = iota // nothing
	keptEntering                  // a caller is acquiring the lock with a commit
	keptHeld                      // the lock, and somebody has a Hold
	keptIdle                      // the lock, and nobody has a Hold: the next one needs no commit
)

var keptStates = [...]struct {
	name string
	next []keptState // which may follow
}{
	keptFree:     {"free", []keptState{keptEntering}},
	keptEntering: {"entering", []keptState{keptHeld, keptFree}},
	keptHeld:     {"held", []keptState{keptIdle, keptFree}},
	keptIdle:     {"idle", []keptState{keptHeld, keptFree}},
}

// changeLocked changes the state. A change that keptStates does not list is a defect. It must not
// take the process down, which belongs to the service. So the Mutex gives up what it has: the Hold
// ends, and the next caller enters.
func (k *kept) changeLocked(to keptState) {
	if from := keptStates[k.mu.state]; !slices.Contains(from.next, to) {
		onDefect(fmt.Sprintf("a kept lock that is %s cannot become %s", from.name, keptStates[to].name))
		if c := k.mu.contender; c != nil {
			go giveUp(c) // which may wait
		}
		k.mu.contender, k.mu.hold, k.mu.demand = nil, nil, demandNone
		if to == keptIdle {
			to = keptFree
		}
	}
	k.mu.state = to
}

// onDefect is told of impossible changes. The tests make it panic.
var onDefect = func(what string) {}

// A demand says when a kept lock is given up.
type demand uint8

const (
	demandNone    demand = iota // it stays
	demandOthers                // when no Hold lives and no caller here waits: somebody else waits
	demandOverdue               // when no Hold lives: Keep is over, or the lock must not be kept
)

// A caller waits for its turn among those of its Mutex.
type caller struct {
	ctx     context.Context
	granted chan *Hold    // capacity 1; nil: the caller has to enter
	at      *list.Element // in the queue, so that it can quit without a search; guarded by mu
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
	if k.mu.state == keptFree {
		k.changeLocked(keptEntering)
		k.mu.Unlock()
		return k.enter(ctx, "lock", k.mutex.commit)
	}
	c := &caller{ctx: ctx, granted: make(chan *Hold, 1)}
	c.at = k.mu.queue.PushBack(c)
	k.mu.Unlock()
	queued := queue.Queued(k.mutex.session)
	queued.Inc()
	select {
	case h := <-c.granted:
		queued.Dec()
		if h != nil {
			return h, nil
		}
		return k.enter(ctx, "lock", k.mutex.commit)
	case <-ctx.Done():
		queued.Dec()
	}
	k.quit(c)
	return nil, wrap("lock", k.mutex.path, ctx.Err())
}

// quit removes a caller that has given up. If it is its turn already, the next caller has it.
func (k *kept) quit(c *caller) {
	k.mu.Lock()
	waits := c.at != nil
	if waits {
		k.mu.queue.Remove(c.at)
	}
	k.mu.Unlock()
	if waits {
		return
	}
	if h := <-c.granted; h != nil {
		go h.Release() // which may wait
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changeLocked(keptFree)
	k.nextLocked()
}

// try returns a Hold if it can have one at once.
func (k *kept) try(ctx context.Context) (*Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("try lock", k.mutex.path, err)
	}
	k.mu.Lock()
	if h := k.grantLocked(ctx); h != nil {
		k.mu.Unlock()
		return h, nil
	}
	if k.mu.state != keptFree {
		k.mu.Unlock()
		return nil, wrap("try lock", k.mutex.path, ErrHeld)
	}
	k.changeLocked(keptEntering)
	k.mu.Unlock()
	return k.enter(ctx, "try lock", k.mutex.tryCommit)
}

// grantLocked returns a Hold without a commit, or nil if the lock is not idle. If the contender's
// claim has ended, it forgets the contender. Nothing else can go wrong, because a session that is
// not safe ends the claim.
func (k *kept) grantLocked(ctx context.Context) *Hold {
	if k.mu.state != keptIdle {
		return nil
	}
	c := k.mu.contender
	tenure, err := c.Claim.Hold(true) // which compares the clock
	if err != nil {
		k.forgetLocked()
		return nil
	}
	k.changeLocked(keptHeld)
	k.mu.token.Local++
	k.mu.hold = &Hold{contender: c, tenure: tenure, token: k.mu.token, values: ctx, kept: k}
	return k.mu.hold
}

// forgetLocked forgets the contender and returns it.
func (k *kept) forgetLocked() *queue.Contender {
	c := k.mu.contender
	k.changeLocked(keptFree)
	k.mu.contender, k.mu.hold, k.mu.demand = nil, nil, demandNone
	return c
}

// enter acquires the lock with a commit, for the caller that has changed the state to entering.
func (k *kept) enter(ctx context.Context, op string, commit func(context.Context) (*Hold, error)) (*Hold, error) {
	h, err := commit(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.changeLocked(keptFree)
		k.nextLocked()
		return nil, wrap(op, k.mutex.path, err)
	}
	h.kept = k
	k.changeLocked(keptHeld)
	k.mu.contender, k.mu.hold, k.mu.token = h.contender, h, h.token
	go k.watchLoop(h.contender)
	return h, nil
}

// release ends a Hold. The lock goes to the next caller, or is given up if there is a demand.
func (k *kept) release(h *Hold) error {
	h.tenure.End()
	k.mu.Lock()
	own := k.mu.hold == h
	k.mu.Unlock()
	if !own {
		return nil
	}
	unflushed := h.contender.Claim.Flush() // the next Hold sees what this one wrote without waiting
	k.mu.Lock()
	var given *queue.Contender
	if k.mu.hold == h {
		k.mu.hold = nil
		k.changeLocked(keptIdle)
		// Do not keep it if the next Hold would not see those writes, or if somebody has asked for
		// this Hold: the next one would be asked for it too.
		if unflushed != nil || h.wasAsked() {
			k.mu.demand = demandOverdue
		}
		given = k.giveLocked()
		k.nextLocked()
	}
	k.mu.Unlock()
	return cmp.Or(giveUp(given), unflushed)
}

// giveLocked forgets and returns the contender if it has to be given up now.
func (k *kept) giveLocked() *queue.Contender {
	if k.mu.state == keptIdle && (k.mu.demand == demandOverdue || k.mu.demand == demandOthers && k.mu.queue.Len() == 0) {
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

// forget gives the lock up: at once, or when its Hold is released.
func (k *kept) forget() error {
	k.mu.Lock()
	var given *queue.Contender
	if k.mu.contender != nil {
		k.mu.demand = demandOverdue
		given = k.giveLocked()
	}
	k.mu.Unlock()
	return giveUp(given)
}

// nextLocked grants the lock to the next caller, or makes it enter, if no other caller has the lock
// or enters.
func (k *kept) nextLocked() {
	if k.mu.state == keptHeld || k.mu.state == keptEntering || k.mu.queue.Len() == 0 {
		return
	}
	c := k.mu.queue.Remove(k.mu.queue.Front()).(*caller)
	c.at = nil
	if h := k.grantLocked(c.ctx); h != nil {
		c.granted <- h
		return
	}
	k.changeLocked(keptEntering)
	c.granted <- nil
}

// watchLoop gives the lock up when somebody else wants it: at once if nobody here does, else after
// Keep. It ends with the contender.
func (k *kept) watchLoop(c *queue.Contender) {
	if k.foreign(c) {
		k.raise(c, demandOthers)
		t := time.NewTimer(k.mutex.options.Keep)
		defer t.Stop()
		select {
		case <-t.C:
			k.raise(c, demandOverdue)
		case <-c.Claim.Done():
		}
	}
	<-c.Claim.Done()
	k.mu.Lock()
	if k.mu.contender == c { // it was lost, and so was its Hold
		k.forgetLocked()
		k.nextLocked()
	}
	k.mu.Unlock()
	if k.gone != nil {
		k.gone()
	}
}

// isFree reports whether the Mutex keeps nothing, and nobody is acquiring it.
func (k *kept) isFree() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.state == keptFree
}

// raise raises the demand for a lock that is kept with a contender.
func (k *kept) raise(c *queue.Contender, to demand) {
	k.mu.Lock()
	var given *queue.Contender
	if k.mu.contender == c {
		k.mu.demand = max(k.mu.demand, to)
		given = k.giveLocked()
	}
	k.mu.Unlock()
	_ = giveUp(given) // if it cannot be sent now, the node keeps trying
}

// foreign waits until somebody outside this Mutex stands behind a contender, or may: it does not
// ask why a watch has ended. It returns false if the contender's claim has ended.
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
