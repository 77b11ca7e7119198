package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// findOldValues checks rollouts. Once somebody knows that all have applied a value, nobody hears
// that an earlier one may still be used.
func findOldValues(p *past) (found []string) {
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call != callRollOut || o.Outcome != applied {
			continue
		}
		for _, g := range p.Grants {
			if g.Kind == kindValue && strings.HasPrefix(g.Path, o.Path+"/") && g.Token.Zxid < o.Zxid && g.Until > o.End {
				found = append(found, fmt.Sprintf("%s: all had applied zxid %d at %.6f, but %v still used an earlier value", o.Path, o.Zxid, o.End.Seconds(), g))
			}
		}
	}
	return found
}

// findEarlyPasses checks that nobody passed a double barrier before enough had come.
func findEarlyPasses(p *past) (found []string) {
	begun := make(map[string][]time.Duration) // by path, in order
	for i := range p.Ops {
		if o := &p.Ops[i]; o.Call == callEnter {
			begun[o.Path] = append(begun[o.Path], o.Begin)
		}
	}
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call != callEnter || o.Passed == 0 {
			continue
		}
		n := 0
		for _, at := range begun[o.Path] {
			if at <= o.Passed {
				n++
			}
		}
		if n < enterers {
			found = append(found, fmt.Sprintf("passed at %.6f, when only %d had come: %v", o.Passed.Seconds(), n, o))
		}
	}
	return found
}

// findShortCountdowns checks that nobody heard that a countdown was over before somebody may have
// been done with each of its names.
func findShortCountdowns(p *past) (found []string) {
	begun := make(map[[2]string]time.Duration) // by path and name: the first
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call != callDone || o.Outcome != applied && o.Outcome != unknown {
			continue
		}
		if first, ok := begun[[2]string{o.Path, o.Data}]; !ok || o.Begin < first {
			begun[[2]string{o.Path, o.Data}] = o.Begin
		}
	}
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call != callWait || o.Passed == 0 {
			continue
		}
		for _, name := range countdownNames {
			if at, ok := begun[[2]string{o.Path, name}]; !ok || at > o.Passed {
				found = append(found, fmt.Sprintf("passed at %.6f, when nobody had been done with %q: %v", o.Passed.Seconds(), name, o))
			}
		}
	}
	return found
}

// strays describes how what somebody was told differs from the states that were, or returns nothing.
// Each must be one of them, in their order, and the last must be the newest.
func strays(told, were []string) string {
	if len(told) == 0 {
		return "nothing was told"
	}
	at := 0
	for i, now := range told {
		next := slices.Index(were[at:], now)
		if next < 0 {
			return fmt.Sprintf("%q was told after %q, but the states were %q", now, told[:i], were)
		}
		at += next
	}
	if last, newest := told[len(told)-1], were[len(were)-1]; last != newest {
		return fmt.Sprintf("%q was told last, but the newest state is %q", last, newest)
	}
	return ""
}

// findThroughGates checks that nobody passed a gate that was shut before, if nobody may have opened
// it since.
func findThroughGates(p *past) (found []string) {
	byPath := make(map[string][]*op)
	for i := range p.Ops {
		switch o := &p.Ops[i]; o.Call {
		case callGate, callShut, callUnlock:
			byPath[o.Path] = append(byPath[o.Path], o)
		}
	}
	for _, all := range byPath {
		for _, w := range all {
			if w.Call != callGate || w.Outcome != applied {
				continue
			}
			var shut *op // last before w
			for _, o := range all {
				if o.Call == callShut && o.Outcome == applied && o.End < w.Begin && (shut == nil || o.Begin > shut.Begin) {
					shut = o
				}
			}
			if shut == nil {
				continue
			}
			opened := false
			for _, o := range all {
				opened = opened || o.Call == callUnlock && (o.Outcome == applied || o.Outcome == unknown) && o.Begin < w.End && o.End > shut.Begin
			}
			if !opened {
				found = append(found, fmt.Sprintf("%v, although it was shut: %v", w, shut))
			}
		}
	}
	return found
}
