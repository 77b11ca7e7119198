package enginetest

import (
	"errors"
	"flag"
	"math/rand/v2"
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

// A Log stands for a Raft group, or for several with one leader: it keeps what is proposed, and the test decides what becomes of it.
type Log struct {
	mu       sync.Mutex
	shut     replication.ShardID // refuses what is proposed on it; zero: none
	leader   replication.Leader
	refusal  error  // what Propose answers, if set
	during   func() // called once by Propose before it answers, if set
	proposed []*Proposal
}

// A Proposal is what was proposed on a Log.
type Proposal struct {
	Shard replication.ShardID // zero: the first
	Cmd   []byte
	At    time.Time
	Lost  atomic.Bool
}

// Dropped implements outbox.Proposal.
func (p *Proposal) Dropped() bool { return p.Lost.Load() }

// ErrRefused is what tests have a Log, or a shard, refuse with.
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

// Elect makes a member the leader of a new term; zero is nobody.
func (l *Log) Elect(m replication.MemberID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader = replication.Leader{Member: m, Term: l.leader.Term + 1}
}

// Refuse has Propose refuse with err from now on; nil ends that.
func (l *Log) Refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
}

// RefuseShard refuses what is proposed on a shard from now on; zero ends that.
func (l *Log) RefuseShard(id replication.ShardID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = id
}

// OnNextPropose sets what happens during the next Propose, and returns what was set before.
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

// A Clock runs with the bubble's time. It can be moved as no timer sees it.
type Clock struct {
	start time.Time
	// paused is the time that the process stood still: all clocks show it.
	paused atomic.Int64
	// slept is the time that the machine slept: the quick clock alone does not show it.
	slept atomic.Int64
	// stepped is what the wall clock was moved by.
	stepped atomic.Int64
	// OnRead is called whenever the wall clock has been read, unless it is nil.
	OnRead atomic.Pointer[func()]
}

// NewClock returns a clock that starts now.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Boot is the time that runs on while the machine sleeps.
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

// Clock has a quick one too, as that of the machine has: most questions are answered by it alone.
func (c *Clock) Clock() clock.Clock {
	return clock.Clock{Boot: c.Boot, Wall: c.wall, Quick: func() (wall, mono time.Duration) {
		return time.Duration(c.wallNow().UnixNano()), time.Since(c.start) + time.Duration(c.paused.Load())
	}}
}

// Pause stops the process for d.
func (c *Clock) Pause(d time.Duration) { c.paused.Add(int64(d)) }

// Sleep lets the machine sleep for d.
func (c *Clock) Sleep(d time.Duration) { c.slept.Add(int64(d)) }

// Step moves the wall clock by d.
func (c *Clock) Step(d time.Duration) { c.stepped.Add(int64(d)) }

// Pass lets time pass in a bubble, with everything that happens meanwhile.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// The member that the fake ensembles of these tests look at.
const Member, Other = 1, 2

// Origin is what Member registers with.
func Origin() session.Origin {
	return session.Origin{Member: Member, Start: 3, Directory: [16]byte{1}, Digest: [32]byte{2}, Level: command.FormatLevel}
}

// Decode reads a command that must be well-formed.
func Decode(t testing.TB, cmd []byte) command.Command {
	t.Helper()
	c, err := command.Decode(cmd)
	if err != nil {
		t.Fatalf("decode %x: %v", cmd, err)
	}
	return c
}

// SeedFlag chooses the seed of the randomized tests.
var SeedFlag = flag.Uint64("seed", 0, "seed of the randomized tests; zero takes those that every run takes, and one more")

// Seeds returns what a randomized test runs with, a quarter of it with -short; the failing one is in the name of its subtest.
func Seeds(n uint64) []uint64 {
	if *SeedFlag != 0 {
		return []uint64{*SeedFlag}
	}
	list := []uint64{rand.Uint64()>>1 + n + 1}
	if testing.Short() {
		n /= 4
	}
	for i := range n {
		list = append(list, i+1)
	}
	return list
}
