package steer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

type id = session.MemberID

// A world is an ensemble without its network and disks. Each tick is a look of every leader. All
// that happens by chance comes from pick.
type world struct {
	t     testing.TB
	pick  func(n int) int // from 0 to n-1
	rules Rules
	now   time.Time
	tick  int

	processes map[id]*process
	cuts      map[[2]id]bool // pairs that do not hear each other
	table     *session.Members
	view      *session.MembersView // of table; see known
	shards    []*raft              // the first is home
	mail      []delivery           // commands on their way to the home shard

	calm     bool      // faults are over
	fault    time.Time // the last one
	uneven   bool      // somebody left, was removed or came back, so an even number may remain
	history  []string
	before   map[id]session.Member // the table at the last check
	checker  checker
	joined   int
	lastWork int // the tick of the last wish or step
}

// A process is a member's process.
type process struct {
	id       id
	up       bool
	frozen   bool // stopped by its machine: it hears and does nothing, and does not know
	lost     bool // its directory is gone: it never comes back as this member
	group    int  // of the partition
	slow     bool // it acknowledges little
	sessions bool
	observer bool
}

// A delivery is a command for the home shard that arrives at a tick.
type delivery struct {
	at int
	do func()
}

// A raft is what the members of a shard agree on, and who leads it.
type raft struct {
	shard                     uint32
	voters, learners, removed ids
	change, end               uint64 // of the log
	retired                   map[id]bool
	acknowledged              map[id]uint64
	answered                  map[id]time.Time // to this leader

	leader  id // zero: none
	term    int
	watch   *Watch
	pending *pending // a change that is in the leader's log
	// Of the leader of the home shard.
	number  uint64
	asked   int // the tick at which the last wish or number was proposed
	wish    *Wish
	decided []decided // steps that a stalled leader carries out later
}

type pending struct {
	Step
	calmly bool
	fault  time.Time // the last one when it was decided
}

type decided struct {
	at     int
	term   int
	change uint64
	step   Step
	calmly bool      // the leader had had the time to notice all faults
	fault  time.Time // the last one
}

