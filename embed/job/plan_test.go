package job_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // daylight saving, on any machine

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// times is a schedule of given times.
type times []time.Time

func (s times) Next(t time.Time) time.Time {
	for _, n := range s {
		if n.After(t) {
			return n
		}
	}
	return time.Time{}
}

// after is the schedule that some parsers make of "@every": what comes next depends on when one
// asks.
type after time.Duration

func (s after) Next(t time.Time) time.Time { return t.Add(time.Duration(s)) }

// local is every day at a time of the day, by a local clock.
type local struct {
	zone         *time.Location
	hour, minute int
}

func (s local) Next(t time.Time) time.Time {
	for day := -1; ; day++ {
		y, m, d := t.In(s.zone).AddDate(0, 0, day).Date()
		if n := time.Date(y, m, d, s.hour, s.minute, 0, 0, s.zone); n.After(t) {
			return n
		}
	}
}

// The times do not depend on when a process started, nor on its time zone.
func TestEvery(t *testing.T) {
	for d, want := range map[time.Duration]time.Time{
		24 * time.Hour:     time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC),
		7 * 24 * time.Hour: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), // a Monday
		time.Hour:          time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC),
		time.Second:        time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	} {
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 5*3600+1800)} {
			if n := job.Every(d).Next(epoch.In(zone)); !n.Equal(want) || n.Location() != time.UTC {
				t.Errorf("every %v: %v, want %v", d, n, want)
			}
		}
		if n := job.Every(d).Next(want); !n.Equal(want.Add(d)) {
			t.Errorf("every %v: %v after %v", d, n, want)
		}
	}
}

// Due finds what going through all times would find.
func TestDue(t *testing.T) {
	rng := testkit.Rand(t)
	for _, s := range []job.Schedule{
		job.Every(time.Millisecond), job.Every(time.Second),
		job.Every(time.Hour), job.Every(24 * time.Hour),
		times{epoch.Add(time.Second), epoch.Add(time.Minute), epoch.Add(90 * time.Hour),
			epoch.Add(90*time.Hour + 1)}, times{},
		local{time.UTC, 4, 0},
	} {
		for range 50 {
			end := epoch.Add(time.Duration(rng.Int64N(1 << (20 + rng.IntN(27)))))
			if _, dense := s.Next(epoch), s == job.Every(time.Millisecond); dense &&
				end.Sub(epoch) > time.Minute {
				continue
			}
			var want []time.Time
			for n := s.Next(epoch); !n.IsZero() && !n.After(end); n = s.Next(n) {
				want = append(want, n)
			}
			got, err := job.Due(s, epoch, end)
			must(t, err)
			if len(want) > job.DueMax {
				want = want[len(want)-job.DueMax:]
			}
			if !slices.EqualFunc(got, want, time.Time.Equal) {
				t.Fatalf("%T up to %v: %d times, want %d", s, end, len(got), len(want))
			}
		}
	}
	got, err := job.Due(job.Every(time.Hour), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), epoch)
	if len(got) != job.DueMax || err != nil {
		t.Errorf("%d, %v", len(got), err)
	}
}

