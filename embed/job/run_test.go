package job_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// patience is a virtual time that no step of a test takes.
const patience = 24 * time.Hour

// bubble tests in virtual time, with an ensemble of so many members and a slow tick.
func bubble(t *testing.T, n int, test func(t *testing.T, ens *embedtest.Ensemble)) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(c *embed.Config) { c.Tick = 100 * time.Millisecond }
		test(t, embedtest.New(t, n, embedtest.Options{Config: slow}))
	})
}

// A run is one call of a Job.Run in a test.
type run struct {
	member  embed.MemberID
	tick    time.Time
	attempt int
	token   lock.Token
	ended   bool
}

// A log is what the members of a test have run.
type log struct {
	t    *testing.T
	mu   sync.Mutex
	runs []*run
}

// begin notes that a run begins. No other may be under way, and its token is the greatest.
func (l *log) begin(ctx context.Context, member embed.MemberID, tick *job.Tick) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &run{member: member, tick: tick.Time, attempt: tick.Attempt, token: tick.Token()}
	if ctx.Err() == nil {
		for _, other := range l.runs {
			if !other.ended {
				l.t.Errorf("%+v begins beside %+v", r, other)
			}
			if other.token.Compare(r.token) >= 0 {
				l.t.Errorf("token %v after %v", r.token, other.token)
			}
			if other.tick.After(r.tick) {
				l.t.Errorf("tick %v after %v", r.tick, other.tick)
			}
		}
	}
	l.runs = append(l.runs, r)
	return r
}

func (l *log) end(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ended = true
}

// of returns the runs of all ticks, by tick.
func (l *log) of() map[time.Time][]*run {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := make(map[time.Time][]*run)
	for _, r := range l.runs {
		m[r.tick] = append(m[r.tick], r)
	}
	return m
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, r := range l.runs {
		fmt.Fprintf(&b, "%v attempt %d on %d\n", r.tick.Format(time.DateTime), r.attempt, r.member)
	}
	return b.String()
}

// A party runs the same jobs on several members.
type party struct {
	t       *testing.T
	ens     *embedtest.Ensemble
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	over    map[embed.MemberID]bool // whose nodes end
	skew    map[embed.MemberID]time.Duration
	mu      sync.Mutex
}

func newParty(t *testing.T, ens *embedtest.Ensemble) *party {
	p := &party{t: t, ens: ens, over: make(map[embed.MemberID]bool),
		skew: make(map[embed.MemberID]time.Duration)}
	p.ctx, p.cancel = context.WithCancel(t.Context())
	t.Cleanup(p.end)
	return p
}

// start calls Run on a member, until the party or its node ends.
func (p *party) start(id embed.MemberID, jobs ...job.Job) {
	node := p.ens.Node(id)
	skew := p.skew[id]
	p.running.Go(func() {
		err := job.RunWithClock(p.ctx, node, func() time.Time { return time.Now().Add(skew) }, "/jobs",
			jobs...)
		p.mu.Lock()
		over := p.over[id]
		p.mu.Unlock()
		if p.ctx.Err() != nil && errors.Is(err, context.Canceled) || over &&
			(errors.Is(err, embed.ErrClosed) || errors.Is(err, embed.ErrFailed)) {
			return
		}
		p.t.Errorf("member %d: %v", id, err)
	})
}

// kill kills a member.
func (p *party) kill(id embed.MemberID) {
	p.mu.Lock()
	p.over[id] = true
	p.mu.Unlock()
	p.ens.Kill(id)
}

// restart starts a member that was killed, once its Run has returned.
func (p *party) restart(id embed.MemberID, jobs ...job.Job) {
	<-time.After(time.Second)
	p.ens.Restart(id)
	p.mu.Lock()
	p.over[id] = false
	p.mu.Unlock()
	p.start(id, jobs...)
}

func (p *party) end() {
	p.cancel()
	p.running.Wait()
}

// until waits until a condition holds.
func (p *party) until(what string, cond func() bool) {
	p.t.Helper()
	for begun := time.Now(); !cond(); <-time.After(time.Second) {
		if time.Since(begun) > patience {
			p.t.Fatalf("no %s", what)
		}
	}
}

