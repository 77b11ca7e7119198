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

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// settings are the flags.
type settings struct {
	suites  []string
	systems []string
	window  time.Duration
	rounds  int
	dir     string
	results string
}

func main() {
	if lived() {
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

// lived lives the life of a process that this program started, if it is one.
func lived() bool {
	switch {
	case os.Getenv(memberVariable) != "": // a worker's variable is set too
		beMember(os.Args[1:])
	case os.Getenv(workerVariable) != "":
		work()
	default:
		return false
	}
	return true
}

// onDisk refuses a directory on a file system where fsync does nothing.
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
	suiteList := set.String("suite", strings.Join(suiteNames(), ","), "the suites, separated by commas; each measures the systems that have it")
	systemList := set.String("systems", strings.Join(order, ","), "the systems, separated by commas")
	set.DurationVar(&s.window, "d", 2*time.Second, "how long each measurement takes; below a second, measurements that count pieces use fewer pieces")
	set.IntVar(&s.rounds, "rounds", 3, "how often each measurement is repeated")
	set.StringVar(&s.dir, "dir", "", "the members' directory, on the disk to be measured; empty means the directory for temporary files")
	set.StringVar(&s.results, "results", "", "also write the report to this directory, as text and as JSON")
	if err := set.Parse(args); err != nil {
		return s, err
	}
	if set.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag", set.Arg(0))
	}
	var err error
	if s.suites, err = measure.Choose("-suite", *suiteList, suiteNames()); err != nil {
		return s, err
	}
	if s.systems, err = measure.Choose("-systems", *systemList, order); err != nil {
		return s, err
	}
	if s.rounds < 1 || s.window <= 0 {
		return s, fmt.Errorf("-rounds is %d and -d %v: want more than 0", s.rounds, s.window)
	}
	return s, nil
}

// run measures everything and prints the report. A failed measurement becomes an error in the
// report.
func (s settings) run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp(s.dir, "bench-")
	if err != nil {
		return err
	}
	defer remove(dir)
	s.systems = slices.DeleteFunc(slices.Clone(s.systems), func(name string) bool {
		if systems[name].missing == nil || !slices.ContainsFunc(suites, func(one suite) bool { return slices.Contains(s.suites, one.name) && one.has(name) }) {
			return false
		}
		err := systems[name].missing()
		if err != nil {
			fmt.Fprintf(out, "%s is left out: %v\n", name, err)
		}
		return err != nil
	})
	fmt.Fprintf(out, "three members each, fsync in %s; %d rounds, %v each\n", dir, s.rounds, s.window)
	rep := &report{settings: s, began: time.Now(), out: out}
	for _, one := range suites {
		if slices.Contains(s.suites, one.name) {
			if err := s.runSuite(ctx, one, dir, rep); err != nil {
				return err
			}
		}
	}
	rep.print(out)
	if s.results != "" {
		return rep.save(s.results)
	}
	return nil
}

func (s settings) roundsOf(l line) int {
	if l.Once {
		return 1
	}
	return s.rounds
}

// runSuite measures one suite. In each round of a line, the systems take turns.
func (s settings) runSuite(ctx context.Context, one suite, dir string, rep *report) error {
	workers := make(map[string]*process)
	defer func() {
		for name, w := range workers {
			w.kill()
			remove(where(dir, one, name))
		}
	}()
	for _, name := range s.systems {
		if !one.has(name) {
			continue
		}
		p, err := newPlace(where(dir, one, name), members)
		if err != nil {
			return err
		}
		p.Grow = one.grow
		w, err := spawn(ctx, setup{System: name, Suite: one.name, Window: s.window, Place: p})
		if err != nil {
			return err
		}
		workers[name] = w
	}
	turn := func(l line, round int) error {
		for i := range s.systems { // the first system of one round is the last of the next
			name := s.systems[(i+round)%len(s.systems)]
			if rep.row(one.name, l, name).err != nil {
				continue // a line that failed once has no ratio
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

// eachTurn goes through the rounds of each line. Where lines are compared, it goes through the
// lines of each round, in every other round backwards, because a line may cost the next one
// something.
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

// remove removes a directory. It tries for a while, because processes of the members may take a
// moment to end.
func remove(dir string) {
	for range 100 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
