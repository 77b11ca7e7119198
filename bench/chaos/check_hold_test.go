//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

func granted(token embed.Zxid, from, until int, writes ...guarded) grant {
	return grant{Path: "/l", Member: 1, Token: lock.Token{Zxid: token}, From: time.Duration(from), Until: time.Duration(until), Guarded: writes}
}

func TestFindDoubleGrants(t *testing.T) {
	of := func(g ...grant) past { return past{Grants: g} }
	hold(t, findDoubleGrants, []badHistory{
		{"two hold at once", of(granted(1, 10, 30), granted(2, 20, 40)), of(granted(1, 10, 19), granted(2, 20, 40)), "while"},
		{"the last but one still holds", of(granted(1, 10, 35), granted(2, 50, 0), granted(3, 30, 40)), of(granted(1, 10, 25), granted(2, 50, 0), granted(3, 30, 40)), "while"},
		{"two grants have one token", of(granted(1, 10, 15), granted(1, 20, 25)), of(granted(1, 10, 15), granted(2, 20, 25)), "one token"},
		{"an older token is used later", of(granted(2, 10, 15), granted(1, 20, 25)), of(granted(2, 30, 35), granted(1, 20, 25)), "while"},
	})
	// Who was stopped between the grant and the look at the clock learns at the first question that it is over.
	if found := findDoubleGrants(&past{Grants: []grant{granted(1, 50, 0), granted(2, 20, 40)}}); len(found) > 0 {
		t.Errorf("a hold that nobody was told of: %q", found)
	}
}

func TestFindStaleWrites(t *testing.T) {
	of := func(g ...grant) past { return past{Grants: g} }
	w := func(z embed.Zxid, o outcome, ended bool) guarded { return guarded{Outcome: o, Mzxid: z, Ended: ended} }
	hold(t, findStaleWrites, []badHistory{
		{"a write after the end passes", of(granted(1, 10, 20, w(5, applied, true))), of(granted(1, 10, 20, w(0, refused, true))), "had ended"},
		{"a write passes after one of the next holder", of(granted(1, 10, 20, w(7, applied, false)), granted(2, 21, 30, w(6, applied, false))), of(granted(1, 10, 20, w(5, applied, false)), granted(2, 21, 30, w(6, applied, false))), "passed at zxid 7"},
	})
}

func TestFindBlindObservers(t *testing.T) {
	of := func(s ...sighting) past { return past{Observers: []observation{{Path: "/e", Seen: s}}} }
	at := func(token embed.Zxid, value string) sighting { return sighting{lock.Token{Zxid: token}, value} }
	hold(t, findBlindObservers, []badHistory{
		{"an older leader comes back", of(at(2, "b#1.0"), at(1, "a#1.0")), of(at(1, "a#1.0"), at(2, "b#1.0")), "after"},
		{"a value goes back", of(at(1, "a#1.5"), at(1, "a#1.0")), of(at(1, "a#1.0"), at(1, "a#1.5")), "after"},
		{"one turn has two leaders", of(at(1, "a#1.0"), at(1, "b#1.5")), of(at(1, "a#1.0"), at(2, "b#1.5")), "two leaders"},
	})
}
