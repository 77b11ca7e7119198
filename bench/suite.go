//go:build linux

package main

import (
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// A suite is one kind of measurement. Its work and its number of callers are the same for all
// systems.
type suite struct {
	name  string
	lines []line
	among []string // the systems that have it; nil means those of peers
	apart bool     // it starts the ensembles that it needs
	grow  bool     // the members of its ensembles join one after another
	// the On of the line that others with as many callers are also compared with; all lines then
	// take turns
	beside  string
	measure func(w *worker, l line) (figures, error)
}

// A line is one row of a suite's table.
type line struct {
	On      string // where the callers are, or what else distinguishes the line
	Clients int    // how many callers there are
	Once    bool   // it takes long, so it runs for one round only
}

// Where the callers are.
const (
	onLeader   = "leader"   // on the member that leads
	onFollower = "follower" // on a member that does not lead
	onAll      = "all"      // spread over all members, the first caller on the leader's
)

// figures are the results of a measurement. Something that happens once has its time as P50, and a
// rate of one in that time.
type figures struct {
	Rate     float64 // per second
	P50, P99 time.Duration
	Values   map[string]float64 // everything else, by name
}

var suites []suite

// suites is set in a function, because suites refer to workers and workers to suites.
func init() {
	suites = []suite{
		{name: "write", lines: lines([]string{onLeader, onFollower, onAll}, 1, 64, 1024), among: append(slices.Clone(peers), "dragonboat"), measure: calls(session.set)},
		{name: "read", lines: lines([]string{onFollower}, 1, 2, 64), measure: calls(written(session.get))},
		{name: "syncread", lines: append(lines([]string{onLeader, onFollower}, 1), lines([]string{onAll}, 64)...), measure: calls(written(session.syncGet))},
		{name: "lock", lines: lockLines(), beside: onMutex, measure: measureLock},
		{name: "handoff", lines: handoffLines(), beside: onMutex, measure: measureHandoff},
		{name: "watch", lines: append(lines([]string{onAll}, 1, 1000, 100_000), line{onIdle, 1_000_000, true}), measure: measureWatch},
		{name: "create", lines: lines([]string{onAll}, 1, 64), measure: measureCreate},
		{name: "session", lines: append(lines([]string{onAll}, 1, 64), line{onIdle, 100_000, true}), measure: measureSession},
		{name: "gateway", lines: append(append(lines([]string{onSet}, 1, 64, 500), lines([]string{onGet}, 1, 64)...), line{onIdle, 5000, true}), among: []string{"vivarium", "zookeeper"}, apart: true, measure: measureGateway},
		{name: "client", lines: lines([]string{onSet}, 1, 64, 500), apart: true, measure: measureClient},
		{name: "load", lines: []line{{onAll, 1024, true}}, apart: true, measure: measureLoad},
		{name: "idle", lines: []line{{onIdle, 0, true}}, apart: true, measure: measureIdle},
		{name: "failover", lines: []line{{onLeader, 1, true}}, apart: true, measure: measureFailover},
		{name: "start", lines: []line{{On: "alone", Clients: 1}, {On: "three", Clients: 3}}, apart: true, measure: measureStart},
		{name: "shards", lines: shardLines(), among: []string{"vivarium", "dragonboat", "pebble"}, apart: true, beside: onShard, measure: measureShards},
		{name: "members", lines: lines([]string{"3 members", "50 members"}, 50), among: own, apart: true, measure: measureMembers},
		{name: "learner", lines: lines([]string{onLearner}, 1_000_000), among: []string{"vivarium", "etcd"}, grow: true, measure: measureLearner},
		{name: "backup", lines: lines([]string{onAlone, onBackup}, 16), among: own, beside: onAlone, measure: measureBackup},
		{name: "view", lines: recipeLines("view"), among: withRecipes, measure: measureRecipe},
		{name: "counter", lines: recipeLines("counter"), among: withRecipes, measure: measureRecipe},
		{name: "task", lines: recipeLines("task"), among: withRecipes, measure: measureRecipe},
		{name: "partition", lines: recipeLines("partition"), among: withRecipes[:2], apart: true, measure: measureRecipe},
	}
}

// Systems that some suites are among.
var (
	peers       = []string{"vivarium", "etcd", "zookeeper"}
	own         = []string{"vivarium"}
	withRecipes = []string{"vivarium", "kazoo", "curator"}
)

// has reports whether a system has the suite.
func (s suite) has(system string) bool {
	if s.among == nil {
		return slices.Contains(peers, system)
	}
	return slices.Contains(s.among, system)
}

// suiteOf returns a suite by its name.
func suiteOf(name string) (suite, bool) {
	i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
	if i < 0 {
		return suite{}, false
	}
	return suites[i], true
}

func suiteNames() (names []string) {
	for _, s := range suites {
		names = append(names, s.name)
	}
	return names
}

func lines(on []string, clients ...int) (all []line) {
	for _, where := range on {
		for _, n := range clients {
			all = append(all, line{On: where, Clients: n})
		}
	}
	return all
}

// written prepares an op on a znode that exists.
func written(prepare func(s session, path string) (op, error)) func(s session, path string) (op, error) {
	return func(s session, path string) (op, error) {
		if _, err := s.set(path); err != nil {
			return nil, err
		}
		return prepare(s, path)
	}
}

// calls measures callers that share the sessions of their members. Each caller has a path of its
// own.
func calls(prepare func(s session, path string) (op, error)) func(w *worker, l line) (figures, error) {
	return func(w *worker, l line) (figures, error) {
		ops, err := w.prepare(l, func(member, i int) (op, error) {
			s, err := w.session(member, i)
			if err != nil {
				return nil, err
			}
			return prepare(s, w.path())
		})
		return w.run(ops, err)
	}
}

// prepare returns the ops of a line's callers. It keeps them for the next round, unless another
// member leads by then.
func (w *worker) prepare(l line, one func(member, i int) (op, error)) ([]op, error) {
	leader, err := w.e.leader()
	if err != nil {
		return nil, err
	}
	key := callersKey{l, leader}
	if ops := w.callers[key]; ops != nil {
		return ops, nil
	}
	ops := make([]op, l.Clients)
	err = inParallel(len(ops), min(width, len(ops)), func(i int) (err error) {
		ops[i], err = one(l.member(leader, i), i)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.callers[key] = ops
	return ops, nil
}

// run calls the ops for a window.
func (w *worker) run(ops []op, err error) (figures, error) {
	if err != nil {
		return figures{}, err
	}
	load, err := measure.Run(w.Window, ops...)
	return figures{Rate: load.Rate, P50: load.P50, P99: load.P99}, err
}
