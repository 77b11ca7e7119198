//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/engine"
)

// older is the line of config that lets this build agree to no more than an older one. What it
// refuses, and what the others then say, is the same. bench/chaos -upgrade has an older build.
const older = "holdLevel: 1"

// "An upgrade went wrong": the new build runs on some members, and the way back stays open because
// one member holds the level. All go back. The next time nobody holds it, and the way is closed.
func TestRunbook_AnUpgradeWentWrong(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	runs := n.startAll(older)
	restart := func(id int, more ...string) {
		t.Helper()
		end(t, runs[id-1])
		runs[id-1] = n.start(id, more...)
		runs[id-1].Says("msg=serving")
	}
	level := func(id, want int) {
		t.Helper()
		until(t, fmt.Sprintf("mntr to have level %d", want), func() bool {
			return strings.Contains(mntr(t, n.clients[id-1]), fmt.Sprintf("zk_feature_level\t%d\n", want))
		})
	}
	restart(1)
	restart(2)
	for id := range 3 {
		level(id+1, 1)
	}
	restart(1, older) // before going on, one new build gets HoldLevel
	restart(3)
	n.writes(3, "/new")
	for id := 3; id > 0; id-- {
		level(id, 1)
		restart(id, older)
	}
	n.writes(1, "/old")

	for id := range 3 {
		restart(id + 1)
	}
	for id, p := range runs {
		p.Says(fmt.Sprintf(
			"msg=\"feature level raised\" member=%d shard=1 level=%d", id+1, engine.LevelMax))
		level(id+1, engine.LevelMax)
	}
	// A member that was killed may have no image of the new level. Then its log or the others tell.
	runs[2].Signal(syscall.SIGKILL)
	runs[2].ExitCode()
	refused := n.start(3, older)
	refused.Says("start a build ")
	refused.Signal(syscall.SIGTERM)
	refused.ExitCode()
	n.writes(1, "/without")
	runs[2] = n.start(3)
	runs[2].Says("msg=serving")

	end(t, runs[2])
	code, stdout, stderr := vivarium("check", n.data(3))
	if code != exitOK {
		t.Errorf("check: %d, %s", code, stderr)
	}
	contains(t, stdout, fmt.Sprintf("image of level %d", engine.LevelMax))
	refused = n.start(3, older)
	if code := refused.ExitCode(); code != exitFailed {
		t.Errorf("it ends with %d", code)
	}
	refused.Says(fmt.Sprintf("the ensemble is at level %d and this member is limited to level 1: "+
		"start a build that reads level %[1]d", engine.LevelMax))
	n.start(3).Says("msg=serving")
	n.writes(3, "/with")
}
