//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// A system is what is measured.
type system struct {
	name string
	// command starts a process of the system. Its first argument says which: "client" or "member".
	command func(args ...string) *exec.Cmd
	hosts   string // of ZooKeeper's servers, separated by commas; empty for Vivarium
	client  *client
}

// run measures everything and prints the report. A measurement that fails is an error in the
// report.
func (s settings) run(out io.Writer) error {
	dir, err := os.MkdirTemp(s.dir, "recipes-")
	if err != nil {
		return err
	}
	defer remove(dir)
	all, stop, err := s.startSystems(dir, out)
	defer stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "three members each, fsync in %s; %d rounds, %v each; %d members, %d tasks, %d parts\n",
		dir, s.rounds, s.window, s.members, s.tasks, s.parts)
	rep := newReport(all, out)
	for round := range s.rounds + 1 {
		for _, l := range lines {
			if slices.Contains(s.suites, l.suite) && l.words != nil {
				s.turn(rep, all, l, round)
			}
		}
		if slices.Contains(s.suites, "partition") && round > 0 {
			for i := range all { // the first system of one round is the last of the next
				sys := all[(i+round)%len(all)]
				if own := filepath.Join(dir, fmt.Sprintf("parts-%s-%d", sys.name, round)); sys.name != "curator" { // which has none
					joins, dies, err := s.handOvers(sys, own, round)
					rep.add(line{suite: "partition", name: "a member joins"}, sys.name, round, joins, err)
					rep.add(line{suite: "partition", name: "a member dies"}, sys.name, round, dies, err)
				}
			}
		}
	}
	rep.print()
	return nil
}

// turn measures a line in all systems. Round zero is the warm-up: it is shorter and does not count.
func (s settings) turn(rep *report, all []*system, l line, round int) {
	if round == 0 {
		s.members, s.tasks, s.window = (s.members+9)/10, (s.tasks+9)/10, max(s.window/4, time.Millisecond)
	}
	for i := range all {
		sys := all[(i+round)%len(all)]
		place := strings.NewReplacer(" ", "-", ",", "").Replace(fmt.Sprint(sys.name, " ", l.suite, " ", l.name, " ", round))
		numbers, err := sys.client.ask(l.words(s, place), len(l.figures), s.window+patience)
		if round > 0 {
			rep.add(l, sys.name, round, numbers, err)
		}
	}
}

// startSystems starts what the systems need. It says what is missing, and leaves that out.
func (s settings) startSystems(dir string, out io.Writer) (all []*system, stop func(), err error) {
	var z *servers
	stop = func() {
		for _, sys := range all {
			if sys.client != nil {
				sys.client.kill()
			}
		}
		if z != nil {
			z.close()
		}
	}
	for _, name := range s.systems {
		sys := &system{name: name}
		var missing error
		switch {
		case name == "vivarium":
			sys.command, err = vivarium()
		case !zookeeper.Installed():
			missing = fmt.Errorf("%s", zookeeper.Missing)
		case name == "kazoo":
			sys.command, missing = kazoo(dir)
		case name == "curator":
			sys.command, missing = curator(dir)
		}
		if missing != nil {
			fmt.Fprintf(out, "%s is left out: %v\n", name, missing)
			continue
		}
		if name != "vivarium" && z == nil && err == nil {
			z, err = startServers(dir)
		}
		if err != nil {
			return all, stop, err
		}
		all = append(all, sys)
		where := filepath.Join(dir, "vivarium")
		if name != "vivarium" {
			sys.hosts = strings.Join(z.addrs, ",")
			where = sys.hosts
		}
		if sys.client, err = startClient(sys.command("client", where), filepath.Join(dir, name+".log")); err != nil {
			return all, stop, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, stop, nil
}

// remove removes a directory. It tries for a while, because processes may take a moment to end.
func remove(dir string) {
	for range 100 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
