//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// settings are the flags.
type settings struct {
	suites  []string
	systems []string
	window  time.Duration
	rounds  int
	dir     string
	json    string
}

func main() {
	if os.Getenv(workerVariable) != "" {
		work()
		return
	}
	s, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = onDisk(s.dir)
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		err = s.run(ctx, os.Stdout)
		stop()
	}
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

// onDisk refuses a directory where fsync does nothing.
func onDisk(dir string) error {
	if dir == "" {
		dir = os.TempDir()
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("-dir: %s: %w", dir, err)
	}
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	if fs.Type == tmpfs || fs.Type == ramfs {
		return fmt.Errorf("-dir: %s is in memory: choose one on the disk to be measured", dir)
	}
	return nil
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(out)
	suiteList := set.String("suite", strings.Join(suiteNames(), ","), "what is measured; gateway is for vivarium and zookeeper")
	systemList := set.String("systems", strings.Join(order, ","), "of what")
	set.DurationVar(&s.window, "d", 2*time.Second, "how long each measurement takes; below a second what is counted in pieces shrinks too")
	set.IntVar(&s.rounds, "rounds", 3, "how often everything is measured")
	set.StringVar(&s.dir, "dir", "", "where the members write, on the disk to be measured; empty means the directory for temporary files")
	set.StringVar(&s.json, "json", "", "a file that the figures are written to as well")
	if err := set.Parse(args); err != nil {
		return s, err
	}
	if set.NArg() > 0 {
		return s, fmt.Errorf("%q is no flag", set.Arg(0))
	}
	var err error
	if s.suites, err = choose("-suite", *suiteList, suiteNames()); err != nil {
		return s, err
	}
	if s.systems, err = choose("-systems", *systemList, order); err != nil {
		return s, err
	}
	if s.rounds < 1 || s.window <= 0 {
		return s, fmt.Errorf("-rounds is %d and -d %v: want more than 0", s.rounds, s.window)
	}
	return s, nil
}

// choose reads names with commas between, and returns them in the order of what there is.
func choose(option, list string, all []string) (chosen []string, err error) {
	wanted := strings.Split(list, ",")
	for _, one := range wanted {
		if !slices.Contains(all, one) {
			return nil, fmt.Errorf("%s names %q, there are %s", option, one, strings.Join(all, ", "))
		}
	}
	for _, one := range all {
		if slices.Contains(wanted, one) {
			chosen = append(chosen, one)
		}
	}
	return chosen, nil
}

// run measures everything and prints it. What fails is an error in the report.
func (s settings) run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp(s.dir, "bench-")
	if err != nil {
		return err
	}
	defer remove(dir)
	if slices.Contains(s.systems, "zookeeper") && !zookeeper.Installed() {
		fmt.Fprintln(out, "ZooKeeper is left out: the Debian package zookeeper is not installed")
		s.systems = slices.DeleteFunc(s.systems, func(name string) bool { return name == "zookeeper" })
	}
	fmt.Fprintf(out, "three members each, fsync in %s; %d rounds, %v each\n", dir, s.rounds, s.window)
	rep := &report{settings: s, began: time.Now(), out: out}
	for _, one := range suites {
		if slices.Contains(s.suites, one.name) {
			if err := s.runSuite(ctx, one, dir, rep); err != nil {
				return err
			}
		}
	}
	rep.print()
	if s.json != "" {
		return rep.writeJSON(s.json)
	}
	return nil
}

func (s settings) roundsOf(l line) int {
	if l.Once {
		return 1
	}
	return s.rounds
}

// runSuite measures one suite, the systems one after the other in each line's round.
func (s settings) runSuite(ctx context.Context, one suite, dir string, rep *report) error {
	workers := make(map[string]*process)
	defer func() {
		for name, w := range workers {
			w.kill()
			remove(where(dir, one, name))
		}
	}()
	for _, name := range s.systems {
		if only := systems[name].only; only != "" && only != one.name {
			continue
		}
		p, err := newPlace(where(dir, one, name), members)
		if err != nil {
			return err
		}
		w, err := spawn(ctx, setup{System: name, Suite: one.name, Window: s.window, Place: p})
		if err != nil {
			return err
		}
		workers[name] = w
	}
	turn := func(l line, round int) error {
		for i := range s.systems { // who is the first in one round is the last in the next
			name := s.systems[(i+round)%len(s.systems)]
			if rep.row(one.name, l, name).err != nil {
				continue // what has failed once has no ratio
			}
			f, err := figures{}, errMissing
			if w := workers[name]; w != nil {
				f, err = w.measure(l)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			rep.add(one.name, l, name, round, f, err)
		}
		return nil
	}
	return s.eachTurn(one, turn)
}

// eachTurn goes through the rounds of each line, or where lines are compared, through the lines of each round: in every other one backwards, for
// a line may cost the next one something.
func (s settings) eachTurn(one suite, turn func(l line, round int) error) error {
	if one.beside == "" {
		for _, l := range one.lines {
			for round := range s.roundsOf(l) {
				if err := turn(l, round); err != nil {
					return err
				}
			}
		}
		return nil
	}
	all := slices.Clone(one.lines)
	for round := range s.rounds {
		for _, l := range all {
			if round < s.roundsOf(l) {
				if err := turn(l, round); err != nil {
					return err
				}
			}
		}
		slices.Reverse(all)
	}
	return nil
}

func where(dir string, one suite, system string) string {
	return filepath.Join(dir, one.name+"-"+system)
}

// remove removes a directory. Processes of its members may take a moment to be gone.
func remove(dir string) {
	for range 100 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
