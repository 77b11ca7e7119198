package job_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/refusals"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/tree"
)

// A quota refuses the result of a Once. What has run is not run again, neither by its member nor by
// the others, who wait. As soon as there is room, all get the result.
func TestOnce_ARefusedResult(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		limits := func(text string) {
			_, err := s.Put(t.Context(), "/zookeeper/quota/once/zookeeper_limits", []byte(text))
			must(t, err)
		}
		limits("count=-1,bytes=-1=;byteHardLimit=1000;countHardLimit=-1")
		_, err := s.Put(t.Context(), "/zookeeper/quota/once/zookeeper_stats", nil)
		must(t, err)
		var runs atomic.Int32
		answers := make(chan answer, 3)
		call := func(ctx context.Context, id embed.MemberID) {
			result, err := job.Once(ctx, ens.Opener(id), "/once",
				func(context.Context, lock.Token) ([]byte, error) {
					runs.Add(1)
					return make([]byte, 2000), nil
				})
			answers <- answer{result, err}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go call(ctx, 1)
		<-time.After(time.Hour)
		cancel()
		a := wait(t, answers)
		if !errors.Is(a.err, embed.ErrQuotaExceeded) || !errors.Is(a.err, context.Canceled) {
			t.Errorf("the caller gets %v, which does not say why", a.err)
		}
		if runs.Load() != 1 {
			t.Errorf("in an hour it ran %d times", runs.Load())
		}
		for id := range embed.MemberID(3) {
			go call(t.Context(), id+1)
		}
		<-time.After(time.Hour)
		limits("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=-1")
		for range 3 {
			if a := wait(t, answers); len(a.result) != 2000 || a.err != nil {
				t.Errorf("%d bytes, %v", len(a.result), a.err)
			}
		}
		if runs.Load() != 2 {
			t.Errorf("it ran %d times, not once for each time that it had to", runs.Load())
		}
	})
}

// Nobody may run it while nobody can have the lock: the caller learns that at once.
func TestOnce_ARefusedLock(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		from := &refusals.Opener{From: ens.Opener(1), Judge: func(int, []refusals.Write) error {
			return embed.ErrQuotaExceeded
		}}
		_, err := job.Once(bounded(t), from, "/once", func(context.Context, lock.Token) ([]byte, error) {
			t.Error("it ran")
			return nil, nil
		})
		wantErr(t, err, embed.ErrQuotaExceeded)
	})
}

// The end of a tick is refused for an hour. The tick is not run again, and its end is recorded.
func TestRun_ARefusedRecord(t *testing.T) {
	for _, refusal := range []error{embed.ErrQuotaExceeded, embed.ErrNoAuth, embed.ErrUnavailable} {
		bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
			var over atomic.Bool // the tick's run
			var refused atomic.Int32
			until := time.Now().Add(time.Hour + 10*time.Minute)
			from := &refusals.Opener{From: ens.Opener(1), Judge: func(_ int, ops []refusals.Write) error {
				set := func() bool {
					for _, op := range ops {
						if op.Kind == tree.KindSet && op.Path == "/jobs/j/ticks" {
							return true
						}
					}
					return false
				}
				if over.Load() && set() && time.Now().Before(until) {
					refused.Add(1)
					return refusal
				}
				return nil
			}}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			runs := make(map[time.Time]int)
			go func() {
				done <- job.Run(ctx, from, "/jobs", job.Job{Name: "j", Schedule: job.Every(time.Hour),
					Crash: job.AtLeastOnce, Run: func(_ context.Context, tick *job.Tick) error {
						runs[tick.Time]++
						over.Store(true)
						return nil
					}})
			}()
			<-time.After(3 * time.Hour)
			cancel()
			wantErr(t, wait(t, done), context.Canceled)
			for at, n := range runs {
				if n != 1 {
					t.Errorf("after %v the tick of %v ran %d times", refusal, at, n)
				}
			}
			if n := refused.Load(); n == 0 || n > 100 && !errors.Is(refusal, embed.ErrUnavailable) {
				t.Errorf("%v: %d attempts in ten minutes", refusal, n)
			}
			all, err := job.History(t.Context(), ens.Session(1, embed.SessionOptions{}), "/jobs", "j")
			must(t, err)
			for _, r := range all {
				if r.State != job.Done || r.Attempt != 1 {
					t.Errorf("%v: %v is %v, attempt %d", refusal, r.Time, r.State, r.Attempt)
				}
			}
		})
	}
}
