package embedtest

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// Faults break what one member stands on: its links, its disk and its clocks. They last until they
// are replaced, even across restarts of the member. The methods may be called at any time, by any
// number of goroutines.
//
// Ensemble.Faults returns those of an ensemble's member. For a member in a process of its own,
// which uses real TCP, make them with NewFaults and start the member with Start.
type Faults struct {
	links *transporttest.Faults

	mu struct {
		sync.Mutex
		disk    Disk
		left    int           // calls that succeed before one fails; begins at disk.After
		paused  bool          // calls that change the disk hang
		changed chan struct{} // closed when disk or paused changes
		wall    time.Duration // how far the wall clock is ahead
		slept   time.Duration // how far both clocks are ahead
		frozen  time.Time     // since when the clock of durations stands still; zero: it runs
		stood   time.Duration // how long it stood still before
	}
}

// NewFaults returns Faults that break nothing yet.
func NewFaults() *Faults {
	f := &Faults{links: transporttest.NewFaults()}
	f.mu.changed = make(chan struct{})
	return f
}

// Start is embed.Start on what f can break. After the node is closed, f may serve the next Start.
func Start(cfg embed.Config, f *Faults) (*embed.Node, error) {
	seams := f.seams(seamsOf(cfg))
	cfg.Inside = &seams
	return embed.Start(cfg)
}

// Supervise is embed.Supervise on what f can break.
func Supervise(ctx context.Context, cfg embed.Config, f *Faults, fn func(context.Context, *embed.Node) error) error {
	seams := f.seams(seamsOf(cfg))
	cfg.Inside = &seams
	return embed.Supervise(ctx, cfg, fn)
}

// seamsOf returns the seams that cfg has already, or none.
func seamsOf(cfg embed.Config) inside.Seams {
	if cfg.Inside == nil {
		return inside.Seams{}
	}
	return *cfg.Inside
}

// seams adds the faults to seams. A clock in s stays. If s checks calls of the disk, f is asked
// first.
func (f *Faults) seams(s inside.Seams) inside.Seams {
	network := s.Network
	s.Network = func(n transport.Network) transport.Network {
		if network != nil {
			n = network(n)
		}
		return f.links.Network(n)
	}
	s.Fault, s.Unread, s.Lack = f.ask(s.Fault), f.ask(s.Unread), cmp.Or(s.Lack, Patience)
	if s.Clock.Boot == nil {
		s.Clock = f.clock()
	}
	return s
}

// ask returns what a disk asks before a call: first f, then the given function.
func (f *Faults) ask(then func(disk.Op, string) error) func(disk.Op, string) error {
	return func(op disk.Op, name string) error {
		if err := f.call(op); err != nil || then == nil {
			return err
		}
		return then(op, name)
	}
}

// A Link is the connection on which a member sends to another. The zero Link is whole.
type Link struct {
	// Cut: nothing arrives, and nobody is told. Once the link is whole again, the members find each
	// other within about a quarter of a second.
	Cut bool

	// Delay is added to every message; their order stays. From a second and a half on, the link is
	// as good as cut, because a member has to answer a request for a sign of life within that time.
	Delay time.Duration

	// Loss is the share of messages that vanish, from 0 to 1. A snapshot on its way to a member
	// that lags loses nothing.
	Loss float64
}

// SetLink replaces the state of the link on which this member sends to another. The other direction
// does not change: it belongs to the other member's Faults.
func (f *Faults) SetLink(to embed.MemberID, l Link) { f.links.Set(uint64(to), transporttest.Fault(l)) }

// SetPlace makes the links to a place count for an address, whatever the id of the member there.
// For members in processes of their own, whose ids are not known before.
func (f *Faults) SetPlace(address string, place embed.MemberID) {
	f.links.Place(address, uint64(place))
}

// Patience is how long a member waits for room on its disk or for a file descriptor. Then the lack
// fails the member. Outside tests this is a minute.
const Patience = 500 * time.Millisecond

