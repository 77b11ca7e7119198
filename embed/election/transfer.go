package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// ErrNotTransferred says that the candidate did not get the leadership, and will not. If the
// candidate had not even answered the offer, the leadership continues; Leadership.Err tells.
var ErrNotTransferred = errors.New("leadership was not transferred")

// transferTime is how long a candidate may take to answer an offer, and again to accept the place.
const transferTime = 5 * time.Second

// offer returns the path of the znode that offers a leader's place to the candidate at a path. Only
// that candidate looks there. The data is the name of the leader's znode, a space, and the zxid
// that created that znode. The zxid is needed because every candidate that is granted the place has
// the same name. The version of the offer tells how far both sides are.
func (e *Election) offer(to string) string {
	_, name := queue.Split(to)
	return queue.Child(e.path, queue.Offer(name))
}

// The versions of an offer.
const (
	offered  = 0
	answered = 1 // by the candidate: it is there and waits
	given    = 2 // by the leader: it no longer leads
)

// Transfer gives the leadership to a waiting candidate, ahead of all others. to is the candidate's
// path, as Candidates returns it. Transfer waits until the candidate leads, no longer than ctx, and
// five seconds for each of the candidate's two answers. ctx may be that of this leadership, or the
// one that Run gives its fn: that it ends when the leadership is given away does not end Transfer.
//
// If the candidate does not answer, Transfer returns ErrNotTransferred and the leadership
// continues. That happens if the candidate has gone (then also embed.ErrNoNode), if it does not
// Wait, or if it is a client that knows no transfers.
//
// When the candidate has answered, the leadership ends, and nobody leads until the candidate does.
// If the candidate then does not accept, Transfer resigns and returns ErrNotTransferred. It returns
// embed.ErrUnknownOutcome if the session ends, or if no quorum tells within
// embed.Config.RequestTimeout whether the candidate has accepted.
//
// Other errors: embed.ErrInvalidPath if to is not the path of another candidate of the election,
// embed.ErrInvalidArgument for a leadership of Balance, and why the leadership had ended before.
func (l *Leadership) Transfer(ctx context.Context, to string) error {
	if l.busy != nil {
		// It would wait until its caller has returned.
		return l.candidate.election.wrap("transfer", fmt.Errorf("%w: Balance transfers its leaderships by itself", embed.ErrInvalidArgument))
	}
	return l.candidate.election.wrap("transfer", l.transfer(ctx, to))
}

func (l *Leadership) transfer(ctx context.Context, to string) error {
	ctx, cancel := queue.Beyond(ctx, l.tenure)
	defer cancel()
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
	// The place stays occupied, so nobody else leads. The leadership ends now, because the
	// candidate may know that it has the place before this node does.
	l.tenure.End()
	if err := l.waitIdle(ctx); err != nil {
		return notTransferred(ctx, err)
	}
	_, err = l.contender.Session.Set(ctx, e.offer(to), l.terms(), answered)
	if err == nil {
		err = l.waitOffer(ctx, to, offer, given+1)
	}
	return l.conclude(ctx, to, offer, err)
}

// waitIdle waits until the leader's fn has returned. After an error, the runner of that fn resigns.
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

