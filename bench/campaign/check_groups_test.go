package campaign

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

func TestFindOldValues(t *testing.T) {
	of := func(token embed.Zxid, until int) past {
		o := at(10, 20, op{Client: "c", Call: callRollOut, Path: "/a/rollout", Zxid: 7})
		g := granted(token, int(5*time.Millisecond), int(time.Duration(until)*time.Millisecond))
		g.Path, g.Kind = "/a/rollout/c#1", kindValue
		return past{Ops: []op{o}, Grants: []grant{g}}
	}
	hold(t, findOldValues, []badHistory{
		{"an old value is used after the end", of(6, 21), of(6, 20), "earlier value"},
		{"an old value is used beside the new one", of(6, 30), of(7, 30), "earlier value"},
	})
}

func TestFindEarlyPasses(t *testing.T) {
	enter := func(from, passed int) op {
		o := at(from, 100, op{Client: "c", Call: callEnter, Path: "/a/meet/1-double"})
		o.Passed = time.Duration(passed) * time.Millisecond
		return o
	}
	hold(t, findEarlyPasses, []badHistory{
		{"one passes alone", history1(enter(1, 5)), history1(enter(1, 0)), "only 1"},
		{"one passes before the other has come", history1(enter(1, 5), enter(6, 0)), history1(enter(1, 7), enter(6, 0)), "only 1"},
	})
}

func TestFindThroughGates(t *testing.T) {
	of := func(c call, from, to int, o outcome) op {
		return at(from, to, op{Client: "c", Call: c, Path: "/a/meet/1-gate", Outcome: o})
	}
	shut, wait := of(callShut, 10, 20, applied), of(callGate, 30, 40, applied)
	hold(t, findThroughGates, []badHistory{
		{"one passes a gate that is shut", history1(shut, wait), history1(shut, of(callGate, 19, 40, applied)), "was shut"},
		{"it was opened before", history1(of(callUnlock, 1, 9, applied), shut, wait), history1(of(callUnlock, 1, 11, applied), shut, wait), "was shut"},
		{"it was not opened", history1(shut, of(callUnlock, 22, 25, notApplied), wait), history1(shut, of(callUnlock, 22, 25, unknown), wait), "was shut"},
		{"it is opened later", history1(shut, wait, of(callUnlock, 41, 45, applied)), history1(shut, wait, of(callUnlock, 39, 45, applied)), "was shut"},
	})
}

func TestFindShortCountdowns(t *testing.T) {
	done := func(name string, from int, o outcome) op {
		return at(from, 90, op{Client: "c", Call: callDone, Path: "/a/countdowns/0-1", Data: name, Outcome: o})
	}
	wait := at(1, 95, op{Client: "c", Call: callWait, Path: "/a/countdowns/0-1", Passed: 10 * time.Millisecond})
	hold(t, findShortCountdowns, []badHistory{
		{"a name counts twice", history1(done("a", 1, applied), done("a", 2, applied), wait), history1(done("a", 1, applied), done("b", 2, applied), wait), `"b"`},
		{"a name is counted later", history1(done("a", 1, applied), done("b", 11, applied), wait), history1(done("a", 1, applied), done("b", 9, unknown), wait), `"b"`},
		{"a name is not counted", history1(done("a", 1, applied), done("b", 9, notApplied), wait), history1(done("a", 1, applied), done("b", 9, applied), wait), `"b"`},
	})
}

func TestStrays(t *testing.T) {
	were := []string{"", "a", "a b", "b", "a"}
	for _, told := range [][]string{{"a"}, {"", "b", "a"}, were} {
		if why := strays(told, were); why != "" {
			t.Errorf("%q: %s", told, why)
		}
	}
	for _, told := range [][]string{nil, {"c", "a"}, {"b", "", "a"}, {"a", "b"}} {
		if strays(told, were) == "" {
			t.Errorf("%q may be told of %q", told, were)
		}
	}
}
