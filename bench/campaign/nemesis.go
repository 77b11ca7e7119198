package campaign

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A nemesis breaks the ensemble of one round. It causes a random fault at a random target for a
// random time, sometimes two faults at once. Then it heals everything, usually waits until all
// members are ready, and goes on.
type nemesis struct {
	e      *ensemble
	w      *workload
	report *report
	plan   plan
	only   []int    // numbers of cycles; the others are left out; empty means all
	log    *os.File // the faults, with their times on the history's clock
	list   io.Writer
	rolls  *rand.Rand // of changes of builds
}

// settleMax limits the wait for all members to be ready after the healing.
const settleMax = 10 * time.Second

func newNemesis(w *workload, s *Settings, round int) (*nemesis, error) {
	log, err := os.Create(filepath.Join(w.e.dir, faultsFile))
	if err != nil {
		return nil, err
	}
	n := &nemesis{e: w.e, w: w, report: w.report, only: s.Cycles, log: log, list: io.Discard, rolls: rand.New(rand.NewPCG(w.seed, 1))}
	if s.List != nil {
		n.list = s.List
	}
	n.plan = plan{round: round, kinds: s.kindsOf(round), loses: s.loses(round), rest: s.pace(500 * time.Millisecond), rng: rand.New(rand.NewPCG(w.seed, 0))}
	return n, nil
}

// run breaks things until ctx ends or nothing is left to break, and leaves everything healed.
func (n *nemesis) run(ctx context.Context) {
	if len(n.plan.kinds) == 0 && !n.plan.loses {
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		c := n.plan.next()
		if len(n.only) > 0 && c.number > slices.Max(n.only) {
			return
		}
		if len(n.only) == 0 || slices.Contains(n.only, c.number) {
			n.cycle(ctx, &c)
		}
	}
}

// A strike is one fault under way.
type strike struct {
	*nemesis
	ctx   context.Context // ends with the fault
	rng   *rand.Rand
	alone bool // nothing else is broken
}

// cycle breaks something, waits, and heals.
func (n *nemesis) cycle(ctx context.Context, c *cycle) {
	fmt.Fprintln(n.list, c)
	bound, cancel := limit(ctx, c.length)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range c.strikes {
		pause(bound, p.after)
		s := &strike{nemesis: n, ctx: bound, rng: rand.New(rand.NewPCG(p.seed, 0)), alone: len(c.strikes) == 1}
		n.report.count(sectionFaults, p.fault.name, 1)
		all.Go(func() {
			begun := n.w.h.now()
			n.note("%d %s: %s, since %.6f", c.number, p.fault.name, p.fault.strike(s), begun.Seconds())
		})
	}
	<-bound.Done()
	all.Wait()
	n.heal()
	if c.settle {
		settled, cancel := limit(ctx, settleMax)
		defer cancel()
		if len(n.e.allReady(settled)) == 0 {
			if n.e.unrest(settled) == "" { // otherwise who leads may yet go
				from := n.w.h.now()
				defer func() { add(n.w.h, calms, calm{from, n.w.h.now()}) }()
			}
			here := n.e.here()
			n.sweep(ctx, here[c.sweeper%len(here)])
		}
	}
	pause(ctx, c.rest)
}

// sweep looks for markers of sessions that are over. Nothing is broken, so the markers must go. It
// looks now, because the next fault might remove what is left.
func (n *nemesis) sweep(ctx context.Context, on embed.MemberID) {
	c := n.w.newClient(on, "sweeper")
	if !c.enter(ctx) {
		return
	}
	defer c.close()
	over := n.w.h.over()
	for _, area := range n.w.areas {
		begun := n.w.h.now()
		for ctx.Err() == nil {
			r := c.call(Request{Call: callList, Path: area + markersPath}, nil)
			if r.Outcome != applied {
				return
			}
			left := slices.DeleteFunc(r.Names, func(name string) bool { return !over[name] })
			if len(left) == 0 {
				n.report.count(sectionChecks, "area without a marker of a session that is over", 1)
				break
			}
			if waited := n.w.h.now() - begun; waited > settleMax {
				n.report.violate("no orphan", "%v after all members were ready %s has markers of sessions that are over: %v", waited, area, left)
				return
			}
			pause(ctx, tick)
		}
	}
}

// heal ends every fault.
func (n *nemesis) heal() {
	ctx, cancel := limit(context.Background(), patience)
	defer cancel()
	n.e.heal()
	for _, id := range n.e.here() {
		if failed := n.e.mend(ctx, id); failed != "" {
			n.report.count(sectionSeen, "node failed and was started again in its process", 1)
			n.note("member %d had failed: %s", id, failed)
		}
	}
	n.judgeEvicted(ctx) // which needs the others, whose disks may have been full
	n.note("healed")
}

// finish heals until all members are ready.
func (n *nemesis) finish() {
	ctx, cancel := limit(context.Background(), patience)
	defer cancel()
	var late []embed.MemberID
	for ctx.Err() == nil {
		n.heal() // again, because a node can have failed since the last time
		settled, cancel := limit(ctx, settleMax)
		late = n.e.allReady(settled)
		cancel()
		if len(late) == 0 {
			return
		}
	}
	n.e.stacks()
	n.report.violate("available", "%v after everything was healed members %v are not ready", patience, late)
}

func (n *nemesis) note(format string, args ...any) {
	fmt.Fprintf(n.log, "%.6f %s\n", n.w.h.now().Seconds(), fmt.Sprintf(format, args...))
}

// anyone returns a random member.
func (s *strike) anyone() embed.MemberID { return s.anyOf(s.e.here()) }

// anyOf returns a random one of some members.
func (s *strike) anyOf(ids []embed.MemberID) embed.MemberID { return ids[s.rng.IntN(len(ids))] }

// anyShard returns a random shard.
func (s *strike) anyShard() int { return 1 + s.rng.IntN(s.e.shards) }

// leader returns the leader of a random shard.
func (s *strike) leader() embed.MemberID { return s.leaderOf(s.anyShard()) }

// leaderOf returns the leader of a shard, or any member if the shard has no leader.
func (s *strike) leaderOf(shard int) embed.MemberID {
	if id := s.e.leader(shard); id != 0 {
		return id
	}
	return s.anyone()
}

// follower returns a member that does not lead a random shard.
func (s *strike) follower() embed.MemberID {
	return s.anyOf(s.e.others(s.leader()))
}

// some returns n random members.
func (s *strike) some(n int) []embed.MemberID {
	ids := s.e.here()
	s.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:n]
}

// most returns a random majority of the members.
func (s *strike) most() []embed.MemberID { return s.some(len(s.e.here())/2 + 1) }
