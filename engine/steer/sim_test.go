package steer

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run the simulation with this seed only")
	simCount = flag.Int("sim.count", 0, "run so many seeds")
)

// simRules have short times, so that much happens in few ticks.
func simRules(voters int) Rules {
	return Rules{
		Voters: voters, Period: time.Second, Election: 2 * time.Second, StableFor: 4 * time.Second,
		DeadAfter: 25 * time.Second, ForgetAfter: 90 * time.Second, LeaveWait: 8 * time.Second,
	}
}

// membersMax bounds a simulated ensemble.
const membersMax = 12

// faults make something happen to a world.
var faults = []func(*world){
	(*world).crash, (*world).crash, (*world).restart, (*world).restart, (*world).restart,
	(*world).split, (*world).heal, (*world).heal, (*world).cut, (*world).freeze, (*world).thaw, (*world).thaw,
	(*world).pause, (*world).drag, (*world).depose, (*world).join, (*world).join, (*world).leave, (*world).remove, (*world).wipe,
}

// mild are the faults after which an odd number of voters remains.
var mild = []func(*world){(*world).kill, (*world).join, (*world).join, (*world).depose, (*world).drag, (*world).thaw}

// simulate lives through faults, and then waits until nothing is left to do.
func simulate(t testing.TB, pick func(int) int, ticks int, can []func(*world)) {
	founders, shards := 1+pick(5), 1+pick(4)
	w := newWorld(t, pick, founders, shards, simRules(1+2*pick(3)))
	for range ticks {
		if w.live(); pick(6) == 0 {
			can[pick(len(can))](w)
		}
	}
	if !w.recover() {
		return // too much was lost for good
	}
	w.calm, w.lastWork = true, w.tick
	for quiet := 3 * int(w.rules.ForgetAfter/w.rules.Period); w.tick < w.lastWork+quiet; {
		w.live()
		if w.tick > ticks+20_000 {
			w.fail("it does not come to rest")
		}
	}
	w.atRest()
}

// member picks a process.
func (w *world) someone() *process {
	if of := w.all(); len(of) > 0 {
		return w.processes[of[w.pick(len(of))]]
	}
	return nil
}

func (w *world) hurt(format string, args ...any) {
	w.note(format, args...)
	w.fault = w.now
}

func (w *world) crash() {
	if p := w.someone(); p != nil && p.up {
		p.up, p.frozen, p.sessions = false, false, false
		w.hurt("member %d crashes", p.id)
	}
}

// kill crashes a member for good, if each shard that it votes in keeps its quorum.
func (w *world) kill() {
	p := w.someone()
	if p == nil || !p.up {
		return
	}
	p.up = false
	for _, r := range w.shards {
		alive := 0
		for _, m := range r.voters {
			if w.processes[m] != nil && w.processes[m].up {
				alive++
			}
		}
		if 2*alive <= len(r.voters) || r.pending != nil {
			p.up = true
			return
		}
	}
	p.lost = true
	w.hurt("member %d dies", p.id)
}

func (w *world) restart() {
	if p := w.someone(); p != nil && !p.up && !p.lost {
		p.up, p.sessions = true, true
		w.uneven = true
		w.hurt("member %d is back", p.id)
	}
}

func (w *world) split() {
	w.hurt("partition")
	for _, m := range w.all() {
		w.processes[m].group = w.pick(2)
	}
}

func (w *world) heal() {
	w.hurt("healed")
	w.uneven = true
	clear(w.cuts)
	for _, p := range w.processes {
		p.group = 0
	}
}

func (w *world) cut() {
	a, b := w.someone(), w.someone()
	if a != nil && a != b {
		w.cuts[[2]id{min(a.id, b.id), max(a.id, b.id)}] = true
		w.hurt("members %d and %d are cut off from each other", a.id, b.id)
	}
}

// freeze stops a process. It does not know.
func (w *world) freeze() {
	if p := w.someone(); p != nil && p.up {
		p.frozen = true
		w.hurt("member %d is frozen", p.id)
	}
}