// notTransferred returns ErrNotTransferred with a reason. An unknown outcome of one step is not an
// unknown outcome of the transfer, so it becomes the ctx's error or embed.ErrUnavailable.
func notTransferred(ctx context.Context, why error) error {
	if errors.Is(why, embed.ErrUnknownOutcome) {
		why = cmp.Or(ctx.Err(), embed.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", ErrNotTransferred, why)
}

// conclude ends a transfer after the place was given. It deletes the offer. Whether the offer still
// exists tells whether the place was accepted, because one transaction deletes both.
func (l *Leadership) conclude(ctx context.Context, to string, offer *claim.Claim, why error) error {
	_, err := l.contender.Session.Multi(context.Background(), claim.OpRelease(offer))
	place := l.contender.Claim.Err()
	switch {
	// Nobody has accepted, or somebody has deleted the offer by hand.
	case err == nil, errors.Is(err, embed.ErrNotHeld) && place == nil:
		_ = l.Resign() // if it cannot be sent the node keeps trying until the session ends
		return notTransferred(ctx, fmt.Errorf("resigned: %w", cmp.Or(why, errLeft)))
	case errors.Is(err, embed.ErrNotHeld) && (errors.Is(place, embed.ErrDeleted) || errors.Is(place, embed.ErrReleased)):
		l.waitVisible(ctx, to)
		return nil
	}
	go l.Resign() // which may wait
	if why = cmp.Or(place, err); !errors.Is(why, embed.ErrUnknownOutcome) {
		why = fmt.Errorf("%w: %w", embed.ErrUnknownOutcome, why)
	}
	return why
}

// waitVisible waits until this node's reads show the new leader. A node ends a claim shortly before
// it shows the transaction that took the claim's znode. That transaction also deleted the offer.
func (l *Leadership) waitVisible(ctx context.Context, to string) {
	s, e := l.contender.Session, l.candidate.election
	for {
		gone, err := s.Watch(ctx, e.offer(to), embed.WatchOnce)
		if err != nil {
			return
		}
		_, there, err := s.Exists(ctx, e.offer(to))
		if there && err == nil {
			err = wait(ctx, s, gone, nil)
		}
		_ = gone.Close()
		if !there || err != nil {
			return
		}
	}
}

// makeOffer offers the place to a candidate. It tries again if this node's replica was out of date.
func (l *Leadership) makeOffer(ctx context.Context, to string) (*claim.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	for tries := 3; ; tries-- {
		offer, err := l.tryOffer(ctx, to)
		if tries == 0 || !errors.Is(err, embed.ErrNoNode) && !errors.Is(err, embed.ErrNodeExists) && !errors.Is(err, embed.ErrNotHeld) {
			return offer, err
		}
	}
}

// tryOffer creates the offer, by what this node's replica knows.
func (l *Leadership) tryOffer(ctx context.Context, to string) (*claim.Claim, error) {
	s, e := l.contender.Session, l.candidate.election
	ops := []embed.Op{embed.OpCheck(to, embed.AnyVersion), embed.OpCreate(e.offer(to), l.terms(), embed.Ephemeral)}
	if stat, _, err := s.Exists(ctx, e.offer(to)); err == nil && stat.EphemeralOwner != 0 {
		// An older offer, perhaps of a former leader.
		older := claim.OpCheckCzxid(e.offer(to), stat.Czxid)
		ops = append([]embed.Op{older, embed.OpDelete(e.offer(to), embed.AnyVersion)}, ops...)
	}
	offer, err := claim.New(ctx, s, ops...)
	if err != nil {
		return nil, err
	}
	if _, err := offer.Created(ctx); err != nil {
		return nil, errors.Join(err, offer.Release())
	}
	return offer, nil
}

// terms returns the data of an offer.
func (l *Leadership) terms() []byte {
	_, leader := queue.Split(l.contender.Path())
	return fmt.Appendf(nil, "%s %d", leader, l.contender.Czxid)
}

var errLeft = fmt.Errorf("%w: the candidate has left", embed.ErrNoNode)

// waitOffer waits until the offer has a version, or has been accepted. It returns an error if the
// candidate leaves.
func (l *Leadership) waitOffer(ctx context.Context, to string, offer *claim.Claim, version int32) error {
	enough := time.NewTimer(transferTime)
	defer enough.Stop()
	for {
		err := l.stepOffer(ctx, to, offer, version, enough.C)
		if !errors.Is(err, errWaiting) {
			return err
		}
	}
}

// stepOffer returns nil if the offer has a version. Otherwise it waits until something changes and
// returns errWaiting.
func (l *Leadership) stepOffer(ctx context.Context, to string, offer *claim.Claim, version int32, enough <-chan time.Time) error {
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

// lookOffer returns nil if the offer has a version, and errWaiting if it does not yet.
func (l *Leadership) lookOffer(ctx context.Context, to string, version int32) error {
	s, e := l.contender.Session, l.candidate.election
	if ended := l.contender.Claim.Err(); ended != nil {
		return ended // the place was accepted or lost
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

// accept answers an offer to the candidate, and moves the candidate to the offered place once the
// leader has given it. It reports whether the candidate has moved.
func (c *Candidate) accept(ctx context.Context) (moved bool, err error) {
	s, offer := c.election.session, c.election.offer(c.Path())
	data, stat, err := s.Get(ctx, offer)
	if errors.Is(err, embed.ErrNoNode) || errors.Is(err, embed.ErrNoAuth) {
		return false, nil // what it may not read is no offer of this package
	}
	if err != nil {
		return false, err
	}
	var name string
	var czxid embed.Zxid
	if _, err := fmt.Sscan(string(data), &name, &czxid); err != nil {
		return false, nil // not an offer of this package
	}
	switch stat.Version {
	case offered:
		_, err = s.Set(ctx, offer, data, offered)
		if queue.Unanswered(err) && ctx.Err() == nil && s.Err() == nil {
			// A candidate waits for the quorum to return; the leader that offers will stop waiting.
			err = nil
		}
	case given:
		// Delete the leader's znode before the offer: when its node sees the offer gone, it has
		// seen the place gone.
		from := queue.Child(c.election.path, name)
		err = c.moveTo(ctx, queue.PlaceOf(from, czxid).Granted(), c.entry(), claim.OpCheckCzxid(from, czxid), embed.OpDelete(from, embed.AnyVersion), embed.OpDelete(offer, given))
		moved = err == nil
	}
	if (errors.Is(err, embed.ErrNoNode) || errors.Is(err, embed.ErrBadVersion) || errors.Is(err, embed.ErrNotHeld)) && c.contender.Claim.Err() == nil {
		err = nil // the offer was withdrawn, or comes from a former leader
	}
	return moved, err
}
