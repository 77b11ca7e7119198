package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

// sessionsMax is how many of its sessions a keeper remembers. A new session needs the ensemble,
// which by then has ended all but the last one or two.
const sessionsMax = 8

// patience is how many session timeouts a keeper waits for the session of somebody else to end. A
// session whose process has died ends after little more than one.
const patience = 2

// A keeper keeps the znode of an Announcement up. Only its loop touches its fields.
type keeper struct {
	a        *Announcement
	linger   time.Duration
	data     []byte            // the newest that the ensemble has accepted, or the first
	sessions []embed.SessionID // its own, the newest last
	rival    rival
}

// A rival is a znode of somebody else that is in the way.
type rival struct {
	czxid embed.Zxid
	owner embed.SessionID
	since time.Time // when it was first seen
}

// loop keeps the znode up until ctx ends, or until no attempt can succeed.
func (k *keeper) loop(ctx context.Context, from embed.Opener) {
	err := sessions.Each(ctx, from, k.live)
	if ctx.Err() != nil {
		err = embed.ErrReleased
	}
	k.end(err)
}

// end ends the Announcement.
func (k *keeper) end(err error) {
	k.a.cancel()
	if !errors.Is(err, embed.ErrReleased) {
		err = fmt.Errorf("announce %s: %w", k.a.path, err)
	}
	k.show(standing{end: err})
	close(k.a.done)
}

// show replaces the standing.
func (k *keeper) show(now standing) {
	now.changed = make(chan struct{})
	if was := k.a.now.Swap(&now); was != nil {
		close(was.changed)
	}
}

// live keeps the znode up with one session until the session has ended. It returns an error only if
// the Announcement must end.
func (k *keeper) live(ctx context.Context, s *embed.Session) error {
	k.remember(s)
	var pauses sessions.Pauses
	for {
		c, czxid, err := k.enter(ctx, s)
		if err == nil {
			k.rival = rival{}
			k.show(standing{session: s, claim: c, czxid: czxid})
			err = k.stay(ctx, s, c, czxid)
			_ = c.Release() // if it cannot be sent, the node keeps trying until the session ends
		}
		if ctx.Err() != nil {
			return nil
		}
		if ended := s.Err(); ended != nil {
			err = ended
		}
		k.show(standing{why: err})
		switch {
		case s.Err() != nil:
			return nil // if the node has ended, opening the next session says so
		case final(err) != nil:
			return err
		case !pauses.After(ctx, err):
			return nil
		}
	}
}

// remember notes that a session is the keeper's own.
func (k *keeper) remember(s *embed.Session) {
	k.sessions = append(k.sessions, s.ID())
	k.sessions = k.sessions[max(0, len(k.sessions)-sessionsMax):]
}

// enter creates the znode.
func (k *keeper) enter(ctx context.Context, s *embed.Session) (*claim.Claim, embed.Zxid, error) {
	parent, _ := queue.Split(k.a.path)
	for {
		var c *claim.Claim
		var czxid embed.Zxid
		var next *update
		err := queue.Within(ctx, s, parent, func(parents bool) (err error) {
			next = nil
			ops, err := k.makeRoom(ctx, s)
			if err != nil {
				return err
			}
			data := k.data
			if next = k.a.next.Load(); next != nil {
				data = next.data
			}
			how := embed.CreateOptions{Mode: embed.Ephemeral, TTL: k.linger, Parents: parents}
			create := embed.OpCreateWith(k.a.path, data, how)
			c, czxid, err = submit(ctx, s, append(ops, create)...)
			return err
		})
		switch {
		case err == nil:
			k.accept(next)
			return c, czxid, nil
		case next != nil && refused(err):
			k.reject(next, err)
		case !changedMeanwhile(err):
			return nil, 0, err
		}
	}
}

