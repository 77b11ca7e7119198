package steer

import (
	"cmp"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// rules are short, for the tests' time is counted in looks.
var rules = Rules{
	Voters: 3, Period: time.Second, Election: 2 * time.Second,
	StableFor: 5 * time.Second, DeadAfter: time.Minute, ForgetAfter: time.Hour, LeaveWait: 10 * time.Second,
}

func withVoters(n int) Rules {
	r := rules
	r.Voters = n
	return r
}

// Healths of members.
var (
	well  = Health{Answers: true, CaughtUp: true, Well: time.Hour}
	fresh = Health{Answers: true, CaughtUp: true}
	slow  = Health{Answers: true}
	quiet = Health{Silent: rules.Election}
	dead  = Health{Silent: time.Hour}
)

// leaving returns a health of one whose wish has been out for a while.
func leaving(h Health, d time.Duration) Health {
	h.Leaving = d
	return h
}

// table returns a table of the members, on so many shards.
func table(shards uint32, members ...session.Member) *session.MembersView {
	slices.SortFunc(members, func(a, b session.Member) int { return cmp.Compare(a.ID, b.ID) })
	next := session.MemberID(1)
	if n := len(members); n > 0 {
		next = members[n-1].ID + 1
	}
	return &session.MembersView{
		Ensemble: session.Ensemble{Lineage: session.Lineage{1}, Next: next, Shards: shards},
		List:     members,
	}
}

// member returns a member that is to be something, and is something on each shard.
func member(id session.MemberID, wish session.Part, parts ...session.Part) session.Member {
	m := session.Member{ID: id, Wish: wish}
	for _, p := range parts {
		m.Places = append(m.Places, session.Place{Part: p, Change: 1})
	}
	return m
}

// named gives a member a name.
func named(m session.Member) session.Member {
	m.Name, m.Since = "pod", 1
	return m
}

func voter(id session.MemberID) session.Member { return member(id, session.Voter, session.Voter) }

func learner(id session.MemberID) session.Member { return member(id, session.Learner, session.Learner) }

// in returns a member in a zone.
func in(zone string, m session.Member) session.Member {
	m.Zone = zone
	return m
}

// going returns a member that is to be out.
func going(m session.Member, why session.Reason) session.Member {
	m.Wish, m.Reason = session.Out, why
	return m
}

// healths returns a lookup in which those that are not named are well.
func healths(h map[session.MemberID]Health) func(session.MemberID) Health {
	return func(id session.MemberID) Health {
		if of, named := h[id]; named {
			return of
		}
		return well
	}
}

func none(session.MemberID) bool { return false }

func all(session.MemberID) bool { return true }

func these(ids ...session.MemberID) func(session.MemberID) bool {
	return func(id session.MemberID) bool { return slices.Contains(ids, id) }
}
