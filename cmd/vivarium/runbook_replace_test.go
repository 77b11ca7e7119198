//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// "A member that cannot come back": a part of its directory is lost, and it refuses to start. With the
// original directory it is back. Then that is gone for good. The member comes back as a new one, which
// takes the place of the old.
func TestRunbook_AMemberThatCannotComeBack(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	runs := n.startAll()
	n.writes(1, "/before")
	n.known()
	end(t, runs[2])
	log := filepath.Join(n.data(3), "raft")
	must(t, os.Rename(log, log+"-away"))
	third := n.start(3)
	if code := third.ExitCode(); code != exitFailed || third.Line("docs/runbook.md: A member that cannot come back") == "" {
		t.Errorf("without its log it ends with %d:\n%s", code, third.Log())
	}
	must(t, os.Rename(log+"-away", log))
	third = n.start(3)
	third.Says("msg=serving")
	end(t, third)
	must(t, os.RemoveAll(n.data(3)))

	n.start(3).Says("member=4 shards=1")
	n.says("before", 3, "ls", "/")
	untilMembers(t, n.config(1, nil, fmt.Sprintf("join: [%q]", n.addrs[0])), exitOK, `^1 +voter +yes`, `^2 +voter +yes`, `^4 +voter +yes`)
	n.writes(3, "/after")
}

// "The majority is lost for good": the disks of two of three members are gone. The first goes on
// alone. Others join it: one on an empty directory, and one on its own, which turns up again.
func TestRunbook_TheMajorityIsLost(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	runs := n.startAll()
	n.writes(3, "/before")
	// Without a lineage nobody can go on alone.
	until(t, "a lineage", func() bool { return hasLineage(n.data(1)) })
	until(t, "the first member to have it", func() bool {
		return strings.Contains(n.shell(1, "ls", "/"), "before")
	})
	for _, p := range runs[1:] {
		p.Signal(syscall.SIGKILL)
		p.ExitCode()
	}
	runs[0].Says("msg=\"no quorum\"")
	end(t, runs[0])
	must(t, os.RemoveAll(n.data(2)))
	away := n.data(3) + "-away"
	must(t, os.Rename(n.data(3), away))

	code, stdout, stderr := vivarium("recover", "-look", n.data(1))
	if code != exitOK {
		t.Errorf("-look: %d, %s", code, stderr)
	}
	contains(t, stdout, "  member 2: voter at "+n.addrs[1])
	code, stdout, stderr = vivarium("recover", "-accept-data-loss", "-i-have-stopped", "2,3", n.data(1))
	if code != exitOK {
		t.Errorf("recover: %d, %s", code, stderr)
	}
	contains(t, stdout, " are certain")
	join := fmt.Sprintf("join: [%q]", n.addrs[0])
	first := n.start(1, join)
	contains(t, first.Says("recovered from this member alone"), "lost=\"[2 3]\"")
	first.Says("msg=serving")
	n.says("before", 1, "ls", "/")
	n.writes(1, "/after")

	n.serveWith(2, nil, join, fmt.Sprintf("advertise: %q", n.addrs[1])).Says("msg=serving")
	must(t, os.Rename(away, n.data(3)))
	third := n.start(3, join) // with the members that its directory has
	if code := third.ExitCode(); code != exitFailed {
		t.Errorf("of another lineage: %d", code)
	}
	third.Says("docs/runbook.md: The majority is lost for good")
	n.start(3, join).Says("msg=serving")
	n.says("after, before", 2, "ls", "/")
	n.says("after, before", 3, "ls", "/")
	untilMembers(t, n.config(1, nil, join), exitOK,
		`^1 +voter +yes`, `^\d{4} +\w+ +yes[^\n]*\n\d{4} +\w+ +yes`)
}