// changedMeanwhile reports whether a transaction was refused because what this node showed was old.
// By now it shows what is newer.
func changedMeanwhile(err error) bool {
	for _, refusal := range []error{
		embed.ErrNoNode, embed.ErrNodeExists, embed.ErrNotEmpty, embed.ErrNotHeld, embed.ErrBadVersion,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// refused reports whether the ensemble refuses some data.
func refused(err error) bool {
	return errors.Is(err, embed.ErrTooLarge) || errors.Is(err, embed.ErrQuotaExceeded) ||
		errors.Is(err, embed.ErrNoAuth)
}

// submit claims the ephemeral that the last operation creates, and waits for its outcome.
func submit(
	ctx context.Context, s *embed.Session, ops ...embed.Op,
) (*claim.Claim, embed.Zxid, error) {
	c, err := claim.New(ctx, s, ops...)
	if err != nil {
		return nil, 0, err
	}
	results, err := c.Await(ctx)
	if err != nil {
		_ = c.Release() // the node deletes what was created once it knows the outcome
		return nil, 0, err
	}
	return c, results[len(results)-1].Stat.Czxid, nil
}

// makeRoom returns the operations that delete what is left of the keeper's own at the path. While
// somebody else's znode is there, makeRoom waits. It returns ErrTaken when it has waited long
// enough.
func (k *keeper) makeRoom(ctx context.Context, s *embed.Session) ([]embed.Op, error) {
	for {
		w, err := s.Watch(ctx, k.a.path, embed.WatchOnce)
		if err != nil {
			return nil, err
		}
		ops, in, err := k.look(ctx, s)
		if !in {
			_ = w.Close()
			return ops, err
		}
		k.show(standing{why: k.taken()})
		wait := time.NewTimer(patience*s.Timeout() - time.Since(k.rival.since))
		select {
		case <-w.Events():
		case <-wait.C:
			err = k.verdict(ctx, s)
		case <-ctx.Done():
		}
		wait.Stop()
		_ = w.Close()
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = s.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// look returns the operations that make room, or that somebody else's znode is in the way, which it
// notes as the rival.
func (k *keeper) look(
	ctx context.Context, s *embed.Session,
) (ops []embed.Op, taken bool, err error) {
	stat, there, err := s.Exists(ctx, k.a.path)
	remove := embed.OpDelete(k.a.path, embed.AnyVersion)
	switch {
	case err != nil || !there:
		return nil, false, err
	case stat.EphemeralOwner != 0 && slices.Contains(k.sessions, stat.EphemeralOwner):
		return []embed.Op{claim.OpCheckCzxid(k.a.path, stat.Czxid), remove}, false, nil
	case stat.EphemeralOwner == 0 && k.linger > 0 && stat.NumChildren == 0:
		// What a lost session has left and what is there to stay look alike: only the ensemble knows.
		lost := claim.OpCheckLost(k.a.path, stat.Mzxid)
		if _, err = s.Multi(ctx, lost); !changedMeanwhile(err) {
			return []embed.Op{lost, remove}, false, err
		}
	}
	if k.rival.czxid != stat.Czxid || k.rival.owner != stat.EphemeralOwner {
		k.rival = rival{czxid: stat.Czxid, owner: stat.EphemeralOwner, since: time.Now()}
	}
	return nil, true, nil
}

// taken returns the ErrTaken that the rival is the reason of.
func (k *keeper) taken() error {
	if k.rival.owner == 0 {
		return fmt.Errorf("%w: it belongs to no session", ErrTaken)
	}
	return fmt.Errorf("%w: it belongs to session %x", ErrTaken, k.rival.owner)
}

// verdict returns ErrTaken if the rival is still there. What this node shows may be old, so it asks
// the ensemble first.
func (k *keeper) verdict(ctx context.Context, s *embed.Session) error {
	if _, err := s.Sync(ctx, k.a.path); err != nil {
		return err
	}
	was := k.rival
	if _, still, err := k.look(ctx, s); err != nil || !still || k.rival.since != was.since {
		return err
	}
	return k.taken()
}

// stay announces new data until the claim or ctx has ended, and returns why.
func (k *keeper) stay(
	ctx context.Context, s *embed.Session, c *claim.Claim, czxid embed.Zxid,
) error {
	for {
		pause, err := k.write(ctx, s, c, czxid)
		if err != nil {
			return err
		}
		var again <-chan time.Time
		if pause > 0 {
			again = time.After(pause)
		}
		select {
		case <-k.a.wake:
		case <-again:
		case <-c.Done():
			return c.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retryPause is the time between two attempts to write data while no quorum answers.
const retryPause = 100 * time.Millisecond

// write announces new data, if there is some. It returns a pause after which it is to be called
// again, or the error that ends the stay.
func (k *keeper) write(
	ctx context.Context, s *embed.Session, c *claim.Claim, czxid embed.Zxid,
) (time.Duration, error) {
	next := k.a.next.Load()
	if next == nil {
		return 0, nil
	}
	_, err := s.Multi(ctx, claim.OpCheckCzxid(k.a.path, czxid),
		embed.OpSet(k.a.path, next.data, embed.AnyVersion))
	switch {
	case err == nil:
		k.accept(next)
		return 0, nil
	case c.Err() != nil:
		return 0, c.Err()
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case refused(err):
		k.reject(next, err)
		return 0, nil
	case changedMeanwhile(err): // somebody has deleted the znode
		return 0, err
	}
	return retryPause, nil
}

// accept records that the ensemble has the data of an update, or nothing if it is nil.
func (k *keeper) accept(u *update) {
	if u == nil {
		return
	}
	k.data = u.data
	k.a.next.CompareAndSwap(u, nil)
	close(u.done)
}

// reject drops an update.
func (k *keeper) reject(u *update, err error) {
	k.a.next.CompareAndSwap(u, nil)
	u.err = err
	close(u.done)
}
