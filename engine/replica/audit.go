package replica

import (
	"errors"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// An Audited is one thing that a shard did, for the audit. Every replica tells its node of all
// changes, when it applies them. So the audit of any one member says who changed a znode, whoever
// asked for the change, and also if that member died right afterwards. A replica tells of a refused
// operation only if its own member asked for it.
//
// Nothing of it flows back into the state. It shares no memory with the log's entry.
type Audited struct {
	Op         string // one of the constants below, or the tree.OpKind as a word
	Why        string // why the ensemble did it by itself; empty if a session asked for it
	Path       string
	Wall       int64 // Unix ms, by the clock of the member that asked
	Zxid       tree.Zxid
	After      tree.Zxid // of a gap: the newest transaction before it
	Lost       uint64    // of a gap: how many the node has left out; zero if unknown
	Session    tree.SessionID
	Identities []tree.Identity // of the session
	ACL        []tree.ACL      // of a create or setacl
	Err        error           // why the tree or the session table refused it
	Member     session.MemberID
	Shard      replication.ShardID
	Version    int32 // made by a set, add or setacl; if it was refused, the one expected
	Mode       tree.CreateMode
}

// What an Audited can be besides the operation of a transaction.
const (
	AuditCreate  = "create"  // of an ensure too
	AuditSet     = "set"     // of a configure too
	AuditDelete  = "delete"  // of a lost ephemeral too
	AuditLinger  = "linger"  // an ephemeral whose session was lost is now a TTL znode
	AuditOpen    = "open"    // a session was opened
	AuditAttach  = "attach"  // a remote session was attached to a member
	AuditClose   = "close"   // a session was closed by its owner
	AuditExpire  = "expire"  // a session was lost
	AuditRecover = "recover" // somebody went on without the majority; see offline.Recover
	AuditStart   = "start"   // this member has loaded its image
	AuditGap     = "gap"     // this member does not know what happened
)

// Why the ensemble changed a znode by itself.
const (
	WhyClosed   = "session closed"
	WhyExpired  = "session expired"
	WhyReleased = "released" // its owner gave a claim up
	WhyReaped   = "reaped"   // a container or TTL znode whose time had come
	WhyMembers  = "members changed"
)

// Why a replica has a gap.
const (
	WhyInstall = "another member sent its state"
	WhyLoaded  = "loaded from a backup"
)

// auditOp tells the audit of something that is no operation on a znode. mu is held.
func (r *Replica) auditOp(a Audited) {
	if r.audit == nil {
		return
	}
	a.Shard = r.Shard
	r.audit(a)
}

// auditTxn tells the audit of a transaction that a member sent for a session. mu is held.
func (r *Replica) auditTxn(from session.MemberID, h *tree.Header, ops []tree.Op, results []tree.Result, err error) {
	a := Audited{Wall: h.Time, Session: h.Session, Identities: h.Identities, Member: from}
	switch {
	case err == nil:
		a.Zxid = h.Zxid
		r.auditChanges(a, ops, results)
	case from == r.Outbox.Origin.Member:
		r.auditRefused(a, ops, err)
	}
}

// auditSystem tells the audit of the transaction that the ensemble has just made by itself. mu is
// held.
func (r *Replica) auditSystem(a Audited) {
	a.Shard = r.Shard
	changes := r.tree.Load().Changes()
	for i := range changes {
		a.of(&changes[i])
		r.audit(a)
	}
}

// of takes from a change what the change says.
func (a *Audited) of(c *tree.Change) {
	a.Path = c.Path
	switch {
	case c.Type == tree.Created:
		a.Op, a.ACL = AuditCreate, c.ACL
	case c.Type == tree.Deleted:
		a.Op = AuditDelete
	case c.Lost:
		a.Op = AuditLinger
	case c.Type == tree.ACLChanged:
		a.Op, a.ACL = tree.KindSetACL.String(), c.ACL
	default:
		a.Op = AuditSet
	}
}

// auditChanges tells of the newest transaction, which had these results. Every operation that
// writes has made one change. mu is held.
func (r *Replica) auditChanges(a Audited, ops []tree.Op, results []tree.Result) {
	a.Shard = r.Shard
	changes := r.tree.Load().Changes()
	for i := range ops {
		op, each := &ops[i], a
		switch {
		case !writes(op) || op.Kind == tree.KindEnsure && results[i].Path == "" || len(changes) == 0:
			continue
		default:
			each.of(&changes[0])
			changes = changes[1:]
			switch op.Kind {
			case tree.KindCreate:
				each.Mode = op.Mode
			case tree.KindEnsure:
				each.Mode = tree.Container
			case tree.KindSet, tree.KindAdd:
				each.Op, each.Version = op.Kind.String(), results[i].Stat.Version
			case tree.KindSetACL:
				each.Version = results[i].Stat.Aversion
			}
		}
		r.audit(each)
	}
}

// auditRefused tells of a transaction that was refused: of each operation that would have written.
// mu is held.
func (r *Replica) auditRefused(a Audited, ops []tree.Op, err error) {
	a.Shard = r.Shard
	var refused *tree.MultiError
	for i := range ops {
		op, each := &ops[i], a
		if !writes(op) {
			continue
		}
		each.Op, each.Path, each.Err = op.Kind.String(), strings.Clone(op.Path), err
		switch op.Kind {
		case tree.KindCreate:
			each.Mode = op.Mode
		case tree.KindEnsure:
			each.Op, each.Mode = AuditCreate, tree.Container
		case tree.KindSet, tree.KindDelete, tree.KindSetACL:
			each.Version = op.Version
		}
		if errors.As(err, &refused) && refused.Index == i {
			each.Err = refused.Err
		}
		r.audit(each)
	}
}

// writes reports whether an operation can change a znode.
func writes(op *tree.Op) bool {
	switch op.Kind {
	case tree.KindCheck, tree.KindGuard, tree.KindCheckChildren, tree.KindCheckMzxid, tree.KindCheckLost:
		return false
	}
	return true
}

// auditEnd tells of what the newest transaction has removed of a session, and of the session's end
// if it is over. mu is held.
func (r *Replica) auditEnd(id tree.SessionID, wall int64, lost, over bool) {
	rec, _ := r.mu.table.Get(id)
	a := Audited{Op: AuditClose, Why: WhyClosed, Wall: wall, Zxid: r.mu.Zxid, Session: id, Identities: rec.Identities, Member: rec.Origin}
	if lost {
		a.Op, a.Why = AuditExpire, WhyExpired
	}
	r.auditSystem(a)
	if over {
		a.Why = ""
		r.auditOp(a)
	}
}

// auditGap tells that this member does not know of the transactions after one and up to another. mu
// is held.
func (r *Replica) auditGap(after, upTo tree.Zxid) {
	if after < upTo {
		r.auditOp(Audited{Op: AuditGap, Why: WhyInstall, After: after, Zxid: upTo, Wall: time.Now().UnixMilli()})
	}
}
