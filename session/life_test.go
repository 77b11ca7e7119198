package session

import (
	"math/rand/v2"
	"testing"
	"time"
)

// FuzzLife gives two lives the same events. One is looked at all the time, the other only by the
// events: looking must change no answer. FuzzLife also recomputes the deadline from all proofs.
func FuzzLife(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(randomBytes(rand.New(rand.NewPCG(seed, 4)), 200))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		const timeout = 10 * time.Second
		quiet, watched := NewLife(timeout, 0), NewLife(timeout, 0)
		var now, newest, floor time.Duration
		var final State
		for len(script) >= 3 {
			kind, step, back := script[0]%16, script[1], script[2]
			script = script[3:]
			for range step % 8 {
				now += time.Duration(step) * 20 * time.Millisecond
				watched.Look(now)
			}
			sent := now - time.Duration(back)*100*time.Millisecond
			each := func(fn func(*Life)) { fn(quiet); fn(watched) }
			switch kind {
			case 0:
				each(func(l *Life) { l.Suspend(now) })
				floor = now
			case 1:
				if back == 0 {
					each(func(l *Life) { l.Look(now); l.Close() })
				}
			case 2:
				if back == 0 {
					each(func(l *Life) { l.Look(now); l.Expire() })
				}
			default:
				if each(func(l *Life) { l.Proved(now, sent) }); sent >= floor {
					newest = max(newest, sent)
				}
			}
			a, _ := quiet.Look(now)
			b, _ := watched.Look(now)
			if a != b || quiet.Suspensions() != watched.Suspensions() {
				t.Fatalf("at %v: %v after %d suspensions, if looked at %v after %d",
					now, a, quiet.Suspensions(), b, watched.Suspensions())
			}
			if a == Connected && now >= newest+timeout-Margin(timeout) {
				t.Fatalf("at %v: connected, the newest proof is of %v", now, newest)
			}
			if final.Final() && a != final {
				t.Fatalf("at %v: %v became %v", now, final, a)
			}
			final = a
		}
	})
}

func TestMargin(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0:                100 * time.Millisecond,
		time.Second:      100 * time.Millisecond,
		2 * time.Second:  200 * time.Millisecond,
		30 * time.Second: 3 * time.Second,
	} {
		if got := Margin(timeout); got != want {
			t.Errorf("Margin(%v) = %v, want %v", timeout, got, want)
		}
	}
}
