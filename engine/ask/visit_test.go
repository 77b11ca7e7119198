package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
	"github.com/vivarium-go/vivarium/session"
)

// manyMembers returns a list that is larger than an answer may be.
func manyMembers() (list []Member) {
	for id := range session.MemberID(1200) {
		m := session.Member{ID: id + 1, Name: strings.Repeat("n", NameMax), Address: strings.Repeat("a", AddressMax), Wish: session.Voter}
		for change := range uint64(64) {
			m.Places = append(m.Places, session.Place{Part: session.Voter, Change: 1_000_000 + change})
		}
		list = append(list, Member{Member: m})
	}
	return list
}

// visited calls look with a visitor of member 1, which answers a question as it is told, and leads.
func visited(t *testing.T, answers func(*Question, *Answer), look func(*testing.T, *visitor)) {
	testkit.Bubble(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		door, err := mesh.Network(1).Listen()
		testkit.Must(t, err)
		quiet := slog.New(slog.DiscardHandler)
		member := transport.New(transport.Options{Network: mesh.Network(1), Listener: door, Logger: quiet,
			Answer: func(_ context.Context, asked []byte) []byte {
				var q Question
				testkit.Must(t, json.Unmarshal(asked, &q))
				a := Answer{Member: 1, Leader: 1}
				answers(&q, &a)
				text, err := json.Marshal(a)
				testkit.Must(t, err)
				return text
			}})
		member.Open()
		defer member.Close()
		v := &visitor{seeds: []string{"member-1.test:1"}, network: mesh.Network(2)}
		v.transport = transport.New(transport.Options{Network: v.network, Logger: quiet})
		defer v.transport.Close()
		look(t, v)
	})
}

// M102: a visitor gets the whole list of members, however long it is.
func TestVisitor_AListInParts(t *testing.T) {
	all := manyMembers()
	parts := 0
	visited(t, func(q *Question, a *Answer) { parts++; a.Tell(q, all) }, func(t *testing.T, v *visitor) {
		a, err := v.ask(t.Context(), Question{List: true})
		if err != nil || !slices.EqualFunc(a.List, all, func(a, b Member) bool { return a.ID == b.ID && len(a.Places) == len(b.Places) }) {
			t.Fatalf("%d of %d members, %v", len(a.List), len(all), err)
		}
		if parts < 2 {
			t.Errorf("it came in %d parts", parts)
		}
	})
}

// A list whose parts come from two members is nobody's, and is asked for again.
func TestVisitor_PartsOfTwoMembers(t *testing.T) {
	all := manyMembers()
	asked := 0
	visited(t, func(q *Question, a *Answer) {
		asked++
		a.Directory[0] = byte(asked)
		a.Tell(q, all)
	}, func(t *testing.T, v *visitor) {
		if a, err := v.ask(t.Context(), Question{List: true}); err == nil || len(a.List) != 0 {
			t.Errorf("%d members, %v", len(a.List), err)
		}
	})
}

// The largest answer that a list can come with fits.
func TestAnswer_ItsLargestPartFits(t *testing.T) {
	all := manyMembers()[:session.MembersMax]
	a := Answer{Members: make(map[MemberID]string)}
	for _, m := range all {
		a.Members[MemberID(m.ID)] = fmt.Sprint(m.Address)
	}
	a.Tell(&Question{List: true}, all)
	text, err := json.Marshal(a)
	if testkit.Must(t, err); len(text) > 1<<20 {
		t.Errorf("%d bytes", len(text))
	}
}