func newWorld(t testing.TB, pick func(int) int, founders, shards int, r Rules) *world {
	w := &world{
		t: t, pick: pick, rules: r, now: time.Unix(1_000_000, 0), table: session.NewMembers(),
		processes: make(map[id]*process), cuts: make(map[[2]id]bool), before: make(map[id]session.Member),
	}
	var first ids
	origins := session.NewTable()
	for i := range founders {
		m := id(i + 1)
		first = append(first, m)
		w.processes[m] = &process{id: m, up: true}
		if _, err := origins.Register(session.Origin{Member: m, Start: 1, Directory: [16]byte{byte(m)}}); err != nil {
			t.Fatal(err)
		}
	}
	w.table.Found(session.Lineage{1}, first, uint32(shards), origins)
	for i := range shards {
		w.shards = append(w.shards, &raft{
			shard: uint32(i + 1), voters: slices.Clone(first), change: uint64(founders), end: uint64(founders),
			retired: make(map[id]bool), acknowledged: make(map[id]uint64), answered: make(map[id]time.Time),
		})
	}
	w.checker.begin(w)
	return w
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%d: ", w.tick)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	from := max(0, len(w.history)-60)
	w.t.Fatalf("%s\n%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.history[from:], "\n"), w)
}

func (w *world) String() string {
	var b strings.Builder
	for _, r := range w.shards {
		fmt.Fprintf(&b, "shard %d: voters %v, learners %v, removed %v, led by %d, pending %+v\n", r.shard, r.voters, r.learners, r.removed, r.leader, r.pending)
	}
	for _, m := range w.known().List {
		fmt.Fprintf(&b, "member %d: %v %v %v, up %v\n", m.ID, m.Wish, m.Reason, m.Places, w.up(m.ID))
	}
	return b.String()
}

// known returns the table.
func (w *world) known() *session.MembersView {
	if w.table.TakeChanged() || w.view == nil {
		w.view = w.table.View()
	}
	return w.view
}

// all returns the ids of all processes, in order.
func (w *world) all() ids { return slices.Sorted(maps.Keys(w.processes)) }

func (w *world) up(m id) bool {
	p := w.processes[m]
	return p != nil && p.up && !p.frozen
}

// reach reports whether two members hear each other.
func (w *world) reach(a, b id) bool {
	if !w.up(a) || !w.up(b) {
		return false
	}
	return a == b || w.processes[a].group == w.processes[b].group && !w.cuts[[2]id{min(a, b), max(a, b)}]
}

// reached returns how many of some members one hears.
func (w *world) reached(from id, of ids) (n int) {
	for _, m := range of {
		if w.reach(from, m) {
			n++
		}
	}
	return n
}

// led reports whether a shard has a leader that can commit.
func (w *world) led(r *raft) bool {
	return r.leader != 0 && w.up(r.leader) && w.reached(r.leader, r.voters) > len(r.voters)/2
}

// live passes one tick.
func (w *world) live() {
	w.tick++
	w.now = w.now.Add(w.rules.Period)
	for _, r := range w.shards {
		w.lead(r)
		w.replicate(r)
	}
	w.deliver()
	for _, r := range w.shards {
		w.steer(r)
	}
	w.behave()
	w.checker.check(w)
}

// lead ends the leadership of who has no quorum, and elects others.
func (w *world) lead(r *raft) {
	frozen := r.leader != 0 && w.processes[r.leader].up && w.processes[r.leader].frozen
	if r.leader != 0 && !w.led(r) && !frozen {
		w.note("shard %d: member %d leads no more", r.shard, r.leader)
		r.leader = 0
	}
	if w.led(r) || w.pick(2) == 0 && !w.calm {
		return
	}
	var can ids
	for _, m := range r.voters {
		if w.up(m) && w.reached(m, r.voters) > len(r.voters)/2 {
			can = append(can, m)
		}
	}
	if len(can) == 0 {
		return // who is frozen goes on where it was
	}
	w.elect(r, can[w.pick(len(can))])
}

// elect makes a member the leader. M10: a change that the former leader had in its log may be in
// the new one's too.
func (w *world) elect(r *raft, m id) {
	w.note("shard %d: member %d leads", r.shard, m)
	if p := r.pending; p != nil {
		if r.pending = nil; w.pick(2) == 0 {
			w.apply(r, p.Step, false)
		}
	}
	if r.term++; !slices.Contains(r.voters, m) {
		r.leader = 0 // its own removal was in its log
		return
	}
	// The log has grown by what an earlier leader's clients wanted, and by the term's first entry.
	r.end += uint64(1 + w.pick(3))
	r.leader, r.watch, r.number, r.wish = m, NewWatch(w.rules), 0, nil
	clear(r.answered)
}

// replicate passes entries and answers between the leader and the others.
func (w *world) replicate(r *raft) {
	if !w.led(r) {
		return
	}
	r.end += uint64(w.pick(3))
	for _, m := range slices.Concat(r.voters, r.learners) {
		if !w.reach(r.leader, m) {
			continue
		}
		r.answered[m] = w.now
		step := r.end
		if w.processes[m].slow {
			step = uint64(w.pick(2))
		}
		r.acknowledged[m] = min(r.end, r.acknowledged[m]+step)
	}
	if p := r.pending; p != nil && (w.calm || w.pick(4) > 0) {
		if r.pending = nil; w.calm || w.pick(8) > 0 {
			w.apply(r, p.Step, p.calmly && p.fault.Equal(w.fault))
		} else {
			w.note("shard %d: the change is dropped", r.shard)
		}
	}
}

// apply changes the members of a shard.
func (w *world) apply(r *raft, s Step, calmly bool) {
	w.note("shard %d: %v %d", r.shard, s.Kind, s.Member)
	w.checker.applies(w, r, s, calmly)
	without := func(list ids) ids {
		return slices.DeleteFunc(slices.Clone(list), func(m id) bool { return m == s.Member })
	}
	with := func(list ids) ids {
		list = append(slices.Clone(list), s.Member)
		slices.Sort(list)
		return list
	}
	r.end++
	r.change = r.end
	switch s.Kind {
	case AddLearner:
		r.learners = with(r.learners)
	case Promote:
		r.learners, r.voters = without(r.learners), with(r.voters)
	case Remove:
		r.learners, r.voters, r.removed = without(r.learners), without(r.voters), with(r.removed)
	}
}

// steer lets the leader of a shard look and act.
func (w *world) steer(r *raft) {
	if r.leader == 0 || !w.up(r.leader) {
		return
	}
	r.watch.Look(Look{Now: w.now, Committed: r.end, Table: w.known(), Pulse: func(m id) Pulse {
		if m == r.leader {
			return Pulse{Answered: w.now, Index: r.end}
		}
		return Pulse{Answered: r.answered[m], Index: r.acknowledged[m]}
	}})
	home := w.shards[0]
	if !w.led(r) || !w.led(home) || !w.reach(r.leader, home.leader) {
		return // no barrier returns
	}
	w.execute(r)
	if r == home && r.leader != 0 {
		w.plan(r)
	}
}

// knows returns what the leader of a shard knows.
func (w *world) knows(r *raft) Shard {
	return Shard{
		ID: r.shard, Self: r.leader, Voters: r.voters, Learners: r.learners, Removed: r.removed, Change: r.change,
		Table: w.known(), Health: r.watch.Health, Rules: w.rules,
		Connected: func(m id) bool { return w.reach(r.leader, m) },
		Sessions:  func(m id) bool { return w.processes[m].sessions },
		Retired:   func(m id) bool { return r.retired[m] },
	}
}

// execute takes the next step on a shard, or lets its leader stall between deciding and acting. M9:
// a step of a former leader, or one that another change has overtaken, does nothing.
func (w *world) execute(r *raft) {
	if r.pending == nil && len(r.decided) == 0 {
		if s := Execute(w.knows(r)); s != (Step{}) {
			w.checker.decides(w, r, s)
			w.lastWork = w.tick
			d := decided{at: w.tick, term: r.term, change: r.change, step: s, calmly: w.isSteady(), fault: w.fault}
			if !w.calm && w.pick(6) == 0 {
				d.at += w.pick(20)
			}
			r.decided = append(r.decided, d)
		}
	}
	for _, d := range r.decided {
		if d.at <= w.tick && d.term == r.term {
			w.do(r, d)
		}
	}
	r.decided = slices.DeleteFunc(r.decided, func(d decided) bool { return d.at <= w.tick })
}

func (w *world) do(r *raft, d decided) {
	switch s := d.step; s.Kind {
	case AddLearner, Promote, Remove:
		if d.change == r.change && r.pending == nil {
			r.pending = &pending{s, d.calmly, d.fault}
		}
	case Retire:
		r.retired[s.Member] = true
	case Report:
		w.send(func() { w.table.Report(s.Member, r.shard, s.Place) })
	case HandOver:
		if w.reach(r.leader, s.Member) && slices.Contains(r.voters, s.Member) && r.acknowledged[s.Member] == r.end && r.pending == nil {
			w.elect(r, s.Member)
		}
	}
}

// send has a command arrive at the home shard: soon, or late, or twice, or never.
func (w *world) send(do func()) {
	if w.calm {
		w.mail = append(w.mail, delivery{w.tick, do})
		return
	}
	for _, after := range [...]int{w.pick(3), w.pick(4)*100 - 100} {
		if after >= 0 && w.pick(8) > 0 {
			w.mail = append(w.mail, delivery{w.tick + after, do})
		}
	}
}

// deliver applies the commands that arrive now.
func (w *world) deliver() {
	if !w.led(w.shards[0]) {
		return
	}
	mail := w.mail
	w.mail = nil
	for _, d := range mail {
		if d.at > w.tick {
			w.mail = append(w.mail, d)
			continue
		}
		d.do()
	}
	w.table.Forget(w.origins())
}

// origins returns a session table in which those are retired that the home shard has retired.
func (w *world) origins() *session.Table {
	t := session.NewTable()
	for m := range w.shards[0].retired {
		t.Retire(m)
	}
	return t
}

// plan makes the next wish. M51: each leadership begins with a number of its own, and takes a new
// one if the outcome of a wish is unknown.
func (w *world) plan(r *raft) {
	if e := w.known().Ensemble; r.number == 0 || e.Govern != r.number {
		if r.wish = nil; r.number > 0 && e.Govern == r.number-1 && w.tick < r.asked+5 {
			return // it is on its way
		}
		number, leader := e.Govern+1, r.leader
		r.number, r.asked = number, w.tick
		w.send(func() { w.table.Govern(number, leader) })
		return
	}
	if r.wish != nil {
		if m, known := w.known().Find(r.wish.Member); known && m.Wish < r.wish.Part {
			if w.tick > r.asked+5 {
				r.number, r.wish = 0, nil
			}
			return
		}
		r.wish = nil
	}
	wish, ok := Plan(Situation{Self: r.leader, Table: w.known(), Health: r.watch.Health, Dismissed: r.watch.Dismissed(), Rules: w.rules})
	if !ok {
		return
	}
	w.note("member %d wishes: %d %v %v", r.leader, wish.Member, wish.Part, wish.Reason)
	w.checker.wishes(w, r, wish)
	w.lastWork = w.tick
	number := r.number
	r.wish, r.asked = &wish, w.tick
	w.send(func() {
		if err := w.table.Want(number, wish.Member, wish.Part, wish.Reason, 1); err == nil {
			w.note("the table has: %d %v %v", wish.Member, wish.Part, wish.Reason)
		}
	})
}

// behave lets processes close their sessions when they leave, and end when they are out everywhere.
func (w *world) behave() {
	for _, m := range w.all() {
		p := w.processes[m]
		rec, known := w.known().Find(m)
		if p.up && known && rec.Wish == session.Out && (w.calm || w.pick(4) == 0) {
			p.sessions = false
		}
		if !known && p.id < w.known().Ensemble.Next || rec.OutOf() == len(w.shards) {
			delete(w.processes, m)
		}
	}
}