// Each tick runs once, on one member after the other, whatever their clocks. A lock alone lets each
// member run its own tick when clocks are off or runs are short (gocron#841, ShedLock#6,
// ShedLock#8). A session whose renewals somebody has to remember ends in between (testkube#7839):
// that of Run lasts. The members take turns, and none runs all jobs (misk#3326).
func TestRun_EachTickOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		p, l := newParty(t, ens), &log{t: t}
		begun := time.Now()
		for _, id := range ens.Members() {
			p.skew[id] = time.Duration(id-2) * 5 * time.Second
			p.start(id, job.Job{Name: "short", Schedule: job.Every(time.Minute),
				Run: func(ctx context.Context, tick *job.Tick) error {
					r := l.begin(ctx, id, tick)
					defer l.end(r)
					if now := time.Now().Add(p.skew[id]); now.Before(tick.Time) ||
						now.Sub(tick.Time) > time.Second {
						t.Errorf("tick %v at %v", tick.Time, now)
					}
					return nil
				}})
		}
		<-time.After(20*time.Minute + 30*time.Second)
		p.end()
		by := make(map[embed.MemberID]int)
		ticks := l.of()
		tick := job.Every(time.Minute).Next(begun.Add(time.Minute))
		for ; tick.Before(time.Now().Add(-time.Minute)); tick = tick.Add(time.Minute) {
			if len(ticks[tick]) != 1 {
				t.Errorf("tick %v ran %d times", tick, len(ticks[tick]))
				continue
			}
			by[ticks[tick][0].member]++
		}
		for _, id := range ens.Members() {
			if by[id] < 4 {
				t.Errorf("member %d ran %d ticks: %v", id, by[id], by)
			}
		}
		if t.Failed() {
			t.Log(l)
		}
	})
}

// ticksFlag makes TestRun_ManyTicks longer.
var ticksFlag = flag.Int("ticks", 200, "how many ticks TestRun_ManyTicks plays; -v tells its figures")

// Of very many ticks on members whose clocks wander, up to 20 s apart, none runs twice, and none is
// left out.
func TestRun_ManyTicks(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		const every = time.Second
		begun := time.Now()
		// the second clock is right, the others drift to and fro within 10 s of it
		clock := func(id embed.MemberID) time.Time {
			now := time.Now()
			turn := 2 * math.Pi * now.Sub(begun).Hours()
			drift := 5 * math.Sin(turn)
			return now.Add(time.Duration(float64(int(id)-2) * (5 + drift) * float64(time.Second)))
		}
		var mu sync.Mutex
		runs := make(map[time.Time]int)
		by := make(map[embed.MemberID]int)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, id := range ens.Members() {
			node := ens.Node(id)
			all.Go(func() {
				err := job.RunWithClock(ctx, node, func() time.Time { return clock(id) }, "/jobs", job.Job{
					Name: "many", Schedule: job.Every(every), Missed: job.All,
					Run: func(_ context.Context, tick *job.Tick) error {
						mu.Lock()
						defer mu.Unlock()
						runs[tick.Time]++
						by[id]++
						return nil
					},
				})
				wantErr(t, err, context.Canceled)
			})
		}
		ran := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(runs)
		}
		for most := 2 * *ticksFlag; ran() < *ticksFlag && most > 0; most-- {
			<-time.After(every)
		}
		cancel()
		all.Wait()
		twice, missing := 0, 0
		last := slices.MaxFunc(slices.Collect(maps.Keys(runs)), time.Time.Compare)
		first := slices.MinFunc(slices.Collect(maps.Keys(runs)), time.Time.Compare)
		for tick := first; !tick.After(last); tick = tick.Add(every) {
			switch n := runs[tick]; {
			case n == 0:
				missing++
			case n > 1:
				twice++
			}
		}
		t.Logf("%d ticks ran, by member %v; %d ran twice, %d are missing", len(runs), by, twice, missing)
		if len(runs) < *ticksFlag || twice > 0 || missing > 0 {
			t.Errorf("%d of %d ticks ran, %d twice, %d are missing", len(runs), *ticksFlag, twice, missing)
		}
		for _, id := range ens.Members() {
			if by[id] == 0 {
				t.Errorf("member %d ran no tick", id)
			}
		}
	})
}