func (w *world) thaw() {
	w.hurt("all go on")
	for _, p := range w.processes {
		w.uneven = w.uneven || p.frozen
		p.frozen, p.slow = false, false
	}
}

// pause stops everybody for long, and nobody knows.
func (w *world) pause() {
	w.now = w.now.Add(time.Hour)
	w.hurt("an hour passes in a moment")
}

func (w *world) drag() {
	if p := w.someone(); p != nil {
		p.slow = true
		w.hurt("member %d lags", p.id)
	}
}

func (w *world) depose() {
	r := w.shards[w.pick(len(w.shards))]
	m := r.voters[w.pick(len(r.voters))]
	if w.up(m) && w.reached(m, r.voters) > len(r.voters)/2 && m != r.leader {
		w.hurt("shard %d gets another leader", r.shard)
		w.elect(r, m)
	}
}

// join admits a new process, which may never come.
func (w *world) join() { w.admit(session.Former{}) }

func (w *world) admit(former session.Former) {
	if len(w.processes) >= membersMax || !w.led(w.shards[0]) {
		return
	}
	w.joined++
	c := session.Candidate{
		Directory: [16]byte{1, byte(w.joined), byte(w.joined >> 8)}, Observer: w.pick(6) == 0,
		Zone: string(rune('a' + w.pick(3))), Former: former,
	}
	m, _, err := w.table.Admit(c, 1)
	if err != nil {
		return // its former self was removed by a person
	}
	w.note("member %d joins", m)
	w.processes[m] = &process{id: m, up: w.pick(8) > 0, sessions: true, observer: c.Observer}
}

func (w *world) leave() {
	if p := w.someone(); p != nil && w.up(p.id) && w.led(w.shards[0]) && w.reach(p.id, w.shards[0].leader) {
		if w.table.Want(0, p.id, session.Out, session.Left, 1) == nil {
			w.note("member %d leaves", p.id)
			w.uneven = true
		}
	}
}

// remove removes a member on a person's word.
func (w *world) remove() {
	p := w.someone()
	if p == nil || !w.led(w.shards[0]) {
		return
	}
	for _, r := range w.shards {
		if r.leader == 0 || !SafeToRemove(r.voters, func(m id) bool { return m == r.leader || r.watch.Health(m).Answers }, p.id) {
			return
		}
	}
	if w.table.Want(0, p.id, session.Out, session.Removed, 1) == nil {
		w.note("member %d is removed by a person", p.id)
		w.uneven = true
	}
}

// wipe takes a process's directory, and has the process come back as a new member. Of a process
// that was needed nothing would be left to test.
func (w *world) wipe() {
	p := w.someone()
	if p == nil || p.lost {
		return
	}
	rec, known := w.known().Find(p.id)
	up := p.up
	p.up = false
	for _, r := range w.shards {
		if !known || !w.led(r) || !w.led(w.shards[0]) {
			p.up = up
			return
		}
	}
	p.lost, p.sessions, w.uneven = true, false, true
	w.hurt("member %d is wiped", p.id)
	w.admit(session.Former{ID: p.id, Directory: rec.Directory})
}

// recover ends all faults but deaths, and brings back as many as each shard needs for a quorum. It
// reports whether that is possible.
func (w *world) recover() bool {
	w.heal()
	w.thaw()
	w.note("faults are over")
	for _, r := range w.shards {
		if p := r.pending; p != nil && w.pick(2) == 0 {
			w.apply(r, p.Step, false)
		}
		r.pending, r.decided = nil, nil
		for _, m := range r.voters {
			alive := 0
			for _, v := range r.voters {
				if w.up(v) {
					alive++
				}
			}
			if 2*alive > len(r.voters) {
				break
			}
			if p := w.processes[m]; p != nil && !p.up && !p.lost {
				p.up = true
			}
		}
	}
	return !slices.ContainsFunc(w.shards, func(r *raft) bool {
		alive := 0
		for _, v := range r.voters {
			if w.up(v) {
				alive++
			}
		}
		return 2*alive <= len(r.voters)
	})
}

