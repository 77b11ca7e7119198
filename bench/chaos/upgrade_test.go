//go:build unix && !member

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/bench/campaign"
)

func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		runMember()
		return
	}
	os.Exit(m.Run())
}

// Three processes of the release before are rolled to this build while clients use them and a
// random process is killed now and then. They go back while the level is held, and are refused
// after the rise.
func TestUpgrade(t *testing.T) {
	old, level, err := buildOld("previous", t.TempDir())
	if errors.Is(err, errNoHistory) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			s, _, err := parse([]string{"-d", "20s", "-members", "3", "-shards", fmt.Sprint(shards), "-faults", "kill one", "-upgrade", "previous"}, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			s.Upgrade.From = level
			var out bytes.Buffer
			violated, err := campaign.Run(s, processes{old}, io.MultiWriter(&out, t.Output()))
			if err != nil || violated || !strings.Contains(out.String(), "ensemble rolled to the present build") {
				t.Errorf("violated: %t, %v", violated, err)
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
