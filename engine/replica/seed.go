package replica

import (
	"fmt"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrLoading is why a home shard opens no session while the ensemble is loaded from a backup. It
// wraps outbox.ErrUnavailable.
var ErrLoading = fmt.Errorf("%w: the ensemble is being loaded from a backup", outbox.ErrUnavailable)

// bornZnodes is how many znodes every tree has from the start.
const bornZnodes = 4

// Seed returns how far the shard is loaded from a backup. It takes no lock.
func (r *Replica) Seed() command.Seed { return *r.seed.Load() }

// Untouched reports whether the shard has only the znodes that every new shard has, and no session.
func (r *Replica) Untouched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.untouched()
}

// settle records that somebody uses the shard. Nothing is loaded into it from then on, not even if it
// is empty again one day. mu is held.
func (r *Replica) settle() {
	if r.mu.Seed == (command.Seed{}) {
		r.setSeed(command.Seed{Done: true})
	}
}

// untouched is Untouched with mu held.
func (r *Replica) untouched() bool {
	return r.tree.Load().Len() == bornZnodes && r.mu.table.IsEmpty()
}

// setSeed is called with mu held, or before the shard starts.
func (r *Replica) setSeed(s command.Seed) {
	r.mu.Seed = s
	if old := r.seed.Swap(&s); old != nil && *old != s {
		r.node.Seeded()
	}
}

// applyLoad loads a part of a backup, if it is the one that comes next. mu is held.
func (r *Replica) applyLoad(c *command.Command) {
	l, now := c.Load, r.mu.Seed
	switch {
	case l.Part == 0:
		r.beginLoad(c)
	case now.Loading() && l.Source == now.Source && l.Part == now.Next:
		t := r.tree.Load()
		z := r.mu.Zxid + 1
		if t.Restore(tree.Header{Zxid: z, Time: c.Wall, System: true}, l.Znodes) != nil {
			return // whoever proposed it has not checked it, and sees that nothing has changed
		}
		r.publish(t, z)
		r.setSeed(command.Seed{Source: l.Source, Next: l.Part + 1, Done: l.Last})
	}
}

// beginLoad begins to load a backup, unless somebody may have used the shard before. Its
// transactions go on above all zxids of the backup. So what other systems have seen of the past
// stays smaller than what they will see, and every part has room for the zxids in it. If the same
// backup begins again, only zxids go on, until the home shard is loaded. mu is held.
func (r *Replica) beginLoad(c *command.Command) {
	l, now := c.Load, r.mu.Seed
	if l.Last || len(l.Znodes) > 0 || l.Zxid <= r.mu.Zxid {
		return
	}
	again := now.Next > 0 && now.Source == l.Source && (now.Loading() || r.Shard != command.HomeShard)
	if !again && (now != (command.Seed{}) || !r.untouched()) {
		return
	}
	r.auditOp(Audited{Op: AuditGap, Why: WhyLoaded, After: r.mu.Zxid, Zxid: l.Zxid, Wall: c.Wall})
	_, _ = r.commit(tree.Header{Zxid: l.Zxid, Time: c.Wall}, nil, nil) // without operations it cannot fail
	if !again {
		r.setSeed(command.Seed{Source: l.Source, Next: 1})
	}
}
