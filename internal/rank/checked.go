//go:build lockrank

package rank

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Checked says whether the order of locks is checked in this build.
const Checked = true

// A Mutex is a sync.Mutex at the place L of the order. Its zero value is free.
type Mutex[L any] struct {
	mu  sync.Mutex
	nth uint64 // among those of its place; zero: it has no turn
}

var made atomic.Uint64

// Ordered gives the mutex, which nobody has taken yet, its turn among those of its place: behind those
// that were made before.
func (m *Mutex[L]) Ordered() { m.nth = made.Add(1) }

// Lock is sync.Mutex.Lock.
func (m *Mutex[L]) Lock() {
	acquire(unsafe.Pointer(m), placeOf[L](), m.nth)
	m.mu.Lock()
}

// TryLock is sync.Mutex.TryLock. It is checked as Lock is: who tries mostly tries again.
func (m *Mutex[L]) TryLock() bool {
	acquire(unsafe.Pointer(m), placeOf[L](), m.nth)
	if m.mu.TryLock() {
		return true
	}
	release(unsafe.Pointer(m))
	return false
}

// Unlock is sync.Mutex.Unlock.
func (m *Mutex[L]) Unlock() {
	release(unsafe.Pointer(m))
	m.mu.Unlock()
}

// An RWMutex is a sync.RWMutex at the place L of the order. Its zero value is free.
type RWMutex[L any] struct{ mu sync.RWMutex }

// Lock is sync.RWMutex.Lock.
func (m *RWMutex[L]) Lock() {
	acquire(unsafe.Pointer(m), placeOf[L](), 0)
	m.mu.Lock()
}

// Unlock is sync.RWMutex.Unlock.
func (m *RWMutex[L]) Unlock() {
	release(unsafe.Pointer(m))
	m.mu.Unlock()
}

// RLock is sync.RWMutex.RLock.
func (m *RWMutex[L]) RLock() {
	acquire(unsafe.Pointer(m), placeOf[L](), 0)
	m.mu.RLock()
}

// RUnlock is sync.RWMutex.RUnlock.
func (m *RWMutex[L]) RUnlock() {
	release(unsafe.Pointer(m))
	m.mu.RUnlock()
}

// places are those of Order, by their types.
var places = func() map[reflect.Type]int {
	all := make(map[reflect.Type]int)
	for i, p := range Order() {
		all[p.Type] = i
	}
	return all
}()

func placeOf[L any]() int {
	i, ok := places[reflect.TypeFor[L]()]
	if !ok {
		panic(fmt.Sprintf("rank: %v is not in Order", reflect.TypeFor[L]()))
	}
	return i
}

// stackMax is how many frames are kept of where a lock was taken. What called these is left out.
const stackMax = 20

// A hold is a lock that a goroutine has taken, or is about to.
type hold struct {
	lock  unsafe.Pointer
	place int
	nth   uint64
	stack [stackMax]uintptr
}

// held is what one goroutine holds. Only that goroutine touches n and list, and when it has ended the
// next one at the same address. The race detector does not look at who does so: a lock for these would
// make goroutines look ordered to it that are not.
type held struct {
	goroutine uintptr
	next      *held // in its bucket
	n         int
	list      []hold
}

// goroutines has what each goroutine holds, by where it is. It grows with the most goroutines that there were at a time.
var goroutines [1 << 12]atomic.Pointer[held]

//go:norace
func mine() *held {
	g := goroutine()
	bucket := &goroutines[uint64(g)*0x9e3779b97f4a7c15>>52] // the upper 12 bits
	first := bucket.Load()
	for h := first; h != nil; h = h.next {
		if h.goroutine == g {
			return h
		}
	}
	h := &held{goroutine: g}
	for h.next = first; !bucket.CompareAndSwap(h.next, h); { // nobody else adds this goroutine
		h.next = bucket.Load()
	}
	return h
}

// acquire notes that this goroutine is about to take a lock, if that is in order.
//
//go:norace
func acquire(lock unsafe.Pointer, place int, nth uint64) {
	h := mine()
	if h.n == len(h.list) {
		h.grow()
	}
	next := &h.list[h.n]
	next.lock, next.place, next.nth = lock, place, nth
	clear(next.stack[runtime.Callers(3, next.stack[:]):])
	for i := range h.n {
		if was := &h.list[i]; !before(was, next) {
			fail(wrong(was, next))
		}
	}
	h.n++
}

// grow makes room for another one. It is neither append nor copy, which the race detector sees.
//
//go:norace
func (h *held) grow() {
	more := make([]hold, max(4, 2*h.n))
	for i := range h.n {
		more[i] = h.list[i]
	}
	h.list = more
}

// before reports whether a lock may be taken while another one is held.
//
//go:norace
func before(was, next *hold) bool {
	if was.place == next.place {
		return was.nth > 0 && was.nth < next.nth
	}
	return was.place < next.place
}

// release notes that this goroutine gives a lock back.
//
//go:norace
func release(lock unsafe.Pointer) {
	h := mine()
	for i := h.n - 1; i >= 0; i-- {
		if h.list[i].lock == lock {
			for ; i < h.n-1; i++ {
				h.list[i] = h.list[i+1]
			}
			h.n--
			h.list[h.n].lock = nil
			return
		}
	}
	var at hold
	runtime.Callers(3, at.stack[:])
	fail("rank: a lock is released by a goroutine that does not hold it\n\n" + at.where())
}

// wrong says what is wrong with taking a lock.
func wrong(was, next *hold) string {
	order := Order()
	a, b := order[was.place].Name, order[next.place].Name
	text := fmt.Sprintf("%s is acquired by a goroutine that holds %s, which is below it", b, a)
	switch {
	case was.lock == next.lock:
		text = fmt.Sprintf("%s is acquired by a goroutine that holds it", b)
	case was.place == next.place:
		text = fmt.Sprintf("%s is acquired by a goroutine that holds another one, which does not come before it", b)
	}
	return fmt.Sprintf("rank: wrong order of locks, see engine/doc.go: %s\n\n%s was acquired here:\n%s\n%s is acquired here:\n%s", text, a, was.where(), b, next.where())
}

// where is the stack at which a lock was taken.
func (h *hold) where() string {
	n := 0
	for n < stackMax && h.stack[n] != 0 {
		n++
	}
	var b strings.Builder
	frames := runtime.CallersFrames(h.stack[:n])
	for more := n > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "  %s\n        %s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}

// fail is told what is wrong. It ends the process; the tests of this package have it do something else.
var fail = func(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(2)
}
