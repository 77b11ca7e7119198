package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed/backup/schedule"
)

// A year of backups leaves what Keep says, whatever the hour.
func TestSuperfluous_OverAYear(t *testing.T) {
	keep := schedule.Keep{Hourly: 24, Daily: 7, Weekly: 4}
	times := make(map[string]time.Time)
	now := time.Date(2026, 1, 1, 0, 20, 0, 0, time.UTC)
	for n := range 365 * 24 * 2 {
		now = now.Add(30 * time.Minute)
		newest := fmt.Sprint(n)
		times[newest] = now
		var all []schedule.Kept
		for name, at := range times {
			all = append(all, schedule.NewKept(name, at))
		}
		for _, name := range schedule.Superfluous(all, newest, keep) {
			delete(times, name)
		}
		if _, there := times[newest]; !there {
			t.Fatalf("%v: the newest is gone", now)
		}
		if n < 60*48 {
			continue
		}
		for _, want := range []struct {
			n    int
			span time.Duration
		}{{keep.Hourly, time.Hour}, {keep.Daily, 24 * time.Hour}, {keep.Weekly, 7 * 24 * time.Hour}} {
			has := make(map[time.Time]bool)
			for _, at := range times {
				has[at.Truncate(want.span)] = true
			}
			for i := range want.n {
				if age := time.Duration(i) * want.span; !has[now.Add(-age).Truncate(want.span)] {
					t.Fatalf("%v: nothing of %v ago", now, age)
				}
			}
		}
		if len(times) > 24+7+4 {
			t.Fatalf("%v: %d backups", now, len(times))
		}
	}
}

// However clocks jump, the new backup stays, and so does what seems to be later.
func TestSuperfluous_WithAWrongClock(t *testing.T) {
	base := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 24))
		keep := schedule.Keep{Hourly: r.IntN(3), Daily: r.IntN(3), Weekly: r.IntN(2)}
		var all []schedule.Kept
		times := map[string]time.Time{}
		for n := range r.IntN(30) + 1 {
			at := base.Add(time.Duration(r.IntN(60*24*60)) * time.Minute)
			times[fmt.Sprint(n)] = at
			all = append(all, schedule.NewKept(fmt.Sprint(n), at))
		}
		newest := fmt.Sprint(r.IntN(len(all)))
		for _, name := range schedule.Superfluous(slices.Clone(all), newest, keep) {
			if name == newest || times[name].After(times[newest]) {
				t.Errorf("seed %d: %s at %v goes, the new one is %s at %v", seed, name, times[name], newest, times[newest])
			}
		}
	}
	at := func(hour int) time.Time { return base.Add(time.Duration(hour) * time.Hour) }
	all := []schedule.Kept{schedule.NewKept("a", at(0)), schedule.NewKept("b", at(1)), schedule.NewKept("c", at(1).Add(time.Minute)), schedule.NewKept("d", at(2)), schedule.NewKept("later", at(9999))}
	for keep, want := range map[schedule.Keep]string{
		{Hourly: 2}: "b a", {Hourly: 1}: "c b a", {Daily: 1}: "c b a", {Hourly: 3, Daily: 1}: "b", {}: "c b a",
	} {
		if got := strings.Join(schedule.Superfluous(slices.Clone(all), "d", keep), " "); got != want {
			t.Errorf("%+v: %s, want %s", keep, got, want)
		}
	}
	if got := schedule.Superfluous(all, "deleted by somebody", schedule.Keep{Hourly: 1}); got != nil {
		t.Errorf("%q", got)
	}
}
