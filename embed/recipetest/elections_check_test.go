package recipetest

import (
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// leads returns a leadership of somebody that publishes a value. If local is not zero, its token
// belongs to a place that was taken over.
func leads(value string, token embed.Zxid, local uint64) *grant {
	g := over(alone, token)
	g.value, g.token.Local = value, local
	return g
}

// comes returns a scene in which late arrives when first already stands, each with a priority, and
// late leads first.
func comes(late, first *grant, own, other int) func(*model) {
	return func(m *model) {
		m.stands("/l", first.note, other)
		late.saw = m.standing("/l", own)
		m.granted(late)
		m.granted(first)
	}
}

// gives returns a scene in which first leads and gives its place to the candidate that publishes b.
// Then the others lead.
func gives(first *grant, others ...*grant) func(*model) {
	return func(m *model) {
		grants(first)(m)
		m.moved(first, "b")
		grants(others...)(m)
		m.finish()
	}
}

// sees returns a scene in which an observer sees now after last, while somebody leads.
func sees(last, now election.Leader, g *grant) func(*model) {
	return func(m *model) {
		m.granted(g)
		m.sighted("/l", last, now)
	}
}

func TestModel_Elections(t *testing.T) {
	sight := func(token embed.Zxid, value string) election.Leader {
		return election.Leader{Token: lock.Token{Zxid: token}, Value: []byte(value)}
	}
	a := leads("a", 1, 0)
	for _, s := range []scene{
		{"a lower priority that came later goes first", comes(over(alone, 1), over(alone, 2), 0, 1), comes(over(alone, 1), over(alone, 2), 1, 0), "overtook"},
		{"the same priority goes first that came later", comes(over(alone, 1), over(alone, 2), 1, 1), comes(over(alone, 2), over(alone, 1), 1, 1), "overtook"},
		{"a candidate that overtakes must have been offered it", comes(leads("x", 1, 0), over(alone, 2), 0, 0), func(m *model) {
			m.offered("/l", "x")
			comes(leads("x", 1, 0), over(alone, 2), 0, 0)(m)
		}, "overtook"},
		{"a candidate that has left is not overtaken", comes(over(alone, 1), over(alone, 2), 0, 0), func(m *model) {
			m.stands("/l", "2", 0)
			m.standsNoMore("/l", "2")
			grants(over(alone, 1), over(alone, 2))(m)
		}, "overtook"},
		{"somebody leads between a leader and the one it gave its place to", gives(leads("a", 1, 0), leads("c", 1, 5), leads("b", 1, 7)), gives(leads("a", 1, 0), leads("b", 1, 5), leads("c", 1, 7)), "led between"},
		{"an observer sees leaders backwards", sees(sight(2, "b"), sight(1, "a"), leads("a", 1, 0)), sees(sight(1, "a"), sight(2, "b"), leads("a", 1, 0)), "after"},
		{"an observer sees values backwards", sees(sight(1, "a #2"), sight(1, "a #1"), a), sees(sight(1, "a #1"), sight(1, "a #2"), a), "after"},
		{"an observer sees a value twice", sees(sight(1, "a #1"), sight(1, "a #1"), a), sees(sight(1, "a"), sight(1, "a #1"), a), "after"},
		{"an observer sees one leadership of two", sees(sight(1, "a"), sight(1, "b #1"), leads("b", 1, 0)), sees(sight(1, "b"), sight(1, "b #1"), leads("b", 1, 0)), "after"},
		{"an observer sees another than the leader", sees(sight(0, ""), sight(1, "b"), a), sees(sight(0, ""), sight(1, "a"), a), "and that is"},
		{"an observer sees the next while somebody leads", sees(sight(1, "1"), sight(2, "2"), given(alone, 1)), sees(sight(1, "1"), sight(2, "2"), over(alone, 1)), "still leads"},
	} {
		t.Run(s.name, s.play)
	}
}
