package watch

import (
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// A shown publisher leaves the same data at every path.
type shown struct{ data []byte }

func (shown) Announce() {}
func (shown) Publish()  {}
func (p shown) Newest(string) (tree.Found, bool) {
	return tree.Detached(p.data, tree.Stat{}), true
}

// A queued is a Stream or a Joint.
type queued interface {
	Events() <-chan Event
	Err() error
}

// D14: events with data wait up to a bound in bytes, however many the buffer has room for. Those
// that were received no longer count.
func TestOverflow_Bytes(t *testing.T) {
	const size = 4 << 20
	const fit = WaitingMax/size - 1 // their paths take some room, too
	r := NewRegistry()
	many := Options{Buffer: 1 << 10, Values: true}
	for name, add := range map[string]func() queued{
		"a stream":                 func() queued { return r.Add("/a", Persistent, many, nil) },
		"a stream that is unheard": func() queued { return r.Add("/a", Persistent, Options{Values: true}, nil) },
		"a joint":                  func() queued { return Join([]*Registry{r}, "/a", Recursive, many, nil) },
	} {
		w, z := add(), tree.Zxid(0)
		deliver := func(n int) {
			for range n {
				z++
				r.Deliver(z, set("/a"), shown{make([]byte, size)})
			}
		}
		deliver(fit)
		if err := w.Err(); err != nil {
			t.Errorf("%s: %d MiB wait, and it has ended: %v", name, fit*size>>20, err)
		}
		for i := 0; i < fit && w.Err() == nil; i++ {
			<-w.Events()
		}
		deliver(fit)
		if err := w.Err(); err != nil {
			t.Errorf("%s: as many wait again, and it has ended: %v", name, err)
		}
		deliver(1)
		if !errors.Is(w.Err(), ErrOverflow) {
			t.Errorf("%s: %d MiB wait, and Err is %v", name, (fit+1)*size>>20, w.Err())
		}
	}
}

// D14: a first event always has room, and one without data takes that of its path.
func TestBacklog(t *testing.T) {
	var b Backlog
	huge := Event{Path: "/a"}.With(tree.Detached(make([]byte, WaitingMax+1), tree.Stat{}))
	small := Event{Path: "/a"}
	if !b.Add(huge, 0) {
		t.Error("no room for an event beyond the bound, although none waits")
	}
	if b.Add(small, 1) {
		t.Error("room beside it")
	}
	if !b.Add(small, 0) || !b.Add(small, 1) || !b.Add(small, 1) {
		t.Error("no room once it was received")
	}
	if want := 2 * Weight(small); b.bytes != want {
		t.Errorf("%d bytes count for two events, want %d", b.bytes, want)
	}
}
