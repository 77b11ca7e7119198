//go:build linux

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

// A suite that only some systems have measures all its lines, in all of these that are installed.
func TestSuites(t *testing.T) {
	s := settings{suites: []string{"backup"}, systems: order, window: 60 * time.Millisecond, rounds: 2, dir: t.TempDir()}
	if testkit.Night() {
		s.suites = append(s.suites, "shards", "members", "learner", "view", "counter", "task", "partition")
	}
	s.results = t.TempDir()
	var out bytes.Buffer
	if err := s.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "FAILED") {
		t.Errorf("some failed:\n%s", &out)
	}
	for _, name := range s.suites {
		one, _ := suiteOf(name)
		for _, l := range one.lines {
			for _, system := range one.among {
				row := fmt.Sprintf("round %d: %-8s %-8s %7d  %-10s ", s.roundsOf(l), one.name, l.On, l.Clients, system)
				if !strings.Contains(out.String(), row) && !strings.Contains(out.String(), system+" is left out") {
					t.Errorf("no %q:\n%s", row, &out)
				}
			}
		}
	}
	for name, wants := range map[string][]string{
		"backup":  {"times vivarium alone, with", "backup_ms"},
		"shards":  {"times vivarium 1 shard, with", "times dragonboat 1 shard", "writing_calls_per_s"},
		"members": {"cores_at_rest"},
	} {
		for _, want := range wants {
			if slices.Contains(s.suites, name) && !strings.Contains(out.String(), want) {
				t.Errorf("no %q:\n%s", want, &out)
			}
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Each recipe's line has the figure that it names, and asks for a measurement only if none is left.
func TestRecipes(t *testing.T) {
	p := &fakePlayer{}
	w := &worker{setup: setup{Suite: "view", Window: time.Second}, e: p, played: make(map[line][]float64), warm: make(map[string]bool)}
	for i, want := range []time.Duration{time.Millisecond, time.Millisecond, 2 * time.Millisecond, 2 * time.Millisecond} {
		f, err := measureRecipe(w, recipeLines("view")[i/2])
		if err != nil || f.P50 != want || f.Rate != 1/want.Seconds() {
			t.Errorf("measurement %d: %+v, %v, want %v", i, f, err, want)
		}
	}
	if want := []string{"view /view1 1000", "view /view2 10000", "view /view3 10000"}; !slices.Equal(p.asked, want) {
		t.Errorf("asked %q, want %q", p.asked, want)
	}
}

type fakePlayer struct {
	ensemble
	asked []string
}

func (p *fakePlayer) play(words string) ([]float64, error) {
	p.asked = append(p.asked, words)
	return []float64{1, 2}, nil
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
func TestSpeaker(t *testing.T) {
	dir := t.TempDir()
	member, err := vivariumMember(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startSpeaker(member.of("nobody"), dir+"/log"); err == nil || !strings.Contains(err.Error(), "wrong arguments") {
		t.Errorf("a process that ends: %v", err)
	}
	c, err := startSpeaker(exec.Command("sh", "-c", "echo ready; while read what; do [ $what = wait ] || echo $what; done"), dir+"/log")
	if err != nil {
		t.Fatal(err)
	}
	defer c.kill()
	if _, err := c.ask("other", patience); err == nil {
		t.Error("a word is a number")
	}
	if _, err := c.ask("wait", time.Millisecond); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("a process that hangs: %v", err)
	}
	if _, err := c.ask("other", patience); err == nil {
		t.Error("it is asked again")
	}
}
