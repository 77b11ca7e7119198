//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(blockVariable) != "" {
		runBlocks()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Every system measures something with several shards, and the report contains it.
func TestRun(t *testing.T) {
	testkit.ByNight(t, "it measures whole ensembles for a while")
	s := settings{systems: systemNames(), shards: []int{1, 2}, writers: []int{1, 8}, rounds: 1, window: 500 * time.Millisecond, dir: t.TempDir()}
	for _, name := range s.systems {
		b := block{System: name, Shards: 2, Writers: s.writers, Window: s.window}
		r, err := b.spawn(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Load) != 2 || r.Load[0].Rate <= 0 || r.Load[1].Rate <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	s.systems = []string{"vivarium"}
	var out bytes.Buffer
	if err := s.run(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{s.dir, "1 shards", "2 shards", "vivarium"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, &out)
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-systems", "etcd"}, {"-shards", "0"}, {"-writers", "many"}, {"-rounds", "0"}, {"-window", "0s"}, {"now"}} {
		var out bytes.Buffer
		if s, err := parse(args, &out); err == nil {
			t.Errorf("%v: %+v", args, s)
		}
	}
	if s, err := parse(nil, &bytes.Buffer{}); err != nil || s.rounds != 3 || len(s.shards) != 4 {
		t.Errorf("without flags: %+v, %v", s, err)
	}
}
