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
	members []int
	rate    int
	systems []string
	znodes  int
	rounds  int
	window  time.Duration
	dir     string
}

func main() {
	if os.Getenv(processVariable) != "" {
		serve()
		return
	}
	s, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = s.run(os.Stdout)
	}
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "members:", err)
		}
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	set := flag.NewFlagSet("members", flag.ContinueOnError)
	set.SetOutput(out)
	memberList := set.String("members", "", "sizes of the crowds, such as 3,50; empty means that no crowd is measured")
	set.IntVar(&s.rate, "rate", 1000, "how many znodes are set per second in a crowd")
	systemList := set.String("systems", "", "whose learners are measured: vivarium, etcd or both; empty means none")
	set.IntVar(&s.znodes, "znodes", 1000000, "how many znodes of 100 bytes a learner has to load")
	set.IntVar(&s.rounds, "rounds", 3, "how often each measurement is repeated")
	set.DurationVar(&s.window, "window", 10*time.Second, "how long the leader of a crowd is measured, at rest and under load")
	set.StringVar(&s.dir, "dir", "", "the members' directory, on the disk to be measured; empty means the directory for temporary files")
	if err := set.Parse(args); err != nil {
		return s, err
	}
	if set.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag", set.Arg(0))
	}
	for _, text := range fields(*memberList) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return s, fmt.Errorf("-members names %q, want numbers above 0", text)
		}
		s.members = append(s.members, n)
	}
	for _, name := range fields(*systemList) {
		if !slices.Contains(systems, name) {
			return s, fmt.Errorf("-systems names %q; choose from %s", name, strings.Join(systems, ", "))
		}
		s.systems = append(s.systems, name)
	}
	switch {
	case len(s.members)+len(s.systems) == 0:
		return s, errors.New("there is nothing to measure: set -members or -systems")
	case s.rate < 1 || s.znodes < 1 || s.rounds < 1 || s.window <= 0:
		return s, errors.New("-rate, -znodes, -rounds and -window must be above 0")
	}
	return s, nil
}

func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// run measures everything and prints it.
func (s settings) run(out io.Writer) error {
	dir, err := os.MkdirTemp(s.dir, "members-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(out, "TCP on loopback, fsync in %s; %d rounds\n", dir, s.rounds)
	if err := s.runCrowds(dir, out); err != nil {
		return err
	}
	return s.runLearners(dir, out)
}
