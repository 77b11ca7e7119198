package embedtest

import (
	"cmp"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// Faults break what one member stands on: its links, its disk, its clocks. They last until they are replaced, also over
// restarts of the member. The methods may be called at any time, by any number of goroutines.
//
// Those of an Ensemble's member are what Ensemble.Faults returns. For a member in a process of its own, which talks real
// TCP, make them with NewFaults and start it with Start.
type Faults struct {
	links *transporttest.Faults

	mu struct {
		sync.Mutex
		disk    Disk
		left    int  // of disk.After
		paused  bool // calls of the disk hang
		changed chan struct{}
		wall    time.Duration // the wall clock is ahead by that much
		slept   time.Duration // both clocks are ahead by that much
	}
}

// NewFaults returns Faults that break nothing yet.
func NewFaults() *Faults {
	f := &Faults{links: transporttest.NewFaults()}
	f.mu.changed = make(chan struct{})
	return f
}

// Start is embed.Start on what f can break. After the Close of the node, f may serve the next Start.
func Start(cfg embed.Config, f *Faults) (*embed.Node, error) {
	seams := f.seams(seamsOf(cfg))
	cfg.Inside = &seams
	return embed.Start(cfg)
}

// seamsOf returns what cfg replaces of the machine.
func seamsOf(cfg embed.Config) inside.Seams {
	if cfg.Inside == nil {
		return inside.Seams{}
	}
	return *cfg.Inside
}

// seams puts the faults where a node meets the machine. What is taken there already stays: it has the clock to itself, and
// is asked about a call of the disk after f.
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

// ask returns what a disk asks before a call: f, and then what was asked before.
func (f *Faults) ask(then func(disk.Op, string) error) func(disk.Op, string) error {
	return func(op disk.Op, name string) error {
		if err := f.call(op); err != nil || then == nil {
			return err
		}
		return then(op, name)
	}
}

// A Link is what a member sends to another. The zero Link is whole.
type Link struct {
	// Cut: nothing arrives, and nobody is told. When it is whole again, the members find one another within about a
	// quarter of a second.
	Cut bool

	// Delay: every message takes that much longer. The order stays. From a second and a half on the link is as good as cut:
	// who is asked for a sign of life has to answer within that.
	Delay time.Duration

	// Loss is the share of messages that vanish, from 0 to 1. A snapshot that is on its way to a member that lags loses
	// nothing.
	Loss float64
}

// SetLink replaces the state of the link on which this member sends to another. What the other sends to this one is not
// concerned: that is a link of the other's Faults.
func (f *Faults) SetLink(to embed.MemberID, l Link) { f.links.Set(uint64(to), transporttest.Fault(l)) }

// Patience is how long a member waits for room on its disk or for a file descriptor. After that the lack
// fails it. Outside of tests this is a minute.
const Patience = 500 * time.Millisecond

// A Disk is what a member's directory is on. The zero Disk is well.
type Disk struct {
	// Err is what the calls fail with: syscall.EIO, syscall.ENOSPC and so on; nil means that none fails. The first call
	// that changes something and fails, fails the node for good: its Err says why, and nothing of it reaches the
	// disk any more. So does a failed read that the node cannot do without.
	//
	// ENOSPC, EDQUOT, EMFILE and ENFILE may pass. A node that runs makes such a call again for as long as [Patience], unless
	// it is an fsync. A node that is started meets the disk as it is then, and waits for nothing.
	Err error

	On    DiskCalls     // which calls are concerned
	After int           // that many of them succeed before one fails
	Delay time.Duration // each of them takes that much longer; replacing the Disk lets those that wait go on at once
}

// DiskCalls are a kind of calls to a disk.
type DiskCalls int

// Kinds of calls.
const (
	Changes     DiskCalls = iota // all that change something
	Syncs                        // fsyncs, of files and directories
	Growth                       // those that need space: to create, write or link
	Reads                        // all that only read: to open, read, list or look up
	Descriptors                  // those that need a file descriptor: to create, open, list or lock
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

// pause has all calls that change something hang until it is taken back.
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

// call takes as long as a call of the disk takes and says how it fails.
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

// waitLocked lets go of the lock until the disk has changed or, if that is more than zero, for d.
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

// SetWallClock puts the member's wall clock ahead of the machine's, or behind if offset is negative. It jumps there, as when
// somebody sets it. The clock by which the member measures does not.
func (f *Faults) SetWallClock(offset time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.wall = offset
}

// Sleep is the machine under the member having slept for d: at once, all its clocks that run on meanwhile are ahead by that.
func (f *Faults) Sleep(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.slept += d
}

// clock is the machine's, as far as it goes right.
func (f *Faults) clock() clock.Clock {
	system := clock.System()
	return clock.Clock{
		Boot: func() time.Duration {
			f.mu.Lock()
			defer f.mu.Unlock()
			return system.Boot() + f.mu.slept
		},
		Wall: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return system.Wall().Add(f.mu.slept + f.mu.wall)
		},
	}
}
