//go:build unix

package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// The exit statuses.
const (
	exitWell     = 0
	exitViolated = 1
	exitUsage    = 2
)

// settings are the flags.
type settings struct {
	length  time.Duration
	seed    uint64
	members int
	shards  int
	dir     string
	only    []string // kinds of faults
}

func main() {
	if os.Getenv(memberVariable) != "" {
		os.Exit(runMember())
	}
	s, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		os.Exit(exitUsage)
	}
	os.Exit(s.run(os.Stdout))
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.SetOutput(out)
	set.DurationVar(&s.length, "d", 2*time.Minute, "how long the campaign lasts, at least 20s")
	set.Uint64Var(&s.seed, "seed", 0, "repeat the random choices of a campaign; zero means new ones")
	set.IntVar(&s.members, "members", 0, "size of every ensemble, 3 or 5; zero means both in turn")
	set.IntVar(&s.shards, "shards", 1, "number of shards of every ensemble")
	set.StringVar(&s.dir, "dir", "", "keep all directories and logs in this directory; empty means a temporary directory that is kept only after a violation")
	only := set.String("faults", "", "cause only faults whose names contain one of these words, separated by commas")
	err := set.Parse(args)
	s.only = strings.Split(*only, ",")
	switch {
	case err != nil:
	case len(s.kinds()) == 0:
		err = fmt.Errorf("-faults is %q, which names no fault", *only)
	case set.NArg() > 0:
		err = fmt.Errorf("%q is not a flag", set.Arg(0))
	case s.length < campaignMin:
		err = fmt.Errorf("-d is %v, want at least %v", s.length, campaignMin)
	case s.members != 0 && s.members != 3 && s.members != 5:
		err = fmt.Errorf("-members is %d, want 3 or 5", s.members)
	case s.shards < 1 || s.shards > embed.MaxShards:
		err = fmt.Errorf("-shards is %d, want 1 to %d", s.shards, embed.MaxShards)
	default:
		if s.seed == 0 {
			s.seed = rand.Uint64()
		}
		return s, nil
	}
	fmt.Fprintln(out, "chaos:", err)
	return s, err
}

// run runs the campaign and returns the exit status.
func (s settings) run(out io.Writer) int {
	rep := newReport(out)
	dir, err := s.workDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return exitUsage
	}
	rep.say("seed %d: repeat with go run ./chaos -d %v -members %d -shards %d -seed %d", s.seed, s.length, s.members, s.shards, s.seed)
	c := &campaign{settings: s, dir: dir, report: rep}
	c.run()
	rep.print()
	if rep.failed() {
		fmt.Fprintf(out, "the evidence is in %s\n", dir)
		return exitViolated
	}
	if s.dir == "" {
		_ = os.RemoveAll(dir)
	}
	return exitWell
}

// kinds returns the faults to choose from.
func (s settings) kinds() []fault {
	return slices.DeleteFunc(slices.Clone(faultKinds), func(f fault) bool {
		return !slices.ContainsFunc(s.only, func(word string) bool { return strings.Contains(f.name, word) })
	})
}

func (s settings) workDir() (string, error) {
	if s.dir != "" {
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(s.dir, "chaos-")
}
