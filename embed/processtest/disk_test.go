//go:build unix

package processtest

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// TestFailedDisk lets the disk of a member fail that holds a lock. Its node and its hold fail and
// say why, but its process goes on. The other members go on, and the next contender gets the lock
// in time. When the disk works again, a new start in the same process joins the others.
func TestFailedDisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		errno syscall.Errno
		calls embedtest.DiskCalls
		leads bool
		byDay bool
	}{
		{"full, of the leader", syscall.ENOSPC, embedtest.Growth, true, true},
		{"full, of a follower", syscall.ENOSPC, embedtest.Growth, false, false},
		{"an fsync fails, of the leader", syscall.EIO, embedtest.Syncs, true, false},
		{"an fsync fails, of a follower", syscall.EIO, embedtest.Syncs, false, true},
	} {
		if !c.byDay && !testkit.Night() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t, quickTick)
			e.faults = true
			e.startAll()
			holder := e.leader()
			if !c.leads {
				holder = e.others(holder)[0]
			}
			m := contend(t, e, holder, e.others(holder)[0], patient(1500*time.Millisecond))
			p := m.holder
			p.mayFail = true
			p.must(t, request{Call: callDisk, Errno: c.errno, Mode: int(c.calls)})
			broke := now()
			r, err := p.callWithin(request{Call: callCreate, Session: "holder", Path: "/lost"})
			if err == nil || r.Outcome != unknown && r.Outcome != notApplied {
				t.Errorf("a write through a failed disk was %s: %v", r.Outcome, err)
			}
			cause := c.errno.Error()
			if r, _ := p.callWithin(request{Call: callFailed, Within: patience}); !strings.Contains(r.Error, cause) {
				t.Errorf("the node says %q, which does not name the cause, %q", r.Error, cause)
			}
			t.Logf("failed after %v", (now() - broke).Round(time.Millisecond))
			if r := p.must(t, request{Call: callHold, Hold: "held"}); r.Lost == "" || r.LostCtx == "" {
				t.Errorf("the hold of a node that failed says %q, its context %q", r.Lost, r.LostCtx)
			}
			// On a busy machine the session may have ended before its node did.
			r, _ = p.callWithin(request{Call: callState, Session: "holder"})
			if !strings.Contains(r.Error, embed.ErrFailed.Error()) && !strings.Contains(r.Error, embed.ErrSessionExpired.Error()) {
				t.Errorf("the session of a node that failed is %s and says %q", r.Data, r.Error)
			}
			ticks := p.must(t, request{Call: callStatus}).Ticks
			e.until("the rest of the process to go on", func() bool {
				return p.must(t, request{Call: callStatus}).Ticks > ticks+20
			})

			m.next(t)
			for _, other := range e.others(holder) {
				s := e.session(other, "other", outlasting)
				s.must(t, request{Call: callCreate, Session: "other", Path: "/meanwhile-", Mode: int(embed.Sequential)})
			}

			if _, err := p.callWithin(request{Call: callStart, Config: e.config(holder)}); err == nil {
				t.Error("a node starts on a disk that fails")
			}
			p.must(t, request{Call: callDisk})
			p.must(t, request{Call: callStart, Config: e.config(holder)})
			p.must(t, request{Call: callReady, Within: patience})
			p.must(t, request{Call: callOpen, Session: "again", Timeout: outlasting})
			m.waiter.must(t, request{Call: callRelease, Hold: "next"})
			p.must(t, request{Call: callLock, Session: "again", Hold: "again", Path: lockPath})
			p.must(t, request{Call: callRelease, Hold: "again"})
			e.sameTrees()
		})
	}
}
