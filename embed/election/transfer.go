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

// ErrNotTransferred says that the candidate to whom the leadership was to be given has not taken it, and will not. It goes on, if the candidate
// had not even answered; Leadership.Err tells.
var ErrNotTransferred = errors.New("leadership was not transferred")

// transferTime is how long a candidate may take to answer, and then to accept.
const transferTime = 5 * time.Second

// offer is the path of a znode that offers a leader's place to the candidate of a path, who alone looks there: its data are the name of the
// leader and the zxid that created the leader's znode, for the name is that of others who are granted the place; with a space between. Its
// version says how far they are.
func (e *Election) offer(to string) string {
	_, name := queue.Split(to)
	return queue.Child(e.path, queue.Offer(name))
}

// The versions of an offer.
const (
	offered  = 0
	answered = 1 // by the candidate, who is there
	given    = 2 // by the leader, who leads no more
)

// Transfer gives the leadership to a candidate who is waiting, ahead of all others: to is its path, one of Candidates'. It waits until the
// candidate has taken it, no longer than ctx, and five seconds for each of its answers. If the candidate has gone, or does not answer for it waits for
// nothing or is a client's that knows no transfers, Transfer returns ErrNotTransferred and the leadership goes on; embed.ErrNoNode too if it
// has gone. Once it has answered, the leadership ends and nobody leads until the candidate does: if it does not, the leadership is
// resigned, and the error is the same; or embed.ErrUnknownOutcome if the session ends, or no quorum tells within
// embed.Config.RequestTimeout whether it has. Other errors: embed.ErrInvalidPath if that is the path of no other candidate of the election,
// and why the leadership has ended before.
func (l *Leadership) Transfer(ctx context.Context, to string) error {
	return l.candidate.election.wrap("transfer", l.transfer(ctx, to))
}

func (l *Leadership) transfer(ctx context.Context, to string) error {
	select {
	case l.transferring <- struct{}{}:
		defer func() { <-l.transferring }()
	case <-ctx.Done():
		return notTransferred(ctx, ctx.Err())
	}
	if err := l.Err(); err != nil {
		return err
	}
	e := l.candidate.election
	name, below := strings.CutPrefix(to, queue.Child(e.path, ""))
	if _, stands := queue.First([]string{name}); !below || !stands || strings.Contains(name, "/") || to == l.contender.Path() {
		return fmt.Errorf("%w: %q is not the path of another candidate of this election", embed.ErrInvalidPath, to)
	}
	offer, err := l.makeOffer(ctx, to)
	if err != nil {
		return notTransferred(ctx, err)
	}
	defer offer.Release()
	if err := l.waitOffer(ctx, to, offer, answered); err != nil {
		return notTransferred(ctx, err)
	}
	// The place stays taken, so nobody else leads; and whoever takes it may know of it before this node does.
	l.turn.End()
	if err := l.waitIdle(ctx); err != nil {
		return notTransferred(ctx, err)
	}
	_, err = l.contender.Session.Set(ctx, e.offer(to), l.terms(), answered)
	if err == nil {
		err = l.waitOffer(ctx, to, offer, given+1)
	}
	return l.conclude(ctx, offer, err)
}

