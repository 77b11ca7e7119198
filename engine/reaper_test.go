package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/replica"
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
		n.lead(enginetest.Member)
		fn(t, reaping{n, n.open(time.Minute)})
	})
}

// do applies operations, each in a transaction of its own.
func (r reaping) do(ops ...tree.Op) {
	r.t.Helper()
	for _, op := range ops {
		p := r.Submit(r.t.Context(), []tree.Op{op})
		r.commit()
		if err := outcome(p); err != nil {
			r.t.Fatalf("%v %s: %v", op.Kind, op.Path, err)
		}
	}
}

// after lets time pass, and makes the reaper look. Its proposal is in flight until land applies it.
func (r reaping) after(d time.Duration) (land func()) {
	r.run(d)
	r.shard.ReapDue(time.Now())
	ps := r.log.Drain()
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
		r.after(0)()
		r.want("c", "new", "plain")
		r.do(remove("/c/a"))
		r.after(time.Second)()
		r.want("new", "plain") // it may still be used for the first time
		r.after(replica.NeverUsedAge - time.Second)()
		r.want("new", "plain")
		r.after(time.Second)()
		r.want("plain")
	})
}

func TestTTLZnodesGoWhenNobodySetsThem(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		r.do(ttl("/a", 10*time.Second), ttl("/b", 10*time.Second), ttl("/c", 10*time.Second), create("/c/x"))
		r.after(9 * time.Second)()
		r.want("a", "b", "c")
		r.do(set("/b"))
		r.after(2 * time.Second)()
		r.want("b", "c")
		r.do(remove("/c/x")) // its TTL has passed: children only delay its end
		r.after(time.Second)()
		r.want("b")
		r.after(6 * time.Second)()
		r.want("b")
		r.after(2 * time.Second)()
		r.want()
	})
}

// Anything may happen between the reaper's look and the deletion in the log.
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
				land := r.after(2 * time.Second)
				r.do(use...)
				land()
				land() // and again: a copy
				r.want("m")
			})
		})
	}
}

// A TTL znode lives for its TTL, and until the next look. The reaper need not have seen it before.
func TestFirstLookRemovesWhatIsOver(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		r.do(ttl("/m", 10*time.Second), mode("/c", tree.Container))
		r.after(10*time.Second + time.Millisecond)()
		r.want("c")
		r.after(replica.NeverUsedAge - 10*time.Second)()
		r.want()
	})
}

// Every member measures for itself when a znode was written. So a new leader continues.
func TestAgesOutliveLeaders(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		r.lead(enginetest.Other)
		r.do(ttl("/m", 10*time.Second), ttl("/set", 10*time.Second))
		r.after(9 * time.Second)()
		r.do(set("/set"))
		r.lead(enginetest.Member)
		r.after(2 * time.Second)()
		r.want("set")
	})
}

// B6: a node that has loaded a znode has not seen how long the znode has been unchanged, whatever
// the wall clocks say.
func TestAgesBeginAnewWithALoad(t *testing.T) {
	for name, again := range map[string]func(n *node, ahead *peer){
		"a start":    func(n *node, ahead *peer) { mustDo(n, n.shard.Sync()); mustDo(n, n.shard.Load(n.image)) },
		"an install": func(n *node, ahead *peer) { ahead.catchUp(); mustDo(n, ahead.node.shard.Sync()); ahead.install() },
	} {
		t.Run(name, func(t *testing.T) {
			withGap(t, func(t *testing.T, n *node, ahead *peer) {
				n.lead(enginetest.Member)
				r := reaping{n, n.open(time.Minute)}
				r.do(ttl("/m", 10*time.Second))
				r.run(9 * time.Second)
				again(n, ahead)
				r.after(9 * time.Second)()
				r.want("m")
				r.after(2 * time.Second)()
				r.want()
			})
		})
	}
}

func mustDo(n *node, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// Looks may be closer together than commits. A proposal is repeated only when it was lost, or after
// a second.
func TestReaperWaitsForWhatItProposed(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		r.do(ttl("/a", time.Second))
		r.run(2 * time.Second)
		look := func() *enginetest.Proposal {
			t.Helper()
			r.shard.ReapDue(time.Now())
			if ps := r.log.Drain(); len(ps) > 0 {
				return ps[0]
			}
			return nil
		}
		first := look()
		if first == nil || look() != nil {
			t.Fatal("it made no proposal, or two")
		}
		first.Lost.Store(true)
		if first = look(); first == nil {
			t.Fatal("it does not propose again what was lost")
		}
		r.apply(first)
		r.want()
		r.do(ttl("/b", time.Millisecond))
		enginetest.Pass(10 * time.Millisecond)
		if look() == nil {
			t.Fatal("it waits for what was applied")
		}
		enginetest.Pass(replica.RetryAfter)
		if look() == nil {
			t.Fatal("it waits for ever")
		}
	})
}

// More znodes may become due than a round takes. The next round does not wait for the interval.
func TestReaperGoesOnAfterAFullRound(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		r.createShort(2*replica.ReapMax/500 + 1)
		enginetest.Pass(time.Second)
		r.log.Drain()
		stop := make(chan struct{})
		defer close(stop)
		go r.shard.ReapLoop(stop, nil)
		enginetest.Pass(replica.DefaultContainerCheckInterval)
		for range 3 {
			r.apply(r.log.Drain()...)
			enginetest.Pass(replica.ReapNext)
		}
		if got := r.node.tree().Len() - 4; got != 0 { // those from birth
			t.Errorf("a few seconds after the interval %d are left", got)
		}
	})
}

// B6: one member booted with its clock ten years ahead. Its times stay its own. The next write of
// another member has that member's time. What the first member wrote lives as long as anything
// else.
func TestWallClockOfOneMemberBindsNobody(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		const ahead = 10 * 365 * 24 * time.Hour
		r.fake.Step(ahead)
		r.run(time.Second) // the session is Connected again
		r.do(ttl("/ahead", 10*time.Second), create("/both"))
		r.fake.Step(-ahead)
		r.run(time.Second)
		r.do(ttl("/right", 10*time.Second), set("/both"))
		stat, _ := r.node.tree().Exists("/both")
		if by := stat.Ctime.Sub(stat.Mtime); by < ahead-time.Minute {
			t.Errorf("created at %v and written after that at %v, not at the writer's time", stat.Ctime, stat.Mtime)
		}
		r.after(8 * time.Second)()
		r.want("ahead", "both", "right")
		r.after(3 * time.Second)()
		r.want("both")
	})
}

// createShort creates znodes in portions of 500, which live for a millisecond.
func (r reaping) createShort(portions int) {
	for range portions {
		var ops []tree.Op
		for range 500 {
			ops = append(ops, tree.Op{Kind: tree.KindCreate, Path: "/t-", Mode: tree.SequentialTTL, TTL: 1})
		}
		r.Submit(r.t.Context(), ops)
		r.commit()
	}
}

// A round proposes no more than its share, in entries of a bounded size. The next round goes on.
func TestReaperTakesItsTime(t *testing.T) {
	withReaper(t, func(t *testing.T, r reaping) {
		const more = 500
		r.createShort((replica.ReapMax + more) / more)
		for at, left := range []int{more, 0} {
			r.after(time.Second)()
			if got := r.node.tree().Len() - 4; got != left { // those from birth
				t.Errorf("round %d leaves %d, want %d", at, got, left)
			}
		}
	})
}
