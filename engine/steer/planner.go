package steer

import (
	"cmp"
	"slices"

	"github.com/vivarium-go/vivarium/session"
)

// Situation is what the leader of the home shard knows.
type Situation struct {
	Self      session.MemberID
	Table     *session.MembersView
	Health    func(session.MemberID) Health // of the replicas of the home shard
	Dismissed int                           // of the leadership's Watch
	Rules     Rules
}

// A Wish says what a member is to be, and why if it is to be out.
type Wish struct {
	Member session.MemberID
	Part   session.Part
	Reason session.Reason
}

// Plan returns what the leader of the home shard should wish next, and false if it should wish
// nothing. It rests once all wishes are facts and nobody comes, goes or fails.
//
// A voter whose wish is out counts no more. If it left or was removed, a spare takes its place
// as if there had been too few voters all along, and the executors wait a while for that.
func Plan(s Situation) (Wish, bool) {
	p := plan{Situation: s}
	p.count()
	w := cmp.Or(p.finish(), p.promote(), p.dismiss(), p.forget())
	return w, w != Wish{}
}

// plan is a situation with what follows from it.
type plan struct {
	Situation
	living  int  // members that are to vote and are not dead
	dead    int  // members that are to vote and have been silent for too long
	silent  bool // somebody who is to vote does not answer
	spares  int  // learners that may become voters
	pending bool // somebody who lives is to vote, and does not yet vote on all shards
}

func (p *plan) count() {
	for i := range p.Table.List {
		switch m := &p.Table.List[i]; {
		case p.isSpare(m):
			p.spares++
		case m.Wish != session.Voter:
		case p.isDead(m):
			p.dead, p.silent = p.dead+1, true
		default:
			p.living++
			p.pending = p.pending || !p.everywhere(m, session.Voter)
			p.silent = p.silent || !p.answers(m.ID)
		}
	}
}

// answers reports whether a member answers at home, or is the leader itself.
func (p *plan) answers(id session.MemberID) bool { return id == p.Self || p.Health(id).Answers }

// isDead reports whether a voter is silent and is to be replaced: it has been silent for long, or
// somebody has joined under its name meanwhile.
func (p *plan) isDead(m *session.Member) bool {
	if m.Wish != session.Voter || m.ID == p.Self {
		return false
	}
	after, silent := p.Rules.DeadAfter, p.Health(m.ID).Silent
	return after > 0 && silent >= after || silent > 0 && p.hasNamesake(m)
}

// hasNamesake reports whether a later member was admitted under the name of this one. That was
// while this one was silent: the engine refuses the name of a member that answers. Founders were
// not admitted, and may have one name by mistake.
func (p *plan) hasNamesake(m *session.Member) bool {
	return m.Name != "" && slices.ContainsFunc(p.Table.List, func(other session.Member) bool {
		return other.Name == m.Name && other.ID > m.ID && other.Wish < session.Out && other.Since != 0
	})
}

// isSpare reports whether a learner may be made a voter. It is well where the home shard is led. On
// the other shards each executor waits until it is.
func (p *plan) isSpare(m *session.Member) bool {
	return m.Wish == session.Learner && !m.Observer && p.everywhere(m, session.Learner) &&
		p.Health(m.ID).IsStable(p.Rules)
}

// everywhere reports whether a member has a part on all shards.
func (p *plan) everywhere(m *session.Member, part session.Part) bool {
	for shard := range p.Table.Ensemble.Shards {
		if partOn(m, shard) != part {
			return false
		}
	}
	return true
}

// partOn returns a member's part on a shard, counted from zero, as the table knows it.
func partOn(m *session.Member, shard uint32) session.Part {
	if int(shard) < len(m.Places) {
		return m.Places[shard].Part
	}
	return 0
}

// isLast reports whether nobody else is to vote. The table refuses to let the last one go. It does
// not matter whether it votes yet, so it may be dead while one that leaves still votes for it.
func (p *plan) isLast(m *session.Member) bool {
	return m.Wish == session.Voter && p.living+p.dead == 1
}

// finish wishes out who is out on a shard. It can be nothing else there, and half a member is of no
// use. No rule leads there; whatever did, it ends here.
func (p *plan) finish() Wish {
	for i := range p.Table.List {
		m := &p.Table.List[i]
		for shard := range p.Table.Ensemble.Shards {
			if m.Wish != session.Out && partOn(m, shard) == session.Out && !p.isLast(m) {
				return Wish{m.ID, session.Out, session.Lost}
			}
		}
	}
	return Wish{}
}

