package watch

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// D1: TestArmingRace adds watches while transactions are delivered. Each watch must see every
// change after its zxid exactly once, and its zxid must be visible when Add returns.
func TestArmingRace(t *testing.T) {
	const transactions, adders, kept = 1000, 4, 400
	r := NewRegistry()
	var visible atomic.Uint64
	type armed struct {
		stream *Stream
		mode   Mode
	}
	var mu sync.Mutex
	var all []armed
	var adding sync.WaitGroup
	for a := range adders {
		adding.Go(func() {
			for i := 0; visible.Load() < transactions; i++ {
				mode := Mode((a + i) % 3)
				path := "/a"
				if mode == Recursive && i%2 == 0 {
					path = "/"
				}
				s := r.Add(path, mode, Options{Buffer: transactions}, nil)
				if v := visible.Load(); tree.Zxid(v) < s.Zxid() {
					t.Errorf("armed at %d, visible %d", s.Zxid(), v)
				}
				mu.Lock()
				if len(all) < kept {
					all = append(all, armed{s, mode})
				} else {
					s.Close()
				}
				mu.Unlock()
			}
		})
	}
	for z := tree.Zxid(1); z <= transactions; z++ {
		r.Deliver(z, set("/a"), publish(func() {
			runtime.Gosched()
			visible.Store(uint64(z))
		}))
	}
	adding.Wait()
	r.EndAll(errors.New("over"))
	for _, w := range all {
		want := w.stream.Zxid() + 1
		for e := range w.stream.Events() {
			if e.Zxid != want {
				t.Fatalf("armed at %d: event %d, want %d", w.stream.Zxid(), e.Zxid, want)
			}
			want++
		}
		last := tree.Zxid(transactions)
		if w.mode == Once {
			last = min(last, w.stream.Zxid()+1)
		}
		if want != last+1 {
			t.Fatalf("armed at %d, mode %d: events up to %d, want %d", w.stream.Zxid(), w.mode, want-1, last)
		}
	}
}

// D3: watchers read as soon as they get an event, and readers look for the events of what they
// read. An event may be ahead of the readers, never behind.
func TestReadAfterEvent(t *testing.T) {
	const transactions = 3000
	r := NewRegistry()
	s := r.Add("/a", Persistent, Options{Buffer: transactions}, nil)
	var visible atomic.Uint64
	var reading sync.WaitGroup
	reading.Go(func() {
		for got := uint64(0); got < transactions; {
			shown := visible.Load()
			for got < shown {
				select {
				case e := <-s.Events():
					got = uint64(e.Zxid)
				default:
					t.Errorf("shown %d, and only %d could be received", shown, got)
					return
				}
			}
		}
	})
	for z := tree.Zxid(1); z <= transactions; z++ {
		r.Deliver(z, set("/a"), publish(func() { visible.Store(uint64(z)) }))
	}
	reading.Wait()
}

// TestEndingRace closes, ends, receives and asks from all sides while events are delivered. It is
// for the race detector, and asserts only that each channel is closed.
func TestEndingRace(t *testing.T) {
	r := NewRegistry()
	why := errors.New("why")
	stop := make(chan struct{})
	var delivering, others sync.WaitGroup
	delivering.Go(func() {
		for z := tree.Zxid(1); ; z++ {
			select {
			case <-stop:
				return
			default:
				r.Deliver(z, set("/a"), nil)
			}
		}
	})
	for i := range 300 {
		s := r.Add("/a", Mode(i%3), Options{Buffer: 1 + i%2}, nil)
		others.Go(func() {
			for range s.Events() {
			}
			if err := s.Err(); err != nil && !errors.Is(err, why) && !errors.Is(err, ErrOverflow) {
				t.Error(err)
			}
		})
		others.Go(s.Close)
		others.Go(func() { s.End(why) })
		others.Go(func() { s.Err(); s.Events(); r.Len() })
	}
	others.Wait()
	close(stop)
	delivering.Wait()
	if r.Len() != 0 {
		t.Errorf("%d watches left", r.Len())
	}
}

// D3: TestErrBeforeTheEnd asks why a watch ended at the moment when its channel is closed.
func TestErrBeforeTheEnd(t *testing.T) {
	over := errors.New("over")
	r := NewRegistry()
	for range 20_000 {
		s := r.Add("/a", Persistent, Options{Buffer: 1}, nil)
		events, said := s.Events(), make(chan error, 1)
		var looking atomic.Bool
		go func() {
			for i := 1; ; i++ {
				if i%1000 == 0 {
					runtime.Gosched() // with one processor, the other has none
				}
				looking.Store(true)
				select { // blocked in a receive, it would look too late
				case <-events:
					said <- s.Err()
					return
				default:
				}
			}
		}()
		for !looking.Load() {
			runtime.Gosched()
		}
		s.End(over)
		if err := <-said; err != over {
			t.Fatalf("the channel is closed and the error is %v", err)
		}
	}
}
