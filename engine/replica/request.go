package replica

import (
	"errors"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// request applies one request of a batch. Its results may be in room; the zxid is that of a transaction that opened or attached a
// session, and of any other the newest when it was applied.
func (r *Replica) request(at session.MemberID, wall int64, q *command.Request, room []tree.Result) ([]tree.Result, tree.Zxid, error) {
	switch q.Kind {
	case command.RequestTxn:
		if err := r.usable(q.Session, at); err != nil {
			return nil, 0, err
		}
		h := tree.Header{Zxid: r.mu.Zxid + 1, Time: wall, Session: q.Session, Identities: r.identitiesOf(q.Session)}
		results, err := r.commit(h, q.Ops, room)
		if err != nil && len(q.Ops) == 1 {
			err = &tree.MultiError{Err: err} // whoever asked for one operation takes it off again
		}
		return results, r.mu.Zxid, err
	case command.RequestAddShard:
		return nil, 0, sessionError(r.mu.table.AddShard(q.Session, at, q.Shard))
	case command.RequestIntroduce:
		return nil, 0, sessionError(r.mu.table.Introduce(q.Session, q.Timeout, at, q.Attached, q.Identities))
	case command.RequestSetIdentities:
		return nil, 0, r.setIdentities(at, q)
	case command.RequestOpen:
		z, err := r.openSession(at, wall, q)
		return nil, z, err
	case command.RequestReattach:
		z, err := r.reattach(at, wall, q)
		return nil, z, err
	case command.RequestClose:
		if err := sessionError(r.mu.table.CheckAttachment(q.Session, at, q.Attached)); err != nil {
			return nil, 0, err
		}
		why := outbox.ErrSessionClosed
		if q.Lost && q.Attached != 0 {
			why = outbox.ErrSessionExpired // its client was silent; a session of the node itself has ended by its owner's will or clock
		}
		r.endOnRequest(q.Session, wall, q.Lost, why)
		return nil, 0, nil
	default:
		return nil, 0, r.release(at, wall, q)
	}
}

// identities are what a session has authenticated as.
func (r *Replica) identitiesOf(id tree.SessionID) []tree.Identity {
	rec, _ := r.mu.table.Get(id)
	return rec.Identities
}

// openSession opens a session and returns the zxid of that, which is its id: unique, never used again, the same on every replica.
func (r *Replica) openSession(at session.MemberID, wall int64, q *command.Request) (tree.Zxid, error) {
	h := tree.Header{Zxid: r.mu.Zxid + 1, Time: wall}
	var attached tree.Zxid
	if q.Remote {
		attached = h.Zxid
	}
	if err := r.mu.table.Open(tree.SessionID(h.Zxid), q.Password, q.Timeout, at, attached, q.Identities); err != nil {
		return 0, err
	}
	_, err := r.commit(h, nil, nil)
	return h.Zxid, err
}

// reattach attaches a remote client's session to a member, and returns the zxid of that. What this node has of an earlier
// attachment ends before anybody can know of the new one.
func (r *Replica) reattach(at session.MemberID, wall int64, q *command.Request) (tree.Zxid, error) {
	h := tree.Header{Zxid: r.mu.Zxid + 1, Time: wall}
	if r.mu.table.Reattach(q.Session, q.Password, q.Timeout, at, h.Zxid, q.Identities) != nil {
		return 0, outbox.ErrSessionExpired // whatever it is: see Table.Reattach
	}
	r.node.Left(q.Session)
	_, err := r.commit(h, nil, nil)
	return h.Zxid, err
}

// setIdentities replaces the identities of a session, if the connection that has shown them is still the one it is attached to.
func (r *Replica) setIdentities(at session.MemberID, q *command.Request) error {
	err := r.mu.table.CheckAttachment(q.Session, at, q.Attached)
	if err == nil {
		err = r.mu.table.SetIdentities(q.Session, at, q.Identities)
	}
	return sessionError(err)
}

// release ends the ephemeral znode that a session created at r.czxid, if it is still there and the session's. It can do nothing to
// another, so it is safe to repeat at any time.
func (r *Replica) release(at session.MemberID, wall int64, q *command.Request) error {
	if err := r.usable(q.Session, at); err != nil {
		return nil // the session's end took the znode, or will before anything else of it is applied; or it is another attachment's now
	}
	stat, ok := r.tree.Load().Exists(q.Path)
	if !ok || stat.Czxid != q.Czxid || stat.EphemeralOwner != q.Session {
		return nil
	}
	_, err := r.commit(tree.Header{Zxid: r.mu.Zxid + 1, Time: wall, Session: q.Session, System: true},
		[]tree.Op{endOp(q.Path, q.Lost)}, nil)
	return err
}

func (r *Replica) usable(id tree.SessionID, at session.MemberID) error {
	return sessionError(r.mu.table.Usable(id, at))
}

// expired is what a session's owner is told that the table refuses.
func sessionError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, session.ErrAttachedElsewhere):
		return outbox.ErrSessionMoved
	}
	return outbox.ErrSessionExpired
}
