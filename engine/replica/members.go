package replica

import (
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
)

// Lineage returns the ensemble's lineage as this replica of the home shard knows it; zero if it
// does not know it yet. It takes no lock.
func (r *Replica) Lineage() session.Lineage { return *r.lineage.Load() }

// noteLineage updates lineage from the table. mu is held, or the shard has not started.
func (r *Replica) noteLineage() {
	l := r.mu.members.Lineage()
	r.lineage.Store(&l)
}

// applyFound chooses the lineage, unless it is chosen. mu is held.
func (r *Replica) applyFound(c *command.Command) {
	if r.hasMembers() && r.mu.members.Found(c.Lineage, c.Founders, r.mu.table) {
		r.noteLineage()
	}
}

// applyJoin gives a candidate its id, or does nothing. The in-process sessions of its former self end:
// nobody can use them any more. mu is held.
func (r *Replica) applyJoin(c *command.Command) {
	if !r.hasMembers() {
		return
	}
	if _, former, _ := r.mu.members.Admit(c.Join, c.Wall); former != 0 {
		r.mu.table.Doom(former)
		r.expireDue(c.Wall)
	}
}

// hasMembers reports whether this shard has the table of members. mu is held.
func (r *Replica) hasMembers() bool {
	return r.Shard == command.HomeShard && r.mu.Level >= command.LevelMembers
}
