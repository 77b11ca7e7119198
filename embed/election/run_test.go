package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// CURATOR-518, CURATOR-671: a selector that should queue again after it had led did not.
func TestRun_CampaignsAgainAfterATurn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		enough := errors.New("enough")
		var last lock.Token
		calls := 0
		err := election.Run(bounded(t), ens.Opener(1), path, []byte("v"), func(ctx context.Context, token lock.Token) error {
			if token.Compare(last) <= 0 || ctx.Err() != nil {
				t.Errorf("call %d: token %v after %v, ctx %v", calls, token, last, ctx.Err())
			}
			last = token
			if calls++; calls == 4 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || calls != 4 {
			t.Errorf("Run returned %v after %d calls", err, calls)
		}
		if names := candidates(t, ens.Session(1, embed.SessionOptions{})); len(names) > 0 {
			t.Errorf("left in the queue: %v", names)
		}
	})
}

// Between two leaderships of one Run, the others lead.
func TestRun_TakesTurnsWithOthers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		ctx, cancel := context.WithCancel(bounded(t))
		calls, over := make(chan int), make(chan struct{})
		for i := range 3 {
			go election.Run(ctx, ens.Opener(1), path, nil, func(ctx context.Context, _ lock.Token) error {
				select {
				case calls <- i:
					<-over
				case <-ctx.Done():
				}
				return nil
			})
		}
		var order []int
		for range 12 {
			order = append(order, <-calls)
			// Otherwise a late one would miss it.
			ens.Until("all to stand", func() bool { return len(candidates(t, s)) == 3 })
			over <- struct{}{}
		}
		cancel()
		for i, who := range order {
			if slices.Contains(order[max(0, i-2):i], who) {
				t.Fatalf("one led again before the others: %v", order)
			}
		}
	})
}

// The leader's candidate is deleted, or its session ends. Run leads again, with a session that
// works, and fn gets a new ctx. In curator@62494bd6 the thread of a cancelled turn was used again,
// and the next turn ended as it began.
func TestRun_CampaignsAgainAfterALoss(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		enough := errors.New("enough")
		owners := make(map[embed.SessionID]bool)
		calls := 0
		err := election.Run(bounded(t), ens.Opener(1), path, nil, func(ctx context.Context, token lock.Token) error {
			l, err := election.New(s, path).Leader(ctx)
			must(t, err)
			if l.Token != token {
				t.Errorf("fn has token %v, the leader's is %v", token, l.Token)
			}
			owners[l.Owner] = true
			if calls++; calls == 3 {
				return enough
			}
			// This ends ctx.
			must(t, s.Delete(bounded(t), path+"/"+candidates(t, s)[0], embed.AnyVersion))
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), embed.ErrDeleted) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return errors.New("an error after the leadership is no reason to stop")
		})
		if !errors.Is(err, enough) || len(owners) != 3 {
			t.Errorf("Run returned %v after calls with %d sessions", err, len(owners))
		}
	})
}

// The leading member is cut off, and another leads. After the cut the first one campaigns on
// without a restart, and leads again when the other has gone. In client-go#1155 a leader that had
// failed to renew its lease never stood again.
func TestRun_ComesBackAfterAPartition(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			if c.ID == 1 { // so that the others keep their sessions
				c.MaxSessionTimeout = time.Second
			}
		}})
		ens.TransferLeadership(3)
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		type event struct {
			member embed.MemberID
			began  bool
			ctx    context.Context
		}
		events := make(chan event, 16)
		run := func(ctx context.Context, id embed.MemberID) {
			_ = election.Run(ctx, ens.Opener(id), path, fmt.Append(nil, id), func(ctx context.Context, _ lock.Token) error {
				events <- event{member: id, began: true, ctx: ctx}
				<-ctx.Done()
				events <- event{member: id}
				return nil
			})
		}
		await := func(id embed.MemberID, began bool) event {
			t.Helper()
			for {
				select {
				case got := <-events:
					if got.member == id && got.began == began {
						return got
					}
				case <-ctx.Done():
					t.Fatalf("member %d: fn never began or ended", id)
				}
			}
		}
		go run(ctx, 1)
		first := await(1, true)
		second, retire := context.WithCancel(ctx)
		go run(second, 2)
		watcher := ens.Session(3, embed.SessionOptions{})
		ens.Until("the second to stand", func() bool { return len(candidates(t, watcher)) == 2 })
		ens.Isolate(1)
		await(2, true)
		if first.ctx.Err() == nil {
			t.Error("two lead")
		}
		ens.HealAll()
		ens.Until("the first to stand again", func() bool { return len(candidates(t, watcher)) == 2 })
		retire()
		await(1, true)
	})
}

