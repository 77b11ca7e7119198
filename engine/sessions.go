package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrElsewhere says that only another member can end a session, because it is in that one's
// process.
var ErrElsewhere = errors.New("the session is in the process of another member")

// endTries is how often EndSession attaches a session whose client attaches it elsewhere meanwhile.
const endTries = 3

// EndSession ends a session that belongs to somebody else, as its owner would. It ends remote
// sessions of any member: it attaches them to this node, as their clients could, and closes them.
// In-process sessions it ends on their own node alone. It waits as Session.Close does.
//
// Errors with which it has not ended: ErrNoSession, ErrElsewhere with the member, ErrSessionMoved
// if its client is faster, and those of Reattach. ErrUnknownOutcome says that it may end yet.
func (e *Engine) EndSession(ctx context.Context, id tree.SessionID) error {
	r, err := e.Tables.Usable(ctx, id)
	if errors.Is(err, ErrNoSession) { // or this member does not know it yet
		if err := e.barrier(ctx, e.home().Shard); err != nil {
			return err
		}
		r, err = e.Tables.Usable(ctx, id)
	}
	switch {
	case err != nil:
		return err
	case r.Remote():
		err := e.endRemote(ctx, &r)
		for i := 1; i < endTries && errors.Is(err, ErrSessionMoved); i++ {
			err = e.endRemote(ctx, &r)
		}
		return err
	case MemberID(r.Origin) != e.roster.Self():
		return fmt.Errorf("%w: ask member %d", ErrElsewhere, r.Origin)
	}
	s := e.keeper.Find(id)
	if s == nil {
		return ErrNoSession // it has just ended
	}
	return endOf(s.Close())
}

// endOf returns what the error of a Close says of a session's end. If the wait was too short, the
// session ends later, or at its timeout.
func endOf(err error) error {
	if err == nil || errors.Is(err, ErrSessionMoved) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

func (e *Engine) endRemote(ctx context.Context, r *session.Record) error {
	s, err := e.Reattach(ctx, r.ID, r.Password, r.Timeout, r.Identities...)
	switch {
	case errors.Is(err, ErrSessionExpired):
		return ErrNoSession
	case err != nil:
		return err
	}
	err = s.Close()
	if err == nil && errors.Is(s.Err(), ErrSessionMoved) { // its client was faster: nothing was closed
		err = ErrSessionMoved
	}
	return endOf(err)
}
