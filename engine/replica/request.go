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
func (m *Replica) request(at session.MemberID, wall int64, r *command.Request, room []tree.Result) ([]tree.Result, tree.Zxid, error) {
	switch r.Kind {
	case command.RequestTxn:
		if err := m.usable(r.Session, at); err != nil {
			return nil, 0, err
		}
		h := tree.Header{Zxid: m.mu.Zxid + 1, Time: wall, Session: r.Session, Identities: m.identities(r.Session)}
		results, err := m.commit(h, r.Ops, room)
		if err != nil && len(r.Ops) == 1 {
			err = &tree.MultiError{Err: err} // whoever asked for one operation takes it off again
		}
		return results, m.mu.Zxid, err
	case command.RequestAddShard:
		return nil, 0, expired(m.mu.table.AddShard(r.Session, at, r.Shard))
	case command.RequestIntroduce:
		return nil, 0, expired(m.mu.table.Introduce(r.Session, r.Timeout, at, r.Attached, r.Identities))
	case command.RequestSetIdentities:
		return nil, 0, m.identify(at, r)
	case command.RequestOpen:
		z, err := m.openSession(at, wall, r)
		return nil, z, err
	case command.RequestReattach:
		z, err := m.moveSession(at, wall, r)
		return nil, z, err
	case command.RequestClose:
		if err := expired(m.mu.table.CheckAttachment(r.Session, at, r.Attached)); err != nil {
			return nil, 0, err
		}
		why := outbox.ErrSessionClosed
		if r.Lost && r.Attached != 0 {
			why = outbox.ErrSessionExpired // its client was silent; a session of the node itself has ended by its owner's will or clock
		}
		m.endAsked(r.Session, wall, r.Lost, why)
		return nil, 0, nil
	default:
		return nil, 0, m.release(at, wall, r)
	}
}

// identities are what a session has authenticated as.
func (m *Replica) identities(id tree.SessionID) []tree.Identity {
	r, _ := m.mu.table.Get(id)
	return r.Identities
}

// openSession opens a session and returns the zxid of that, which is its id: unique, never used again, the same on every replica.
func (m *Replica) openSession(at session.MemberID, wall int64, r *command.Request) (tree.Zxid, error) {
	h := tree.Header{Zxid: m.mu.Zxid + 1, Time: wall}
	var attached tree.Zxid
	if r.Remote {
		attached = h.Zxid
	}
	if err := m.mu.table.Open(tree.SessionID(h.Zxid), r.Password, r.Timeout, at, attached, r.Identities); err != nil {
		return 0, err
	}
	_, err := m.commit(h, nil, nil)
	return h.Zxid, err
}

// moveSession attaches a remote client's session to a member, and returns the zxid of that. What this node has of an earlier
// attachment ends before anybody can know of the new one.
func (m *Replica) moveSession(at session.MemberID, wall int64, r *command.Request) (tree.Zxid, error) {
	h := tree.Header{Zxid: m.mu.Zxid + 1, Time: wall}
	if m.mu.table.Reattach(r.Session, r.Password, r.Timeout, at, h.Zxid, r.Identities) != nil {
		return 0, outbox.ErrSessionExpired // whatever it is: see Table.Reattach
	}
	m.node.Left(r.Session)
	_, err := m.commit(h, nil, nil)
	return h.Zxid, err
}

// identify replaces the identities of a session, if the connection that has shown them is still the one it is attached to.
func (m *Replica) identify(at session.MemberID, r *command.Request) error {
	err := m.mu.table.CheckAttachment(r.Session, at, r.Attached)
	if err == nil {
		err = m.mu.table.SetIdentities(r.Session, at, r.Identities)
	}
	return expired(err)
}

// release ends the ephemeral znode that a session created at r.czxid, if it is still there and the session's. It can do nothing to
// another, so it is safe to repeat at any time.
func (m *Replica) release(at session.MemberID, wall int64, r *command.Request) error {
	if err := m.usable(r.Session, at); err != nil {
		return nil // the session's end took the znode, or will before anything else of it is applied; or it is another attachment's now
	}
	stat, ok := m.tree.Load().Exists(r.Path)
	if !ok || stat.Czxid != r.Czxid || stat.EphemeralOwner != r.Session {
		return nil
	}
	_, err := m.commit(tree.Header{Zxid: m.mu.Zxid + 1, Time: wall, Session: r.Session, System: true},
		[]tree.Op{endOf(r.Path, r.Lost)}, nil)
	return err
}

func (m *Replica) usable(id tree.SessionID, at session.MemberID) error {
	return expired(m.mu.table.Usable(id, at))
}

// expired is what a session's owner is told that the table refuses.
func expired(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, session.ErrAttachedElsewhere):
		return outbox.ErrSessionMoved
	}
	return outbox.ErrSessionExpired
}
