//go:build linux

package main

import (
	"strings"
	"testing"
	"time"
)

// A short run measures both and compares them.
func TestRun(t *testing.T) {
	var out strings.Builder
	s := settings{znodes: 1200, size: 100, writers: 3, rounds: 2, window: 300 * time.Millisecond, dir: t.TempDir()}
	if err := s.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"round 2, alone ", "round 2, beside", "backups of 0.", "ratio"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, &out)
		}
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"more"}, {"-window", "-1s"}, {"-none"}} {
		if _, err := parse(args, new(strings.Builder)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
