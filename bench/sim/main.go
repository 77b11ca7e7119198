//go:build unix

package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/bench/campaign"
	"github.com/vivarium-go/vivarium/embed"
)

// The exit statuses.
const (
	exitWell     = 0
	exitViolated = 1
	exitUsage    = 2 // also a panic's
	exitStalled  = 3
	exitPanicked = 4
)

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case err != nil:
		os.Exit(exitUsage)
	case !durable:
		os.Exit(launch(o))
	}
	os.Args = os.Args[:1] // testing.Main would read the rest
	// Only a test gets a bubble.
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: o.Name, F: func(t *testing.T) { os.Exit(run(t, o, os.Stdout)) }}}, nil, nil)
}

// options are what the command line says.
type options struct {
	campaign.Settings
	virtual time.Duration // Settings.Length times Settings.Scale
	only    string        // -faults
	clients string        // -clients
	list    string        // a file for Settings.List
	shrink  time.Duration
	profile string
}

// run runs a campaign and returns the exit status.
func run(t *testing.T, o options, to io.Writer) int {
	if o.list != "" {
		list, err := os.Create(o.list)
		if err != nil {
			fmt.Fprintln(os.Stderr, "sim:", err)
			return exitUsage
		}
		defer list.Close()
		o.List = list
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "sim:", err)
			return exitUsage
		}
		defer pprof.StopCPUProfile()
	}
	// A bubble makes far more garbage in an hour of real time than other programs.
	debug.SetGCPercent(400)
	out := &stamped{out: to, begun: real()}
	ground := newBubbles(t, o.Settings, out)
	go ground.watch(os.Stderr)
	violated, err := campaign.Run(o.Settings, ground, out)
	took := real() - out.begun
	virtual := ground.scale * ground.Now()
	fmt.Fprintf(out, "%v of virtual time in %v: %.0f times as fast\n", virtual.Round(time.Second), took.Round(time.Second/10), float64(virtual)/float64(took))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "sim:", err)
		return exitUsage
	case violated || ground.failed.Load():
		return exitViolated
	}
	return exitWell
}

// stamped is a writer that begins each write with the real time since the beginning.
type stamped struct {
	out   io.Writer
	begun time.Duration
}

func (s *stamped) Write(text []byte) (int, error) {
	_, err := fmt.Fprintf(s.out, "[%6.1fs] %s", (real() - s.begun).Seconds(), text)
	return len(text), err
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	o.Name, o.Virtual, o.Power = "sim", true, true
	set := flag.NewFlagSet("sim", flag.ContinueOnError)
	set.SetOutput(out)
	set.DurationVar(&o.virtual, "virtual", time.Hour, "how long the campaign lasts in virtual time, at least 20s times -scale")
	set.Uint64Var(&o.Seed, "seed", 0, "repeat the random choices of a campaign; zero means new ones")
	set.IntVar(&o.Members, "members", 0, "size of every ensemble, 3 or 5; zero means both in turn")
	set.IntVar(&o.Shards, "shards", 1, "number of shards of every ensemble")
	set.IntVar(&o.Pace, "pace", 10, "how many times longer clients and faults pause, and rounds last, than in ./chaos")
	set.IntVar(&o.Scale, "scale", 1, "how many times longer everything takes, from a tick to a round; the report's times are divided by it")
	set.StringVar(&o.Dir, "dir", "", "keep all directories and logs in this directory; empty means a temporary directory that is kept only after a violation")
	set.StringVar(&o.only, "faults", "", "cause only faults whose names contain one of these words, separated by commas; none causes none")
	set.StringVar(&o.clients, "clients", "", "run only clients whose names contain one of these words, separated by commas; none runs none")
	set.IntVar(&o.Round, "round", 0, "run only this round; zero means one after the other")
	cycles := set.String("cycles", "", "cause only the faults of these cycles of each round, numbers separated by commas; empty means all")
	set.StringVar(&o.list, "list", "", "write round, number and faults of each cycle to this file")
	set.DurationVar(&o.shrink, "shrink", 15*time.Minute, "after a violation, look this long for the faults that it needs; zero means not to look")
	set.StringVar(&o.profile, "cpuprofile", "", "write a profile of the processors' time to this file")
	err := set.Parse(args)
	o.Only, o.Clients = strings.Split(o.only, ","), strings.Split(o.clients, ",")
	o.Length = o.virtual / time.Duration(max(o.Scale, 1))
	if err == nil {
		o.Cycles, err = split(*cycles)
		if err != nil {
			fmt.Fprintln(out, "sim:", err)
			return o, err
		}
	}
	switch {
	case err != nil:
	case len(o.Kinds()) == 0 && o.only != campaign.None:
		err = fmt.Errorf("-faults is %q, which names no fault", o.only)
	case set.NArg() > 0:
		err = fmt.Errorf("%q is not a flag", set.Arg(0))
	case o.Scale < 1 || o.Scale > campaign.ScaleMax:
		err = fmt.Errorf("-scale is %d, want 1 to %d", o.Scale, campaign.ScaleMax)
	case o.Length < campaign.LengthMin:
		err = fmt.Errorf("-virtual is %v, want at least %v", o.virtual, time.Duration(o.Scale)*campaign.LengthMin)
	case o.Members != 0 && o.Members != 3 && o.Members != 5:
		err = fmt.Errorf("-members is %d, want 3 or 5", o.Members)
	case o.Shards < 1 || o.Shards > embed.MaxShards:
		err = fmt.Errorf("-shards is %d, want 1 to %d", o.Shards, embed.MaxShards)
	case o.Pace < 1:
		err = fmt.Errorf("-pace is %d, want at least 1", o.Pace)
	case o.Round < 0:
		err = fmt.Errorf("-round is %d, want at least 0", o.Round)
	default:
		if o.Seed == 0 {
			o.Seed = rand.Uint64()
		}
		o.Repeat = o.repeat(o.Round, o.Cycles)
		return o, nil
	}
	fmt.Fprintln(out, "sim:", err)
	return o, err
}

// args returns the flags that repeat the campaign, or only some cycles of a round of it.
func (o *options) args(round int, cycles []int) []string {
	args := []string{"-virtual", o.virtual.String(), "-seed", strconv.FormatUint(o.Seed, 10)}
	number := func(name string, n int) {
		if n != 0 {
			args = append(args, name, strconv.Itoa(n))
		}
	}
	word := func(name, s string) {
		if s != "" {
			args = append(args, name, s)
		}
	}
	number("-members", o.Members)
	number("-shards", o.Shards)
	number("-pace", o.Pace)
	number("-scale", o.Scale)
	number("-round", round)
	word("-faults", o.only)
	word("-clients", o.clients)
	word("-cycles", join(cycles))
	return args
}

// repeat returns the command that repeats the campaign, or only some cycles of a round of it.
func (o *options) repeat(round int, cycles []int) string {
	return "go run ./sim " + strings.Join(o.args(round, cycles), " ")
}

// split returns numbers with commas between them.
func split(text string) (numbers []int, err error) {
	if text == "" {
		return nil, nil
	}
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("-cycles has %q, want numbers", word)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
