//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(processVariable) != "" {
		serve(os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A small run measures every line in all systems that are installed. The report has a figure of
// each, or says what is missing.
func TestRun(t *testing.T) {
	testkit.ByNight(t, "it measures whole ensembles for a while")
	s := settings{suites: suites, systems: systems, members: 200, parts: 30, tasks: 100, rounds: 1, window: 100 * time.Millisecond, dir: t.TempDir()}
	var out bytes.Buffer
	if err := s.run(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "FAILED") {
		t.Errorf("some failed:\n%s", &out)
	}
	for _, l := range lines {
		for _, f := range l.figures {
			for _, name := range systems {
				if strings.Contains(out.String(), name+" is left out") || name == "curator" && l.suite == "partition" {
					continue
				}
				has := func(row string) bool {
					w := strings.Join(strings.Fields(row), " ")
					return strings.HasPrefix(w, fmt.Sprintf("%s %s %s %s ", l.suite, l.name, f.name, name))
				}
				if !slices.ContainsFunc(strings.Split(out.String(), "\n"), has) {
					t.Errorf("no row of %s, %s, %s, %s:\n%s", l.suite, l.name, f.name, name, &out)
				}
			}
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-systems", "etcd"}, {"-suite", "locks"}, {"-members", "0"}, {"-parts", "2"}, {"-tasks", "0"},
		{"-rounds", "0"}, {"-d", "0s"}, {"now"}} {
		if s, err := parse(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: %+v", args, s)
		}
	}
	s, err := parse([]string{"-systems", "curator,vivarium", "-suite", "task"}, &bytes.Buffer{})
	if err != nil || !slices.Equal(s.systems, []string{"vivarium", "curator"}) || len(s.suites) != 1 || s.members != 10000 {
		t.Errorf("%+v, %v", s, err)
	}
}

// The events of two members may come in any order.
func TestOwners(t *testing.T) {
	begun := time.Unix(0, 1000)
	o := newOwners(2)
	for _, e := range []event{{0, true, 10, "a"}, {0, true, 10, "b"}} {
		o.see(e)
	}
	if !o.settled(1) || o.settled(2) {
		t.Errorf("one member has both: %+v", o)
	}
	o.begin()
	o.see(event{1, true, 1500, "b"})
	if o.settled(2) {
		t.Error("it has given nothing up yet")
	}
	o.see(event{0, false, 1100, "b"})
	if !o.settled(2) {
		t.Errorf("each has one: %+v", o)
	}
	if all, idle, err := o.took(begun); all != 500 || idle != 200 || err != nil {
		t.Errorf("it took %d, a part was idle for %d: %v", all, idle, err)
	}
	o.begin()
	o.lose(1, time.Unix(0, 2000))
	o.see(event{0, true, 2300, "b"})
	if all, idle, err := o.took(time.Unix(0, 2000)); !o.settled(1) || all != 300 || idle != 150 || err != nil {
		t.Errorf("it took %d, a part was idle for %d: %v; %+v", all, idle, err, o)
	}
	o.begin()
	o.see(event{1, true, 3000, "b"})
	o.see(event{0, false, 3001, "b"})
	if _, _, err := o.took(begun); err == nil {
		t.Error("two owners go unnoticed")
	}
}

func TestReadEvent(t *testing.T) {
	if e, err := readEvent(2, "- 17 p1"); err != nil || e != (event{2, false, 17, "p1"}) {
		t.Errorf("%+v, %v", e, err)
	}
	for _, text := range []string{"", "+ 17", "* 17 p1", "+ x p1"} {
		if e, err := readEvent(0, text); err == nil {
			t.Errorf("%q is %+v", text, e)
		}
	}
}

// A process that ends, one that says what is no answer, and one that hangs are errors.
func TestClient(t *testing.T) {
	dir := t.TempDir()
	command, err := vivarium()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startClient(command("nobody"), dir+"/log"); err == nil || !strings.Contains(err.Error(), "wrong arguments") {
		t.Errorf("a process that ends: %v", err)
	}
	c, err := startClient(exec.Command("sh", "-c", "echo ready; while read what; do [ $what = wait ] || echo $what; done"), dir+"/log")
	if err != nil {
		t.Fatal(err)
	}
	defer c.kill()
	if _, err := c.ask("other", 1, patience); err == nil {
		t.Error("a word is a number")
	}
	if _, err := c.ask("wait", 1, time.Millisecond); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("a process that hangs: %v", err)
	}
	if _, err := c.ask("other", 1, patience); err == nil {
		t.Error("it is asked again")
	}
}
