package job_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Callers give up at any moment. Nothing is left of them: no contender, and no
// session with an ephemeral. A result that was returned is the one that stays.
func TestCancelledAtAnyMoment(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		embedkit.Distant(ens, time.Millisecond)
		s, rng := ens.Session(1, embed.SessionOptions{}), testkit.Rand(t)
		for i := range 100 {
			path := fmt.Sprint("/x/", i)
			ctx, cancel := context.WithTimeout(bounded(t), time.Duration(rng.Int64N(int64(20*time.Millisecond))))
			result, first := job.Once(ctx, ens.Opener(1), path,
				func(context.Context, lock.Token) ([]byte, error) { return []byte("a"), nil })
			if first != nil && !errors.Is(first, context.DeadlineExceeded) {
				t.Errorf("%v", first)
			}
			again, err := job.Once(bounded(t), ens.Opener(1), path,
				func(context.Context, lock.Token) ([]byte, error) { return []byte("b"), nil })
			must(t, err)
			if first == nil && (string(result) != "a" || string(again) != "a") {
				t.Errorf("%q, then %q", result, again)
			}
			cancel()
			ctx, cancel = context.WithTimeout(bounded(t), time.Duration(rng.Int64N(int64(40*time.Millisecond))))
			err = job.Run(ctx, ens.Opener(1), "/x", job.Job{Name: "j", Schedule: job.Every(time.Millisecond),
				Run: func(context.Context, *job.Tick) error { return nil }})
			wantErr(t, err, context.DeadlineExceeded)
			cancel()
			for _, parent := range []string{path + "/lock", "/x/j/lock"} {
				ens.Until("nobody to be left", func() bool {
					names, _, err := s.Children(t.Context(), parent)
					return len(names) == 0 && (err == nil || errors.Is(err, embed.ErrNoNode))
				})
			}
		}
		history, err := job.History(bounded(t), s, "/x", "j")
		must(t, err)
		if len(history) != 10 {
			t.Errorf("%d ticks", len(history))
		}
	})
}
