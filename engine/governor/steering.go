package governor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/engine/steer"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

// steering makes wishes about members come true on one shard, while this node leads it. On the home
// shard it also makes the wishes. Package steer decides; this is its eyes and hands.
type steering struct {
	// Immutable.
	*Options
	gone   *count
	r      *replica.Replica
	rules  steer.Rules
	wake   chan struct{} // capacity 1; there may be something to do
	probed chan probe    // capacity probesMax
	judge  chan judgement

	// Owned by the loop. They begin anew with each leadership.
	term   uint64
	known  *replication.Membership // of the shard, as last read; nil: read it
	watch  *steer.Watch
	number uint64     // under which this leadership makes wishes; zero: not given yet
	wish   steer.Wish // the last one, made at wished
	wished time.Time
	// Of members that have no replica on the shard yet.
	reached  map[session.MemberID]time.Time
	tried    map[session.MemberID]time.Time
	lost     map[session.MemberID]time.Time // not reached since then; zero once that was logged
	probing  map[session.MemberID]bool
	proposed proposed
}

// A probe is the result of dialling a member that has no replica on the shard yet.
type probe struct {
	member session.MemberID
	term   uint64
	err    error // nil: it was reached
}

// A judgement is the question whether a member may vote.
type judgement struct {
	member session.MemberID
	stable chan bool // capacity 1
}

// proposed is what a steering has proposed last, and must not propose again at once.
type proposed struct {
	what any
	at   time.Time
}

const (
	// probesMax bounds the probes of one shard that are under way.
	probesMax = 8
	// reachedFor is how long a probe counts.
	reachedFor = 5 * time.Second

	// stableTicks is how long a member must be well before it may vote: ten seconds with the default
	// tick.
	stableTicks = 200
	// heirElections are how many longest elections more one that goes waits for who takes its place.
	// If it led, the new leader begins to count both times at once.
	heirElections = 2
	// forgetAfter is the least silence after which a member that does not vote is forgotten.
	forgetAfter = time.Hour
)

// loop looks twice an election, and whenever there may be something to do. It ends with the node.
func (s *steering) loop() {
	ticker := time.NewTicker(s.rules.Period)
	defer ticker.Stop()
	for {
		select {
		case <-s.Reach.Done():
			return
		case <-s.Reach.Done():
			return
		case p := <-s.probed:
			s.note(p)
		case j := <-s.judge:
			j.stable <- s.term != 0 && s.watch.Health(j.member).IsStable(s.rules)
		case <-s.wake:
		case <-ticker.C:
		}
		for s.round() {
		}
	}
}

// round looks once, and does at most one thing. It reports whether there may be more to do at once.
func (s *steering) round() (more bool) {
	leader := s.Node.RaftLeader(s.r.Shard)
	if leader.Member != s.Roster.Self() || s.home().Lineage() == (session.Lineage{}) {
		s.term = 0
		return false
	}
	if leader.Term != s.term {
		s.begin(leader.Term)
	}
	if s.known == nil && !s.readInTime() {
		return false
	}
	s.look(time.Now())
	if step := steer.Execute(s.shard(s.watch.Health)); step != (steer.Step{}) {
		// It was decided on what was read before. What is done is decided on what is so now.
		health := s.watch.Health
		if step.Kind.NeedsProof() {
			if health = s.proven(); health == nil {
				return false
			}
		}
		return s.readInTime() && s.do(steer.Execute(s.shard(health)))
	}
	return s.r.Shard == command.HomeShard && s.plan()
}

// proven returns the health of those who have just stored an entry; nobody else is well. It returns
// nil if the entry was not committed.
func (s *steering) proven() func(session.MemberID) steer.Health {
	stored := s.Prove(context.Background(), s.r.Shard, append(slices.Clone(s.known.Voters), s.known.Learners...))
	if stored == nil {
		return nil
	}
	return func(m session.MemberID) steer.Health {
		h := s.watch.Health(m)
		if !stored[MemberID(m)] {
			h.Answers, h.CaughtUp = false, false
		}
		return h
	}
}

// readInTime is read with a bound.
func (s *steering) readInTime() bool {
	ctx, cancel := context.WithTimeout(s.Reach, s.rules.Election)
	defer cancel()
	return s.read(ctx)
}

// begin begins a leadership. What was seen before it does not count.
func (s *steering) begin(term uint64) {
	s.term, s.known, s.number, s.wish, s.proposed = term, nil, 0, steer.Wish{}, proposed{}
	s.watch = steer.NewWatch(s.rules)
	s.reached, s.tried, s.probing = make(map[session.MemberID]time.Time), make(map[session.MemberID]time.Time), make(map[session.MemberID]bool)
	s.lost = make(map[session.MemberID]time.Time)
}

