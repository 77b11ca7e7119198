package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
)

// A fakeLog stands for a Raft group, or for several with one leader: it keeps what is proposed, and the test decides what becomes of it.
type fakeLog struct {
	mu       sync.Mutex
	leader   replication.Leader
	refusal  error  // what Propose answers, if set
	during   func() // called once by Propose before it answers, if set
	proposed []*fakeProposal
}

type fakeProposal struct {
	shard   ShardID // zero: the first
	cmd     []byte
	at      time.Time
	dropped atomic.Bool
}

func (p *fakeProposal) Dropped() bool { return p.dropped.Load() }

var errRefused = errors.New("refused")

func (l *fakeLog) Propose(id ShardID, cmd []byte) (proposal, error) {
	if during := l.meanwhile(nil); during != nil {
		during()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal != nil {
		return nil, l.refusal
	}
	p := &fakeProposal{shard: id, cmd: append([]byte(nil), cmd...), at: time.Now()}
	l.proposed = append(l.proposed, p)
	return p, nil
}

func (l *fakeLog) Leader(ShardID) replication.Leader {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

func (l *fakeLog) elect(m replication.MemberID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader = replication.Leader{Member: m, Term: l.leader.Term + 1}
}

func (l *fakeLog) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
}

// meanwhile sets what happens during the next Propose, and returns what was set before.
func (l *fakeLog) meanwhile(fn func()) (was func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, l.during = l.during, fn
	return was
}

// take returns what was proposed since the last take.
func (l *fakeLog) take() []*fakeProposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.proposed
	l.proposed = nil
	return out
}

// A fakeClock runs with the bubble's time. It can be moved as no timer sees it.
type fakeClock struct {
	start time.Time
	// paused is the time that the process stood still: all clocks show it.
	paused atomic.Int64
	// slept is the time that the machine slept: the quick clock alone does not show it.
	slept atomic.Int64
	// stepped is what the wall clock was moved by.
	stepped atomic.Int64
}

func newFakeClock() *fakeClock { return &fakeClock{start: time.Now()} }

func (c *fakeClock) boot() time.Duration {
	return time.Since(c.start) + time.Duration(c.paused.Load()+c.slept.Load())
}

func (c *fakeClock) wall() time.Time {
	return time.Now().Add(time.Duration(c.paused.Load() + c.slept.Load() + c.stepped.Load()))
}

// clock has a quick one too, as that of the machine has: most questions are answered by it alone.
func (c *fakeClock) clock() clock.Clock {
	return clock.Clock{Boot: c.boot, Wall: c.wall, Quick: func() (wall, mono time.Duration) {
		return time.Duration(c.wall().UnixNano()), time.Since(c.start) + time.Duration(c.paused.Load())
	}}
}

func (c *fakeClock) pause(d time.Duration) { c.paused.Add(int64(d)) }
func (c *fakeClock) sleep(d time.Duration) { c.slept.Add(int64(d)) }
func (c *fakeClock) step(d time.Duration)  { c.stepped.Add(int64(d)) }

// pass lets time pass in a bubble, with everything that happens meanwhile.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// The member that the fake ensembles of these tests look at.
const testMember, otherMember = 1, 2

func testOrigin() session.Origin {
	return session.Origin{Member: testMember, Start: 3, Directory: [16]byte{1}, Digest: [32]byte{2}, Level: command.FormatLevel}
}

func mustDecode(t testing.TB, cmd []byte) command.Command {
	t.Helper()
	c, err := command.Decode(cmd)
	if err != nil {
		t.Fatalf("decode %x: %v", cmd, err)
	}
	return c
}
