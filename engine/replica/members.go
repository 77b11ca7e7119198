package replica

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Lineage returns the ensemble's lineage as this replica of the home shard knows it; zero if it
// does not know it yet. It takes no lock.
func (r *Replica) Lineage() session.Lineage { return r.Members().Ensemble.Lineage }

// Members returns the table of members as it is now; empty if this is not the home shard, or if the
// ensemble has none yet. It takes no lock. The caller must not change it.
func (r *Replica) Members() *session.MembersView { return r.roll.Load() }

// noteMembers updates what Members returns, and tells the node. mu is held, or the shard has not
// started.
func (r *Replica) noteMembers() {
	r.mu.members.TakeChanged()
	r.roll.Store(r.mu.members.View())
	r.node.MembersChanged()
}

// configure writes who the members are to tree.ConfigPath, in a transaction of its own, unless it
// stands there already. What the znode says follows from the log alone: replicas compare it with
// the table after the same entries. mu is held.
func (r *Replica) configure(wall int64) {
	lines := []byte(r.mu.members.View().Configuration())
	now, _, _ := r.tree.Load().Get(tree.ConfigPath) // every tree has it
	if before, _, _ := bytes.Cut(now, []byte("version=")); len(lines) == 0 || bytes.Equal(before, lines) {
		return
	}
	z := r.mu.Zxid + 1
	op := tree.Op{Kind: tree.KindConfigure, Data: fmt.Appendf(lines, "version=%x", uint64(z))}
	if _, err := r.commit(tree.Header{Zxid: z, Time: wall, System: true}, []tree.Op{op}, r.discarded[:]); err != nil {
		r.node.Fail(fmt.Errorf("shard %d: %s: %w", r.Shard, tree.ConfigPath, err))
	} else if r.audit != nil {
		r.auditSystem(Audited{Why: WhyMembers, Wall: wall, Zxid: z})
	}
}

// applyFound chooses the lineage, unless it is chosen. mu is held.
func (r *Replica) applyFound(c *command.Command) {
	if r.hasMembers() {
		r.mu.members.Found(c.Lineage, c.Founders, c.Shard, r.mu.table)
	}
}

// applyJoin gives a candidate its id, or does nothing. The in-process sessions of its former self
// end, because nobody can use them any more. mu is held.
func (r *Replica) applyJoin(c *command.Command) {
	if !r.hasMembers() {
		return
	}
	if _, former, _ := r.mu.members.Admit(c.Join, c.Wall); former != 0 {
		r.mu.table.Doom(former)
		r.expireDue(c.Wall)
	}
}

// applyRetire closes a member's stream for ever. mu is held.
func (r *Replica) applyRetire(c *command.Command) {
	r.mu.table.Retire(c.Member)
	r.mu.members.Forget(r.mu.table)
	r.noteOrigin(c.Member)
}

// applyRecover begins the shard's life after a forced recovery. If the first start dies, the next one
// repeats it after a later zxid: nobody else has registered before the first start is complete. A
// copy does nothing. mu is held.
func (r *Replica) applyRecover(c *command.Command) {
	if c.Zxid <= r.mu.Zxid {
		return
	}
	if r.Shard == command.HomeShard && !r.mu.members.Recover(c.Recovery, c.Wall) && r.Lineage() != c.Recovery.Lineage {
		return
	}
	for _, m := range c.Lost {
		r.mu.table.Retire(m)
	}
	for _, o := range r.mu.table.Origins() { // some may have registered here alone
		if o.Member != c.Recovery.Survivor {
			r.mu.table.Retire(o.Member)
		}
	}
	r.mu.members.Forget(r.mu.table)
	r.noteOrigins()
	_, _ = r.commit(tree.Header{Zxid: c.Zxid, Time: c.Wall}, nil, nil) // without operations it cannot fail
	r.auditOp(Audited{Op: AuditRecover, Wall: c.Wall, Zxid: r.mu.Zxid, Member: c.Recovery.Survivor})
}

// Orphans returns how to end the sessions of this shard that the home shard does not list here.
func (r *Replica) Orphans(home *Replica) (endings []command.Ending) {
	r.mu.Lock()
	var ids []tree.SessionID
	for rec := range r.mu.table.All() {
		if !r.mu.table.IsEnding(rec.ID) {
			ids = append(ids, rec.ID)
		}
	}
	r.mu.Unlock()
	slices.Sort(ids)
	home.mu.Lock()
	defer home.mu.Unlock()
	for _, id := range ids {
		rec, open := home.mu.table.Get(id)
		if open && rec.Uses(uint32(r.Shard)) || home.mu.table.HasEnded(id, uint32(r.Shard)) {
			continue
		}
		endings = append(endings, command.Ending{Session: id, Zxid: home.mu.Zxid, Lost: true})
	}
	return endings
}

// hasMembers reports whether this shard has the table of members.
func (r *Replica) hasMembers() bool { return r.Shard == command.HomeShard }

// HasSessions reports whether a member has in-process sessions, in the table of the home shard.
func (r *Replica) HasSessions(m session.MemberID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.mu.table.All() {
		if s.Origin == m && !s.Remote() {
			return true
		}
	}
	return false
}

// Retired reports whether this shard takes nothing from a member any more.
func (r *Replica) Retired(m session.MemberID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.table.IsRetired(m)
}

// SchemesInForce returns the names of the ACL schemes by which the shard judges.
func (r *Replica) SchemesInForce() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.Rules.Schemes
}
