package roster

import (
	"testing"

	"github.com/vivarium-go/vivarium/session"
)

// A member that was recovered knows more than what it has applied, also when both lists of ancestors
// are as long as they get.
func TestPlace_IsAhead(t *testing.T) {
	lineage := func(n int) session.Lineage { return session.Lineage{byte(n)} }
	p := &place{lineage: lineage(session.AncestorsMax + 2)}
	for n := range session.AncestorsMax {
		p.ancestors = append(p.ancestors, lineage(n+2)) // the first one is forgotten
	}
	for applied, want := range map[session.Lineage]bool{
		{}: true, lineage(session.AncestorsMax + 1): true, p.lineage: false, lineage(session.AncestorsMax + 3): false,
	} {
		if got := p.isAhead(applied); got != want {
			t.Errorf("after lineage %v: %t", applied, got)
		}
	}
}
