//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// For a while, greedy clients neither end a member nor take more of it than they may. How long the others
// wait depends on the machine.
func TestRun(t *testing.T) {
	testkit.ByNight(t, "it fills an ensemble of processes with clients")
	var out bytes.Buffer
	if _, err := run(10*time.Second, "", &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"member 3, before:", "alone: member 3, a write", "member 3: at most", "member 3, a new session"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, &out)
		}
	}
}
