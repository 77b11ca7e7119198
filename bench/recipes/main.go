//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// systems are the names of all systems, in the order of the report.
var systems = []string{"vivarium", "kazoo", "curator"}

// settings are the flags.
type settings struct {
	suites  []string
	systems []string
	members int
	parts   int
	tasks   int
	rounds  int
	window  time.Duration
	dir     string
}

func main() {
	if os.Getenv(processVariable) != "" {
		serve(os.Args[1:])
		return
	}
	s, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = s.run(os.Stdout)
	}
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "recipes:", err)
		}
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	set := flag.NewFlagSet("recipes", flag.ContinueOnError)
	set.SetOutput(out)
	suiteList := set.String("suite", strings.Join(suites, ","), "the suites, separated by commas")
	systemList := set.String("systems", strings.Join(systems, ","), "the systems, separated by commas")
	set.IntVar(&s.members, "members", 10000, "how many members a view shows")
	set.IntVar(&s.parts, "parts", 1000, "how many parts are handed over")
	set.IntVar(&s.tasks, "tasks", 10000, "how many tasks wait in the queue that is drained")
	set.IntVar(&s.rounds, "rounds", 3, "how often each measurement is repeated")
	set.DurationVar(&s.window, "d", 2*time.Second, "how long counters and queues are measured")
	set.StringVar(&s.dir, "dir", "", "the members' directory, on the disk to be measured; empty means the directory for temporary files")
	if err := set.Parse(args); err != nil {
		return s, err
	}
	if set.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag", set.Arg(0))
	}
	var err error
	if s.suites, err = measure.Choose("-suite", *suiteList, suites); err != nil {
		return s, err
	}
	if s.systems, err = measure.Choose("-systems", *systemList, systems); err != nil {
		return s, err
	}
	if s.members < 1 || s.parts < members || s.tasks < 1 || s.rounds < 1 || s.window < time.Millisecond {
		return s, fmt.Errorf("-members, -tasks and -rounds must be above 0, -parts at least %d, and -d at least 1ms", members)
	}
	return s, nil
}
