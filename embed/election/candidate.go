package election

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// Options say how a candidate stands. The zero value is usable.
type Options struct {
	// Priority is from 0 to 999. A candidate goes ahead of those that wait with a lower priority,
	// even if they came earlier. Candidates of the same priority lead in the order in which they
	// came. A priority takes the leadership away from nobody, and after a forced recovery it goes
	// ahead of nobody who came before. Nor does it go ahead of a candidate, or right behind one,
	// whose znode the session may not read. A Curator client has priority 0.
	// Going ahead of somebody costs one more commit, and a look at all who wait.
	Priority int
}

// A Candidate stands in an election's queue. Its methods may be called by any number of goroutines,
// but Wait by one at a time.
type Candidate struct {
	// Immutable.
	election *Election
	value    []byte
	options  Options

	contender *queue.Contender // for the goroutine that enters or waits

	mu struct {
		rank.Mutex[rank.Candidate]
		contender *queue.Contender // the same, for all others
		withdrawn bool
	}
}

// stand records the candidate's place in the queue.
func (c *Candidate) stand(contender *queue.Contender) {
	c.contender = contender
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.contender = contender
	if c.mu.withdrawn {
		go contender.Claim.Release() // which may wait
	}
}

// Enter stands for election and does not wait to be elected; Wait does. If the candidate is the
// first in the queue, nobody leads until it Waits. Before that it also accepts no transfer. So a
// caller that will not Wait soon should Withdraw the candidate or close its session. Errors are
// those of Campaign, and embed.ErrInvalidArgument for Options that are out of range.
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

// published returns a value as others read it. It is never nil, because Curator cannot read a znode
// without data.
func published(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// jump moves the candidate ahead of those that wait with a lower priority. Later candidates come
// behind it, so one jump is enough. It goes ahead of nobody who was there before a forced recovery,
// because the lost members may have granted later tokens than it would get there. Nor does it go
// between candidates of which it may not read one.
func (c *Candidate) jump(ctx context.Context) error {
	e := c.election
	var past []string
	for {
		names, _, err := e.session.Children(ctx, e.path)
		if err != nil {
			return err
		}
		before, ahead, ok := queue.Jump(c.contender, names, past, c.options.Priority)
		if !ok {
			return nil
		}
		stat, ok, err := e.session.Exists(ctx, before)
		hidden := errors.Is(err, embed.ErrNoAuth) // then its place cannot be known
		if err != nil && !hidden {
			return err
		}
		if !ok && !hidden {
			continue
		}
		if hidden || queue.PlaceOf(before, stat.Czxid).IsPast(c.contender.Czxid) {
			past = append(past, before)
			continue
		}
		at := c.contender.InFrontOfLower(before, stat.Czxid, c.options.Priority)
		err = c.moveTo(ctx, at, c.entry(), embed.OpCheck(ahead, embed.AnyVersion), embed.OpCheck(before, embed.AnyVersion))
		if errors.Is(err, embed.ErrNoAuth) && c.contender.Claim.Err() == nil {
			past = append(past, before) // the one ahead of it may not be read
			continue
		}
		if !errors.Is(err, embed.ErrNoNode) || c.contender.Claim.Err() != nil {
			return err
		}
	}
}

// moveTo moves the candidate to another place. If an operation is refused, the candidate stays
// where it is.
func (c *Candidate) moveTo(ctx context.Context, at queue.Place, e queue.Entry, ops ...embed.Op) error {
	contender, err := queue.EnterAt(ctx, c.election.session, e, at, append(ops, claim.OpRelease(c.contender.Claim))...)
	switch {
	case err == nil:
		c.stand(contender)
	case !queue.Unanswered(err) && ctx.Err() == nil && errors.Is(c.contender.Claim.Err(), embed.ErrReleased):
		// Somebody deleted it before it could move; the claim only knows that it was to be
		// released. Another operation may have been refused first.
		err = embed.ErrDeleted
	}
	return err
}

// Path returns the path of the candidate's znode. It changes when the candidate moves ahead of
// others.
func (c *Candidate) Path() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.contender.Path()
}

// Withdraw removes the candidate from the queue. Its Wait ends with embed.ErrReleased. It is
// idempotent.
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

// Wait waits until the candidate leads, and for a quorum, as long as ctx allows. After an error the
// candidate has left the queue: if its znode cannot be deleted at once, the node does so as soon as
// it can. Errors are those of Campaign. A candidate that was elected before gets embed.ErrNotHeld,
// which changes nothing.
func (c *Candidate) Wait(ctx context.Context) (*Leadership, error) {
	l, err := c.wait(ctx)
	return l, c.election.wrap("campaign", err)
}

func (c *Candidate) wait(ctx context.Context) (*Leadership, error) {
	if c.contender.Tenure != nil {
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

// step returns a Leadership if the candidate is first. Otherwise it accepts a transfer, if there is
// an offer, or waits until something changes.
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
		events := offered.Events()
		if errors.Is(offered.Err(), embed.ErrNoAuth) {
			events = nil // it is no offer of this package, and its watch has ended
		}
		return nil, c.contender.WaitChange(ctx, events)
	}
	if c.contender.NeedsGrant() {
		// The candidate went ahead of earlier ones, so its token grows only by the grant, which is
		// a commit of its own. Until then a candidate with a higher priority may go ahead and be
		// granted the leadership first.
		err := c.moveTo(ctx, c.contender.Place().Granted(), c.entry())
		if errors.Is(err, embed.ErrNodeExists) && c.contender.Claim.Err() == nil {
			err = nil
		}
		return nil, err
	}
	switch err := c.contender.Hold(); {
	case err == nil:
		return &Leadership{candidate: c, contender: c.contender, tenure: c.contender.Tenure, values: ctx, transferring: make(chan struct{}, 1)}, nil
	case errors.Is(err, embed.ErrSuspended) && c.contender.Claim.Err() == nil:
		return nil, c.contender.WaitChange(ctx, offered.Events())
	default:
		return nil, err
	}
}