func TestRun_EndsWithItsCtx(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(bounded(t))
		err := election.Run(ctx, ens.Opener(1), path, nil, func(inner context.Context, _ lock.Token) error {
			cancel(why)
			<-inner.Done()
			if !errors.Is(context.Cause(inner), why) {
				t.Errorf("cause %v", context.Cause(inner))
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		// A Run that still waits.
		s := ens.Session(1, embed.SessionOptions{})
		_, err = election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		waiting, stop := context.WithCancel(bounded(t))
		ended := make(chan error)
		go func() { ended <- election.Run(waiting, ens.Opener(1), path, nil, nil) }()
		ens.Until("the candidate to stand", func() bool { return len(candidates(t, s)) == 2 })
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		ens.Until("the candidate to leave", func() bool { return len(candidates(t, s)) == 1 })
	})
}

// The quorum goes away while fn runs for the last time. Run returns fn's error, and closing is one
// wait.
func TestRun_TheFarewellIsBounded(t *testing.T) {
	enough := errors.New("enough")
	for name, c := range map[string]struct{ says, want error }{
		"fn fails": {enough, enough}, "ctx ends": {nil, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				const patience = 3 * time.Second
				ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = patience }})
				ens.TransferLeadership(2)
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				var ran time.Time
				err := election.Run(ctx, ens.Opener(1), path, nil, func(context.Context, lock.Token) error {
					ens.Isolate(1)
					ens.Until("the quorum to be away", func() bool { return ens.Node(1).Status().Shards[0].Leader == 0 })
					if c.says == nil {
						cancel()
					}
					ran = time.Now()
					return c.says
				})
				if !errors.Is(err, c.want) || errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome) {
					t.Errorf("Run says %v, want %v", err, c.want)
				}
				// Two waits would take this long. A single one may be late by anything less on a
				// busy machine.
				if took := time.Since(ran); took >= 2*patience {
					t.Errorf("Run returned %v after fn, it may wait %v", took, patience)
				}
				ens.HealAll()
				s := ens.Session(2, embed.SessionOptions{})
				ens.Until("the leadership to be free", func() bool { return len(candidates(t, s)) == 0 })
			})
		})
	}
}

func TestRun_EndsWithItsNode(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*embedtest.Ensemble)
		want error
	}{
		"closed": {func(e *embedtest.Ensemble) { must(t, e.Node(1).Close()) }, embed.ErrClosed},
		"failed": {func(e *embedtest.Ensemble) { e.Kill(1) }, embed.ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				ens := one(t)
				n := ens.Node(1)
				err := election.Run(bounded(t), n, path, nil, func(ctx context.Context, _ lock.Token) error {
					c.end(ens)
					if !errors.Is(context.Cause(ctx), c.want) {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					return nil
				})
				if !errors.Is(err, c.want) {
					t.Errorf("Run returned %v, want %v", err, c.want)
				}
			})
		})
	}
}

// What can never succeed is not tried for ever.
func TestRun_EndsWhenNoAttemptCanSucceed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(bounded(t), "/e", nil, embed.Ephemeral)
		must(t, err)
		for _, c := range []struct {
			path  string
			value []byte
			want  error
		}{
			{"nowhere", nil, embed.ErrInvalidPath},
			{"", nil, embed.ErrInvalidPath},
			{path, make([]byte, embed.DefaultMaxDataSize+1), embed.ErrTooLarge},
			{"/e/x", nil, embed.ErrNoChildrenForEphemerals},
		} {
			fn := func(context.Context, lock.Token) error { return errors.New("it leads") }
			if err := election.Run(bounded(t), ens.Opener(1), c.path, c.value, fn); !errors.Is(err, c.want) {
				t.Errorf("%q: Run returned %v, want %v", c.path, err, c.want)
			}
		}
	})
}

// The root of an ensemble with several shards is on all of them, so nobody can queue there.
func TestRun_EndsAtTheRootOfSeveralShards(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 3 }})
		err := election.Run(bounded(t), ens.Opener(1), "/", nil, func(context.Context, lock.Token) error { return errors.New("it leads") })
		if !errors.Is(err, embed.ErrCrossShard) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestRun_APanicGivesTheLeadershipUp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		func() {
			defer func() {
				if r := recover(); r != "oops" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = election.Run(bounded(t), ens.Opener(1), path, nil, func(context.Context, lock.Token) error { panic("oops") })
		}()
		s := ens.Session(1, embed.SessionOptions{})
		l, err := election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		must(t, l.Resign())
	})
}
