package membertest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// M7, M17: somebody starts a member of another ensemble at a member's address. Both ensembles were
// founded with the same config, so they have the same digest. Both sides say that they do not
// belong together, and no member fails. Otherwise the stranger's word would end those who belong
// here.
func TestLineage_AMemberOfAnotherEnsembleOfTheSameConfig(t *testing.T) {
	t.Parallel()
	synctest.Test(t, strangerAmongMembers)
}

func strangerAmongMembers(t *testing.T) {
	here := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()})
	there := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()})
	embedkit.WithLineage(t, here)
	embedkit.WithLineage(t, there)
	here.Stop(3)
	there.Stop(3)
	must(t, os.Rename(here.Dir(3), here.Dir(3)+".own"))
	must(t, os.Rename(there.Dir(3), here.Dir(3)))
	stranger := here.Start(3)
	for range 3 { // whoever dials, also after an election
		var reason error
		here.Until("the stranger to know why nobody talks to it", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			reason = stranger.Ready(ctx)
			return reason != nil && strings.Contains(reason.Error(), "is of another lineage than member")
		})
		s := here.Session(1, embed.SessionOptions{})
		_, err := s.Create(t.Context(), "/n", nil, embed.Sequential)
		must(t, err)
		must(t, here.Node(1).TransferLeadership(1, 3-here.Leader()))
	}
	for _, m := range here.Members() {
		if err := here.Node(m).Err(); err != nil {
			t.Errorf("member %d has failed: %v", m, err)
		}
	}

	// Half of its directory is refused before anything changes.
	here.Stop(3)
	own, strange := filepath.Join(here.Dir(3)+".own", "identity"), filepath.Join(here.Dir(3), "identity")
	must(t, os.Rename(strange, strange+".strange"))
	text, err := os.ReadFile(own)
	must(t, err)
	must(t, os.WriteFile(strange, text, 0o640))
	if _, err := here.TryStart(3); err == nil || !strings.Contains(err.Error(), "the identity file is of the lineage") {
		t.Errorf("with the log and the image of another ensemble: %v", err)
	}
	after, err := os.ReadFile(strange)
	must(t, err)
	if string(after) != string(text) {
		t.Errorf("the identity file was changed to\n%s", after)
	}

	// The member comes back with its own directory.
	must(t, os.Rename(here.Dir(3), here.Dir(3)+".strange"))
	must(t, os.Rename(here.Dir(3)+".own", here.Dir(3)))
	here.Start(3)
	here.Ready(3)
}