// A model of the ticks: each time of the schedule runs, or is counted as missed, or is too late.
// None runs twice except by AtLeastOnce, and no order is broken.
func TestPlan_AgainstAModel(t *testing.T) {
	rng := testkit.Rand(t)
	for range 300 {
		j := job.Job{Schedule: job.Every(time.Minute), Missed: job.Missed(rng.IntN(2)),
			Crash: job.Crash(rng.IntN(2)), Keep: rng.IntN(4)}
		if rng.IntN(2) == 0 {
			j.Within = time.Duration(rng.Int64N(int64(10 * time.Minute)))
		}
		now := epoch
		p := job.NewPlanner(j, now)
		var last job.Record // the newest that began
		last.Time = now
		crashed := false
		for range 30 {
			now = now.Add(time.Duration(rng.Int64N(1 << (30 + rng.IntN(14)))))
			for range 1 + rng.IntN(5) {
				late := func(tick time.Time) bool { return j.Within > 0 && now.Sub(tick) > j.Within }
				r, next, err := p.Next(now)
				must(t, err)
				again := crashed && j.Crash == job.AtLeastOnce && !late(last.Time)
				var due []time.Time
				for n := j.Schedule.Next(last.Time); !n.After(now); n = j.Schedule.Next(n) {
					due = append(due, n)
				}
				runs := due
				if len(runs) > 0 && j.Missed == job.Latest {
					runs = runs[len(runs)-1:]
				}
				runs = runs[max(0, len(runs)-100):]
				for len(runs) > 0 && late(runs[0]) {
					runs = runs[1:]
				}
				switch {
				case again:
					if r == nil || !r.Time.Equal(last.Time) || r.Attempt != last.Attempt+1 {
						t.Fatalf("%+v instead of another attempt of %+v", r, last)
					}
				case len(runs) == 0:
					if r != nil || !next.After(now) || next.Sub(now) > time.Minute {
						t.Fatalf("%+v at %v, the next at %v", r, now, next)
					}
				default:
					if r == nil || !r.Time.Equal(runs[0]) || r.Attempt != 1 {
						t.Fatalf("%+v, want the tick of %v", r, runs[0])
					}
					missed := len(due) - len(runs)
					if r.Missed > missed || r.Missed < min(missed, job.DueMax-len(runs)) {
						t.Fatalf("%d missed, want %d of %d", r.Missed, missed, len(due))
					}
				}
				if r == nil {
					break
				}
				last = *r
				if crashed = rng.IntN(3) == 0; !crashed {
					p.Records()[0].State = job.Done
				}
				if n := len(p.Records()); n > max(j.Keep, 1) && j.Keep > 0 || n > 10 {
					t.Fatalf("%d records of %d", n, j.Keep)
				}
			}
		}
	}
}

// More than the newest 100 do not run, and are counted (go-cron#296, Kubernetes' 100 missed
// starts).
func TestPlan_AllHasABound(t *testing.T) {
	p := job.NewPlanner(job.Job{Schedule: job.Every(time.Second), Missed: job.All}, epoch)
	now := epoch.Add(500 * time.Second)
	for i := range 100 {
		r, _, err := p.Next(now)
		must(t, err)
		want := epoch.Truncate(time.Second).Add(time.Duration(401+i) * time.Second)
		if !r.Time.Equal(want) || i == 0 && r.Missed != 400 || i > 0 && r.Missed != 0 {
			t.Fatalf("run %d is of %v, missed %d", i, r.Time, r.Missed)
		}
		r.State = job.Done
	}
	if r, next, err := p.Next(now); r != nil || err != nil || !next.After(now) {
		t.Errorf("%+v, %v, %v", r, next, err)
	}
}

// A schedule that counts from when it is asked still ticks, although its ticks are too late again
// and again.
func TestPlan_AScheduleWithoutFixedTimes(t *testing.T) {
	p := job.NewPlanner(job.Job{Schedule: after(time.Minute), Within: 10 * time.Second}, epoch)
	now := epoch.Add(5000*time.Minute + 30*time.Second)
	for range 20 {
		r, _, err := p.Next(now)
		must(t, err)
		if r != nil {
			return
		}
		now = now.Add(10 * time.Second)
	}
	t.Error("no tick in three minutes")
}

