package campaign

import (
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// Members change where they come and go: in every second pair of rounds, and in all rounds of a
// campaign that does nothing else. In the first of each two pairs a majority is lost for good.
func TestSettings_Grows(t *testing.T) {
	rounds := func(s Settings) (grown, losing []int) {
		for n := 1; n <= 8; n++ {
			kinds := s.kindsOf(n)
			if s.grows(n) {
				grown = append(grown, n)
			}
			if s.loses(n) {
				losing = append(losing, n)
			}
			changes := slices.ContainsFunc(kinds, fault.changes) || s.loses(n)
			if changes != s.grows(n) && !slices.Contains(s.Only, "recovery") {
				t.Errorf("round %d of %v: members change: %t", n, s.Only, changes)
			}
		}
		return grown, losing
	}
	all := []int{1, 2, 3, 4, 5, 6, 7, 8}
	for _, c := range []struct {
		settings      Settings
		grown, losing []int
	}{
		{Settings{}, []int{2, 3, 6, 7}, []int{2, 3}},
		{Settings{Only: []string{"wipe", "kill one"}}, []int{2, 3, 6, 7}, nil},
		{Settings{Only: []string{"recovery", "kill one"}}, []int{2, 3, 6, 7}, []int{2, 3}},
		{Settings{Only: []string{"wipe", "leave"}}, all, nil},
		{Settings{Only: []string{"wipe", "recovery"}}, all, all},
		{Settings{Only: []string{"recovery"}}, all, all},
		{Settings{Upgrade: &Upgrade{}}, nil, nil},
		{Settings{Upgrade: &Upgrade{}}, nil, nil}, // until it is rolled
	} {
		grown, losing := rounds(c.settings)
		if !slices.Equal(grown, c.grown) || !slices.Equal(losing, c.losing) {
			t.Errorf("%v: members come and go in rounds %v, want %v; a majority is lost in rounds %v, want %v", c.settings.Only, grown, c.grown, losing, c.losing)
		}
	}
}

// The sessions of a member whose directory is gone may be left for as long as they need to expire.
// So may remote sessions that nobody has closed.
func TestOver_AbandonedSessions(t *testing.T) {
	h := &history{now: func() time.Duration { return 10 * time.Second }}
	for _, l := range []life{
		{Name: "alive", Member: 1, Run: 2, Ended: never},
		{Name: "closed", Member: 2, Run: 1, Ended: time.Second},
		{Name: "before", Member: 1, Run: 1, Ended: time.Second},
		{Name: "abandoned", Member: 1, Run: 2, Ended: 9 * time.Second},
	} {
		add(h, lives, l)
	}
	// at the seventh and the eighth timeout after the end
	for name, ended := range map[string]time.Duration{"remote": 3 * time.Second, "remote, long ago": 2 * time.Second} {
		add(h, lives, life{Name: name, Member: 2, Run: 1, Remote: true, Timeout: time.Second, Ended: ended})
	}
	add(h, lives, life{Name: "remote, closed", Member: 2, Run: 1, Remote: true, Timeout: time.Second, Ended: 9 * time.Second, Closed: 9 * time.Second})
	add(h, abandoned, abandonment{Member: 1, Run: 2})
	if over := h.over(); len(over) != 4 || !over["closed"] || !over["before"] || !over["remote, long ago"] || !over["remote, closed"] {
		t.Errorf("over are %v", over)
	}
}

// A remote session lives on while its process goes on with another node.
func TestMayLive_Remote(t *testing.T) {
	e := &ensemble{}
	e.mu.runs = make(map[embed.MemberID]*run)
	process, next := new(deadProcess), new(deadProcess)
	e.newRunLocked(1, process)
	e.newRunLocked(1, process)
	local, remote := &life{Member: 1, Run: 1, Ended: never}, &life{Member: 1, Run: 1, Ended: never, Remote: true}
	if e.mayLive(local) || !e.mayLive(remote) {
		t.Errorf("after another node began: the local session %t, the remote one %t", e.mayLive(local), e.mayLive(remote))
	}
	e.newRunLocked(1, next)
	if e.mayLive(remote) {
		t.Error("the remote session outlives its process")
	}
}

// A deadProcess does nothing.
type deadProcess struct {
	Process
	_ int // so that each has an address of its own
}
