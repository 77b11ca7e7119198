package election

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// Options say how a candidate stands. The zero value is usable.
type Options struct {
	// Priority, 0 to 999: a candidate goes ahead of those who wait with a lower one, in whatever order they came; those of the same lead in
	// the order in which they came. It takes the leadership away from nobody. A client of Curator's has 0. To enter ahead of
	// somebody costs a commit more, and a look at all who wait.
	Priority int
}

// A Candidate stands in an election's queue. Its methods may be called by any number of goroutines, but Wait by one at a time.
type Candidate struct {
	// Immutable.
	election *Election
	value    []byte
	options  Options

	contender *queue.Contender // as whoever enters or waits knows it

	mu struct {
		rank.Mutex[rank.Candidate]
		contender *queue.Contender // the same, for others
		withdrawn bool
	}
}

// stand is told where the candidate stands from now on.
func (c *Candidate) stand(contender *queue.Contender) {
	c.contender = contender
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.contender = contender
	if c.mu.withdrawn {
		go contender.Claim.Release() // which may wait
	}
}

// Enter stands for election and does not wait to be elected: Wait does. When the candidate is the first in the queue nobody leads until it
// Waits, and it accepts no transfer before: who will not Wait soon Withdraws it, or closes its session. Errors are those of Campaign, and
// embed.ErrInvalidArgument for Options that are out of range.
func (e *Election) Enter(ctx context.Context, value []byte, o Options) (*Candidate, error) {
	c, err := e.enter(ctx, value, o)
	return c, e.wrap("enter", err)
}

func (e *Election) enter(ctx context.Context, value []byte, o Options) (*Candidate, error) {
	if o.Priority < 0 || o.Priority > queue.PriorityMax {
		return nil, fmt.Errorf("%w: Options.Priority is %d, not 0 to %d", embed.ErrInvalidArgument, o.Priority, queue.PriorityMax)
	}
	c := &Candidate{election: e, value: value, options: o}
	contender, err := queue.Enter(ctx, e.session, c.entry(), e.path)
	if err != nil {
		return nil, err
	}
	c.stand(contender)
	if o.Priority > 0 {
		if err := c.jump(ctx); err != nil {
			return nil, c.contender.Leave(err)
		}
	}
	return c, nil
}

func (c *Candidate) entry() queue.Entry {
	var words []string
	if c.options.Priority > 0 {
		words = append(words, queue.PriorityWord(c.options.Priority))
	}
	return queue.Entry{Kind: queue.Latch, Data: published(c.value), Words: words}
}

// published is a value as others get it: Curator cannot read one that is none.
func published(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// jump goes ahead of those who wait with a lower priority. Whoever comes later stands behind it, so once is enough.
func (c *Candidate) jump(ctx context.Context) error {
	e := c.election
	for {
		names, _, err := e.session.Children(ctx, e.path)
		if err != nil {
			return err
		}
		before, ahead, ok := queue.Jump(c.contender, names, c.options.Priority)
		if !ok {
			return nil
		}
		stat, ok, err := e.session.Exists(ctx, before)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		at := c.contender.InFrontOfLower(before, stat.Czxid, c.options.Priority)
		err = c.take(ctx, at, c.entry(), embed.OpCheck(ahead, embed.AnyVersion))
		if !errors.Is(err, embed.ErrNoNode) || c.contender.Claim.Err() != nil {
			return err
		}
	}
}

// take moves the candidate to another place. If the operations are refused it stays where it is.
func (c *Candidate) take(ctx context.Context, at queue.Place, e queue.Entry, ops ...embed.Op) error {
	contender, err := queue.Take(ctx, c.election.session, e, at, append(ops, embed.OpRelease(c.contender.Claim))...)
	switch {
	case err == nil:
		c.stand(contender)
	case errors.Is(err, embed.ErrNotHeld) && errors.Is(c.contender.Claim.Err(), embed.ErrReleased):
		err = embed.ErrDeleted // by hand, before it could go: of what is on its way out the claim says no more
	}
	return err
}

// Path returns the path of the candidate's znode, which is another one when it has moved ahead of others.
func (c *Candidate) Path() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.contender.Path()
}

// Withdraw takes the candidate out of the queue; its Wait ends with embed.ErrReleased. It is idempotent.
func (c *Candidate) Withdraw() error {
	c.mu.Lock()
	contender := c.mu.contender
	c.mu.withdrawn = true
	c.mu.Unlock()
	return contender.Claim.Release()
}

func (c *Candidate) isWithdrawn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.withdrawn
}

// Wait waits until the candidate leads, and for a quorum, as long as ctx lets it. After an error it has left the queue, or will as soon as that
// can be sent. Errors are those of Campaign, and embed.ErrNotHeld for a candidate that was elected, which changes nothing.
func (c *Candidate) Wait(ctx context.Context) (*Leadership, error) {
	l, err := c.wait(ctx)
	return l, c.election.wrap("campaign", err)
}

func (c *Candidate) wait(ctx context.Context) (*Leadership, error) {
	if c.contender.Turn != nil {
		return nil, fmt.Errorf("%w: the candidate was elected before", embed.ErrNotHeld)
	}
	for {
		l, err := c.step(ctx)
		if c.isWithdrawn() {
			err = embed.ErrReleased
		}
		if err != nil {
			return nil, c.contender.Leave(err)
		}
		if l != nil {
			return l, nil
		}
	}
}

// step leads if it is the candidate's turn, or takes a place that it is offered; otherwise it waits until something is another.
func (c *Candidate) step(ctx context.Context) (*Leadership, error) {
	offered, err := c.election.session.Watch(ctx, c.election.offer(c.Path()), embed.WatchOnce)
	if err != nil {
		return nil, err
	}
	defer offered.Close()
	moved, err := c.accept(ctx)
	if moved || err != nil {
		return nil, err
	}
	first, err := c.contender.First(ctx)
	if err != nil {
		return nil, err
	}
	if !first {
		return nil, c.contender.WaitChange(ctx, offered.Events())
	}
	if c.contender.IsVacant() {
		// Ahead of others who came before: the grant is a commit of its own, or the token would not grow. With a higher priority somebody may
		// go ahead until then, and be granted it first.
		err := c.take(ctx, c.contender.Place().Granted(), c.entry())
		if errors.Is(err, embed.ErrNodeExists) && c.contender.Claim.Err() == nil {
			err = nil
		}
		return nil, err
	}
	switch err := c.contender.Hold(); {
	case err == nil:
		return &Leadership{candidate: c, contender: c.contender, turn: c.contender.Turn, values: ctx, transferring: make(chan struct{}, 1)}, nil
	case errors.Is(err, embed.ErrSuspended) && c.contender.Claim.Err() == nil:
		return nil, c.contender.WaitChange(ctx, offered.Events())
	default:
		return nil, err
	}
}
