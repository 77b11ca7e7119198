package session

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// crowd returns a table with n sessions at one origin, either in-process or remote. Their timeouts
// are all the same, or all different.
func crowd(t testing.TB, n int, different, remote bool) *Table {
	table := NewTable()
	if _, err := table.Register(Origin{Member: 1, Start: 1}); err != nil {
		t.Fatal(err)
	}
	table.Accept(1, 1, 1)
	for i := range n {
		timeout := time.Hour
		if different {
			timeout += time.Duration(i*7919%n) * time.Millisecond
		}
		var attached tree.Zxid
		if remote {
			attached = tree.Zxid(i + 1)
		}
		if err := table.Open(tree.SessionID(i+1), [16]byte{}, timeout, 1, attached, nil); err != nil {
			t.Fatal(err)
		}
	}
	table.dirtySessions = make(map[tree.SessionID]struct{})
	return table
}

// operations are the calls that happen all the time. None may cost by the number of sessions.
var operations = []struct {
	name   string
	run    func(*Table, int)
	remote bool
}{
	{name: "accept", run: func(t *Table, i int) {
		if t.Accept(1, 1, t.origins[1].LastSeq+1) != Accepted {
			panic("not accepted")
		}
	}},
	{name: "silence", run: func(t *Table, i int) {
		s, _, _ := t.NextStep(1)
		if t.origins[1].Silence > 59*time.Minute {
			t.Accept(1, 1, s.LastSeq+1)
			s, _, _ = t.NextStep(1)
		}
		if !t.Silence(s, time.Second) {
			panic("not recorded")
		}
	}},
	{name: "minimum", run: func(t *Table, i int) { t.MinTimeout(1) }},
	{name: "usable", run: func(t *Table, i int) {
		if err := t.Usable(tree.SessionID(1+i*7919%len(t.sessions)), 1); err != nil {
			panic(err)
		}
	}},
	{name: "reopen", run: func(t *Table, i int) {
		id := tree.SessionID(1 + i*7919%len(t.sessions))
		r, _ := t.Get(id)
		if t.origins[1].Silence > 0 {
			t.Accept(1, 1, t.origins[1].LastSeq+1)
		}
		t.Close(id, 0, true)
		if err := t.Open(id, r.Password, r.Timeout, 1, 0, nil); err != nil {
			panic(err)
		}
	}},
	{name: "reattach", remote: true, run: func(t *Table, i int) {
		id := tree.SessionID(1 + i*7919%len(t.sessions))
		r, _ := t.Get(id)
		if err := t.Reattach(id, r.Password, r.Timeout, 1, r.Attached+1, nil); err != nil {
			panic(err)
		}
	}},
}

func BenchmarkTable(b *testing.B) {
	for _, op := range operations {
		for _, n := range []int{1000, 100_000} {
			for _, different := range []bool{false, true} {
				b.Run(fmt.Sprintf("op=%s/sessions=%d/different=%v", op.name, n, different), func(b *testing.B) {
					table := crowd(b, n, different, op.remote)
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						op.run(table, i)
					}
				})
			}
		}
	}
}

// TestCostOf100000Sessions compares the best of many short runs with a hundredth of the sessions
// and with all of them. A cost by the session would make a factor of a hundred; caches make a few.
func TestCostOf100000Sessions(t *testing.T) {
	testkit.ByNight(t, "it compares times, which other programs on the machine disturb")
	const factor = 20
	for _, different := range []bool{false, true} {
		for _, op := range operations {
			few, many := crowd(t, 1000, different, op.remote), crowd(t, 100_000, different, op.remote)
			if a, b := best(few, op.run), best(many, op.run); b > factor*a+time.Microsecond*runLen/10 {
				t.Errorf("%s, timeouts different: %v: %v for %d runs with 1,000 sessions, %v with 100,000",
					op.name, different, a, runLen, b)
			}
		}
	}
}

// Every member has a record of every session.
func TestRecordIsSmall(t *testing.T) {
	const sessions = 100_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, c := range []struct {
		name   string
		remote bool
		most   float64
	}{{"in-process", false, 120}, {"remote", true, 220}} {
		before := heap()
		table := crowd(t, sessions, false, c.remote)
		size := float64(heap()-before) / sessions
		t.Logf("%s: %.0f bytes a session", c.name, size)
		if size > c.most {
			t.Errorf("%s: %.0f bytes a session, want at most %.0f", c.name, size, c.most)
		}
		runtime.KeepAlive(table)
	}
}

const runLen = 200

func best(table *Table, run func(*Table, int)) time.Duration {
	least := time.Hour
	for round := range 20 {
		begin := time.Now()
		for i := range runLen {
			run(table, round*runLen+i)
		}
		least = min(least, time.Since(begin))
	}
	return least
}

// TestDueOf100000Sessions makes all sessions due with one entry. It looks at the classes that the
// entry visited: one for each different timeout that the silence has reached.
func TestDueOf100000Sessions(t *testing.T) {
	table := crowd(t, 100_000, false, false)
	for range 4 {
		s, d, _ := table.NextStep(1)
		table.Silence(s, d)
	}
	o := table.origins[1]
	if len(o.live) != 0 || len(o.due) != 1 || len(table.dirtySessions) != 0 {
		t.Errorf("%d classes live, %d due, %d sessions written", len(o.live), len(o.due), len(table.dirtySessions))
	}
	due := table.Due()
	if len(due) != 100_000 {
		t.Fatalf("%d sessions due", len(due))
	}
	for _, id := range due[:50_000] {
		table.Close(id, 0, true)
	}
	table.Accept(1, 1, 2)
	if due = table.Due(); len(due) != 50_000 || due[0] != 50_001 {
		t.Fatalf("%d sessions due after the origin came back", len(due))
	}
	if err := table.Verify(); err != nil {
		t.Error(err)
	}
}

func BenchmarkDue(b *testing.B) {
	table := crowd(b, 100_000, false, false)
	for range 4 {
		s, d, _ := table.NextStep(1)
		table.Silence(s, d)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(table.Due()) != 100_000 {
			b.Fatal("not all due")
		}
	}
}

// M102: members that have gone cost memory, and no look at the silence of the others visits them.
func TestDepartedMembersAreNotVisited(t *testing.T) {
	table := crowd(t, 10, false, false)
	for m := range MemberID(10_000) {
		table.LoadOrigin(Origin{Member: m + 2, Start: 1, Retired: true})
	}
	if _, err := table.Register(Origin{Member: 20_000, Start: 1}); err != nil {
		t.Fatal(err)
	}
	looks := func() (steps []MemberID) {
		for s := range table.NextSteps() {
			steps = append(steps, s.Member)
		}
		return steps
	}
	if got := looks(); !slices.Equal(got, []MemberID{1}) || len(table.present) != 2 {
		t.Errorf("the next steps are those of %v, and %d origins are visited", got, len(table.present))
	}
	table.Retire(1) // its sessions still wait for its silence
	if got := looks(); !slices.Equal(got, []MemberID{1}) {
		t.Errorf("the next steps beside a retired origin with sessions are those of %v", got)
	}
	for range 4 {
		s, d, _ := table.NextStep(1)
		table.Silence(s, d)
	}
	for _, id := range table.Due() {
		table.Close(id, 0, true)
	}
	if got := looks(); got != nil || len(table.present) != 1 || len(table.Present()) != 1 || len(table.Origins()) != 10_002 {
		t.Errorf("the next steps are those of %v; %v are present", got, table.Present())
	}
}
