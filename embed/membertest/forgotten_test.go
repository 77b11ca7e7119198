package membertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// keepCopy copies a member's directory while the member runs, as a backup of its volume does.
// restore puts the copy in the directory's place.
func keepCopy(t *testing.T, ens *embedtest.Ensemble, id embed.MemberID) (restore func()) {
	t.Helper()
	ens.Pause(id) // so that the copy shows one moment
	kept := filepath.Join(t.TempDir(), "copy")
	testkit.CopyDir(t, kept, ens.Dir(id))
	ens.Resume(id)
	return func() {
		t.Helper()
		must(t, os.RemoveAll(ens.Dir(id)))
		must(t, os.CopyFS(ens.Dir(id), os.DirFS(kept)))
	}
}

// refusedAsOlder waits until a member has failed because its directory is older than what it
// acknowledged.
func refusedAsOlder(t *testing.T, n *embed.Node, by string) {
	t.Helper()
	until(t, "the member to be refused", func() bool {
		select {
		case <-n.Done():
			return true
		default:
			return false
		}
	})
	for _, words := range []string{"refused by member " + by, "the directory of member 3 is older than what it has told member " + by,
		"must not vote", "docs/runbook.md: A member that cannot come back"} {
		if err := n.Err(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("Err does not say %q: %v", words, err)
		}
	}
	if err := n.Ready(bounded(t)); !errors.Is(err, embed.ErrFailed) {
		t.Errorf("Ready: %v", err)
	}
}

// B1.3, M20: members 1 and 3 acknowledge a write. Then member 3 gets back an earlier copy of its
// directory, made in the same start. It must not form a quorum with member 2, which was cut off.
func TestForgotten_ACopyOfTheSameStartNeverVotes(t *testing.T) {
	t.Parallel()
	var log embedkit.Journal
	// A member that is paused holds mutexes, so this needs real time.
	ens := embedtest.New(t, 3, embedtest.Options{Logger: log.Logger(), Config: embedkit.Patient})
	embedkit.Write(t, ens.Node(1), "/before")
	ens.Isolate(2)
	embedkit.Synced(t, ens.Node(3))
	restore := keepCopy(t, ens, 3)
	ens.TransferLeadership(1)
	embedkit.Write(t, ens.Node(1), "/acknowledged")
	ens.Kill(3)
	restore()
	restored := ens.Start(3)
	refusedAsOlder(t, restored, "1")
	until(t, "member 1 to say whom it refuses and why", func() bool {
		return log.Says(`level=ERROR msg="connection refused" member=1`)
	})
	ens.HealAll()
	embedkit.Synced(t, ens.Node(2))
	embedkit.Has(t, ens.Node(2), "/before", "/acknowledged")
}

// B1.4: the same with a directory that was copied while its member was stopped, and is put back
// after one more start. The ensemble does not know of that start, and the member that does is down.
// B1 promises detection afterwards: when that member comes back, its log shows that the others have
// lost what it knows to be committed. Nobody waits for what cannot come.
//
// If member 2 led before, the others elect in the term in which member 3 has voted for member 1.
// Then one term has two leaders.
func TestForgotten_IsFoundWhenTheOneWhoKnowsComesBack(t *testing.T) {
	t.Parallel()
	for _, leader := range []embed.MemberID{1, 2} {
		t.Run(fmt.Sprintf("member %d leads", leader), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) { comesBack(t, leader) })
		})
	}
}

func comesBack(t *testing.T, leader embed.MemberID) {
	ens := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()}) // the test copies files
	ens.TransferLeadership(leader)
	embedkit.Write(t, ens.Node(1), "/before")
	ens.Isolate(2)
	ens.Kill(3)
	kept := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(kept, os.DirFS(ens.Dir(3))))
	ens.Restart(3)
	embedkit.Write(t, ens.Node(1), "/acknowledged")
	embedkit.Synced(t, ens.Node(1))
	ens.Kill(3)
	must(t, os.RemoveAll(ens.Dir(3)))
	must(t, os.CopyFS(ens.Dir(3), os.DirFS(kept)))
	ens.Kill(1)
	ens.HealAll()
	embedkit.Synced(t, ens.Start(3)) // its Register is in the new history: the first entry of a term alone is the same in both
	ens.Start(1)
	var failed error
	until(t, "a member to be refused", func() bool {
		for _, id := range ens.Members() {
			failed = errors.Join(failed, ens.Node(id).Err())
		}
		return failed != nil
	})
	for _, words := range []string{"committed", "acknowledged writes are lost there", "docs/runbook.md: Two histories"} {
		if !strings.Contains(failed.Error(), words) {
			t.Errorf("Err does not say %q: %v", words, failed)
		}
	}
}
