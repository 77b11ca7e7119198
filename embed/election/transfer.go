package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// ErrNotTransferred says that the candidate to whom the leadership was to be given has not taken it. It was resigned instead.
var ErrNotTransferred = errors.New("leadership was not taken over, but resigned")

// transferTime is how long a candidate may take to accept.
const transferTime = 5 * time.Second

// offer is the path of a znode that offers a leader's place: its data is the path of the candidate, a space, and the path of the leader.
func (e *Election) offer() string { return queue.Child(e.path, "transfer") }

// Transfer gives the leadership to a candidate who is waiting, ahead of all others: to is its path, one of Candidates'. It waits until the
// candidate has taken it, for ctx and five seconds at most; then, or if there is no such candidate, it resigns and returns ErrNotTransferred. The
// leadership has ended whatever it returns, and nobody leads until the transfer is over. Other errors: why the leadership had ended before.
func (l *Leadership) Transfer(ctx context.Context, to string) error {
	return l.candidate.election.wrap("transfer", l.transfer(ctx, to))
}

func (l *Leadership) transfer(ctx context.Context, to string) error {
	l.transferring.Lock()
	defer l.transferring.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	// The place stays taken, so nobody else leads; and whoever takes it may know of it before this node does.
	l.turn.End()
	err := l.offer(ctx, to)
	if released := l.Resign(); err == nil {
		err = released
	}
	if errors.Is(l.contender.Claim.Err(), embed.ErrDeleted) {
		return nil // by who has taken it
	}
	return fmt.Errorf("%w: %w", ErrNotTransferred, err)
}

// offer offers the place to a candidate until it has taken it, or does not.
func (l *Leadership) offer(ctx context.Context, to string) error {
	s, e := l.contender.Session, l.candidate.election
	if !strings.HasPrefix(to, queue.Child(e.path, "")) || to == l.contender.Path() {
		return fmt.Errorf("%w: %s is no candidate's", embed.ErrInvalidPath, to)
	}
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	claim, err := s.Claim(ctx, embed.OpCheck(to, embed.AnyVersion), embed.OpCreate(e.offer(), []byte(to+" "+l.contender.Path()), embed.Ephemeral))
	if err != nil {
		return err
	}
	defer claim.Release()
	if _, err := claim.Created(ctx); err != nil {
		return err
	}
	gone, err := s.Watch(ctx, to, embed.WatchOnce)
	if err != nil {
		return err
	}
	defer gone.Close()
	if _, ok, err := s.Exists(ctx, to); !ok {
		return cmp.Or(err, errLeft) // unless it is by accepting: that is known by now
	}
	select {
	case <-claim.Done(): // taken, as the place is in the same moment
		select {
		case <-l.contender.Claim.Done():
		case <-ctx.Done():
		}
		return claim.Err()
	case <-l.contender.Claim.Done():
	case <-gone.Events(): // by accepting, or for good
	case <-ctx.Done():
	}
	return cmp.Or(errors.Join(claim.Release(), ctx.Err()), errLeft)
}

var errLeft = errors.New("the candidate has left")

// accept takes a place that is offered to the candidate, and reports whether it has another one.
func (c *Candidate) accept(ctx context.Context) (moved bool, err error) {
	s := c.election.session
	data, stat, err := s.Get(ctx, c.election.offer())
	if errors.Is(err, embed.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	to, from, _ := strings.Cut(string(data), " ")
	if to != c.Path() {
		return false, nil
	}
	leader, ok, err := s.Exists(ctx, from)
	if err != nil || !ok {
		return false, err
	}
	err = c.take(ctx, queue.PlaceOf(from, leader.Czxid).Granted(), c.entry(), embed.OpDelete(c.election.offer(), stat.Version), embed.OpDelete(from, embed.AnyVersion))
	if errors.Is(err, embed.ErrNoNode) && c.contender.Claim.Err() == nil {
		return false, nil // it was taken back
	}
	return err == nil, err
}