// dismiss wishes out a dead voter whose place will be taken. It dismisses at most a minority of
// the voters within DeadAfter: if so many fail, something else is wrong, and replacing them in
// haste would use up the spares too.
func (p *plan) dismiss() Wish {
	w := p.dismissible()
	if w.Reason == session.Silent && p.Dismissed >= max(1, (p.living+p.dead-1)/2) {
		return Wish{}
	}
	return w
}

// dismissible returns the first dead voter that may be dismissed.
func (p *plan) dismissible() Wish {
	for i := range p.Table.List {
		if m := &p.Table.List[i]; p.isDead(m) && !p.isLast(m) && p.isSpared(m) {
			if p.hasNamesake(m) {
				return Wish{m.ID, session.Out, session.Replaced}
			}
			return Wish{m.ID, session.Out, session.Silent}
		}
	}
	return Wish{}
}

// isSpared reports whether the ensemble is no worse off without a dead voter, on each shard where it
// votes. If the number of voters is odd, a spare must be there for the place, unless as many as are
// wanted live. If it is even, because somebody left or died on its way, the removal raises the
// margin. One at a time: the place that was taken last must be a fact.
func (p *plan) isSpared(dead *session.Member) bool {
	enough := p.living >= p.Rules.Voters && p.living%2 == 1
	taken := enough || p.spares > 0 && p.living+p.dead <= p.Rules.Voters
	for shard := range p.Table.Ensemble.Shards {
		if !dead.Votes(shard + 1) {
			continue
		}
		voters, answering := p.voters(shard)
		if p.pending || !taken && voters%2 == 1 || Margin(voters-1, answering) < 0 {
			return false
		}
	}
	return true
}

// voters returns how many members vote on a shard and are to go on doing so, and how many of them
// answer at home.
func (p *plan) voters(shard uint32) (voters, answering int) {
	for i := range p.Table.List {
		m := &p.Table.List[i]
		if m.Wish != session.Voter || !m.Votes(shard+1) {
			continue
		}
		voters++
		if p.answers(m.ID) {
			answering++
		}
	}
	return voters, answering
}

// promote wishes that a spare votes.
func (p *plan) promote() Wish {
	if p.spares == 0 || !p.grows() {
		return Wish{}
	}
	return Wish{p.bestSpare(), session.Voter, 0}
}

// grows reports whether there should be one more voter. An even number becomes odd. An odd number
// grows if there are spares for the next odd one: two voters are no better than one, for either
// failure stops both. It grows while all of them answer: with a silent one among them, the one more
// would be needed for every decision, and its death would end them. So a dead one goes first. If all
// that are to vote are dead, nobody of them can go.
func (p *plan) grows() bool {
	voters := p.living + p.dead
	if voters%2 == 0 {
		return voters < p.Rules.Voters
	}
	return p.living == 0 || !p.silent && odd(min(p.Rules.Voters, voters+p.spares)) > voters
}

// bestSpare returns the spare whose zone has the fewest voters that live, and of those the oldest.
func (p *plan) bestSpare() (best session.MemberID) {
	fewest := 0
	for i := range p.Table.List {
		m := &p.Table.List[i]
		if !p.isSpare(m) {
			continue
		}
		if n := p.inZone(m.Zone); best == 0 || n < fewest {
			best, fewest = m.ID, n
		}
	}
	return best
}

// inZone returns how many voters live in a zone.
func (p *plan) inZone(zone string) (n int) {
	for i := range p.Table.List {
		if m := &p.Table.List[i]; m.Zone == zone && m.Wish == session.Voter && !p.isDead(m) {
			n++
		}
	}
	return n
}

// forget wishes out a learner that has been silent for so long that nobody will miss it, and one
// that was admitted and never came. If somebody has joined under the name of a silent learner, it
// goes at once: it has no vote, so nothing needs to take its place first. While nobody is to vote,
// the table lets no learner go.
func (p *plan) forget() Wish {
	after := p.Rules.ForgetAfter
	for i := range p.Table.List {
		m := &p.Table.List[i]
		silent := p.Health(m.ID).Silent
		switch {
		case m.Wish != session.Learner || m.ID == p.Self || silent == 0 || p.living+p.dead == 0:
		case p.hasNamesake(m):
			return Wish{m.ID, session.Out, session.Replaced}
		case after <= 0 || silent < after:
		case p.everywhere(m, 0):
			return Wish{m.ID, session.Out, session.NeverCame}
		default:
			return Wish{m.ID, session.Out, session.Silent}
		}
	}
	return Wish{}
}
