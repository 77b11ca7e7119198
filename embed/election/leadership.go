package election

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A Leadership is one period of leading. Like a lock.Hold, it ends before anybody else can be
// elected, and its answers are true at the moment of the question. All methods may be called by any
// number of goroutines.
type Leadership struct {
	candidate *Candidate
	contender *queue.Contender
	tenure    *claim.Tenure
	values    context.Context // of Campaign's ctx

	transferring chan struct{} // capacity 1: filled by the Transfer that is under way
	busy         chan struct{} // a transfer gives the place only after it is closed; nil: at once

	runs bool // Run, a Latch or Balance campaigns again after it
}

// Token returns the fencing token of this leadership, which is its epoch.
func (l *Leadership) Token() lock.Token {
	zxid, local := l.contender.Order()
	return lock.Token{Zxid: zxid, Local: local}
}

// Path returns the path of the leader's znode.
func (l *Leadership) Path() string { return l.contender.Path() }

// Session returns the session whose leadership it is, for reads and for a Multi with its Guard. The
// session belongs to whoever opened it: in Run, a Latch and Balance it is theirs to close.
func (l *Leadership) Session() *embed.Session { return l.contender.Session }

// Context returns a context with the values of Campaign's ctx and the lifetime of the leadership.
// context.Cause says why it ended. Its Err and Done compare the clock when they are called, but
// those of a derived context do not; see lock.Hold.Context.
func (l *Leadership) Context() context.Context {
	return queue.Context(l.tenure, l.values, queue.Below(l.contender.Session.Root(), l.Path()))
}

// Done compares the clock and returns a channel that is closed when the leadership has ended; see
// lock.Hold.Done.
func (l *Leadership) Done() <-chan struct{} { return l.tenure.Done() }

// Err compares the clock and returns why the leadership ended, or nil while it lasts; see
// lock.Hold.Err.
func (l *Leadership) Err() error { return l.tenure.Err() }

// Guard makes a Multi happen only while the leadership lasts, as lock.Guard does. A Multi with the
// Guard of nil is refused.
func Guard(l *Leadership) embed.Op {
	if l == nil {
		return claim.OpGuard(nil)
	}
	return claim.OpGuard(l.tenure)
}

// Proclaim replaces the published value. It publishes nothing after the leadership has ended.
// Errors: why the leadership ended, embed.ErrNotHeld if it ended on the way, and those of
// embed.Session.Set.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	if err := l.Err(); err != nil {
		return fmt.Errorf("proclaim: %w", err)
	}
	if _, err := l.contender.Session.Multi(ctx, Guard(l), embed.OpSet(l.contender.Path(), published(value), embed.AnyVersion)); err != nil {
		return fmt.Errorf("proclaim: %w", err)
	}
	return nil
}

// Resign gives the leadership up and lets the next candidate in, as lock.Hold.Release does.
func (l *Leadership) Resign() error { return l.contender.Claim.Release() }

// Requeue gives the leadership up and queues again behind all who wait, in one transaction. A
// candidate with a priority then goes ahead of those with a lower one, in another transaction. The
// new candidate stands as after Enter, so call its Wait or Withdraw. The leadership has ended
// whatever Requeue returns; after an error there is no candidate. ctx may be that of the leadership,
// as for Transfer. Errors: why the leadership ended, embed.ErrNotHeld if somebody deletes its znode
// on the way, and those of Campaign.
//
// Run, a Latch and Balance queue again by themselves. Requeue of their leaderships is refused with
// embed.ErrInvalidArgument, and the leadership continues.
func (l *Leadership) Requeue(ctx context.Context) (*Candidate, error) {
	if l.runs {
		return nil, l.candidate.election.wrap("requeue", fmt.Errorf("%w: what has this leadership queues again by itself: resign, or return", embed.ErrInvalidArgument))
	}
	c, err := l.requeue(ctx)
	if err != nil {
		go l.Resign() // which may wait
	}
	return c, l.candidate.election.wrap("requeue", err)
}

func (l *Leadership) requeue(ctx context.Context) (*Candidate, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := queue.Beyond(ctx, l.tenure)
	defer cancel()
	old := l.candidate
	c := &Candidate{election: old.election, value: old.value, options: old.options}
	e := c.entry()
	contender, err := e.Claim(ctx, c.election.session, claim.OpRelease(l.contender.Claim), e.Create(c.election.path))
	if err != nil {
		return nil, err
	}
	c.stand(contender)
	if c.options.Priority > 0 {
		if err := c.jump(ctx); err != nil {
			return nil, c.contender.Leave(err)
		}
	}
	return c, nil
}
