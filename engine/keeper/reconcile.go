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
		if c := s.claims[path]; c != nil && c.removeLocked(c.GoneLocked(path), c.outbox.QueueEnd) {
			c.outbox.Signal()
		}
	}
}

// Reconcile compares this node's claims and sessions with a snapshot that was installed on a shard.
//
// It ends the sessions that the shard knew and that the table does not have or is about to close.
// At home it also ends those that are attached differently there. Of the sessions that live on, it
// ends the claims whose znode is gone, or lingers.
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
	gone = k.endExpiredLocked(o, table)
	if o == k.home {
		k.closeUnknownLocked(table)
		moved = k.endMovedLocked(table)
	}
	for s := range k.allLocked() {
		for path, c := range s.claims {
			_, czxid := c.ZnodesLocked()
			if stat, ok := next.Exists(path); c.outbox == o && (!ok || stat.Czxid != czxid || stat.EphemeralOwner != s.id) {
				c.removeLocked(c.GoneLocked(path), c.outbox.QueueEnd)
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

// endExpiredLocked ends the sessions that have ended in a table that was installed on a shard. If
// it is not the home shard, the node has not applied their end at home yet. But their znodes are
// gone, and others may have been granted what they held.
func (k *Keeper) endExpiredLocked(o *outbox.Outbox, table *session.Table) (gone []*Session) {
	for s := range k.allLocked() {
		if s.Owner.Known(o.Shard) && table.Usable(s.id, k.home.Origin.Member) == session.ErrExpired {
			k.endLocked(s, session.Expired, session.ErrExpired)
			gone = append(gone, s)
		}
	}
	return gone
}

// closeUnknownLocked has the ensemble close the in-process sessions that the home shard's table has
// and the keeper does not.
func (k *Keeper) closeUnknownLocked(table *session.Table) {
	for _, r := range table.Sessions(k.home.Origin.Member) {
		if k.mu.sessions[r.ID] == nil && !r.Remote() {
			k.home.QueueEnd(outbox.NewCall(nil, &command.Request{Kind: command.RequestClose, Session: r.ID}))
		}
	}
}

// endMovedLocked ends the remote sessions that are attached differently in a table that was
// installed on the home shard.
func (k *Keeper) endMovedLocked(table *session.Table) (moved []*Session) {
	for id, s := range k.mu.remotes.byID {
		if table.CheckAttachment(id, k.home.Origin.Member, s.remote.attached) != nil {
			k.endLocked(s, session.Closed, session.ErrMoved)
			moved = append(moved, s)
		}
	}
	return moved
}
