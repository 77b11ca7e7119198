//go:build unix

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// "Two histories": the second member is started with an older copy of its directory, while the
// first is down, which knows better. With the third, which was down before, it elects a leader that
// lacks acknowledged writes. When the first comes back, it fails and says why. The others carry on,
// and it is replaced as a member that cannot come back.
func TestRunbook_TwoHistories(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	runs := n.startAll()
	n.writes(1, "/before")
	n.known()
	end(t, runs[2])
	end(t, runs[1])
	old := n.data(2) + "-old"
	must(t, os.CopyFS(old, os.DirFS(n.data(2))))
	runs[1] = n.start(2)
	runs[1].Says("msg=serving")
	// More than the other history gets in its first term, which may be the same: there both logs look
	// alike. Fewer than it gets in all.
	for i := range 4 {
		n.writes(1, fmt.Sprintf("/lost-%d", i))
	}
	n.writes(1, "/lost")
	end(t, runs[1])
	end(t, runs[0])
	lost := term(runs[0], runs[1])
	must(t, os.RemoveAll(n.data(2)))
	must(t, os.Rename(old, n.data(2))) // a volume was restored

	join := fmt.Sprintf("join: [%q, %q]", n.addrs[1], n.addrs[2])
	runs[1], runs[2] = n.start(2, join), n.start(3, join)
	runs[1].Says("msg=serving")
	// The side with the later leader carries on. How many leaders each has had is luck.
	until(t, "a leader later than those of the lost write", func() bool {
		if term(runs[1], runs[2]) > lost {
			return true
		}
		end(t, runs[1])
		end(t, runs[2]) // each election of both has a later term
		runs[1], runs[2] = n.start(2, join), n.start(3, join)
		runs[1].Says("msg=serving")
		return false
	})
	for i := range 10 {
		n.writes(2, fmt.Sprintf("/new-%d", i))
	}
	first := n.start(1)
	const section = "docs/runbook.md: Two histories"
	if code := first.ExitCode(); code != exitFailed {
		t.Errorf("the member that knows more ends with %d", code)
	}
	contains(t, first.Says("msg=\"node failed\""), section)
	n.writes(2, "/after")
	if answer := n.shell(2, "ls", "/"); strings.Contains(answer, "lost") {
		t.Errorf("nothing is lost: %s", answer)
	}
	if code, stdout, stderr := vivarium("check", n.data(1)); code != exitOK {
		t.Errorf("check: %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := vivarium("export", "-dir", n.data(1), "-path", "/lost"); code != exitOK || !strings.Contains(stdout, `"path":"/lost"`) {
		t.Errorf("the lost write cannot be read: %d, %s%s", code, stdout, stderr)
	}

	must(t, os.Rename(n.data(1), n.data(1)+"-kept"))
	n.start(1, join).Says("member=4 shards=1")
	n.says("after", 1, "ls", "/")
	file := n.config(2, nil, join)
	untilMembers(t, file, exitOK, `^1 +voter +no`, `^2 +voter +yes`, `^3 +voter +yes`, `^4 +\w+ +yes`)
	if testkit.Night() { // by day see TestRunbook_AMemberThatCannotComeBack
		removes(t, file, "1")
		untilMembers(t, file, exitOK, `^2 +voter +yes`, `^3 +voter +yes`, `^4 +voter +yes`)
	}
}

// term returns the latest term in which members have seen a leader.
func term(runs ...*child.Program) (latest int) {
	for _, p := range runs {
		for _, m := range regexp.MustCompile(`msg="leader changed".* term=(\d+) `).FindAllStringSubmatch(p.Log(), -1) {
			n, _ := strconv.Atoi(m[1]) // as many digits as a term has
			latest = max(latest, n)
		}
	}
	return latest
}
