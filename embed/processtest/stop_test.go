//go:build unix

package processtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A fence is a resource outside the ensemble that a lock protects. It refuses a token that is older
// than one it has seen.
type fence struct{ newest lock.Token }

func (f *fence) admit(t lock.Token) bool {
	if t.Compare(f.newest) < 0 {
		return false
	}
	f.newest = t
	return true
}

// TestGuarantee_Fenced stops a process that holds a lock for three times its timeout, while the
// process writes as fast as it can, guarded by the hold. Another process is granted the lock and
// writes. When the first process goes on, its hold has ended and says why. None of its writes is
// applied any longer: neither those in flight or queued when the signal came, nor those that it
// sends without asking first. It writes through a session that outlives the stop, so only the guard
// can refuse the writes.
func TestGuarantee_Fenced(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{false, true} {
		t.Run(map[bool]string{false: "follower", true: "leader"}[leads], func(t *testing.T) {
			t.Parallel()
			attempts(t, patient(1500*time.Millisecond), func(timeout time.Duration) bool {
				return stopWriter(t, leads, timeout)
			})
		})
	}
}

// stopWriter is false if a busy machine ended the hold before the test did.
func stopWriter(t *testing.T, leads bool, timeout time.Duration) bool {
	e := newEnsemble(t, quickTick)
	defer func() { e.kill(e.ids...) }()
	e.startAll()
	holder := e.leader()
	if !leads {
		holder = e.others(holder)[0]
	}
	m := contend(t, e, holder, e.others(holder)[0], timeout)
	timeout = m.timeout
	e.session(holder, "writer", outlasting)
	m.holder.must(t, request{Call: callCreate, Session: "writer", Path: resourcePath})
	outside := fence{}
	outside.admit(*m.held.Token)

	write := request{Call: callWriteOn, Session: "writer", Hold: "held", Path: resourcePath, Data: "old", Within: outlasting}
	writing := m.holder.send(write)
	blind := m.holder.send(request{Call: callPaused, Session: "writer", Hold: "held", Path: resourcePath, Data: "Set", Timeout: 2 * timeout, Within: outlasting})
	lost := false
	e.until("the holder to write", func() bool {
		lost = m.holder.must(t, request{Call: callHold, Hold: "held"}).Lost != ""
		return lost || m.holder.must(t, request{Call: callStatus}).Armed == 2 &&
			m.holder.must(t, request{Call: callGet, Session: "writer", Path: resourcePath}).Stat.Version > 0
	})
	// While the others stand still nothing is answered, so the holder's writes pile up.
	for _, id := range e.others(holder) {
		e.run(id).stop()
	}
	e.until("the holder to have all its writes on their way", func() bool {
		lost = lost || m.holder.must(t, request{Call: callHold, Hold: "held"}).Lost != ""
		return lost || m.holder.must(t, request{Call: callStatus}).Ahead == writesAhead
	})
	m.holder.stop()
	for _, id := range e.others(holder) {
		e.run(id).resume()
	}
	if lost {
		t.Log("the hold was lost before its process was stopped")
		return false
	}
	stopped := now()
	next := m.next(t)
	first := m.waiter.must(t, request{Call: callGuarded, Session: "waiter", Hold: "next", Path: resourcePath, Data: "new"})
	if !outside.admit(*next.Token) {
		t.Errorf("a fence refuses the token %v after %v", next.Token, m.held.Token)
	}
	<-time.After(3*timeout - (now() - stopped))
	m.holder.resume()

	r, err := receive(writing, callWriteOn)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[outcome]int)
	late := 0
	for i, o := range r.Each {
		counts[o]++
		if o == applied && r.Version[i] >= first.Stat.Version {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d guarded writes were applied after the next holder's first", late)
	}
	t.Logf("stopped for three times %v after %d writes: %v; the hold says %q, its context %q", timeout, len(r.Each), counts, r.Lost, r.LostCtx)
	if r.Until >= next.At {
		t.Errorf("a question asked %v after the next holder was granted the lock was answered \"held\"", r.Until-next.At)
	}
	for o := range counts {
		if o != applied && o != refused && o != notApplied && o != unknown {
			t.Errorf("a guarded write ended with an %s", o)
		}
	}
	if counts[refused] < 100 {
		t.Logf("%d writes were refused; far more were on their way, unless the hold was lost before its process was stopped", counts[refused])
		return false
	}
	// The end of the session may have arrived before the first question.
	if !strings.Contains(r.Lost, embed.ErrSuspended.Error()) && !strings.Contains(r.Lost, embed.ErrSessionExpired.Error()) || r.LostCtx == "" {
		t.Errorf("the hold says %q, its context %q", r.Lost, r.LostCtx)
	}
	r, err = receive(blind, callPaused)
	if err == errDied {
		t.Fatal(err)
	}
	if err != nil || r.At < next.At {
		t.Logf("something else stopped the process before: %v", err)
		return false
	}
	if !strings.Contains(r.Data, embed.ErrNotHeld.Error()) {
		t.Errorf("after a pause of %v a guarded write that asked nobody ended with %q", r.Pause, r.Data)
	}
	if r, err := m.holder.callWithin(request{Call: callGuarded, Session: "writer", Hold: "held", Path: resourcePath, Data: "old"}); r.Outcome != refused {
		t.Errorf("a write guarded by a lost hold was %s: %v", r.Outcome, err)
	}
	if outside.admit(*m.held.Token) {
		t.Error("a fence admits the token of the lost hold after the next one's")
	}
	got := m.waiter.must(t, request{Call: callGet, Session: "waiter", Path: resourcePath})
	if got.Data != "new" || got.Stat.Version != first.Stat.Version {
		t.Errorf("the resource is %q in version %d; the next holder wrote version %d", got.Data, got.Stat.Version, first.Stat.Version)
	}
	// The writer's session outlived the stop.
	if r := m.holder.must(t, request{Call: callSet, Session: "writer", Path: resourcePath, Data: "unguarded", Version: first.Stat.Version}); r.Stat.Version != first.Stat.Version+1 {
		t.Errorf("an unguarded write made version %d", r.Stat.Version)
	}
	afterLoss(t, e, m)
	return true
}

