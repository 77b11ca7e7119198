package campaign

import (
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

// Transfer deletes a candidate's entry and creates it anew in one transaction. Whoever reads it
// after the event of the deletion sees the new one.
func TestBehind(t *testing.T) {
	e := embed.Event{Type: embed.NodeDeleted, Zxid: 7}
	for czxid, want := range map[embed.Zxid]bool{6: true, 7: false, 8: false} {
		if got := behind(e, embed.Stat{Czxid: czxid}, true); got != want {
			t.Errorf("created at %d, deleted at %d: behind %t, want %t", czxid, e.Zxid, got, want)
		}
	}
}
