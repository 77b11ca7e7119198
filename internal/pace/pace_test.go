package pace

import (
	"slices"
	"testing"
	"time"
)

// An event that goes on is told after 10 s, 20 s, 40 s, and so on up to 10 min. Each time it says how
// often it was held back. An event that comes again after a pause without it begins anew.
func TestPace(t *testing.T) {
	var p Pace
	now := time.Now()
	begin, told, held := now, []time.Duration(nil), 0
	for ; now.Sub(begin) < time.Hour; now = now.Add(time.Second) {
		if n, ok := p.Due(now); ok {
			told = append(told, now.Sub(begin))
			held += n
		}
	}
	want := []time.Duration{0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030}
	for i := range told {
		if i >= len(want) || told[i] != want[i]*time.Second {
			t.Fatalf("told after %v, want %v seconds", told, want)
		}
	}
	if all := len(told) + held; len(told) != len(want) || all != 3031 {
		t.Errorf("%d times told and %d held back until the last one, want %d in all", len(told), held, 3031)
	}
	for seconds := range 60 { // an event that is rarer than the pause, but goes on
		var rare Pace
		told := 0
		for at := time.Duration(0); at < 24*time.Hour; at += time.Duration(seconds+1) * time.Second {
			if _, ok := rare.Due(now.Add(at)); ok {
				told++
			}
		}
		if told > 160 {
			t.Errorf("an event every %d s is told %d times in a day", seconds+1, told)
		}
	}
	now = now.Add(2 * Max)
	p.Due(now)
	now = now.Add(2 * Max) // nothing was held back
	if held, ok := p.Due(now); !ok || held != 0 {
		t.Errorf("after a rest: %d, %v", held, ok)
	}
	if _, ok := p.Due(now.Add(Min - 1)); ok {
		t.Error("told again at once")
	}
	if held, ok := p.Due(now.Add(Min)); !ok || held != 1 {
		t.Errorf("after the shortest pause: %d, %v", held, ok)
	}
}

// An event with a longer first pause is told after one, three and seven of it, and so on.
func TestPace_First(t *testing.T) {
	p := Pace{First: time.Minute}
	now, told := time.Now(), []int(nil)
	for second := range 8 * 3600 {
		if _, ok := p.Due(now.Add(time.Duration(second) * time.Second)); ok {
			told = append(told, second/60)
		}
	}
	if want := []int{0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363, 423}; !slices.Equal(told, want) {
		t.Errorf("told after %v minutes, want %v", told, want)
	}
}
