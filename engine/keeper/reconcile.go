package keeper

import (
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Gone ends the claims of this node whose znodes a transaction is about to delete, or to leave
// without an owner.
func (k *Keeper) Gone(changes []tree.Change) {
	for i := range changes {
		if c := &changes[i]; c.Owner != 0 && (c.Type == tree.Deleted || c.Lost) {
			k.deleted(c.Owner, c.Path)
		}
	}
}

func (k *Keeper) deleted(owner tree.SessionID, path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.findLocked(owner); s != nil {
		if claim := s.claims[path]; claim != nil {
			claim.goneLocked(path)
		}
	}
}

// Reconcile compares this node's claims and sessions with a snapshot that was installed on a shard.
//
// It ends the claims whose znode is gone, or lingers. At home it also ends the sessions that the
// table does not know, or that are attached differently there.
//
// Conversely, it removes in-process sessions, and znodes of claims, that are in the snapshot
// although their outcome never reached this node. Nobody else knows of them, and this node would
// keep them alive for ever. The client of a remote session may know of it, so the keeper adopts
// that session. It does so only if registered: the snapshot has this node's Register.
func (k *Keeper) Reconcile(at replication.ShardID, old, next *tree.Tree, table *session.Table, registered bool) {
	o := k.outboxes[at-1]
	gone, moved := k.reconcileLocked(o, old, next, table)
	k.dropCalls(gone)
	k.cancelQueued(session.ErrMoved, moved...)
	if o == k.home && registered {
		k.Adopt(table)
	}
	k.signalAll() // not pump: this is the apply goroutine
}

func (k *Keeper) reconcileLocked(o *outbox.Outbox, old, next *tree.Tree, table *session.Table) (gone, moved []*Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o == k.home {
		gone = k.reconcileSessionsLocked(table)
		over, left := k.reconcileRemotesLocked(table)
		gone, moved = append(gone, over...), left
	}
	for s := range k.allLocked() {
		for path, c := range s.claims {
			if stat, ok := next.Exists(path); c.outbox == o && (!ok || stat.Czxid != c.czxid || stat.EphemeralOwner != s.id) {
				c.goneLocked(path)
			}
		}
	}
	found := make(map[string]bool)
	k.mu.unknown = slices.DeleteFunc(k.mu.unknown, func(c *Claim) bool {
		if c.outbox == o {
			c.findLocked(old, next, found)
		}
		return c.outbox == o
	})
	return gone, moved
}

func (k *Keeper) reconcileSessionsLocked(table *session.Table) (gone []*Session) {
	me := k.home.Origin.Member
	for id, s := range k.mu.sessions {
		if table.Usable(id, me) != nil {
			k.endLocked(s, session.Expired, session.ErrExpired)
			gone = append(gone, s)
		}
	}
	for _, r := range table.Sessions(me) {
		if k.mu.sessions[r.ID] == nil && !r.Remote() {
			k.home.QueueEnd(outbox.NewCall(nil, &command.Request{Kind: command.RequestClose, Session: r.ID}))
		}
	}
	return gone
}
