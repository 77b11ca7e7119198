//go:build unix && !member

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		runMember()
		return
	}
	os.Exit(m.Run())
}

// Three processes of a build are rolled to a newer one while clients use them and a random process
// is killed now and then. They go back while the level is held, and are refused after the rise.
// The members stay, or the ensemble grows in the newer build, and loses a founder.
func TestUpgrade(t *testing.T) {
	testkit.ByNight(t, "it plays campaigns in real time")
	for _, test := range []struct {
		name   string
		args   []string
		checks []string
	}{
		{"1 shard", []string{"-shards", "1"}, nil},
		{"4 shards, grows", []string{"-shards", "4", "-grow"}, []string{"rolled ensemble grown", "removed directory refused", "directory unchanged by the older build"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := []string{"-d", "20s", "-members", "3", "-faults", "kill one", "-upgrade", "previous"}
			s, from, err := parse(append(args, test.args...), t.Output())
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			violated, err := upgradeFrom(from, s, io.MultiWriter(&out, t.Output()))
			if err != nil || violated {
				t.Errorf("violated: %t, %v", violated, err)
			}
			for _, check := range append(test.checks, "ensemble rolled to the newer build") {
				if !strings.Contains(out.String(), check) {
					t.Errorf("not checked: %s", check)
				}
			}
		})
	}
}

// Who has no history learns what is missing.
func TestBuildOld_WithoutTheCommit(t *testing.T) {
	if _, _, err := buildOld("0000000000000000000000000000000000000001", t.TempDir()); !errors.Is(err, errNoHistory) {
		t.Error(err)
	}
}