// read reads the members of the shard, and waits until this node knows all wishes that were
// recorded before. It reports whether that worked.
func (s *steering) read(ctx context.Context) bool {
	s.known = nil
	host := s.Host()
	members, err := host.Membership(ctx, s.r.Shard)
	if err == nil && s.r.Shard != command.HomeShard {
		err = host.Barrier(ctx, command.HomeShard, 0)
	}
	if err != nil {
		return false
	}
	s.known = &members
	if s.r.Shard == command.HomeShard {
		s.gone.note(len(members.Removed))
	}
	return true
}

// look takes in how the other replicas answer, and dials members that have none here yet.
func (s *steering) look(now time.Time) {
	table := s.Roster.Table()
	committed := s.Host().Committed(s.r.Shard)
	s.watch.Look(steer.Look{Now: now, Committed: committed, Table: table, Pulse: func(m session.MemberID) steer.Pulse {
		if MemberID(m) == s.Roster.Self() {
			return steer.Pulse{Answered: now, Index: committed}
		}
		p := s.Transport.Pulse(uint64(m), int(s.r.Shard))
		return steer.Pulse{Answered: p.Answered, Index: p.Index}
	}})
	s.probeNext(now, table)
}

// probeNext dials members that have no replica here yet, those first that were dialled longest ago.
func (s *steering) probeNext(now time.Time, table *session.MembersView) {
	settled := func(m session.MemberID, _ time.Time) bool {
		rec, found := table.Find(m)
		return !found || rec.Wish == session.Out || s.has(MemberID(m))
	}
	for _, times := range []map[session.MemberID]time.Time{s.reached, s.tried, s.lost} {
		maps.DeleteFunc(times, settled)
	}
	var wanted []session.MemberID
	for _, m := range table.List {
		if m.Wish < session.Out && !s.has(MemberID(m.ID)) && !s.probing[m.ID] && now.Sub(s.reached[m.ID]) > reachedFor/2 {
			wanted = append(wanted, m.ID)
		}
	}
	slices.SortStableFunc(wanted, func(a, b session.MemberID) int { return s.tried[a].Compare(s.tried[b]) })
	for _, m := range wanted[:min(len(wanted), probesMax-len(s.probing))] {
		s.tried[m] = now
		s.probe(m)
	}
}

// has reports whether the shard has, or had, a replica at a member.
func (s *steering) has(m MemberID) bool {
	return slices.Contains(s.known.Voters, m) || slices.Contains(s.known.Learners, m) || slices.Contains(s.known.Removed, m)
}

// probe finds out whether a member can be reached, and is who it should be.
func (s *steering) probe(m session.MemberID) {
	s.probing[m] = true
	p := probe{member: m, term: s.term}
	s.Node.Go(func() {
		ctx, cancel := context.WithTimeout(s.Reach, reachedFor)
		defer cancel()
		if p.err = s.Transport.Probe(ctx, uint64(m)); p.err != nil {
			s.Roster.Log.Debug("a member that is to take part is not reached", "peer", m, "shard", s.r.Shard, "cause", p.err)
			select { // the next probe comes later
			case <-time.After(s.Election / 2):
			case <-s.Reach.Done():
			}
		}
		select {
		case s.probed <- p:
		case <-s.Reach.Done():
		}
	})
}

// note takes in the result of a probe.
func (s *steering) note(p probe) {
	if p.term != s.term {
		return
	}
	delete(s.probing, p.member)
	if p.err == nil {
		s.reached[p.member] = time.Now()
		delete(s.lost, p.member)
		return
	}
	s.complain(p)
}

// complain logs, once in a leadership of the home shard, that a new member is not reached. The time
// before lets the member start what it has been admitted for.
func (s *steering) complain(p probe) {
	since, failed := s.lost[p.member]
	switch {
	case s.r.Shard != command.HomeShard:
	case !failed:
		s.lost[p.member] = time.Now()
	case !since.IsZero() && time.Since(since) > s.rules.StableFor:
		s.lost[p.member] = time.Time{}
		s.Roster.Log.Warn("a new member is not reached where it says that it is: check its Config.Advertise",
			"peer", p.member, "address", s.Roster.Address(MemberID(p.member)), "cause", p.err)
	}
}

