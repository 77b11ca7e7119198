package membertest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// M17: a process that is no member removes one, if it names the ensemble. At an address that has
// become another ensemble's, it changes nothing and says so. Who asks so has no seams, so this needs
// real TCP. The table of members is there after three seconds, a level a second.
func TestAskRemoval(t *testing.T) {
	t.Parallel()
	nodes := embedkit.StartTCP(t, "127.0.0.1", 3, func(c *embed.Config) {
		c.Dir, c.Ensemble, c.Join = t.TempDir(), "orders", slices.Sorted(maps.Values(c.Members))
	})
	embedkit.Ready(t, nodes[1], nodes[2], nodes[3])
	until(t, "the table of members", func() bool {
		return !slices.ContainsFunc(nodes[1].Members(), func(m embed.Member) bool { return m.Name == "" })
	})
	asks := embed.Config{Ensemble: "orders", Logger: embedkit.Quiet}
	for _, m := range nodes[1].Members() {
		asks.Join = append(asks.Join, m.Address)
	}
	for _, other := range []string{"", "parcels"} {
		stray := asks
		stray.Ensemble = other
		err := embed.AskRemoval(bounded(t), stray, 3)
		if err == nil || !strings.Contains(err.Error(), `is of the ensemble "orders", the config says "`+other+`": check Join and Ensemble`) {
			t.Errorf("of the ensemble %q: %v", other, err)
		}
		if list, err := embed.AskMembers(bounded(t), stray); err != nil || len(list) != 3 {
			t.Errorf("anybody may ask who is there: %v, %v", list, err)
		}
	}
	if err := embed.AskRemoval(bounded(t), asks, 9); err == nil || !strings.Contains(err.Error(), "9") || errors.Is(err, embed.ErrUnknownOutcome) {
		t.Errorf("nobody: %v", err)
	}
	for _, m := range nodes[1].Members() {
		if m.Role != embed.Voter || m.Leaving != "" {
			t.Errorf("something was changed: %+v", m)
		}
	}
	must(t, embed.AskRemoval(bounded(t), asks, 3))
	<-nodes[3].Done()
	if err := nodes[3].Err(); !errors.Is(err, embed.ErrRemoved) {
		t.Errorf("the removed member says %v", err)
	}
	must(t, embed.AskRemoval(bounded(t), asks, 3)) // what is so already
	until(t, "two voters", func() bool { return slices.Equal(embedkit.Roles(nodes[1])[embed.Voter], []embed.MemberID{1, 2}) })
}
