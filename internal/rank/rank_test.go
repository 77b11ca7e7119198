package rank

import (
	"reflect"
	"testing"
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