// shard returns what this node knows of the shard, whose members are of the given health.
func (s *steering) shard(health func(session.MemberID) steer.Health) steer.Shard {
	table := s.Roster.Table()
	return steer.Shard{ID: uint32(s.r.Shard), Self: session.MemberID(s.Roster.Self()), Voters: roster.SessionIDs(s.known.Voters), Learners: roster.SessionIDs(s.known.Learners),
		Removed: roster.SessionIDs(s.known.Removed), Change: s.known.Change, Table: table, Health: health,
		Connected: func(m session.MemberID) bool { return time.Since(s.reached[m]) < reachedFor },
		Sessions:  s.home().HasSessions, Retired: s.r.Retired, Rules: s.rules}
}

// do carries out a step. It reports whether that changed something.
func (s *steering) do(step steer.Step) bool {
	m := MemberID(step.Member)
	switch step.Kind {
	case steer.AddLearner:
		return s.change(replication.AddLearner, m)
	case steer.Promote:
		return s.change(replication.Promote, m)
	case steer.Remove:
		return s.change(replication.Remove, m)
	case steer.HandOver:
		if s.mayPropose(step) {
			_ = s.Node.HandOver(s.r.Shard, m) // if it fails, the loop asks again
		}
	case steer.Retire:
		s.propose(step, s.r.Shard, command.EncodeRetire(step.Member))
	case steer.Report:
		s.propose(step, command.HomeShard, command.EncodeReport(step.Member, uint32(s.r.Shard), step.Place, time.Now().UnixMilli()))
	}
	return false
}

// change changes the members of the shard, and waits until that is so. What happened is what the
// members are afterwards.
func (s *steering) change(kind replication.ChangeKind, m MemberID) bool {
	before := s.known.Change
	ctx, cancel := context.WithTimeout(s.Reach, s.rules.Election)
	defer cancel()
	if err := s.Host().Change(s.r.Shard, replication.Change{Kind: kind, Member: m, After: before}); err != nil {
		s.Roster.Log.Debug("change of the members not proposed", "shard", s.r.Shard, "peer", m, "cause", err)
		return false
	}
	for {
		select {
		case <-ctx.Done():
			s.known = nil
			return false
		case <-time.After(replica.PollInterval):
		}
		if s.read(ctx) && s.known.Change != before {
			s.Roster.Log.Info("members of the shard changed", "shard", s.r.Shard, "voters", s.known.Voters, "learners", s.known.Learners)
			return true
		}
	}
}

// mayPropose reports whether something may be proposed, and takes note that it is. The same is not
// proposed again at once.
func (s *steering) mayPropose(what any) bool {
	now := time.Now()
	if s.proposed.what == what && now.Sub(s.proposed.at) < replica.RetryAfter {
		return false
	}
	s.proposed = proposed{what, now}
	return true
}

// propose proposes a command. If it is lost, the loop proposes it again. When it is applied, the
// loop is woken.
func (s *steering) propose(what any, at ShardID, cmd []byte) {
	if s.mayPropose(what) {
		_, _ = s.Host().Propose(at, cmd)
	}
}

// plan makes the next wish. It first takes a number for this leadership, so that no wish of an
// earlier one counts any more.
func (s *steering) plan() (more bool) {
	table := s.Roster.Table()
	self := session.MemberID(s.Roster.Self())
	if s.number == 0 {
		if n := table.Ensemble.Govern; table.Ensemble.Governor == self && s.proposed.what == governing(n) {
			s.number = n
		} else {
			s.propose(governing(n+1), command.HomeShard, command.EncodeGovern(n+1, self))
			return false
		}
	}
	if table.Ensemble.Govern != s.number {
		s.number = 0 // another leadership has begun
		return false
	}
	if s.wish != (steer.Wish{}) && !fulfilled(table, s.wish) {
		if time.Since(s.wished) > replica.RetryAfter {
			s.wish, s.number = steer.Wish{}, 0 // should it still arrive, it does not count
		}
		return false
	}
	situation := steer.Situation{Self: self, Table: table, Health: s.watch.Health, Dismissed: s.watch.Dismissed(), Rules: s.rules}
	wish, ok := steer.Plan(situation)
	if ok && wish.Part == session.Voter {
		if situation.Health = s.proven(); situation.Health == nil {
			return false
		}
		wish, ok = steer.Plan(situation)
	}
	if ok {
		s.Roster.Log.Info("a member is to have another part", "peer", wish.Member, "part", wish.Part.String(), "cause", wish.Reason.String())
		s.wish, s.wished = wish, time.Now()
		s.Options.propose(command.EncodeWant(s.number, wish.Member, wish.Part, wish.Reason, s.wished.UnixMilli()))
	}
	return false
}

// fulfilled reports whether the table has a wish, or a later one.
func fulfilled(table *session.MembersView, w steer.Wish) bool {
	rec, found := table.Find(w.Member)
	return !found || rec.Wish >= w.Part
}

// governing is the number under which a leadership makes wishes.
type governing uint64