// Members with skewed clocks are killed and cut off during runs. With AtMostOnce no tick runs
// twice. With AtLeastOnce each tick that began is run until a run ends. A run that takes longer
// than a session lasts is never joined by another (ShedLock#132, ShedLock#606, ShedLock#1596), and
// ticks go on after the changes (dkron#998, dkron#1210: ticks were lost at each election).
func TestRun_UnderFailures(t *testing.T) {
	for _, crash := range []job.Crash{job.AtMostOnce, job.AtLeastOnce} {
		t.Run(fmt.Sprint(crash), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
				p, l := newParty(t, ens), &log{t: t}
				work := func(id embed.MemberID) job.Job {
					return job.Job{Name: "long", Schedule: job.Every(time.Minute), Missed: job.All, Crash: crash,
						Keep: 100,
						Run: func(ctx context.Context, tick *job.Tick) error {
							r := l.begin(ctx, id, tick)
							defer l.end(r)
							select {
							case <-time.After(40 * time.Second):
								return nil
							case <-ctx.Done():
								return context.Cause(ctx)
							}
						}}
				}
				for _, id := range ens.Members() {
					p.skew[id] = time.Duration(id-2) * 5 * time.Second
					p.start(id, work(id))
				}
				for round := range 6 {
					before := len(l.of())
					p.until("another tick", func() bool { return len(l.of()) > before })
					<-time.After(10 * time.Second)
					l.mu.Lock()
					runs := l.runs[len(l.runs)-1].member // the one that runs, or ran last
					l.mu.Unlock()
					if round%2 == 0 {
						p.kill(runs)
						<-time.After(2 * time.Minute)
						p.restart(runs, work(runs))
					} else {
						ens.Isolate(runs)
						<-time.After(2 * time.Minute)
						ens.HealAll()
					}
				}
				before := len(l.of())
				p.until("three more ticks", func() bool { return len(l.of()) > before+3 })
				history, err := job.History(bounded(t), ens.Session(1, embed.SessionOptions{}), "/jobs", "long")
				must(t, err)
				p.end()
				again := 0
				for tick, runs := range l.of() {
					if crash == job.AtMostOnce && len(runs) > 1 {
						t.Errorf("tick %v ran %d times", tick, len(runs))
					}
					for i, r := range runs {
						if r.attempt != i+1 {
							t.Errorf("run %d of %v is attempt %d", i+1, tick, r.attempt)
						}
					}
					again += len(runs) - 1
				}
				if crash == job.AtLeastOnce && again < 4 {
					t.Errorf("only %d ticks ran again", again)
				}
				// All ticks since the first began, the oldest first.
				for i, r := range history {
					if i > 0 && !r.Time.Equal(history[i-1].Time.Add(-time.Minute)) || r.Missed > 0 &&
						i < len(history)-1 {
						t.Errorf("%+v in the history before %+v", r, history[max(0, i-1)])
					}
					if i > 0 && crash == job.AtLeastOnce && r.State != job.Done {
						t.Errorf("%+v is not done", r)
					}
				}
				if len(history) < 12 {
					t.Errorf("%d ticks", len(history))
				}
				if t.Failed() {
					t.Log(l)
				}
			})
		})
	}
}

// What was missed while nobody was there runs as the job says (go-cron#296), and the History says
// so.
func TestRun_Missed(t *testing.T) {
	for name, c := range map[string]struct {
		job  job.Job
		runs []int // the minutes of the ticks that run
	}{
		"the latest": {job.Job{}, []int{1, 31, 32}},
		"all":        {job.Job{Missed: job.All}, append(upTo(31), 32)},
		"none":       {job.Job{Within: 10 * time.Second}, []int{1, 32}},
		"some":       {job.Job{Missed: job.All, Within: 150 * time.Second}, []int{1, 29, 30, 31, 32}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
				l := &log{t: t}
				j := c.job
				j.Name, j.Schedule, j.Keep = "j", job.Every(time.Minute), 100
				j.Run = func(ctx context.Context, tick *job.Tick) error {
					defer l.end(l.begin(ctx, 1, tick))
					return nil
				}
				<-time.After(time.Until(job.Every(time.Hour).Next(time.Now())))
				begun := time.Now().Truncate(time.Minute)
				run := func(to time.Duration) {
					ctx, cancel := context.WithDeadline(t.Context(), begun.Add(to))
					defer cancel()
					wantErr(t, job.Run(ctx, ens.Opener(1), "/jobs", j), context.DeadlineExceeded)
				}
				run(90 * time.Second)
				<-time.After(time.Until(begun.Add(31*time.Minute + 15*time.Second)))
				run(33*time.Minute - time.Second)
				ticks := l.of()
				if len(ticks) != len(c.runs) {
					t.Errorf("%d ticks", len(ticks))
				}
				missed := 0
				for _, m := range c.runs {
					if len(ticks[begun.Add(time.Duration(m)*time.Minute).UTC()]) != 1 {
						t.Errorf("minute %d did not run", m)
					}
				}
				history, err := job.History(t.Context(), ens.Session(1, embed.SessionOptions{}), "/jobs", "j")
				must(t, err)
				for _, r := range history {
					missed += r.Missed
					if r.State != job.Done || r.Member != 1 || r.Attempt != 1 || r.Token == (lock.Token{}) ||
						r.Began.Before(r.Time) || r.Ended.Before(r.Began) {
						t.Errorf("%+v", r)
					}
				}
				if missed+len(c.runs) != 32 {
					t.Errorf("%d runs, %d missed", len(c.runs), missed)
				}
				if t.Failed() {
					t.Log(l)
				}
			})
		})
	}
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i+1)
	}
	return list
}

