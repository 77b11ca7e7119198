package session

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// These tests hold the bounds of expiry over random schedules. The entries of the log commit after
// any delay, more than once, or never. Machines apply the log late, and several believe that they
// lead.

// logged is one command in the log of the schedules.
type logged struct {
	at       time.Duration // when it commits
	register *Origin
	seq      uint64 // a batch of start, if not zero
	start    uint64
	step     Step // a Silence, if not zero
	d        time.Duration
}

const speaker MemberID = 1

// apply gives an entry to a table. Every batch opens one session of each timeout.
func (e logged) apply(t *testing.T, table *Table, timeouts []time.Duration) {
	switch {
	case e.register != nil:
		ended, err := table.Register(*e.register)
		if err != nil {
			return
		}
		for _, id := range ended {
			table.Close(id, 0, true)
		}
	case e.seq > 0:
		if table.Accept(speaker, e.start, e.seq) != Accepted {
			return
		}
		for i, timeout := range timeouts {
			id := tree.SessionID(e.start<<32 | e.seq<<8 | uint64(i))
			if err := table.Open(id, [16]byte{}, timeout, speaker, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
	default:
		table.Silence(e.step, e.d)
		for _, id := range table.Due() {
			table.Close(id, 0, true)
		}
	}
}

// A replica applies the log late and measures silence after what it has applied.
type replica struct {
	table   *Table
	applied int
	step    Step
	since   time.Duration
}

func (m *replica) apply(t *testing.T, log []logged, timeouts []time.Duration, now time.Duration) {
	for ; m.applied < len(log); m.applied++ {
		log[m.applied].apply(t, m.table, timeouts)
		if s, _, _ := m.table.NextStep(speaker); s != m.step {
			m.step, m.since = s, now
		}
	}
}

// A1.1, A1.2, A1.3: every replica proposes what it measured, at any moment, sometimes twice, and
// the proposals arrive at any time. No silence is ever above the time since the origin's newest
// committed batch.
func TestNeverEarly(t *testing.T) {
	recorded := 0
	for seed := range uint64(300) {
		recorded += neverEarly(t, seed)
	}
	if recorded < 1000 {
		t.Errorf("only %d silences were recorded: the schedules prove little", recorded)
	}
}

func neverEarly(t *testing.T, seed uint64) (recorded int) {
	r := rand.New(rand.NewPCG(seed, 1))
	timeouts := []time.Duration{40, 100, 110}
	truth := NewTable()
	replicas := []*replica{{table: NewTable()}, {table: NewTable()}, {table: NewTable()}}
	var log, flying []logged
	var newest time.Duration // when the newest batch or Register was committed
	origin := Origin{Member: speaker}
	seq := uint64(0)
	send := func(now time.Duration, e logged) {
		for range 1 + r.IntN(2) {
			e.at = now + time.Duration(r.IntN(20))
			if r.IntN(4) == 0 {
				e.at += time.Duration(r.IntN(300))
			}
			flying = append(flying, e)
		}
	}
	talk := 20 + r.IntN(400) // how often the origin speaks: long silences occur too
	for now := time.Duration(0); now < 2000; now++ {
		if origin.Start == 0 || r.IntN(300) == 0 {
			origin.Start++
			seq = 0
			o := origin
			send(now, logged{register: &o})
		}
		if r.IntN(talk) == 0 {
			if o, ok := truth.Origin(speaker); ok && o.Start == origin.Start {
				seq = o.LastSeq + 1
				send(now, logged{start: origin.Start, seq: seq})
			}
		}
		for _, m := range replicas {
			if r.IntN(6) == 0 {
				m.apply(t, log, timeouts, now)
			}
			if r.IntN(10) == 0 && m.step != (Step{}) && now > m.since {
				send(now, logged{step: m.step, d: now - m.since})
			}
		}
		flying = slices.DeleteFunc(flying, func(e logged) bool {
			if e.at > now {
				return false
			}
			log = append(log, e)
			before, _ := truth.Origin(speaker)
			e.apply(t, truth, timeouts)
			after, _ := truth.Origin(speaker)
			if after.Start != before.Start || after.LastSeq != before.LastSeq {
				newest = now
			}
			if after.Steps > before.Steps {
				recorded++
			}
			return true
		})
		if o, _ := truth.Origin(speaker); o.Silence > now-newest {
			t.Fatalf("seed %d: silence %d of origin %+v, %d after its newest batch", seed, o.Silence, o, now-newest)
		}
	}
	return recorded
}

// A7: an origin falls silent, and its sessions expire within the upper bound, with and without
// leader changes.
func TestSoonEnough(t *testing.T) {
	for seed := range uint64(300) {
		soonEnough(t, seed)
	}
}

func soonEnough(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	const commit = 3 * time.Millisecond
	var timeouts []time.Duration
	for len(timeouts) < 1+r.IntN(4) {
		timeouts = append(timeouts, time.Duration(400+r.IntN(4000))*time.Millisecond)
	}
	slices.Sort(timeouts)
	timeouts = slices.Compact(timeouts)

	origin := Origin{Member: speaker, Start: 1}
	log := []logged{{register: &origin}, {start: 1, seq: 1}}
	table := NewTable()
	for _, e := range log {
		e.apply(t, table, timeouts)
	}
	step, _, _ := table.NextStep(speaker)
	var since, lost, now time.Duration // now is the time since the newest batch
	changes := r.IntN(4)
	for steps := 0; table.Len() > 0; steps++ {
		_, d, _ := table.NextStep(speaker)
		if changes > 0 && r.IntN(3) == 0 {
			changes--
			// The leader goes in the middle of a step, or when it has measured the step and not
			// committed it.
			leaderless := time.Duration(r.IntN(2000)) * time.Millisecond
			full := timeouts[len(timeouts)-table.Len()] / 4
			now += time.Duration(r.Int64N(int64(d))) + leaderless
			lost += full + max(0, leaderless-full)
		}
		now = max(now, since+d)
		e := logged{step: step, d: now - since}
		now += commit
		before := table.Len()
		e.apply(t, table, timeouts)
		since = now
		step, _, _ = table.NextStep(speaker)
		for gone := len(timeouts) - before; gone < len(timeouts)-table.Len(); gone++ {
			bound := timeouts[gone] + time.Duration(4*(gone+1))*commit + lost
			if now < timeouts[gone] || now > bound {
				t.Fatalf("seed %d: timeout %v of %v expired after %v, bound %v", seed, timeouts[gone], timeouts, now, bound)
			}
		}
		if steps > 1000 {
			t.Fatalf("seed %d: no end after %v", seed, now)
		}
	}
}

// A2: while a life is Connected, the time since the newest committed batch is below the timeout. So
// no replica can have expired the session.
func TestToldFirst(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		timeout := time.Duration(1+r.IntN(10)) * time.Second
		life := NewLife(timeout, 0)
		var committed time.Duration
		var arriving []struct{ at, sent time.Duration }
		for now := time.Duration(0); now < 60*time.Second; now += 50 * time.Millisecond {
			if r.IntN(int(2*timeout/time.Second)+10) == 0 {
				committed = now + time.Duration(r.IntN(40))*time.Millisecond
				lag := time.Duration(r.IntN(2000)) * time.Millisecond // of the owner's replica
				arriving = append(arriving, struct{ at, sent time.Duration }{committed + lag, now})
			}
			for len(arriving) > 0 && arriving[0].at <= now {
				life.Proved(now, arriving[0].sent)
				arriving = arriving[1:]
			}
			if r.IntN(4) > 0 {
				continue // nobody looks
			}
			if state, _ := life.Look(now); state == Connected && now-committed >= timeout {
				t.Fatalf("seed %d: connected %v after the newest commit, timeout %v", seed, now-committed, timeout)
			}
		}
	}
}

// A3.4: chrony slews the owner's clock and a leader's against each other. While their rates differ
// by less than 5 %, they diverge within a timeout by less than the margin.
func TestToldFirstByClocksOfOtherRates(t *testing.T) {
	const owner, leader = 0.976, 1.024 // the owner's clock is slow, the leader's is fast
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, time.Minute, time.Hour} {
		table := NewTable()
		if _, err := table.Register(Origin{Member: speaker, Start: 1}); err != nil {
			t.Fatal(err)
		}
		table.Accept(speaker, 1, 1)
		if err := table.Open(1, [16]byte{}, timeout, speaker, 0, nil); err != nil {
			t.Fatal(err)
		}
		life := NewLife(timeout, 0)
		var now time.Duration // true time since the batch was sent, and committed at once
		for table.Usable(1, speaker) == nil {
			step, d, _ := table.NextStep(speaker)
			now += time.Duration(float64(d) / leader)
			table.Silence(step, d)
		}
		if state, _ := life.Look(time.Duration(float64(now) * owner)); state == Connected {
			t.Errorf("a session with a timeout of %v expired after %v, and its owner trusts it", timeout, now)
		}
	}
}
