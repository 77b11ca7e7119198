//go:build unix && !member

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/bench/campaign"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
)

// The exit statuses.
const (
	exitWell     = 0
	exitViolated = 1
	exitUsage    = 2
)

func main() {
	if os.Getenv(memberVariable) != "" {
		runMember()
		return
	}
	s, from, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		os.Exit(exitUsage)
	}
	var violated bool
	if from == "" {
		violated, err = campaign.Run(s, processes{}, os.Stdout)
	} else {
		violated, err = upgradeFrom(from, s, os.Stdout)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(exitUsage)
	case violated:
		os.Exit(exitViolated)
	}
	os.Exit(exitWell)
}

// upgradeFrom builds members of another commit or tag, and runs a campaign that begins with them.
func upgradeFrom(from string, s campaign.Settings, out io.Writer) (violated bool, err error) {
	dir, err := os.MkdirTemp("", "chaos-old-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	var old string
	if s.Upgrade.Next {
		old, err = os.Executable()
	} else {
		old, s.Upgrade.From, err = buildOld(from, dir)
	}
	if err != nil {
		return false, err
	}
	return campaign.Run(s, processes{old}, out)
}

// parse returns the settings, and the commit or tag to upgrade from.
func parse(args []string, out io.Writer) (s campaign.Settings, from string, err error) {
	s.Name = "chaos"
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.SetOutput(out)
	set.DurationVar(&s.Length, "d", 2*time.Minute, "how long the campaign lasts, at least 20s")
	set.Uint64Var(&s.Seed, "seed", 0, "repeat the random choices of a campaign; zero means new ones")
	set.IntVar(&s.Members, "members", 0, "size of every ensemble, 3 or 5; zero means both in turn")
	set.IntVar(&s.Shards, "shards", 1, "number of shards of every ensemble")
	set.StringVar(&s.Dir, "dir", "", "keep all directories and logs in this directory; empty means a temporary directory that is kept only after a violation")
	set.BoolVar(&s.Remote, "clients", false, "have clients of the gateways, in the members' processes, open a third of the workload's sessions")
	only := set.String("faults", "", "cause only faults whose names contain one of these words, separated by commas; \"none\" causes none")
	set.StringVar(&from, "upgrade", "", "begin with members of the build of this commit or tag, and change them to the present build; \"previous\" means the release before; \"next\" begins with the present build, and changes to one to come")
	mixed := set.Bool("mixed", false, "with -upgrade: keep one member with the older build until the end of each round")
	grow := set.Bool("grow", false, "with -upgrade: members come and go once all have the newer build")
	err = set.Parse(args)
	s.Only = strings.Split(*only, ",")
	switch {
	case err != nil:
	case len(s.Kinds()) == 0 && *only != campaign.None:
		err = fmt.Errorf("-faults is %q, which names no fault", *only)
	case set.NArg() > 0:
		err = fmt.Errorf("%q is not a flag", set.Arg(0))
	case s.Length < campaign.LengthMin:
		err = fmt.Errorf("-d is %v, want at least %v", s.Length, campaign.LengthMin)
	case s.Members != 0 && s.Members != 3 && s.Members != 5:
		err = fmt.Errorf("-members is %d, want 3 or 5", s.Members)
	case (*mixed || *grow) && from == "":
		err = errors.New("-mixed and -grow need -upgrade")
	case s.Remote && from != "":
		err = errors.New("-clients needs gateways of this build, and -upgrade begins with older ones")
	case *mixed && *grow:
		err = errors.New("-mixed keeps the level down, and -grow needs it up")
	case s.Shards < 1 || s.Shards > embed.MaxShards:
		err = fmt.Errorf("-shards is %d, want 1 to %d", s.Shards, embed.MaxShards)
	default:
		if s.Seed == 0 {
			s.Seed = rand.Uint64()
		}
		s.Repeat = fmt.Sprintf("go run ./chaos -d %v -members %d -shards %d -seed %d", s.Length, s.Members, s.Shards, s.Seed)
		if *only != "" {
			s.Repeat += fmt.Sprintf(" -faults %q", *only)
		}
		if s.Remote {
			s.Repeat += " -clients"
		}
		if from != "" {
			if from == "previous" {
				from = previous
			}
			s.Upgrade = &campaign.Upgrade{From: engine.LevelMax, Level: engine.LevelMax, Next: from == next, Mixed: *mixed, Grow: *grow}
			if s.Upgrade.Next {
				s.Upgrade.Level++
			}
			s.Repeat += fmt.Sprintf(" -upgrade %s -mixed=%t -grow=%t", from, *mixed, *grow)
		}
		return s, from, nil
	}
	fmt.Fprintln(out, "chaos:", err)
	return s, "", err
}