// A run that fails is recorded and not repeated, by AtLeastOnce neither; Run goes on.
func TestRun_AFailure(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		p := newParty(t, ens)
		text := strings.Repeat("ä", 200) // 400 bytes
		p.start(1, job.Job{Name: "j", Schedule: job.Every(time.Minute), Crash: job.AtLeastOnce, Keep: 3,
			Run: func(ctx context.Context, tick *job.Tick) error {
				return errors.New("x" + text)
			}})
		s := ens.Session(1, embed.SessionOptions{})
		<-time.After(5*time.Minute + 10*time.Second)
		history, err := job.History(t.Context(), s, "/jobs", "j")
		must(t, err)
		if len(history) != 3 {
			t.Fatalf("%+v", history)
		}
		for _, r := range history {
			if r.State != job.Failed || r.Attempt != 1 || r.Error != "x"+text[:254] {
				t.Errorf("%+v", r)
			}
		}
	})
}

// A shutdown cuts a tick short. By AtLeastOnce another member runs it at once, by AtMostOnce
// nobody.
func TestRun_AShutdown(t *testing.T) {
	for _, crash := range []job.Crash{job.AtMostOnce, job.AtLeastOnce} {
		t.Run(fmt.Sprint(crash), func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, ens *embedtest.Ensemble) {
				p, l := newParty(t, ens), &log{t: t}
				work := func(id embed.MemberID) job.Job {
					return job.Job{Name: "j", Schedule: job.Every(5 * time.Minute), Crash: crash,
						Run: func(ctx context.Context, tick *job.Tick) error {
							defer l.end(l.begin(ctx, id, tick))
							if tick.Attempt > 1 {
								return nil
							}
							<-ctx.Done()
							return context.Cause(ctx)
						}}
				}
				first, stop := context.WithCancel(t.Context())
				over := make(chan error, 1)
				go func() { over <- job.Run(first, ens.Opener(1), "/jobs", work(1)) }()
				<-time.After(time.Minute)
				p.start(2, work(2))
				p.until("run", func() bool { return len(l.of()) == 1 })
				tick := l.runs[0].tick
				stop()
				stopped := time.Now()
				wantErr(t, <-over, context.Canceled)
				<-time.After(10 * time.Second)
				if d := time.Since(stopped); d > 15*time.Second {
					t.Errorf("Run returned after %v", d)
				}
				if n := len(l.of()[tick]); n != 1+int(crash) {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}

// What Commit writes is written once, however often the tick runs.
func TestTick_Commit(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/jobs", "/jobs/sum"} {
			_, err := s.Create(t.Context(), path, embed.Int64.Format(0), embed.Persistent)
			must(t, err)
		}
		p, l := newParty(t, ens), &log{t: t}
		work := func(id embed.MemberID) job.Job {
			return job.Job{Name: "j", Schedule: job.Every(time.Minute), Missed: job.All,
				Crash: job.AtLeastOnce, Run: func(ctx context.Context, tick *job.Tick) error {
					defer l.end(l.begin(ctx, id, tick))
					var no *embed.MultiError
					if err := tick.Commit(embed.OpAdd("/jobs/none", 1, embed.Int64)); ctx.Err() == nil &&
						(!errors.Is(err, embed.ErrNoNode) || !errors.As(err, &no) || no.Index != 0) {
						t.Errorf("%v", err)
					}
					if _, err := tick.Session().Multi(ctx, tick.Guard(),
						embed.OpSet("/jobs/sum", nil, 17)); ctx.Err() == nil && !errors.Is(err, embed.ErrBadVersion) {
						t.Errorf("%v", err)
					}
					select {
					case <-time.After(15 * time.Second):
					case <-ctx.Done():
					}
					err := tick.Commit(embed.OpAdd("/jobs/sum", 1, embed.Int64))
					if err == nil {
						wantErr(t, tick.Commit(), job.ErrEnded)
					} else if !errors.Is(err, embed.ErrNotHeld) && !errors.Is(err, embed.ErrUnknownOutcome) {
						t.Errorf("%v", err)
					}
					return errors.New("whatever")
				}}
		}
		for _, id := range ens.Members() {
			p.start(id, work(id))
		}
		for range 3 {
			before := len(l.of())
			p.until("another tick", func() bool { return len(l.of()) > before })
			<-time.After(5 * time.Second)
			l.mu.Lock()
			runs := l.runs[len(l.runs)-1].member
			l.mu.Unlock()
			ens.Isolate(runs)
			<-time.After(time.Minute)
			ens.HealAll()
		}
		<-time.After(2 * time.Minute)
		p.end()
		_, err := s.Sync(t.Context(), "/jobs")
		if err != nil { // its member was cut off
			s = ens.Session(1, embed.SessionOptions{})
		}
		data, _, err := s.Get(t.Context(), "/jobs/sum")
		must(t, err)
		sum, err := embed.Int64.Parse(data)
		must(t, err)
		history, err := job.History(t.Context(), s, "/jobs", "j")
		must(t, err)
		done := 0
		for _, r := range history {
			if r.State == job.Done {
				done++
			}
		}
		if int(sum) != done || len(history)-done > 1 {
			t.Errorf("the sum is %d, %d of %d ticks are done", sum, done, len(history))
		}
	})
	var zero job.Tick
	wantErr(t, zero.Commit(), embed.ErrNotHeld)
	if zero.Session() != nil || zero.Token() != (lock.Token{}) {
		t.Error("the zero Tick has a session or a token")
	}
}

