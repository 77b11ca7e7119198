package election

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A Leadership is one turn of leading. Like a lock.Hold it ends before anybody else can be elected, and what it answers is
// true at the moment of the question. All methods may be called by any number of goroutines.
type Leadership struct {
	candidate *Candidate
	contender *queue.Contender
	turn      *embed.Turn
	values    context.Context // Campaign's

	transferring chan struct{} // has room for the Transfer that is under way
	busy         chan struct{} // until it is closed a transfer does not give the place; nil: it does at once
}

// Token returns the fencing token of this turn: the epoch of the leadership.
func (l *Leadership) Token() lock.Token {
	zxid, local := l.contender.Order()
	return lock.Token{Zxid: zxid, Local: local}
}

// Path returns the path of the leader's znode.
func (l *Leadership) Path() string { return l.contender.Path() }

// Context has the values of Campaign's ctx and the lifetime of the leadership; context.Cause says why it ended. Its Err and
// Done compare the clock when they are called; a context derived from it does not: as lock.Hold.Context.
func (l *Leadership) Context() context.Context { return queue.Context(l.turn, l.values) }

// Done compares the clock and returns a channel that is closed when the leadership has ended; as lock.Hold.Done.
func (l *Leadership) Done() <-chan struct{} { return l.turn.Done() }

// Err compares the clock and says why the leadership ended, nil while it has not: as lock.Hold.Err.
func (l *Leadership) Err() error { return l.turn.Err() }

// Guard makes a Multi happen only while the leadership lasts; as lock.Guard. One of no Leadership, nil, is refused.
func Guard(l *Leadership) embed.Op {
	if l == nil {
		return embed.OpGuard(nil)
	}
	return embed.OpGuard(l.turn)
}

// Proclaim replaces the published value. After the end of the leadership nothing is published. Errors: why the leadership
// ended, embed.ErrNotHeld if it ended on the way, and those of embed.Session.Set.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	if err := l.Err(); err != nil {
		return fmt.Errorf("proclaim: %w", err)
	}
	if _, err := l.contender.Session.Multi(ctx, Guard(l), embed.OpSet(l.contender.Path(), published(value), embed.AnyVersion)); err != nil {
		return fmt.Errorf("proclaim: %w", err)
	}
	return nil
}

// Resign gives the leadership up and lets the next candidate in; as lock.Hold.Release.
func (l *Leadership) Resign() error { return l.contender.Claim.Release() }

// Requeue gives the leadership up and stays in the queue, behind all who wait, in one transaction; with a priority it goes from there ahead of
// those who wait with a lower one, in another. The leadership has ended whatever it returns; after an error there is no candidate. The
// candidate stands as after Enter, and must be Waited for or Withdrawn. Errors: why the leadership ended, embed.ErrNotHeld if somebody
// deletes its znode on the way, and those of Campaign.
func (l *Leadership) Requeue(ctx context.Context) (*Candidate, error) {
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
	old := l.candidate
	c := &Candidate{election: old.election, value: old.value, options: old.options}
	e := c.entry()
	contender, err := e.Claim(ctx, c.election.session, embed.OpRelease(l.contender.Claim), e.Create(c.election.path))
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
