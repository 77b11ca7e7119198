package replica

import (
	"errors"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// request applies one request of a batch. Member from sent the batch when its wall clock showed
// wall. The results may be stored in buf.
//
// The zxid is the transaction's own if the request opened or attached a session. After a
// transaction of operations it is the newest one, also if the tree refused the operations.
// Otherwise it is zero.
func (r *Replica) request(from session.MemberID, wall int64, q *command.Request, buf []tree.Result) ([]tree.Result, tree.Zxid, error) {
	switch q.Kind {
	case command.RequestTxn:
		if err := r.usable(q.Session, from); err != nil {
			if r.audit != nil {
				h := r.header(wall, q.Session)
				r.auditTxn(from, &h, q.Ops, nil, err)
			}
			return nil, 0, err
		}
		h := r.header(wall, q.Session)
		results, err := r.commit(h, q.Ops, buf)
		if r.audit != nil {
			r.auditTxn(from, &h, q.Ops, results, err)
		}
		if err != nil && len(q.Ops) == 1 {
			err = &tree.MultiError{Err: err} // as for several; the caller of a single operation unwraps it
		}
		return results, r.mu.Zxid, err
	case command.RequestAddShard:
		return nil, 0, sessionError(r.mu.table.AddShard(q.Session, from, q.Shard))
	case command.RequestIntroduce:
		return nil, 0, sessionError(r.mu.table.Introduce(q.Session, q.Timeout, from, q.Attached, q.Identities))
	case command.RequestSetIdentities:
		return nil, 0, r.setIdentities(from, q)
	case command.RequestAnnounce:
		r.mu.members.Announce(from, q.Announce.Name, q.Announce.Address, q.Announce.Client, q.Announce.Zone)
		return nil, 0, nil
	case command.RequestOpen:
		z, err := r.openSession(from, wall, q)
		return nil, z, err
	case command.RequestReattach:
		z, err := r.reattach(from, wall, q)
		return nil, z, err
	case command.RequestClose:
		if err := sessionError(r.mu.table.CheckAttachment(q.Session, from, q.Attached)); err != nil {
			return nil, 0, err
		}
		why := session.ErrClosed
		if q.Lost && q.Attached != 0 {
			why = session.ErrExpired // the remote client was silent; an in-process session has ended before, by its owner or its clock
		}
		r.endOnRequest(q.Session, wall, q.Lost, why)
		return nil, 0, nil
	default:
		return nil, 0, r.release(from, wall, q)
	}
}

// header returns the header of a session's next transaction.
func (r *Replica) header(wall int64, id tree.SessionID) tree.Header {
	rec, _ := r.mu.table.Get(id)
	return tree.Header{Zxid: r.mu.Zxid + 1, Time: wall, Session: id, Identities: rec.Identities, Remote: rec.Remote()}
}

// identitiesOf returns what a session has authenticated as.
func (r *Replica) identitiesOf(id tree.SessionID) []tree.Identity {
	rec, _ := r.mu.table.Get(id)
	return rec.Identities
}

// openSession opens a session in a transaction of its own and returns the zxid. It is also the
// session's id: it is unique, never used again, and the same on every replica.
//
// A home shard that is being loaded from a backup opens none. Without a session nobody can do
// anything, so all shards are as in the backup when the first one opens.
func (r *Replica) openSession(from session.MemberID, wall int64, q *command.Request) (tree.Zxid, error) {
	if r.mu.Seed.Loading() {
		return 0, ErrLoading
	}
	h := tree.Header{Zxid: r.mu.Zxid + 1, Time: wall}
	var attached tree.Zxid
	if q.Remote {
		attached = h.Zxid
	}
	if err := r.mu.table.Open(tree.SessionID(h.Zxid), q.Password, q.Timeout, from, attached, q.Identities); err != nil {
		return 0, err
	}
	r.settle()
	_, err := r.commit(h, nil, nil)
	r.auditOp(Audited{Op: AuditOpen, Wall: wall, Zxid: h.Zxid, Session: tree.SessionID(h.Zxid), Identities: q.Identities, Member: from})
	return h.Zxid, err
}

// reattach attaches a remote client's session to a member in a transaction of its own, and returns
// the zxid. What this node has of an earlier attachment ends before anyone can learn of the new
// one.
func (r *Replica) reattach(from session.MemberID, wall int64, q *command.Request) (tree.Zxid, error) {
	h := tree.Header{Zxid: r.mu.Zxid + 1, Time: wall}
	if r.mu.table.Reattach(q.Session, q.Password, q.Timeout, from, h.Zxid, q.Identities) != nil {
		return 0, session.ErrExpired // for every reason: see Table.Reattach
	}
	r.node.Left(q.Session)
	_, err := r.commit(h, nil, nil)
	r.auditOp(Audited{Op: AuditAttach, Wall: wall, Zxid: h.Zxid, Session: q.Session, Identities: q.Identities, Member: from})
	return h.Zxid, err
}

// setIdentities replaces the identities of a session. It refuses if the session has left the
// connection that showed them.
func (r *Replica) setIdentities(from session.MemberID, q *command.Request) error {
	err := r.mu.table.CheckAttachment(q.Session, from, q.Attached)
	if err == nil {
		err = r.mu.table.SetIdentities(q.Session, from, q.Identities)
	}
	return sessionError(err)
}

// release ends the ephemeral znode that a session created in transaction q.Czxid. It does nothing
// if the znode is gone or has another owner. So it cannot touch another znode and is safe to repeat
// at any time.
func (r *Replica) release(from session.MemberID, wall int64, q *command.Request) error {
	switch err := r.usable(q.Session, from); {
	case errors.Is(err, session.ErrMoved):
		return err // the znode belongs to another attachment, whose client has to ask again
	case err != nil:
		// The session's end has taken the znode, or will do so before anything else of the session
		// is applied.
		return nil
	}
	stat, ok := r.tree.Load().Exists(q.Path)
	if !ok || stat.Czxid != q.Czxid || stat.EphemeralOwner != q.Session {
		return nil
	}
	h := tree.Header{Zxid: r.mu.Zxid + 1, Time: wall, Session: q.Session, System: true}
	_, err := r.commit(h, []tree.Op{endOp(q.Path, q.Lost)}, nil)
	if err == nil && r.audit != nil {
		r.auditSystem(Audited{Why: WhyReleased, Wall: wall, Zxid: h.Zxid, Session: q.Session, Identities: r.identitiesOf(q.Session), Member: from})
	}
	return err
}

// usable returns nil if a request that a member makes for a session may be applied.
func (r *Replica) usable(id tree.SessionID, from session.MemberID) error {
	return sessionError(r.mu.table.Usable(id, from))
}

// sessionError returns the error that a session's owner gets when the table refuses a request.
func sessionError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, session.ErrAttachedElsewhere):
		return session.ErrMoved
	}
	return session.ErrExpired
}