// A Disk is the state of the disk that a member's directory is on. The zero Disk works.
type Disk struct {
	// Err is the error of the calls that fail, such as syscall.EIO or syscall.ENOSPC. Nil means
	// that no call fails. The first failed call that changes something fails the node for good: its
	// Err says why, and it writes nothing to the disk any longer. A failed read does the same if
	// the node cannot do without it.
	//
	// ENOSPC, EDQUOT, EMFILE and ENFILE may pass. A running node repeats such a call for as long as
	// [Patience], unless it is an fsync. A node that is starting does not wait.
	Err error

	// On says which calls fail or are slow.
	On DiskCalls
	// After is how many of them succeed before one fails.
	After int
	// Delay is added to each of them. Replacing the Disk ends the waits at once.
	Delay time.Duration
}

// DiskCalls is a kind of calls to a disk.
type DiskCalls int

// Kinds of calls.
const (
	Changes     DiskCalls = iota // all that change something
	Syncs                        // fsyncs of files and directories
	Growth                       // those that need space: create, write, link
	Reads                        // all that only read: open, read, list, look up
	Descriptors                  // those that need a file descriptor: create, open, list, lock
)

func (c DiskCalls) include(op disk.Op) bool {
	switch c {
	case Syncs:
		return op == disk.OpSync || op == disk.OpSyncDir
	case Growth:
		switch op {
		case disk.OpCreate, disk.OpWrite, disk.OpLink, disk.OpMkdir, disk.OpLock:
			return true
		}
		return false
	case Reads:
		return op.Reads()
	case Descriptors:
		switch op {
		case disk.OpCreate, disk.OpAppend, disk.OpLock, disk.OpOpen, disk.OpList:
			return true
		}
		return false
	}
	return !op.Reads()
}

// SetDisk replaces the state of the member's disk.
func (f *Faults) SetDisk(d Disk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.disk, f.mu.left = d, d.After
	f.wakeLocked()
}

// pause makes all calls that change something hang, or ends that.
func (f *Faults) pause(paused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.paused = paused
	f.wakeLocked()
}

func (f *Faults) wakeLocked() {
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
}

// call delays a call of the disk as long as the faults say, and returns its error.
func (f *Faults) call(op disk.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.mu.disk; d.Delay > 0 && d.On.include(op) {
		f.waitLocked(d.Delay)
	}
	for f.mu.paused && !op.Reads() {
		f.waitLocked(0)
	}
	d := f.mu.disk
	switch {
	case d.Err == nil || !d.On.include(op):
		return nil
	case f.mu.left > 0:
		f.mu.left--
		return nil
	}
	return d.Err
}

// waitLocked unlocks f.mu and waits until the disk has changed, or for d if d is more than zero.
func (f *Faults) waitLocked(d time.Duration) {
	changed := f.mu.changed
	f.mu.Unlock()
	defer f.mu.Lock()
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-changed:
	case <-due:
	}
}

// SetWallClock sets the member's wall clock ahead of the machine's by offset, or behind if offset
// is negative. The clock jumps, as when somebody sets it. The clock by which the member measures
// durations does not change.
func (f *Faults) SetWallClock(offset time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.wall = offset
}

// Sleep acts as if the machine under the member had slept for d: all its clocks that run during
// sleep jump ahead by d.
func (f *Faults) Sleep(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.slept += d
}

// Freeze stops the clock by which the member measures durations, or lets it go on from where it
// stopped. The wall clock goes on. That is what a guest sees of a pause of its virtual machine, if
// its host hides the pause from all clocks but the wall clock. The member's code goes on, unless
// Ensemble.Pause stops it too.
func (f *Faults) Freeze(frozen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.stood = f.stoodLocked()
	f.mu.frozen = time.Time{}
	if frozen {
		f.mu.frozen = time.Now()
	}
}

// stoodLocked returns how long the clock of durations has stood still in all.
func (f *Faults) stoodLocked() time.Duration {
	if f.mu.frozen.IsZero() {
		return f.mu.stood
	}
	return f.mu.stood + time.Since(f.mu.frozen)
}

// clock returns the clocks of the goroutine that runs, with the offsets of f. Inside a bubble of
// testing/synctest both are virtual. So Boot cannot be the system's, which always runs in real
// time. If a real machine sleeps, the wall clock jumps against this Boot. That also costs the
// holds.
func (f *Faults) clock() clock.Clock {
	began := time.Now()
	return clock.Clock{
		Boot: func() time.Duration {
			f.mu.Lock()
			defer f.mu.Unlock()
			return time.Since(began) + f.mu.slept - f.stoodLocked()
		},
		Wall: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return time.Now().Add(f.mu.slept + f.mu.wall)
		},
	}
}
