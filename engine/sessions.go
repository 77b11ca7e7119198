package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A SessionRecord is what this node knows of a session of the ensemble.
type SessionRecord struct {
	ID         tree.SessionID
	Member     MemberID // whose node speaks for it
	Timeout    time.Duration
	Remote     bool            // a client's, which may go on at another member
	Identities []tree.Identity // what it has authenticated as; shared, do not change
	Ephemerals int
}

// Sessions returns up to n sessions whose end is not decided, in the order of their ids and after
// the given one, and whether there are more. Errors are those of Census.
func (e *Engine) Sessions(ctx context.Context, after tree.SessionID, n int) (list []SessionRecord, more bool, err error) {
	var ids []tree.SessionID
	err = e.inspect(ctx, e.home(), func(table *session.Table) {
		for r := range table.All() {
			if r.ID > after && table.Usable(r.ID, r.Origin) == nil {
				ids = append(ids, r.ID)
			}
		}
	})
	if err != nil {
		return nil, false, err
	}
	slices.Sort(ids) // not while no entry is applied
	more = len(ids) > n
	for part := range slices.Chunk(ids[:min(n, len(ids))], censusPortion) {
		err := e.inspect(ctx, e.home(), func(table *session.Table) {
			for _, id := range part {
				if r, found := table.Get(id); found && table.Usable(id, r.Origin) == nil {
					list = append(list, recordOf(&r))
				}
			}
		})
		if err != nil {
			return nil, false, err
		}
	}
	if over := e.over(); over != nil { // checked last: the tables may be gone by now
		return nil, false, over
	}
	return list, more, e.countOwned(ctx, list)
}

// countOwned adds how many ephemerals sessions have.
func (e *Engine) countOwned(ctx context.Context, list []SessionRecord) error {
	for _, r := range e.shards {
		for part := range slices.Chunk(list, censusPortion) {
			err := e.inspect(ctx, r, func(table *session.Table) {
				for i := range part {
					part[i].Ephemerals += table.Owns(part[i].ID)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func recordOf(r *session.Record) SessionRecord {
	return SessionRecord{ID: r.ID, Member: MemberID(r.Origin), Timeout: r.Timeout, Remote: r.Remote(), Identities: r.Identities}
}

// SessionByID returns a session and its ephemerals, sorted. It returns ErrNoSession if there is
// none or its end is decided. Other errors are those of Census.
func (e *Engine) SessionByID(ctx context.Context, id tree.SessionID) (SessionRecord, []string, error) {
	r, err := e.usable(ctx, id)
	if err != nil {
		return SessionRecord{}, nil, err
	}
	var paths []string
	for _, shard := range e.shards {
		err := e.inspect(ctx, shard, func(table *session.Table) { paths = append(paths, table.Owned(id)...) })
		if err != nil {
			return SessionRecord{}, nil, err
		}
	}
	slices.Sort(paths)
	s := recordOf(&r)
	s.Ephemerals = len(paths)
	return s, paths, nil
}

// usable returns the record of a session whose end is not decided.
func (e *Engine) usable(ctx context.Context, id tree.SessionID) (r session.Record, err error) {
	found := false
	err = e.inspect(ctx, e.home(), func(table *session.Table) {
		if r, found = table.Get(id); found {
			found = table.Usable(id, r.Origin) == nil
		}
	})
	switch over := e.over(); {
	case over != nil: // checked last: the tables may be gone by now
		err = over
	case err == nil && !found:
		err = ErrNoSession
	}
	return r, err
}

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
	r, err := e.usable(ctx, id)
	if errors.Is(err, ErrNoSession) { // or this member does not know it yet
		if err := e.barrier(ctx, e.home().Shard); err != nil {
			return err
		}
		r, err = e.usable(ctx, id)
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