// atRest checks that a world in which nothing happens any more is as good as it can be.
func (w *world) atRest() {
	var healthy, dead, spares int
	for _, m := range w.known().List {
		up := w.up(m.ID)
		switch {
		case m.Wish == session.Out && m.OutOf() < len(w.shards) && !w.isStuck(m.ID):
			w.fail("member %d is to go and is still there", m.ID)
		case m.Wish == session.Voter && up:
			healthy++
		case m.Wish == session.Voter:
			dead++
		case m.Wish == session.Learner && up && !m.Observer:
			spares++
		case m.Wish == session.Learner && !up:
			w.fail("member %d is gone for good and not forgotten", m.ID)
		}
	}
	best := min(w.rules.Voters, healthy+spares)
	if best -= 1 - best%2; healthy < best {
		w.fail("%d voters live, and %d could", healthy, best)
	}
	if dead > 0 && spares > 0 && healthy < w.rules.Voters {
		w.fail("%d dead voters are not replaced", dead)
	}
	for _, r := range w.shards {
		if r.pending != nil || len(r.decided) > 0 {
			w.fail("shard %d is not at rest", r.shard)
		}
		w.restsWell(r, best)
	}
}

// isStuck reports whether a shard would have no quorum without a member.
func (w *world) isStuck(m id) bool {
	return slices.ContainsFunc(w.shards, func(r *raft) bool {
		others := after(r, Step{Kind: Remove, Member: m})
		return len(others) < len(r.voters) && 2*w.reached(r.leader, others) <= len(others)
	})
}

// restsWell checks a shard of a world at rest.
func (w *world) restsWell(r *raft, best int) {
	alive := w.reached(r.leader, r.voters)
	dead := len(r.voters) - alive
	if margin := alive - len(r.voters)/2 - 1; dead == 0 && margin < (best-1)/2 {
		w.fail("shard %d: the margin is %d, the best is %d", r.shard, margin, (best-1)/2)
	}
	if len(r.voters)%2 == 0 && !w.uneven {
		w.fail("shard %d: an even number of voters is at rest", r.shard)
	}
	for _, m := range w.known().List {
		part := session.Part(0)
		for part0, list := range map[session.Part]ids{session.Voter: r.voters, session.Learner: r.learners, session.Out: r.removed} {
			if slices.Contains(list, m.ID) {
				part = part0
			}
		}
		if m.Wish == session.Voter && part != session.Voter && len(r.voters) > 1 && w.up(m.ID) {
			w.fail("shard %d: member %d is not a voter", r.shard, m.ID)
		}
		if m.Wish == session.Learner && part != session.Learner {
			w.fail("shard %d: member %d is no learner", r.shard, m.ID)
		}
	}
}

// random returns a pick that a seed decides.
func random(seed uint64) func(int) int {
	r := rand.New(rand.NewPCG(seed, 7))
	return r.IntN
}

// TestSimulation lives through random schedules: of all faults, and of deaths alone, after which an
// odd number of voters must remain. Its checker knows M4, M11, M13 and M55. M10: each new leader
// may find a change of the former one in its log.
func TestSimulation(t *testing.T) {
	count := 150
	if !testkit.Night() {
		count = 30
	}
	if *simCount > 0 {
		count = *simCount
	}
	first := uint64(1)
	if *simSeed > 0 {
		first, count = *simSeed, 1
	}
	for seed := first; seed < first+uint64(count); seed++ {
		for name, can := range map[string][]func(*world){"faults": faults, "deaths": mild} {
			if !t.Run(name, func(t *testing.T) {
				t.Logf("-sim.seed=%d", seed)
				simulate(t, random(seed), 600, can)
			}) {
				t.FailNow()
			}
		}
	}
}

// FuzzSimulation lets the fuzzer choose what happens.
func FuzzSimulation(f *testing.F) {
	for seed := range uint64(8) {
		pick := random(seed)
		choices := make([]byte, 2000)
		for i := range choices {
			choices[i] = byte(pick(256))
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		pick := func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := choices[0]
			choices = choices[1:]
			return int(c) % n
		}
		simulate(t, pick, min(len(choices)/8, 600), faults)
	})
}