// waitIdle waits until who had the turn has done with it. After an error whoever made it wait gives the place up.
func (l *Leadership) waitIdle(ctx context.Context) error {
	if l.busy == nil {
		return nil
	}
	select {
	case <-l.busy:
		return nil
	case <-l.contender.Claim.Done():
		return l.contender.Claim.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notTransferred says why. That the outcome of a step is not known is none of the transfer's.
func notTransferred(ctx context.Context, why error) error {
	if errors.Is(why, embed.ErrUnknownOutcome) {
		why = cmp.Or(ctx.Err(), embed.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", ErrNotTransferred, why)
}

// conclude ends a transfer that was given. It takes the offer back, and whether that is still there says whether the place was taken: both go at
// once.
func (l *Leadership) conclude(ctx context.Context, offer *embed.Claim, why error) error {
	_, err := l.contender.Session.Multi(context.Background(), embed.OpRelease(offer))
	place := l.contender.Claim.Err()
	switch {
	case err == nil, errors.Is(err, embed.ErrNotHeld) && place == nil: // nobody has taken it, or somebody has deleted the offer by hand
		_ = l.Resign() // if it cannot be sent the node goes on trying until the session ends
		return notTransferred(ctx, fmt.Errorf("resigned: %w", cmp.Or(why, errLeft)))
	case errors.Is(err, embed.ErrNotHeld) && (errors.Is(place, embed.ErrDeleted) || errors.Is(place, embed.ErrReleased)):
		return nil
	}
	go l.Resign() // which may wait
	if why = cmp.Or(place, err); !errors.Is(why, embed.ErrUnknownOutcome) {
		why = fmt.Errorf("%w: %w", embed.ErrUnknownOutcome, why)
	}
	return why
}

// makeOffer offers the place to a candidate.
func (l *Leadership) makeOffer(ctx context.Context, to string) (*embed.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	for tries := 3; ; tries-- {
		claim, err := l.tryOffer(ctx, to)
		if tries == 0 || !errors.Is(err, embed.ErrNoNode) && !errors.Is(err, embed.ErrNodeExists) {
			return claim, err
		}
	}
}

// tryOffer is makeOffer as far as this node knows; what it does not know, it does after it.
func (l *Leadership) tryOffer(ctx context.Context, to string) (*embed.Claim, error) {
	s, e := l.contender.Session, l.candidate.election
	ops := []embed.Op{embed.OpCheck(to, embed.AnyVersion), embed.OpCreate(e.offer(to), l.terms(), embed.Ephemeral)}
	if _, ok, err := s.Exists(ctx, e.offer(to)); err == nil && ok {
		ops = append([]embed.Op{embed.OpDelete(e.offer(to), embed.AnyVersion)}, ops...) // an older one, perhaps of a leader who is no more
	}
	claim, err := s.Claim(ctx, ops...)
	if err != nil {
		return nil, err
	}
	if _, err := claim.Created(ctx); err != nil {
		return nil, errors.Join(err, claim.Release())
	}
	return claim, nil
}

// terms are the data of an offer.
func (l *Leadership) terms() []byte {
	_, leader := queue.Split(l.contender.Path())
	return fmt.Appendf(nil, "%s %d", leader, l.contender.Czxid)
}

var errLeft = fmt.Errorf("%w: the candidate has left", embed.ErrNoNode)

// waitOffer waits until the offer has a version, or is gone, as it is when it is taken; for the candidate to leave is an error.
func (l *Leadership) waitOffer(ctx context.Context, to string, offer *embed.Claim, version int32) error {
	enough := time.NewTimer(transferTime)
	defer enough.Stop()
	for {
		err := l.stepOffer(ctx, to, offer, version, enough.C)
		if !errors.Is(err, errWaiting) {
			return err
		}
	}
}

// stepOffer returns nil if the offer has a version, or waits until something is another.
func (l *Leadership) stepOffer(ctx context.Context, to string, offer *embed.Claim, version int32, enough <-chan time.Time) error {
	s, e := l.contender.Session, l.candidate.election
	changed, err := s.Watch(ctx, e.offer(to), embed.WatchOnce)
	if err != nil {
		return err
	}
	defer changed.Close()
	gone, err := s.Watch(ctx, to, embed.WatchOnce)
	if err != nil {
		return err
	}
	defer gone.Close()
	if err := l.lookOffer(ctx, to, version); !errors.Is(err, errWaiting) {
		return err
	}
	select {
	case <-changed.Events():
	case <-gone.Events():
	case <-offer.Done():
	case <-l.contender.Claim.Done():
	case <-enough:
		return context.DeadlineExceeded
	case <-ctx.Done():
		return ctx.Err()
	}
	return errWaiting
}

var errWaiting = errors.New("waiting")

// lookOffer returns nil if the offer has a version, errWaiting if it has not yet.
func (l *Leadership) lookOffer(ctx context.Context, to string, version int32) error {
	s, e := l.contender.Session, l.candidate.election
	if ended := l.contender.Claim.Err(); ended != nil {
		return ended // it has been taken, or was lost
	}
	stat, ok, err := s.Exists(ctx, e.offer(to))
	switch {
	case err != nil:
		return err
	case !ok:
		return errors.New("the offer is gone")
	case stat.Version >= version:
		return nil
	}
	if _, ok, err := s.Exists(ctx, to); !ok {
		return cmp.Or(err, errLeft)
	}
	return errWaiting
}

// accept answers an offer to the candidate, and takes the place when it is given. It reports whether the candidate has another one.
func (c *Candidate) accept(ctx context.Context) (moved bool, err error) {
	s, offer := c.election.session, c.election.offer(c.Path())
	data, stat, err := s.Get(ctx, offer)
	if errors.Is(err, embed.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var name string
	var czxid embed.Zxid
	if _, err := fmt.Sscan(string(data), &name, &czxid); err != nil {
		return false, nil // somebody else's
	}
	switch stat.Version {
	case offered:
		_, err = s.Set(ctx, offer, data, offered)
		if queue.Unanswered(err) && ctx.Err() == nil && s.Err() == nil {
			err = nil // a candidate outwaits a quorum that is away; whoever offers will lose patience
		}
	case given:
		// The place before the offer: its node knows that it is gone when the offer is.
		from := queue.Child(c.election.path, name)
		err = c.take(ctx, queue.PlaceOf(from, czxid).Granted(), c.entry(), embed.OpCheckCzxid(from, czxid), embed.OpDelete(from, embed.AnyVersion), embed.OpDelete(offer, given))
		moved = err == nil
	}
	if (errors.Is(err, embed.ErrNoNode) || errors.Is(err, embed.ErrBadVersion) || errors.Is(err, embed.ErrNotHeld)) && c.contender.Claim.Err() == nil {
		err = nil // it was taken back, or is of a leader who is no more
	}
	return moved, err
}
