package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A file system that hangs is asked once, and nobody waits for it beyond the patience. When it
// answers again, the next look asks anew.
func TestSpaceLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l spaceLook
		var asked atomic.Int32
		free := make(chan struct{})
		l.ask = func() (Space, error) {
			asked.Add(1)
			<-free
			return Space{Free: 3, Size: 4}, nil
		}
		began := time.Now()
		for range 3 {
			if s := l.look(time.Now().Add(lookPatience)); s != nil {
				t.Errorf("a file system that hangs has %v", s)
			}
		}
		if took := time.Since(began); took > 3*lookPatience || asked.Load() != 1 {
			t.Errorf("three looks took %v and asked %d times", took, asked.Load())
		}
		close(free)
		synctest.Wait()
		if s := l.look(time.Now().Add(lookPatience)); s == nil || *s != (Space{Free: 3, Size: 4}) || asked.Load() != 2 {
			t.Errorf("%v after %d questions", s, asked.Load())
		}
		l.ask = func() (Space, error) { return Space{Free: 1, Size: 1}, errors.ErrUnsupported }
		if s := l.look(time.Now().Add(lookPatience)); s != nil {
			t.Errorf("a file system that cannot tell has %v", s)
		}
	})
}

// A look whose lock is busy is tried again, and does not keep the others waiting.
func TestLookUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var never, second, first *int
		tries := 0
		began := time.Now()
		lookUntil(began.Add(lookPatience), []func() bool{
			into(&never, func() (int, bool) { return 0, false }),
			into(&second, func() (int, bool) { tries++; return 2, tries == 2 }),
			into(&first, func() (int, bool) { return 1, true }),
		})
		if took := time.Since(began); took > lookPatience {
			t.Errorf("it took %v", took)
		}
		if never != nil || first == nil || *first != 1 || second == nil || *second != 2 || tries != 2 {
			t.Errorf("%v, %v, %v after %d tries", never, first, second, tries)
		}
		lookUntil(time.Now(), []func() bool{into(&first, func() (int, bool) { return 7, true })})
		if *first != 7 {
			t.Error("without time, nothing was looked at")
		}
	})
}
