package campaign

import (
	"strings"
	"testing"
	"time"
)

// A badHistory is a history in which a check must find a violation. good differs only by being
// correct.
type badHistory struct {
	name      string
	bad, good past
	want      string // must be contained in a violation
}

// hold runs a check over histories.
func hold(t *testing.T, find func(*past) []string, cases []badHistory) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if found := find(&c.bad); !strings.Contains(strings.Join(found, "\n"), c.want) || len(found) == 0 {
				t.Errorf("found %q, want %q", found, c.want)
			}
			if found := find(&c.good); len(found) > 0 {
				t.Errorf("found in a good history: %q", found)
			}
		})
	}
}

// at returns an op that lasted from one millisecond to another.
func at(from, to int, o op) op {
	o.Begin, o.End = time.Duration(from)*time.Millisecond, time.Duration(to)*time.Millisecond
	if o.Outcome == "" {
		o.Outcome = applied
	}
	if o.Outcome == unknown {
		o.End = never
	}
	if o.Session == "" {
		o.Session = o.Client
	}
	return o
}

func history1(ops ...op) past { return past{Ops: ops} }