// On the day on which the clock is set forward 02:30 does not exist, and on the day on which it is
// set back it is there twice. Whatever the schedule makes of it: each tick is a time in UTC, and
// runs once (temporal#8205).
func TestPlan_DaylightSaving(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	twice := times{}
	for n := time.Date(2026, 10, 24, 0, 30, 0, 0, time.UTC); n.Day() < 27; n = n.Add(time.Hour) {
		if h, m, _ := n.In(berlin).Clock(); h == 2 && m == 30 {
			twice = append(twice, n.In(berlin))
		}
	}
	for name, c := range map[string]struct {
		schedule job.Schedule
		from     time.Time
		want     []string
	}{
		"set forward": {local{berlin, 2, 30}, time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC),
			[]string{"2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}},
		"set back": {local{berlin, 2, 30}, time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC),
			[]string{"2026-10-24T00:30:00Z",
				time.Date(2026, 10, 25, 2, 30, 0, 0, berlin).UTC().Format(time.RFC3339),
				"2026-10-26T01:30:00Z"}},
		"twice": {twice, time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC),
			[]string{"2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z",
				"2026-10-26T01:30:00Z"}},
	} {
		p := job.NewPlanner(job.Job{Schedule: c.schedule}, c.from)
		var got []string
		for now := c.from; now.Before(c.from.Add(72 * time.Hour)); now = now.Add(10 * time.Minute) {
			r, _, err := p.Next(now)
			must(t, err)
			if r != nil {
				got = append(got, r.Time.Format(time.RFC3339))
				r.State = job.Done
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestRun_Refused(t *testing.T) {
	nothing := func(context.Context, *job.Tick) error { return nil }
	good := job.Job{Name: "a", Schedule: job.Every(time.Hour), Run: nothing}
	with := func(change func(*job.Job)) []job.Job {
		bad := good
		change(&bad)
		return []job.Job{good, bad}
	}
	for name, jobs := range map[string][]job.Job{
		"no jobs":           nil,
		"two of a name":     {good, good},
		"no name":           with(func(j *job.Job) { j.Name = "" }),
		"a slash":           with(func(j *job.Job) { j.Name = "b/c" }),
		"no schedule":       with(func(j *job.Job) { j.Name, j.Schedule = "b", nil }),
		"an empty interval": with(func(j *job.Job) { j.Name, j.Schedule = "b", job.Every(0) }),
		"it stands still":   with(func(j *job.Job) { j.Name, j.Schedule = "b", after(0) }),
		"no run":            with(func(j *job.Job) { j.Name, j.Run = "b", nil }),
		"missed":            with(func(j *job.Job) { j.Name, j.Missed = "b", 2 }),
		"crash":             with(func(j *job.Job) { j.Name, j.Crash = "b", -1 }),
		"within":            with(func(j *job.Job) { j.Name, j.Within = "b", -1 }),
		"keep":              with(func(j *job.Job) { j.Name, j.Keep = "b", 101 }),
	} {
		if err := job.Run(t.Context(), nil, "/jobs", jobs...); !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := job.Run(t.Context(), nil, "", good); !errors.Is(err, embed.ErrInvalidPath) {
		t.Errorf("%v", err)
	}
}

// A member with a fast clock writes that ticks were too late. One with a slow clock then runs the
// tick before them again. The ticks still count as missed.
func TestPlan_MissedOutlivesAnotherAttempt(t *testing.T) {
	p := job.NewPlanner(job.Job{Schedule: job.Every(time.Minute), Within: 10 * time.Second, Crash: job.AtLeastOnce}, epoch)
	first := epoch.Truncate(time.Minute).Add(time.Minute)
	for _, c := range []struct {
		now           time.Duration
		runs          bool
		attempt, miss int
	}{
		{0, true, 1, 0},
		{3*time.Minute + 30*time.Second, false, 0, 0},
		{5 * time.Second, true, 2, 0},
		{4 * time.Minute, true, 1, 3},
	} {
		r, _, err := p.Next(first.Add(c.now))
		must(t, err)
		if (r != nil) != c.runs || r != nil && (r.Attempt != c.attempt || r.Missed != c.miss) {
			t.Errorf("after %v: %+v", c.now, r)
		}
		if r != nil && c.attempt == 2 {
			r.State = job.Done
		}
	}
}