// TestStoppedLeader stops the process of the Raft leader for three times the timeout of short
// sessions, by night for a minute, and lets it go on. No session of another member expires because
// of that, neither during the stop nor when the old leader comes back (etcd#15247). Its own sessions
// whose timeouts passed are gone and say why, and it serves again.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	short := 2 * time.Second
	if testkit.Night() {
		short = 5 * time.Second
	}
	attempts(t, patient(short), func(short time.Duration) bool { return stopLeader(t, short) })
}

// stopLeader is false if a session of another member expired. A busy machine may delay a member's
// signs of life for so long.
func stopLeader(t *testing.T, short time.Duration) bool {
	stop, timeouts := 3*short, map[string]time.Duration{"short": short, "long": 2 * short}
	if testkit.Night() {
		stop, timeouts["long"] = 12*short, 6*short
	}
	e := newEnsemble(t, quickTick)
	defer func() { e.kill(e.ids...) }()
	e.startAll()
	leader := e.leader()
	stopped := e.run(leader)
	type owner struct {
		run     *run
		session string
		path    string
	}
	var live, gone []owner
	lives := true
	use := func(o owner, q request) {
		q.Session, q.Within = o.session, patience
		if _, err := o.run.callWithin(q); err != nil {
			t.Logf("%s: %v", o.path, err)
			lives = false
		}
	}
	for _, id := range e.ids {
		for name, timeout := range timeouts {
			o := owner{e.session(id, name, timeout), name, fmt.Sprintf("/%s-%d", name, id)}
			use(o, request{Call: callCreate, Path: o.path, Mode: int(embed.Ephemeral)})
			use(o, request{Call: callLock, Hold: name, Path: "/locks" + o.path})
			if id == leader {
				gone = append(gone, o)
			} else {
				live = append(live, o)
			}
		}
	}
	// alive asks every session of the other members, and writes through one.
	var slowest time.Duration
	alive := func(when string) bool {
		for _, o := range live {
			use(o, request{Call: callState})
			began := now()
			use(o, request{Call: callSet, Path: o.path, Data: when, Version: embed.AnyVersion})
			slowest = max(slowest, now()-began)
		}
		return lives
	}
	watch := time.NewTicker(100 * time.Millisecond)
	defer watch.Stop()
	lasts := func(d time.Duration, when string) bool {
		for since := now(); now()-since < d && alive(when); <-watch.C {
		}
		return lives
	}
	stopped.stop()
	if !lasts(stop, "while the leader is stopped") {
		return false
	}
	t.Logf("without member %d, which led, the slowest write took %v", leader, slowest.Round(time.Millisecond))
	witness := e.session(e.others(leader)[0], "witness", outlasting)
	for _, o := range gone {
		e.until("the end of "+o.path+", of a member that is silent", func() bool {
			r, _ := witness.callWithin(request{Call: callGet, Session: "witness", Path: o.path})
			return r.Outcome == refused
		})
	}

	resumed := now()
	stopped.resume()
	for _, o := range gone {
		if r, _ := stopped.callWithin(request{Call: callState, Session: o.session}); r.Data == embed.Connected.String() {
			t.Errorf("%s: the first question after the stop is answered %q", o.path, r.Data)
		}
		if r := stopped.must(t, request{Call: callHold, Hold: o.session}); r.Lost == "" || r.LostCtx == "" {
			t.Errorf("%s: after the stop its hold says %q, its context %q", o.path, r.Lost, r.LostCtx)
		}
	}
	slowest = 0
	for _, o := range gone {
		e.until("the end of a session that was silent", func() bool {
			r, _ := stopped.callWithin(request{Call: callState, Session: o.session})
			if r.Data == embed.Expired.String() && !strings.Contains(r.Error, embed.ErrSessionExpired.Error()) {
				t.Errorf("%s: it expired and says %q", o.path, r.Error)
			}
			return !alive("since it goes on") || r.Data == embed.Expired.String()
		})
	}
	again := e.session(leader, "again", outlasting)
	again.must(t, request{Call: callCreate, Session: "again", Path: "/again", Mode: int(embed.Ephemeral)})
	t.Logf("it serves %v after it goes on, member %d leads", (now() - resumed).Round(time.Millisecond), e.leader())
	if !lasts(2*short, "since it serves again") {
		return false
	}
	t.Logf("since it goes on the slowest write took %v", slowest.Round(time.Millisecond))
	for _, o := range live {
		if r := o.run.must(t, request{Call: callHold, Hold: o.session}); o.session == "long" && r.Lost != "" {
			t.Logf("%s: its hold was lost: %s", o.path, r.Lost)
			return false
		}
		use(o, request{Call: callClose}) // no session ends while sameTrees reads
	}
	if lives {
		e.sameTrees()
	}
	return lives
}

