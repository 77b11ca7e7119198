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
	if r.Shard == command.HomeShard && r.mu.Level >= command.LevelMembers && r.mu.members.Found(c.Lineage, c.Founders, r.mu.table) {
		r.noteLineage()
	}
}
