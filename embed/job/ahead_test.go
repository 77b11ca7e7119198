package job_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/job"
)

// A member whose clock is hours ahead runs a tick of that time, and then nobody runs a tick. Its
// clock is put right, and somebody deletes the record: the next tick runs at its time. That is what
// docs/recipes.md says.
func TestRun_AClockThatIsFarAhead(t *testing.T) {
	bubble(t, 2, func(t *testing.T, ens *embedtest.Ensemble) {
		var mu sync.Mutex
		var ran []time.Time
		ticks := func() []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(ran)
		}
		minutely := job.Job{Name: "j", Schedule: job.Every(time.Minute),
			Run: func(ctx context.Context, tick *job.Tick) error {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, tick.Time)
				return nil
			}}
		right := newParty(t, ens)
		right.start(1, minutely)
		<-time.After(90 * time.Second)
		if len(ticks()) == 0 {
			t.Fatal("it does not run")
		}

		const ahead = 5 * time.Hour
		wrong := newParty(t, ens)
		wrong.skew[2] = ahead
		wrong.start(2, minutely)
		<-time.After(2 * time.Minute)
		wrong.end()
		before := ticks()
		if last := before[len(before)-1]; time.Until(last) < ahead-time.Hour {
			t.Fatalf("the last tick is %v", last)
		}
		right.start(2, minutely)
		<-time.After(5 * time.Minute)
		if now := ticks(); !slices.Equal(now, before) {
			t.Errorf("%v, and before %v", now, before)
		}

		s := ens.Session(1, embed.SessionOptions{})
		records, err := job.History(t.Context(), s, "/jobs", "j")
		must(t, err)
		if len(records) == 0 || time.Until(records[0].Time) < ahead-time.Hour {
			t.Errorf("%v", records)
		}
		must(t, s.Delete(t.Context(), "/jobs/j/ticks", embed.AnyVersion))
		next := minutely.Schedule.Next(time.Now())
		<-time.After(5*time.Minute + 10*time.Second)
		after := ticks()[len(before):]
		if len(after) != 5 {
			t.Fatalf("%v ran", after)
		}
		for _, tick := range after {
			if !tick.Equal(next) {
				t.Errorf("%v ran, want %v", tick, next)
			}
			next = next.Add(time.Minute)
		}
	})
}
