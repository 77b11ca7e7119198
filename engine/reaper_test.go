package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// A reaping is a node that leads and reaps when the test says so.
type reaping struct {
	*node
	*Session
}

func withReaper(t *testing.T, fn func(t *testing.T, r reaping)) {
	t.Helper()
	withNode(t, func(t *testing.T, n *node) {
		n.reaper = newReaper(n.shard, n.log, n.cfg, n.Engine.log)
		n.lead(testMember)
		fn(t, reaping{n, n.open(time.Minute)})
	})
}

// do carries out operations, each in a transaction of its own.
func (r reaping) do(ops ...tree.Op) {
	r.t.Helper()
	for _, op := range ops {
		p := r.Submit(r.t.Context(), []tree.Op{op})
		r.commit()
		if err := outcome(p.waiter); err != nil {
			r.t.Fatalf("%v %s: %v", op.Kind, op.Path, err)
		}
	}
}

// round is a look of the reaper at a moment. What it proposes is on its way: land applies it.
func (r reaping) round(at time.Duration) (land func()) {
	r.reaper.round(time.Unix(0, 0).Add(at))
	ps := r.log.take()
	return func() { r.apply(ps...) }
}

func (r reaping) want(paths ...string) {
	r.t.Helper()
	names, _, err := r.node.tree().Children("/")
	if err != nil {
		r.t.Fatal(err)
	}
	if names = slices.DeleteFunc(names, func(s string) bool { return s == "zookeeper" }); !slices.Equal(names, paths) {
		r.t.Fatalf("left %q, want %q", names, paths)
	}
}

func mode(path string, m tree.CreateMode) tree.Op {
	return tree.Op{Kind: tree.KindCreate, Path: path, Mode: m}
}

func ttl(path string, d time.Duration) tree.Op {
	return tree.Op{Kind: tree.KindCreate, Path: path, Mode: tree.TTL, TTL: d.Milliseconds()}
}

func TestContainersGoWhenTheyHaveLostTheirLastChild(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		r.do(mode("/c", tree.Container), create("/c/a"), mode("/new", tree.Container), create("/plain"))
		r.round(0)()
		r.want("c", "new", "plain")
		r.do(remove("/c/a"))
		r.round(time.Second)()
		r.want("new", "plain") // which may still be used for the first time
		r.round(neverUsedAge)()
		r.want("new", "plain")
		r.round(neverUsedAge + time.Second)()
		r.want("plain")
	})
}

func TestTTLZnodesGoWhenNobodySetsThem(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		r.do(ttl("/a", 10*time.Second), ttl("/b", 10*time.Second), ttl("/c", 10*time.Second), create("/c/x"))
		r.round(0)()
		r.round(9 * time.Second)()
		r.want("a", "b", "c")
		r.do(set("/b"))
		r.round(11 * time.Second)()
		r.want("b", "c")
		r.do(remove("/c/x")) // its TTL is over: children only put that off
		r.round(12 * time.Second)()
		r.round(22 * time.Second)()
		r.want()
	})
}

// Between the reaper's look and the deletion's turn in the log anything may happen.
func TestReaperSparesWhatWasUsedSince(t *testing.T) {
	for name, use := range map[string][]tree.Op{
		"a child":            {create("/m/x")},
		"a child for a time": {create("/m/x"), remove("/m/x")},
		"a write":            {set("/m")},
		"another znode":      {remove("/m"), create("/m")},
		"the same again":     {remove("/m"), ttl("/m", time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			withReaper(t, func(t *testing.T, r reaping) {
				r.do(ttl("/m", time.Second))
				r.round(0)()
				land := r.round(2 * time.Second)
				r.do(use...)
				land()
				land() // and again: a copy
				r.want("m")
			})
		})
	}
}

// B6: a node that comes to lead has not seen for how long anything has been as it is, whatever the wall clocks say.
func TestReaperCountsAgesAnewWithEachLeadership(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		r.do(ttl("/m", 10*time.Second))
		r.round(0)()
		r.lead(otherMember)
		r.round(9 * time.Second)()
		r.lead(testMember)
		r.round(11 * time.Second)()
		r.want("m")
		r.round(22 * time.Second)()
		r.want()
	})
}

// B6: one member booted with its clock ten years ahead. Its times are its own: the next write of another member has that
// member's, and what it wrote lives as long as anything else.
func TestWallClockOfOneMemberBindsNobody(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		const ahead = 10 * 365 * 24 * time.Hour
		r.fake.step(ahead)
		r.run(time.Second) // the session is Connected again
		r.do(ttl("/ahead", 10*time.Second), create("/both"))
		r.fake.step(-ahead)
		r.run(time.Second)
		r.do(ttl("/right", 10*time.Second), set("/both"))
		stat, _ := r.node.tree().Exists("/both")
		if by := stat.Ctime.Sub(stat.Mtime); by < ahead-time.Minute {
			t.Errorf("created at %v and written after that at %v, not at the time of who wrote", stat.Ctime, stat.Mtime)
		}
		r.round(0)()
		r.round(9 * time.Second)()
		r.want("ahead", "both", "right")
		r.round(11 * time.Second)()
		r.want("both")
	})
}

// A round proposes no more than its share, in entries of a bounded size; the next one goes on.
func TestReaperTakesItsTime(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		const more = 500
		for range (reapMax + more) / more {
			var ops []tree.Op
			for range more {
				ops = append(ops, tree.Op{Kind: tree.KindCreate, Path: "/t-", Mode: tree.SequentialTTL, TTL: 1})
			}
			r.Submit(t.Context(), ops)
			r.commit()
		}
		for at, left := range []int{reapMax + more, more, 0} {
			r.round(time.Duration(at) * time.Second)()
			if got := r.node.tree().Len() - 4; got != left { // those from birth
				t.Errorf("round %d leaves %d, want %d", at, got, left)
			}
		}
	})
}

// A log entry has room for few long paths. One that is too large would be refused each time, and nothing ever reaped again.
func TestReapEntriesAreBoundedInBytes(t *testing.T) {
	for _, length := range []int{1, 1000, pathMax, 2 * batchBytesMax} {
		var due []mortal
		path := strings.Repeat("x", length)
		for range 2 * reapBatch {
			due = append(due, mortal{path: path})
		}
		n := portionOf(due)
		if size := len(encodeReap(0, due[:n])); n < 1 || n > reapBatch || n > 1 && size > batchBytesMax {
			t.Errorf("%d znodes with paths of %d bytes make an entry of %d", n, length, size)
		}
	}
}
