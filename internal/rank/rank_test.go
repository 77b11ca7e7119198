package rank

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

func TestEveryPlaceHasALine(t *testing.T) {
	names, types := make(map[string]bool), make(map[reflect.Type]bool)
	for _, p := range Order() {
		if p.Name == "" || names[p.Name] || types[p.Type] {
			t.Errorf("%v is twice in the order, or has no name or that of another: %q", p.Type, p.Name)
		}
		names[p.Name], types[p.Type] = true, true
	}
}

// A lock costs what a sync.Mutex costs.
func TestPlainMutexIsASyncMutex(t *testing.T) {
	if Checked {
		t.Skip("this build checks the order")
	}
	if a, b := reflect.TypeFor[Mutex[Keeper]]().Size(), reflect.TypeFor[struct{ Mutex[Keeper] }]().Size(); a != 8 || b != 8 {
		t.Errorf("a mutex takes %d and %d bytes", a, b)
	}
}

// The clock goes on while one goroutine sleeps with the mutex and another waits for it.
func TestLongMutexInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, began, turns := NewLongMutex[LogTurn](), time.Now(), 0
		turn := func() {
			m.Lock(nil)
			turns++
			m.Unlock()
		}
		m.Lock(nil)
		go turn()
		synctest.Wait()
		<-time.After(time.Second)
		m.Unlock()
		synctest.Wait()
		turn() // it is free again
		if slept := time.Since(began); slept != time.Second || turns != 2 {
			t.Errorf("%d turns took %v", turns, slept)
		}
	})
}

// Who waits gives up when told to, and the mutex stays with who has it.
func TestLongMutexUnless(t *testing.T) {
	m, over := NewLongMutex[LogTurn](), make(chan struct{})
	if !m.Lock(over) {
		t.Fatal("it was free")
	}
	close(over)
	waited := make(chan bool)
	go func() { waited <- m.Lock(over) }()
	if <-waited {
		t.Error("two have it")
	}
	m.Unlock()
	for range 100 {
		if !m.Lock(over) {
			t.Fatal("it was free again")
		}
		m.Unlock()
	}
}

func TestLongMutexThatIsFree(t *testing.T) {
	if Checked {
		t.Skip("this build ends the process")
	}
	defer func() {
		if recover() == nil {
			t.Error("it was released, and nobody held it")
		}
	}()
	m := NewLongMutex[LogTurn]()
	m.Unlock()
}

func BenchmarkLock(b *testing.B) {
	var guarded struct {
		Mutex[Keeper]
		n int
	}
	for b.Loop() {
		guarded.Lock()
		guarded.n++
		guarded.Unlock()
	}
}
