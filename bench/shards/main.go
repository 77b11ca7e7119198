//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the flags.
type settings struct {
	systems []string
	shards  []int
	writers []int
	rounds  int
	window  time.Duration
	dir     string
}

func main() {
	if os.Getenv(blockVariable) != "" {
		runBlocks()
		return
	}
	s, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = s.run(os.Stdout)
	}
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "shards:", err)
		}
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	set := flag.NewFlagSet("shards", flag.ContinueOnError)
	set.SetOutput(out)
	systemList := set.String("systems", "vivarium,dragonboat", "what to measure: "+strings.Join(systemNames(), ", ")+"; ratios are to the first of them")
	shardList := set.String("shards", "1,2,4,8", "numbers of shards")
	writerList := set.String("writers", "1,64,1024", "numbers of writers that each wait for one write at a time")
	set.IntVar(&s.rounds, "rounds", 3, "how often each measurement is repeated")
	set.DurationVar(&s.window, "window", 2*time.Second, "how long each number of writers, and rest, is measured")
	set.StringVar(&s.dir, "dir", "", "the members' directory, on the disk to be measured; empty means the directory for temporary files")
	if err := set.Parse(args); err != nil {
		return s, err
	}
	if set.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag", set.Arg(0))
	}
	s.systems = strings.Split(*systemList, ",")
	for _, name := range s.systems {
		if systems[name] == nil {
			return s, fmt.Errorf("-systems names %q; choose from %s", name, strings.Join(systemNames(), ", "))
		}
	}
	var err error
	if s.shards, err = numbers(*shardList); err != nil {
		return s, fmt.Errorf("-shards: %w", err)
	}
	if s.writers, err = numbers(*writerList); err != nil {
		return s, fmt.Errorf("-writers: %w", err)
	}
	if s.rounds < 1 {
		return s, fmt.Errorf("-rounds is %d, want at least 1", s.rounds)
	}
	if s.window <= 0 {
		return s, fmt.Errorf("-window is %v, want more than 0", s.window)
	}
	return s, nil
}

// numbers reads positive numbers separated by commas.
func numbers(list string) (all []int, err error) {
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number above 0", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// systemNames returns the names of the systems in order.
func systemNames() (names []string) {
	for name := range systems {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// run measures everything and prints it.
func (s settings) run(out io.Writer) error {
	dir, err := os.MkdirTemp(s.dir, "shards-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(out, "three members in one process, TCP on loopback, fsync in %s; %d rounds, %v each\n", dir, s.rounds, s.window)
	rep := &report{settings: s, results: make(map[kind][]result)}
	began := time.Now()
	for round := range s.rounds {
		for _, n := range s.shards {
			for _, name := range s.systems {
				b := block{System: name, Shards: n, Writers: s.writers, Window: s.window}
				r, err := b.spawn(dir)
				if err != nil {
					return fmt.Errorf("%s with %d shards: %w", name, n, err)
				}
				rep.add(b, r)
				fmt.Fprintf(out, "%4.0fs  round %d: %-10s %d shards  %s\n", time.Since(began).Seconds(), round+1, name, n, r.brief())
			}
		}
	}
	rep.print(out)
	return nil
}