// TestStoppedLeader_ReadsNothingStale stops the process of the Raft leader until another one leads
// and has written. When the process goes on, it still believes that it leads. First it Syncs and
// reads: it reads what was written, or says that it could not Sync. (etcd#20418: a linearizable
// read of a leader that had been paused was stale.)
func TestStoppedLeader_ReadsNothingStale(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, quickTick)
	e.startAll()
	for n := range rounds(2, 3) {
		leader := e.leader()
		session := fmt.Sprint("reader-", n)
		stopped := e.session(leader, session, loadTimeout)
		path, written := fmt.Sprint("/x-", n), fmt.Sprint("written-", n)
		stopped.must(t, request{Call: callCreate, Session: session, Path: path, Data: "old"})
		stopped.stop()
		var reads []<-chan reply
		for range 8 {
			// A walk Syncs first.
			reads = append(reads, stopped.send(request{Call: callWalk, Session: session}))
		}
		writer := e.session(e.others(leader)[n%2], session, loadTimeout)
		writer.must(t, request{Call: callSet, Session: session, Path: path, Data: written, Version: embed.AnyVersion, Within: patience})
		stopped.resume()
		served := 0
		for _, read := range reads {
			r, err := receive(read, callWalk)
			if err != nil {
				continue // it does not lead, and says so
			}
			served++
			for _, z := range r.Tree {
				if z.Path == path && z.Data != written {
					t.Errorf("a Sync after %q had been acknowledged, and %s is %q", written, path, z.Data)
				}
			}
		}
		t.Logf("round %d: member %d led, %d of %d Syncs were served", n, leader, served, len(reads))
		e.until("it to serve again", func() bool {
			r, err := stopped.callWithin(request{Call: callGet, Session: session, Path: path})
			return err == nil && r.Data == written
		})
		writer.must(t, request{Call: callClose, Session: session})
	}
	e.sameTrees()
}
