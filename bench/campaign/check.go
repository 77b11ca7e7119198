package campaign

import (
	"os"
	"strings"
)

// A check looks for one kind of broken promise in a history and describes each violation it finds.
// Calls under way count as having an unknown outcome, so a history may be checked while it grows.
type check struct {
	promise string
	find    func(p *past) []string
}

var checks = []check{
	{"ordered", findDisorder},
	{"single image", findTimeTravel},
	{"exactly once", findTwoStats},
	{"told first", findDoubleGrants},
	{"tokens grow", findSmallTokens},
	{"within the limit", findTooManyPermits},
	{"delayed", findShortDelays},
	{"fenced", findStaleWrites},
	{"told who asks", findDeaf},
	{"withdrawn", findWithdrawnLeaders},
	{"election", findBlindObservers},
	{"watch no gap", findGaps},
	{"expiry bounded", findEarlyExpiry},
	{"expiry bounded", findEarlyEnds},
	{"no orphan", findLeftovers},
	{"TTL", findEarlyDeaths},
	{"TTL", findImmortals},
	{"exactly once", findLostCounts},
	{"exactly once", findTwiceGiven},
	{"exactly once", findOldTimes},
	{"exactly once", findForks},
	{"done once", findComebacks},
	{"done once", findOldTicks},
	{"done once", findSecondOnces},
	{"rolled out", findOldValues},
	{"barrier", findEarlyPasses},
	{"barrier", findThroughGates},
	{"barrier", findShortCountdowns},
}

// checkSoFar makes the checks that are possible at any time.
func checkSoFar(p *past, dir string, rep *report) {
	checkEach(p, rep)
	checkLinear(p, rep, dir, false)
}

func checkEach(p *past, rep *report) {
	for _, c := range checks {
		for _, text := range c.find(p) {
			rep.violate(c.promise, "%s", text)
		}
	}
}

// checkAll checks a complete history, with the final tree.
func checkAll(p *past, tree []entry, dir string, rep *report) {
	if p.Before != nil {
		checkRecoveries(p, tree, dir, rep)
	}
	if tree != nil {
		for _, text := range findLosses(p, tree) {
			rep.violate("exactly once", "%s", text)
		}
		for _, text := range findWrongSums(p, tree) {
			rep.violate("exactly once", "%s", text)
		}
		for _, text := range findLostSwaps(p, tree) {
			rep.violate("exactly once", "%s", text)
		}
		for _, text := range findMisdeeds(p, tree) {
			rep.violate("done once", "%s", text)
		}
		p.Ops = append(p.Ops, lastReads(p, tree)...)
	}
	checkEach(p, rep)
	checkLinear(p, rep, dir, true)
	countChecked(p, rep)
}

// checkLog reports a violation if a log contains what no member may ever log.
func checkLog(name string, rep *report) {
	text, err := os.ReadFile(name)
	if err != nil {
		rep.violate("harness", "%v", err)
		return
	}
	for line := range strings.Lines(string(text)) {
		for _, bad := range []string{"WARNING: DATA RACE", "panic:", "fatal error:"} {
			if strings.Contains(line, bad) {
				rep.violate("guest", "%s says %s", name, strings.TrimSpace(line))
				return
			}
		}
	}
}
