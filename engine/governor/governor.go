package governor

import "github.com/vivarium-go/vivarium/engine/steer"

// A Governor admits members, and steers who takes part in the shards that its node leads.
type Governor struct {
	Options
	steering  []*steering   // by shard
	recording chan struct{} // capacity 1; full while this node records that members are to vote or to be out
	gone      count
}

// New returns the governor of a node that is about to take part.
func New(o Options) *Governor {
	g := &Governor{Options: o, recording: make(chan struct{}, 1), gone: count{log: o.Roster.Log}}
	rules := steer.Rules{Voters: o.Voters, Period: o.Election / 2, Election: o.Election, StableFor: stableTicks * o.Tick,
		DeadAfter: o.DeadAfter, LeaveWait: stableTicks*o.Tick + heirElections*o.Election}
	if o.DeadAfter > 0 { // a voter stays no longer than a learner
		rules.ForgetAfter = max(forgetAfter, o.DeadAfter)
	}
	for _, r := range o.Shards {
		g.steering = append(g.steering, &steering{Options: &g.Options, gone: &g.gone, r: r, rules: rules, wake: make(chan struct{}, 1), probed: make(chan probe, probesMax), judge: make(chan judgement)})
	}
	return g
}

// Run starts to steer.
func (g *Governor) Run() {
	for _, s := range g.steering {
		g.Node.Go(s.loop)
	}
	g.Node.Go(g.lineageLoop)
}

// Wake is called when the table of members has changed. It does not block.
func (g *Governor) Wake() {
	for _, s := range g.steering {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}
