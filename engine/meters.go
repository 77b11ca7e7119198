package engine

import (
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// meters count what the engine itself does. The rooms below have their own.
type meters struct {
	leaders   [MaxShards]meter.Counter // new leaders or terms that this node has learned of
	transfers [MaxShards][TransferCauses]meter.Counter
	phases    [phases]atomic.Int64 // how long each took, in nanoseconds; zero: it has not ended
}

// A TransferCause is why this node has asked for a leadership to be transferred.
type TransferCause int

// The causes.
const (
	TransferLag      TransferCause = iota // its replica lags behind the log
	TransferAsked                         // somebody called TransferLeadership
	TransferShare                         // the shard is its share
	TransferShutdown                      // it shuts down
	TransferCauses                        // how many there are
)

// String returns the cause as the metrics name it.
func (c TransferCause) String() string {
	return [...]string{"lag", "asked", "share", "shutdown"}[c]
}

// A phase is a part of a node's start.
type phase int

const (
	phaseOpen     phase = iota // until everything is opened, and the images are in memory
	phaseReplay                // until what the log knows to be committed is applied
	phaseRegister              // until the ensemble has registered the member
	phases
)

// String returns the phase as the metrics name it.
func (p phase) String() string { return [...]string{"open", "replay", "register"}[p] }

// A StartTime is how long a phase of the start took.
type StartTime struct {
	Phase string
	Took  time.Duration
}

// Space is what the file system of the node's directory has, and what the Raft log and the images
// use of it, in bytes.
type Space struct{ Free, Size, Log, Image uint64 }

// A spaceLook asks the file system for its space, once at a time. A file system that hangs may not
// answer, so the question has a goroutine of its own, which ends with the answer.
type spaceLook struct {
	ask func() (Space, error)
	now atomic.Pointer[spaceAnswer]
}

// A spaceAnswer is what all wait for who ask at the same time.
type spaceAnswer struct {
	done  chan struct{}
	space *Space // nil if the file system cannot tell; set before done
}

// look returns what the file system says, or nil if it fails or does not say so in time.
func (l *spaceLook) look(until time.Time) *Space {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	a := l.begin()
	select {
	case <-a.done:
		return a.space
	case <-timer.C:
		return nil
	}
}

// begin returns the answer that is under way. If there is none, it asks.
func (l *spaceLook) begin() *spaceAnswer {
	for {
		if a := l.now.Load(); a != nil {
			return a
		}
		a := &spaceAnswer{done: make(chan struct{})}
		if !l.now.CompareAndSwap(nil, a) {
			continue
		}
		go func() {
			if space, err := l.ask(); err == nil {
				a.space = &space
			}
			l.now.Store(nil)
			close(a.done)
		}()
		return a
	}
}

// askSpace asks the file system. It waits for it.
func askSpace(d *disk.Disk, dir string) (s Space, err error) {
	if s.Free, s.Size, err = d.Space(); err != nil {
		return s, err
	}
	if s.Log, err = d.Usage(filepath.Join(dir, "raft")); err != nil {
		return s, err
	}
	s.Image, err = d.Usage(filepath.Join(dir, datadir.ImagesName))
	return s, err
}

// endPhase records that a phase has ended, so long after the start began.
func (m *meters) endPhase(p phase, took time.Duration) {
	for before := range p {
		took -= time.Duration(m.phases[before].Load())
	}
	m.phases[p].Store(int64(max(took, 1)))
}

// starts returns the phases that have ended.
func (m *meters) starts() (list []StartTime) {
	for p := range phases {
		if took := m.phases[p].Load(); took > 0 {
			list = append(list, StartTime{p.String(), time.Duration(took)})
		}
	}
	return list
}
