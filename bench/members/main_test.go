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
	if os.Getenv(processVariable) != "" {
		serve()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A small crowd and small learners are measured, and the report has their figures.
func TestRun(t *testing.T) {
	testkit.ByNight(t, "it measures whole ensembles for a while")
	s := settings{members: []int{2, 4}, rate: 100, systems: systems, znodes: 2000, rounds: 1, window: time.Second, dir: t.TempDir()}
	var out bytes.Buffer
	if err := s.run(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 members: the leader uses", "4 members: the leader uses", "etcd: a learner served after", "vivarium: a learner served after", "p50 of a write", "seconds until it serves"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, &out)
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{nil, {"-systems", "zookeeper"}, {"-members", "0"}, {"-members", "3", "-rounds", "0"},
		{"-members", "3", "-window", "0s"}, {"-members", "3", "now"}} {
		if s, err := parse(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: %+v", args, s)
		}
	}
	s, err := parse([]string{"-members", "3,50", "-systems", "vivarium,etcd"}, &bytes.Buffer{})
	if err != nil || len(s.members) != 2 || len(s.systems) != 2 || s.znodes != 1000000 {
		t.Errorf("%+v, %v", s, err)
	}
}
