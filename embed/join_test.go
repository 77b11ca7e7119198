package embed_test

import (
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// roles returns the members that a node knows, by role.
func roles(n *embed.Node) map[embed.Role][]embed.MemberID {
	by := make(map[embed.Role][]embed.MemberID)
	for _, m := range n.Members() {
		by[m.Role] = append(by[m.Role], m.ID)
	}
	return by
}

// A node that knows the address of one member becomes a learner that serves, and a third makes voters
// of all three. Data that was there before is there afterwards.
func TestJoin_OneBecomesThree(t *testing.T) {
	e := embedtest.New(t, 1, embedtest.Options{Join: true})
	ctx := bounded(t)
	s := e.Session(1, embed.SessionOptions{})
	for i := range 100 {
		_, err := s.Create(ctx, fmt.Sprintf("/before-%d", i), []byte("data"), embed.Persistent)
		must(t, err)
	}
	two := e.Join()
	e.Ready(two)
	if id := e.ID(two); id != 2 {
		t.Errorf("the second member has the id %d", id)
	}
	there := e.Session(two, embed.SessionOptions{})
	_, err := there.Create(ctx, "/by-the-learner", nil, embed.Persistent)
	must(t, err)
	_, _, err = there.Get(ctx, "/before-99")
	must(t, err)
	three := e.Join()
	e.Ready(three)
	for _, place := range e.Members() {
		e.Until(fmt.Sprintf("member %d to know three voters", place), func() bool { return len(roles(e.Node(place))[embed.Voter]) == 3 })
	}
	e.Kill(1)
	e.Until("another leader", func() bool { return e.Leader() != 1 })
	_, err = there.Create(ctx, "/after", nil, embed.Persistent)
	must(t, err)
}
