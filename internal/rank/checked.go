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

// Checked reports whether this build checks the order of locks.
const Checked = true

// A Mutex is a sync.Mutex at the place L of the order. Its zero value is free.
type Mutex[L any] struct {
	mu  sync.Mutex
	nth uint64 // order among the mutexes of its place; zero means none
}

var made atomic.Uint64

// Ordered gives the mutex its order among those of its place. It comes after all on which Ordered
// was called before. Nobody may have locked the mutex yet.
func (m *Mutex[L]) Ordered() { m.nth = made.Add(1) }

// Lock is sync.Mutex.Lock.
func (m *Mutex[L]) Lock() {
	acquire(unsafe.Pointer(m), placeOf[L](), m.nth)
	m.mu.Lock()
}

// TryLock is sync.Mutex.TryLock. It is checked like Lock, because most callers that fail try again.
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

// A LongMutex is a Mutex at the place L of the order, for work that waits for a disk. In virtual
// time the clock goes on while a goroutine waits for it.
type LongMutex[L any] struct{ taken chan struct{} }

// NewLongMutex returns a mutex that is free.
func NewLongMutex[L any]() LongMutex[L] { return LongMutex[L]{make(chan struct{}, 1)} }

// Lock waits until the mutex is free, and acquires it. It returns false, and acquires nothing, if
// the mutex is not free and unless is closed.
func (m *LongMutex[L]) Lock(unless <-chan struct{}) bool {
	acquire(unsafe.Pointer(m), placeOf[L](), 0)
	select {
	case m.taken <- struct{}{}:
		return true
	default:
	}
	select {
	case m.taken <- struct{}{}:
		return true
	case <-unless:
		release(unsafe.Pointer(m))
		return false
	}
}

// Unlock releases the mutex. It panics if the mutex is free.
func (m *LongMutex[L]) Unlock() {
	release(unsafe.Pointer(m))
	select {
	case <-m.taken:
	default:
		panic("rank: a LongMutex is released that nobody holds")
	}
}

// places maps the types in Order to their places.
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

// stackMax is how many frames are kept of the place where a lock was acquired. Callers beyond that
// are left out.
const stackMax = 20

// A hold is a lock that a goroutine holds or is about to acquire.
type hold struct {
	lock  unsafe.Pointer
	place int
	nth   uint64
	stack [stackMax]uintptr
}

// held is the list of locks that one goroutine holds. Only that goroutine touches n and list. After
// it has ended, the next goroutine at the same address does. The race detector does not see these
// accesses. A lock around them would make the detector believe that goroutines are ordered when
// they are not.
type held struct {
	goroutine uintptr
	next      *held // in the same bucket
	n         int
	list      []hold
}

// goroutines has the locks of each goroutine, by the goroutine's address. It grows to the largest
// number of goroutines that lived at one time.
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

// acquire records that this goroutine is about to acquire a lock, and checks the order.
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

// grow makes room for one more. It uses neither append nor copy, because the race detector sees
// these.
//
//go:norace
func (h *held) grow() {
	more := make([]hold, max(4, 2*h.n))
	for i := range h.n {
		more[i] = h.list[i]
	}
	h.list = more
}

// before reports whether a lock may be acquired while another one is held.
//
//go:norace
func before(was, next *hold) bool {
	if was.place == next.place {
		return was.nth > 0 && was.nth < next.nth
	}
	return was.place < next.place
}

// release records that this goroutine releases a lock.
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

// wrong describes a breach of the order.
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

// where returns the stack at which a lock was acquired.
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

// fail reports a breach and ends the process. The tests of this package replace it.
var fail = func(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(2)
}
