//go:build lockrank

package rank

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// wrongs runs fn and returns the reported breaches.
func wrongs(t *testing.T, fn func()) (found []string) {
	t.Helper()
	was := fail
	defer func() { fail = was }()
	fail = func(text string) { found = append(found, text) }
	fn()
	if h := mine(); h.n != 0 {
		t.Errorf("%d locks are still held", h.n)
	}
	return found
}

func TestDownIsInOrder(t *testing.T) {
	var m Mutex[Replica]
	var k Mutex[Keeper]
	var h RWMutex[Host]
	if found := wrongs(t, func() {
		for range 2 {
			m.Lock()
			k.Lock()
			h.RLock()
			m.Unlock() // in any order
			h.RUnlock()
			k.Unlock()
		}
	}); found != nil {
		t.Error(found)
	}
}

func TestUpIsNot(t *testing.T) {
	var m Mutex[Replica]
	var k Mutex[Keeper]
	found := wrongs(t, func() {
		k.Lock()
		m.Lock()
		m.Unlock()
		k.Unlock()
	})
	if len(found) != 1 || !strings.Contains(found[0], "replica.mu is acquired by a goroutine that holds keeper.mu, which is below it") {
		t.Fatalf("found %q", found)
	}
	if n := strings.Count(found[0], "TestUpIsNot.func1"); n != 2 {
		t.Errorf("what the test does is on %d stacks, want both:\n%s", n, found[0])
	}
}

func TestTryingIsAcquiring(t *testing.T) {
	var m Mutex[Replica]
	var k Mutex[Keeper]
	if found := wrongs(t, func() {
		k.Lock()
		if !m.TryLock() {
			t.Error("a free lock was not acquired")
		}
		m.Unlock()
		k.Unlock()
	}); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

// A lock that was not acquired is not held.
func TestTryingInVain(t *testing.T) {
	var m Mutex[Replica]
	m.Lock()
	var all sync.WaitGroup
	all.Go(func() {
		if found := wrongs(t, func() {
			if m.TryLock() {
				t.Error("a lock was acquired twice")
			}
		}); found != nil {
			t.Error(found)
		}
	})
	all.Wait()
	m.Unlock()
}

func TestTwiceIsNotInOrder(t *testing.T) {
	var k Mutex[Keeper]
	found := wrongs(t, func() {
		k.Lock()
		k.TryLock()
		k.Unlock()
	})
	if len(found) != 1 || !strings.Contains(found[0], "keeper.mu is acquired by a goroutine that holds it") {
		t.Errorf("found %q", found)
	}
}

// A second RLock waits for a writer that came between the two, and the writer waits for the reader.
func TestReadingTwiceIsNotInOrder(t *testing.T) {
	var h RWMutex[Host]
	if found := wrongs(t, func() {
		h.RLock()
		h.RLock()
		h.RUnlock()
		h.RUnlock()
	}); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

func TestTwoOfAPlace(t *testing.T) {
	var a, b Mutex[Keeper]
	var first, second Mutex[Registry]
	first.Ordered()
	second.Ordered()
	inOrder := func(a, b sync.Locker) func() {
		return func() {
			a.Lock()
			b.Lock()
			b.Unlock()
			a.Unlock()
		}
	}
	for _, c := range []struct {
		name string
		do   func()
		ok   bool
	}{
		{"not ordered", inOrder(&a, &b), false},
		{"in their order", inOrder(&first, &second), true},
		{"in the other order", inOrder(&second, &first), false},
	} {
		if found := wrongs(t, c.do); (found == nil) != c.ok {
			t.Errorf("%s: found %q", c.name, found)
		}
	}
}

func TestReleasedBySomebodyElse(t *testing.T) {
	var k Mutex[Keeper]
	k.Lock()
	var all sync.WaitGroup
	all.Go(func() {
		if found := wrongs(t, k.Unlock); len(found) != 1 || !strings.Contains(found[0], "released by a goroutine that does not hold it") {
			t.Errorf("found %q", found)
		}
	})
	all.Wait()
	k.mu.Lock() // so that this goroutine can release it too
	k.Unlock()
}

// Code that recovers panics cannot keep the process from ending.
func TestTheProcessEnds(t *testing.T) {
	if os.Getenv("VIVARIUM_RANK_TEST") != "" {
		defer func() { _ = recover() }()
		var m Mutex[Replica]
		var k Mutex[Keeper]
		k.Lock()
		m.Lock()
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestTheProcessEnds$")
	child.Env = append(os.Environ(), "VIVARIUM_RANK_TEST=1")
	out, err := child.CombinedOutput()
	if child.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "wrong order of locks") {
		t.Errorf("the process ended with %v:\n%s", err, out)
	}
}

func TestManyAtATime(t *testing.T) {
	var list [100]Mutex[Registry]
	for i := range list {
		list[i].Ordered()
	}
	if found := wrongs(t, func() {
		for i := range list {
			list[i].Lock()
		}
		for i := range list {
			list[i].Unlock()
		}
	}); found != nil {
		t.Error(found)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	var m Mutex[Replica]
	if n := testing.AllocsPerRun(100, func() { m.Lock(); m.Unlock() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