// What is not a record is left as it is, and ends Run with an error that names it.
func TestRun_AnUnreadableRecord(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		for _, data := range []string{"", "{", "{}", `{"Since":"yesterday"}`} {
			_, err := s.Put(t.Context(), "/jobs/j/ticks", []byte(data))
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err = job.Run(ctx, ens.Opener(1), "/jobs",
				job.Job{Name: "j", Schedule: job.Every(time.Minute),
					Run: func(context.Context, *job.Tick) error { return nil }})
			wantErr(t, err, job.ErrUnreadable)
			if !strings.Contains(err.Error(), "/jobs/j/ticks") {
				t.Errorf("%v", err)
			}
			_, err = job.History(ctx, s, "/jobs", "j")
			wantErr(t, err, job.ErrUnreadable)
			now, _, err := s.Get(ctx, "/jobs/j/ticks")
			must(t, err)
			if string(now) != data {
				t.Errorf("%q became %q", data, now)
			}
		}
		none, err := job.History(t.Context(), s, "/jobs", "none")
		if none != nil || err != nil {
			t.Errorf("%v, %v", none, err)
		}
		_, err = job.History(t.Context(), s, "", "none")
		wantErr(t, err, embed.ErrInvalidPath)
	})
}

// Somebody deletes the record, the lock, and all that is below it. The job goes on with the next
// tick.
func TestRun_DeletedByHand(t *testing.T) {
	bubble(t, 2, func(t *testing.T, ens *embedtest.Ensemble) {
		p, l := newParty(t, ens), &log{t: t}
		for _, id := range ens.Members() {
			p.start(id, job.Job{Name: "j", Schedule: job.Every(time.Minute),
				Run: func(ctx context.Context, tick *job.Tick) error {
					defer l.end(l.begin(ctx, id, tick))
					<-time.After(time.Duration(id) * time.Second)
					return nil
				}})
		}
		s := ens.Session(1, embed.SessionOptions{})
		for i := range 40 {
			<-time.After(17 * time.Second)
			if i%2 == 0 {
				if err := s.Delete(t.Context(), "/jobs/j/ticks", embed.AnyVersion); err != nil &&
					!errors.Is(err, embed.ErrNoNode) {
					t.Fatal(err)
				}
				continue
			}
			names, _, err := s.Children(t.Context(), "/jobs/j/lock")
			must(t, err)
			for _, name := range names {
				_ = s.Delete(t.Context(), "/jobs/j/lock/"+name, embed.AnyVersion) // it may be gone by now
			}
		}
		before := len(l.of())
		<-time.After(5 * time.Minute)
		for tick, runs := range l.of() {
			if len(runs) > 1 {
				t.Errorf("%v ran %d times", tick, len(runs))
			}
		}
		if n := len(l.of()); n < before+4 {
			t.Errorf("%d ticks, and %d before", n, before)
		}
	})
}
