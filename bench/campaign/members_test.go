package campaign

import (
	"slices"
	"testing"
	"time"
)

// Members change where they come and go: in every second pair of rounds, and in all rounds of a
// campaign that does nothing else.
func TestSettings_Grows(t *testing.T) {
	rounds := func(s Settings) (grown []int) {
		for n := 1; n <= 8; n++ {
			kinds := s.kindsOf(n)
			if s.grows(n) {
				grown = append(grown, n)
			}
			if changes := slices.ContainsFunc(kinds, fault.changes); changes != (s.grows(n) && s.Upgrade == nil) {
				t.Errorf("round %d of %v: members change: %t", n, s.Only, changes)
			}
		}
		return grown
	}
	for _, c := range []struct {
		settings Settings
		want     []int
	}{
		{Settings{}, []int{2, 3, 6, 7}},
		{Settings{Only: []string{"wipe", "kill one"}}, []int{2, 3, 6, 7}},
		{Settings{Only: []string{"wipe", "leave"}}, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{Settings{Upgrade: &Upgrade{}}, nil},
	} {
		if got := rounds(c.settings); !slices.Equal(got, c.want) {
			t.Errorf("%v: members come and go in rounds %v, want %v", c.settings.Only, got, c.want)
		}
	}
}

// The sessions of a member whose directory is gone may be left for as long as they need to expire.
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
	add(h, abandoned, abandonment{Member: 1, Run: 2})
	if over := h.over(); len(over) != 2 || !over["closed"] || !over["before"] {
		t.Errorf("over are %v", over)
	}
}
