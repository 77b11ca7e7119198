//go:build unix

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// findDoubleGrants checks that once somebody had a lock or led, no earlier holder was told that it still did, and that every
// grant has a token of its own. When Lock returned says nothing of the order: its caller may have been stopped since.
func findDoubleGrants(p *past) (found []string) {
	byPath := make(map[string][]grant)
	for _, g := range p.Grants {
		byPath[g.Path] = append(byPath[g.Path], g)
	}
	for path, all := range byPath {
		slices.SortFunc(all, func(a, b grant) int { return a.Token.Compare(b.Token) })
		var longest grant // of those with smaller tokens, who was told longest
		for i, g := range all {
			if i > 0 && all[i-1].Token == g.Token {
				found = append(found, fmt.Sprintf("%s: %v and %v have one token", path, all[i-1], g))
			}
			if i > 0 && longest.Until >= g.From {
				found = append(found, fmt.Sprintf("%s: %v was told that it holds while %v had it", path, longest, g))
			}
			if g.Until > longest.Until {
				longest = g
			}
		}
	}
	return found
}

// String says whose grant it was.
func (g grant) String() string {
	return fmt.Sprintf("the holder on member %d, run %d, with token %v (%.6f to %.6f)", g.Member, g.Run, g.Token, g.From.Seconds(), g.Until.Seconds())
}

// findStaleWrites checks the writes that were guarded by holds: none of a hold that had ended, and none of an earlier holder
// after one of a later.
func findStaleWrites(p *past) (found []string) {
	type write struct {
		grant
		guarded
	}
	byPath := make(map[string][]write)
	for _, g := range p.Grants {
		for _, w := range g.Guarded {
			switch {
			case w.Outcome != applied:
			case w.Ended:
				found = append(found, fmt.Sprintf("%s: the write %q of %v passed when the hold had ended", g.Path, w.Data, g))
			default:
				byPath[g.Path] = append(byPath[g.Path], write{g, w})
			}
		}
	}
	for path, all := range byPath {
		slices.SortFunc(all, func(a, b write) int { return cmp.Compare(a.Mzxid, b.Mzxid) })
		for i := 1; i < len(all); i++ {
			if a, b := all[i-1], all[i]; b.Token.Compare(a.Token) < 0 {
				found = append(found, fmt.Sprintf("%s: the write %q of %v passed at zxid %d, after %q of %v at %d", path, b.guarded.Data, b.grant, b.Mzxid, a.guarded.Data, a.grant, a.Mzxid))
			}
		}
	}
	return found
}

// findBlindObservers checks what each observer of an election saw: leaders in the order of their tokens, each of them with
// values of its own in the order it published them, none of them twice in a row.
func findBlindObservers(p *past) (found []string) {
	for _, o := range p.Observers {
		for i := 1; i < len(o.Seen); i++ {
			a, b := o.Seen[i-1], o.Seen[i]
			whoA, nA := split(a.Value)
			whoB, nB := split(b.Value)
			switch c := b.Token.Compare(a.Token); {
			case c < 0:
				found = append(found, fmt.Sprintf("an observer of %s saw %v after %v", o.Path, b, a))
			case c == 0 && whoA != whoB:
				found = append(found, fmt.Sprintf("an observer of %s saw one token with two leaders: %v and %v", o.Path, a, b))
			case c == 0 && nB <= nA:
				found = append(found, fmt.Sprintf("an observer of %s saw the value %v after %v", o.Path, b, a))
			}
		}
	}
	return found
}

// split takes a published value apart: who published it, and as which of its values.
func split(value string) (who string, n int) {
	at := strings.LastIndexByte(value, '.')
	if at < 0 {
		return value, 0
	}
	_, _ = fmt.Sscan(value[at+1:], &n)
	return value[:at], n
}
