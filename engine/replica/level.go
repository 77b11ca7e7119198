package replica

import (
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
)

// Level returns the shard's feature level. It takes no lock.
func (r *Replica) Level() uint32 { return r.level.Load() }

// HighestLevel returns the level of the highest of some shards. A member must read it to take part.
func HighestLevel(shards []*Replica) uint32 {
	level := uint32(command.LevelMin)
	for _, r := range shards {
		level = max(level, r.Level())
	}
	return level
}

// HeldDown returns the members without which the shard cannot rise to a level: those that have not
// registered with a build and a config that agree to it. They are founders, and who else has
// registered here. Who was left behind at a level before does not count, nor who is out. It takes no
// lock.
func (r *Replica) HeldDown(level uint32) (by []session.MemberID) {
	now := r.Level()
	members := slices.Clone(r.founders)
	r.origins.Load().Range(func(m, _ any) bool {
		members = append(members, m.(session.MemberID))
		return true
	})
	slices.Sort(members)
	for _, m := range slices.Compact(members) {
		o, _ := r.Origin(m)
		behind := now > command.LevelMin && o.Level < now
		if o.Level < level && !behind && !o.Retired {
			by = append(by, m)
		}
	}
	return by
}

// applyRaise raises the shard's level by one, unless a member that is not left behind does not read
// it yet. Then, and if it comes late or twice, a Raise changes nothing. mu is held.
func (r *Replica) applyRaise(c *command.Command) {
	lacks := func(m session.MemberID) bool { return !slices.Contains(c.Behind, m) }
	if c.Level != r.mu.Level+1 || slices.ContainsFunc(r.HeldDown(c.Level), lacks) {
		return
	}
	if err := command.CheckLevel(c.Level, r.levelMax()); err != nil {
		r.node.Fail(fmt.Errorf("shard %d: %w", r.Shard, err))
		return
	}
	r.raise(c.Level, c.Behind)
}

// raise raises the shard's level by one. mu is held.
func (r *Replica) raise(level uint32, behind []session.MemberID) {
	r.setLevel(level)
	r.noteOrigins()
	r.node.Raised(r.Shard, level, behind)
}

// levelMax returns the highest level that this member agrees to.
func (r *Replica) levelMax() uint32 { return r.Outbox.Origin.Level }

// setLevel is called with mu held, or before the shard starts.
func (r *Replica) setLevel(level uint32) {
	r.mu.Level = level
	r.level.Store(level)
}

// checkRegister returns why a member that registers with these schemes cannot take part, or nil. mu
// is held.
func (r *Replica) checkRegister(c *command.Command) error {
	if err := command.CheckLevel(r.mu.Level, c.Origin.Level); err != nil {
		return err
	}
	if err := r.mu.members.CheckRegister(c.Origin.Member, c.Origin.Directory); err != nil {
		return err
	}
	for _, name := range r.mu.Rules.Schemes {
		if !slices.Contains(c.Rules.Schemes, name) {
			return lacksScheme(name, c.Rules.Schemes)
		}
	}
	return nil
}

// lacksScheme returns the error for a member without a scheme that is in force.
func lacksScheme(name string, has []string) error {
	return fmt.Errorf("the ensemble's ACLs use the authentication scheme %q, which this member does not have; it has %q: set Config.Schemes as on the other members", name, has)
}

// rulesAfter returns the rules in force after a Register that was accepted. mu is held.
func (r *Replica) rulesAfter(c *command.Command) command.Rules {
	all := slices.Clone(c.Rules.Schemes)
	for _, o := range r.mu.table.Present() {
		if o.Level >= r.mu.Level && !o.Retired { // others were left behind
			all = slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(o.Schemes, name) })
		}
	}
	in := append(all, r.mu.Rules.Schemes...)
	slices.Sort(in)
	return command.Rules{Schemes: slices.Compact(in), TreeMax: c.Rules.TreeMax}
}
