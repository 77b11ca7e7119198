package enginetest

import (
	"errors"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

// A Log stands for one Raft group, or for several with one leader. It keeps what is proposed, and
// the test decides what happens to it.
type Log struct {
	mu       sync.Mutex
	shut     replication.ShardID // refuses what is proposed on it; zero: none
	leader   replication.Leader
	refusal  error  // what Propose returns, if set
	during   func() // called once by Propose before it returns, if set
	proposed []*Proposal
}

// A Proposal is a command that was proposed on a Log.
type Proposal struct {
	Shard replication.ShardID // zero: the first
	Cmd   []byte
	At    time.Time
	Lost  atomic.Bool
}

// Dropped implements outbox.Proposal.
func (p *Proposal) Dropped() bool { return p.Lost.Load() }

// ErrRefused is the error with which a test lets a Log or a shard refuse.
var ErrRefused = errors.New("refused")

// Propose implements outbox.Raft.
func (l *Log) Propose(id replication.ShardID, cmd []byte) (interface{ Dropped() bool }, error) {
	if during := l.OnNextPropose(nil); during != nil {
		during()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal != nil {
		return nil, l.refusal
	}
	if id == l.shut {
		return nil, ErrRefused
	}
	p := &Proposal{Shard: id, Cmd: append([]byte(nil), cmd...), At: time.Now()}
	l.proposed = append(l.proposed, p)
	return p, nil
}

// Leader implements outbox.Raft.
func (l *Log) Leader(replication.ShardID) replication.Leader {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

// Committed implements what a replica asks of Raft: here nobody lags.
func (l *Log) Committed(replication.ShardID) uint64 { return 0 }

// Transfer implements what a replica asks of Raft. It does nothing.
func (l *Log) Transfer(replication.ShardID, int) {}

// Elect makes a member the leader of a new term. Zero means that nobody leads.
func (l *Log) Elect(m replication.MemberID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader = replication.Leader{Member: m, Term: l.leader.Term + 1}
}

// Refuse makes Propose return err from now on, or accept again if err is nil.
func (l *Log) Refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
}

// RefuseShard makes Propose refuse one shard from now on. Zero ends that.
func (l *Log) RefuseShard(id replication.ShardID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = id
}

// OnNextPropose sets a function that the next Propose calls. It returns the one that was set
// before.
func (l *Log) OnNextPropose(fn func()) (was func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, l.during = l.during, fn
	return was
}

// Drain returns what was proposed since the last Drain.
func (l *Log) Drain() []*Proposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.proposed
	l.proposed = nil
	return out
}

// A Clock runs with the time of the test's bubble. A test can also move it, unseen by timers.
type Clock struct {
	start time.Time
	// paused is how long the process stood still. All clocks show it.
	paused atomic.Int64
	// slept is how long the machine slept. Only the Quick clock does not show it.
	slept atomic.Int64
	// stepped is by how much the wall clock was set.
	stepped atomic.Int64
	// OnRead, if set, is called after each reading of the wall clock.
	OnRead atomic.Pointer[func()]
}

// NewClock returns a clock that starts now.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Boot returns the time that runs on while the machine sleeps.
func (c *Clock) Boot() time.Duration {
	return time.Since(c.start) + time.Duration(c.paused.Load()+c.slept.Load())
}

func (c *Clock) wall() time.Time {
	now := c.wallNow()
	if looked := c.OnRead.Load(); looked != nil {
		(*looked)()
	}
	return now
}

func (c *Clock) wallNow() time.Time {
	return time.Now().Add(time.Duration(c.paused.Load() + c.slept.Load() + c.stepped.Load()))
}

// Clock returns the clock for an engine. Like the machine's, it has a Quick clock, because the
// engine answers most questions by that alone.
func (c *Clock) Clock() clock.Clock {
	return clock.Clock{Boot: c.Boot, Wall: c.wall, Quick: func() (wall, mono time.Duration) {
		return time.Duration(c.wallNow().UnixNano()), time.Since(c.start) + time.Duration(c.paused.Load())
	}}
}

// Pause lets the process stand still for d.
func (c *Clock) Pause(d time.Duration) { c.paused.Add(int64(d)) }

// Sleep lets the machine sleep for d.
func (c *Clock) Sleep(d time.Duration) { c.slept.Add(int64(d)) }

// Step sets the wall clock forward by d.
func (c *Clock) Step(d time.Duration) { c.stepped.Add(int64(d)) }

// Pass lets time pass in a bubble, and waits until everything that it causes has happened.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Member is the member whose node these tests look at. Other is a second one.
const Member, Other = 1, 2

// Origin returns what Member registers with.
func Origin() session.Origin {
	return session.Origin{Member: Member, Start: 3, Directory: [16]byte{1}, Digest: [32]byte{2}, Level: command.LevelMax}
}

// Rules returns what a member with the schemes of every build registers with.
func Rules() command.Rules {
	return command.Rules{Schemes: []string{"digest", "ip", "super"}}
}

// Decode decodes a command, which must be well-formed.
func Decode(t testing.TB, cmd []byte) command.Command {
	t.Helper()
	c, err := command.Decode(cmd)
	if err != nil {
		t.Fatalf("decode %x: %v", cmd, err)
	}
	return c
}

// SeedFlag chooses the seed of the randomized tests.
var SeedFlag = flag.Uint64("seed", 0, "seed of the randomized tests; zero means the fixed seeds, and one that follows from VIVARIUM_SEED")

// Seeds returns n fixed seeds, and one that follows from the test's own, which is new by night. By
// day it returns a quarter of the fixed ones. With the flag it returns the flag's alone. Name a
// subtest after its seed, so that a failure shows it.
func Seeds(t testing.TB, n uint64) []uint64 {
	t.Helper()
	if *SeedFlag != 0 {
		return []uint64{*SeedFlag}
	}
	list := []uint64{testkit.Seed(t)>>1 + n + 1}
	if !testkit.Night() {
		n /= 4
	}
	for i := range n {
		list = append(list, i+1)
	}
	return list
}
