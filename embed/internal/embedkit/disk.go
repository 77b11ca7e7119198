package embedkit

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// Hanging is a disk whose calls hang from the first Begin on, for as long as the test wants.
type Hanging struct {
	op   disk.Op
	part string // only calls on files with this part in their names hang
	skip int    // how many calls after Begin do not hang

	mu    sync.Mutex
	begun bool
	left  int
	hung  bool
	free  chan struct{}
}

// NewHanging returns a disk whose calls of one kind hang. It passes skip of them first.
func NewHanging(op disk.Op, part string, skip int) *Hanging {
	return &Hanging{op: op, part: part, skip: skip, free: make(chan struct{})}
}

// Free lets the calls that hang go on, and hangs no more.
func (h *Hanging) Free() { close(h.free) }

// Begin lets calls hang from now on.
func (h *Hanging) Begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.begun {
		h.begun, h.left = true, h.skip
	}
}

// Hit reports whether a call hangs.
func (h *Hanging) Hit() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hung
}

// Ask is the fault of a node's disk, see inside.Seams.
func (h *Hanging) Ask(op disk.Op, name string) error {
	if op != h.op || !strings.Contains(name, h.part) {
		return nil
	}
	h.mu.Lock()
	hangs := h.begun && h.left == 0
	if h.begun && h.left > 0 {
		h.left--
	}
	h.hung = h.hung || hangs
	h.mu.Unlock()
	if hangs {
		<-h.free
	}
	return nil
}

// A FaultyDisk fails calls of one kind from the moment it is broken.
type FaultyDisk struct {
	fault atomic.Pointer[func(disk.Op, string) error]
}

// Ask is the fault of a node's disk, see inside.Seams.
func (d *FaultyDisk) Ask(op disk.Op, name string) error {
	if fn := d.fault.Load(); fn != nil {
		return (*fn)(op, name)
	}
	return nil
}

// Set breaks the disk; nil mends it.
func (d *FaultyDisk) Set(fn func(disk.Op, string) error) {
	if fn == nil {
		d.fault.Store(nil)
		return
	}
	d.fault.Store(&fn)
}

// Fails makes every call of a kind fail below a part of the directory.
func (d *FaultyDisk) Fails(kind disk.Op, part string, err error) {
	d.Set(func(op disk.Op, name string) error {
		if op == kind && strings.Contains(name, part) {
			return err
		}
		return nil
	})
}

// ShortPatience is how long members wait for room on their disks in these tests.
const ShortPatience = 50 * time.Millisecond

// Closed returns a question that has an error until c is closed.
func Closed(c <-chan struct{}) func() error {
	return func() error {
		select {
		case <-c:
			return nil
		default:
			return errors.New("not closed")
		}
	}
}
