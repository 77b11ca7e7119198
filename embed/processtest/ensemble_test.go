//go:build unix

package processtest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

const patience = testkit.Patience

// outlasting is the timeout of sessions that outlast whatever keeps a busy machine from sending
// their signs of life.
const outlasting = 4 * patience

// quickTick makes elections take 0.2 to 0.48 s. The least session timeout is then 1.44 s.
const quickTick = 20 * time.Millisecond

// An ensemble is three members in processes of their own. Its methods fail the test if they cannot
// do what they are asked to. Only the test's own goroutine may call them, except run.
type ensemble struct {
	t       *testing.T
	dir     string
	tick    time.Duration
	members map[embed.MemberID]string
	ids     []embed.MemberID
	faults  bool // the members' disks may fail

	mu struct {
		sync.Mutex
		runs map[embed.MemberID]*run
	}
}

// A run is one process of a member, from its start to its end.
type run struct {
	*process
	member embed.MemberID
	number int // counts the member's runs
	ready  chan struct{}
}

// newEnsemble returns three members that are not running yet.
func newEnsemble(t *testing.T, tick time.Duration) *ensemble {
	t.Helper()
	e := &ensemble{t: t, dir: workDir(t), tick: tick, members: freeMembers(t)}
	e.ids = slices.Sorted(maps.Keys(e.members))
	e.mu.runs = make(map[embed.MemberID]*run)
	return e
}

// freeMembers returns three members at addresses where nobody listens.
func freeMembers(t *testing.T) map[embed.MemberID]string {
	t.Helper()
	addrs, err := child.FreeAddrs(3)
	if err != nil {
		t.Fatal(err)
	}
	members := make(map[embed.MemberID]string)
	for i, addr := range addrs {
		members[embed.MemberID(i+1)] = addr
	}
	return members
}

func (e *ensemble) memberDir(id embed.MemberID) string {
	return filepath.Join(e.dir, fmt.Sprintf("member-%d", id))
}

func (e *ensemble) config(id embed.MemberID) *config {
	return &config{Dir: e.memberDir(id), ID: id, Members: e.members, Shards: shardsflag.N, Tick: e.tick, Faults: e.faults}
}

// start starts a member's process and its node. It waits for neither.
func (e *ensemble) start(id embed.MemberID) *run {
	e.t.Helper()
	e.mu.Lock()
	number := 1
	if last := e.mu.runs[id]; last != nil {
		number = last.number + 1
	}
	e.mu.Unlock()
	r := &run{member: id, number: number, ready: make(chan struct{})}
	r.process = spawn(e.t, filepath.Join(e.dir, fmt.Sprintf("member-%d.log", id)))
	go func() {
		if _, err := r.call(request{Call: callStart, Config: e.config(id)}); err != nil {
			if err != errDied {
				e.t.Errorf("member %d, run %d: %v", id, number, err)
			}
			return
		}
		_, err := r.call(request{Call: callReady, Within: patience})
		if err == nil {
			close(r.ready)
		} else if err != errDied {
			e.t.Errorf("member %d, run %d: %v", id, number, err)
		}
	}()
	e.mu.Lock()
	e.mu.runs[id] = r
	e.mu.Unlock()
	return r
}

// run returns a member's newest run, or nil before the first.
func (e *ensemble) run(id embed.MemberID) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.runs[id]
}

// startAll starts all members and waits until they are ready.
func (e *ensemble) startAll() {
	e.t.Helper()
	for _, id := range e.ids {
		e.start(id)
	}
	for _, id := range e.ids {
		e.ready(id)
	}
}

// ready waits until a member is ready.
func (e *ensemble) ready(id embed.MemberID) *run {
	e.t.Helper()
	r := e.run(id)
	select {
	case <-r.ready:
	case <-r.Dead():
		e.t.Fatalf("member %d, run %d: ended before it was ready", id, r.number)
	case <-time.After(patience):
		e.t.Fatalf("member %d, run %d: not ready in %v", id, r.number, patience)
	}
	return r
}

// kill kills members at nearly the same moment, and waits until they are gone.
func (e *ensemble) kill(ids ...embed.MemberID) {
	for _, id := range ids {
		e.run(id).Kill()
	}
	for _, id := range ids {
		<-e.run(id).Dead()
	}
}

// leader waits until the running members agree on a running leader, and returns it.
func (e *ensemble) leader() embed.MemberID {
	e.t.Helper()
	var leader embed.MemberID
	e.until("a leader", func() bool {
		leader = e.agreed()
		return leader != 0
	})
	return leader
}

func (e *ensemble) agreed() embed.MemberID {
	votes := make(map[embed.ShardStatus]int)
	for _, id := range e.ids {
		r, err := e.run(id).callWithin(request{Call: callStatus})
		if err != nil {
			continue
		}
		s := r.Status.Shards[0]
		votes[embed.ShardStatus{Leader: s.Leader, Term: s.Term}]++
	}
	for s, n := range votes {
		if s.Leader != 0 && n > len(e.ids)/2 {
			return s.Leader
		}
	}
	return 0
}

// others returns the members except one.
func (e *ensemble) others(id embed.MemberID) []embed.MemberID {
	return without(e.ids, []embed.MemberID{id})
}

// until waits until cond holds. If it does not, the failure says that the test waited for what.
func (e *ensemble) until(what string, cond func() bool) {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			e.stacks()
			e.t.Fatalf("waited %v for %s", patience, what)
		}
		<-tick.C
	}
}

// stacks makes every member that still answers write its goroutines to its log.
func (e *ensemble) stacks() {
	for _, id := range e.ids {
		if r := e.run(id); r != nil {
			select {
			case <-r.send(request{Call: callStacks}):
			case <-time.After(time.Second): // it is stopped, or dead
			}
		}
	}
}

// session opens a session on a member and returns the member's process. It tries again if the
// member's disk stands still for longer than the node waits.
func (e *ensemble) session(id embed.MemberID, name string, timeout time.Duration) *run {
	e.t.Helper()
	r := e.ready(id)
	e.until("a session", func() bool {
		a, err := r.callWithin(request{Call: callOpen, Session: name, Timeout: timeout})
		if err != nil && (err == errDied || a.Outcome != unknown && a.Outcome != notApplied) {
			e.t.Fatalf("member %d, run %d: %v", id, r.number, err)
		}
		return err == nil
	})
	return r
}

// longestElection returns how long the members may be without a leader after their leader died.
func (e *ensemble) longestElection() time.Duration { return engine.LongestElection(e.tick) }

// stop stops a member's process without ending it. It returns when none of its threads runs any
// longer, which may take a while if the disk is busy.
func (r *run) stop() {
	r.Signal(syscall.SIGSTOP)
	for end := time.Now().Add(patience); !stopped(r.Pid()) && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
}

// resume lets a stopped process go on.
func (r *run) resume() { r.Signal(syscall.SIGCONT) }
