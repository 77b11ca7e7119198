package campaign

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// None as a word stands for no fault or no client.
const None = "none"

// LengthMin is the shortest campaign.
const LengthMin = 20 * time.Second

// Settings are the choices of whoever starts a campaign.
type Settings struct {
	Name    string // of the program
	Length  time.Duration
	Seed    uint64 // of the random choices
	Members int    // size of every ensemble; zero means 3 and 5 in turn
	Shards  int
	Dir     string   // keep all directories and logs in this directory; empty means a temporary one
	Only    []string // cause only faults whose names contain one of these words; None causes none
	Clients []string // run only clients whose names contain one of these words; None runs none
	// Remote has clients of the gateways open a third of the workload's sessions, in the members'
	// processes.
	Remote bool
	Repeat string // the command that repeats the campaign
	Pace   int    // how many times longer than usual clients and faults pause, and rounds last
	Round  int    // run only this round; zero means one after the other
	// Cycles are the numbers of the nemesis's cycles to run, of each round. The others are left
	// out. Empty means all.
	Cycles []int
	Power  bool      // the Ground's hosts are PowerCutters
	List   io.Writer // gets a line for each cycle as it begins: round, number, faults; may be nil
	// Virtual says that time passes only while all goroutines wait. One that never waits stops it.
	// The checks come after each round: none of their limits of time ends in it.
	Virtual bool
	// Scale is how many times slower than its members' clock the campaign's is. All it does and all
	// that members are configured with takes so many times longer. Ground.Now is divided by it.
	// Length and all that is reported are on the campaign's clock.
	Scale int
	// Upgrade makes the members change builds. The Ground's hosts are Upgraders. Nil means that all
	// members have the present build.
	Upgrade *Upgrade
}

// Kinds returns the names of the faults that the nemesis chooses from.
func (s *Settings) Kinds() (names []string) {
	for _, f := range s.kinds() {
		names = append(names, f.name)
	}
	return names
}

func (s *Settings) kinds() []fault {
	all := faultKinds
	if s.Remote {
		all = slices.Concat(faultKinds, clientFaults)
	}
	if s.Power {
		all = slices.Concat(faultKinds, powerFaults)
	}
	switch {
	case s.Upgrade == nil:
		all = slices.Concat(all, memberFaults, []fault{recovery})
	case s.Upgrade.Grow: // otherwise the members stay
		all = slices.Concat(all, memberFaults)
	}
	return slices.DeleteFunc(slices.Clone(all), func(f fault) bool { return !chosen(f.name, s.Only) })
}

// kindsOf returns the faults of a round. In a round with a roll they are those until its end.
func (s *Settings) kindsOf(round int) []fault {
	grows := s.grows(round)
	return slices.DeleteFunc(s.kinds(), func(f fault) bool { return f.recovers() || f.changes() && !grows })
}

// grows reports whether the members of a round's ensemble come and go. They do in every second
// pair of rounds, so that ensembles of each size are of both kinds. With an upgrade the members
// stay at first; see growsLater.
func (s *Settings) grows(round int) bool {
	return s.Upgrade == nil && (s.onlyMembers() || round/2%2 == 1)
}

// loses reports whether a round's ensemble loses its majority for good and is recovered by force.
// That happens in the first of each two pairs of rounds whose members come and go.
func (s *Settings) loses(round int) bool {
	return s.grows(round) && (s.onlyMembers() || round/4%2 == 0) && slices.ContainsFunc(s.kinds(), fault.recovers)
}

// onlyMembers reports whether all faults of the campaign change the members.
func (s *Settings) onlyMembers() bool {
	kinds := s.kinds()
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(f fault) bool { return !f.changes() })
}

// chosen reports whether a name contains one of the words, or there are no words.
func chosen(name string, words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}

func (s *Settings) workDir() (string, error) {
	if s.Dir != "" {
		if err := os.MkdirAll(s.Dir, 0o755); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(s.Dir, s.Name+"-")
}

// Run runs a campaign and reports to out. It returns whether a promise was broken. The error says
// why there was no campaign.
func Run(s Settings, g Ground, out io.Writer) (violated bool, err error) {
	dir, err := s.workDir()
	if err != nil {
		return false, err
	}
	scale = time.Duration(max(s.Scale, 1))
	rep := newReport(out, g.Now)
	rep.say("seed %d: repeat with %s", s.Seed, s.Repeat)
	c := &campaign{Settings: s, ground: g, dir: dir, report: rep, out: out}
	c.run()
	c.showGrowth()
	rep.print()
	if rep.failed() {
		fmt.Fprintf(out, "the evidence is in %s\n", dir)
		return true, nil
	}
	if s.Dir == "" {
		_ = os.RemoveAll(dir)
	}
	return false, nil
}
