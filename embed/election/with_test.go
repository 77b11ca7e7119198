package election_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The function of RunWith guards its writes, proclaims, and transfers the leadership. Run campaigns
// again afterwards.
func TestRunWith_GuardsProclaimsAndTransfers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		from := embed.OpenerWith(ens.Opener(1), embed.SessionOptions{Timeout: 20 * time.Second, Root: "/tenant"})
		enough := errors.New("enough")
		s := ens.Session(1, embed.SessionOptions{Root: "/tenant"})
		other := make(chan struct{})
		calls := 0
		err := election.RunWith(ctx, from, path, []byte("v"), election.Options{Priority: 1}, func(ctx context.Context, l *election.Leadership) error {
			if timeout := l.Session().Timeout(); timeout != 20*time.Second {
				t.Errorf("the session has a timeout of %v", timeout)
			}
			if calls++; calls == 2 {
				return enough
			}
			_, err := l.Session().Multi(ctx, election.Guard(l), embed.OpCreate("/work", nil, embed.Persistent))
			must(t, err)
			must(t, l.Proclaim(ctx, []byte("w")))
			if now, err := election.New(s, path).Leader(ctx); string(now.Value) != "w" || err != nil {
				t.Errorf("%+v, %v", now, err)
			}
			if _, err := l.Requeue(ctx); !errors.Is(err, embed.ErrInvalidArgument) || l.Err() != nil {
				t.Errorf("requeue: %v, %v", err, l.Err())
			}
			out := stands(t, ens, s, "other")
			list, err := election.New(s, path).Candidates(ctx)
			must(t, err)
			must(t, l.Transfer(context.Background(), list[1].Path))
			go func() {
				defer close(other)
				o := <-out
				must(t, o.err)
				must(t, o.leadership.Resign())
			}()
			<-ctx.Done()
			return errors.New("after the leadership")
		})
		if !errors.Is(err, enough) || calls != 2 {
			t.Errorf("%v after %d calls", err, calls)
		}
		<-other
	})
}

// Balance transfers by itself, so fn cannot.
func TestBalanceWith_RefusesTransfers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		enough := errors.New("enough")
		err := election.BalanceWith(bounded(t), ens.Opener(1), "/jobs", []string{"a"}, nil, election.Options{}, func(ctx context.Context, name string, l *election.Leadership) error {
			if err := l.Transfer(ctx, "/jobs/a/x"); !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("transfer: %v", err)
			}
			_, err := l.Session().Multi(ctx, election.Guard(l), embed.OpCreate("/work", nil, embed.Persistent))
			must(t, err)
			return enough
		})
		if !errors.Is(err, enough) {
			t.Error(err)
		}
	})
}

// Who may not stand, or proves nothing, is told so, and does not try for ever.
func TestRun_EndsWithoutPermission(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		_, _, err := s.CreateWith(bounded(t), path, nil, embed.CreateOptions{ACL: embed.ReadACL()})
		must(t, err)
		fn := func(context.Context, lock.Token) error { return errors.New("it leads") }
		if err := election.Run(bounded(t), ens.Opener(1), path, nil, fn); !errors.Is(err, embed.ErrNoAuth) {
			t.Error(err)
		}
		stranger := embed.OpenerWith(ens.Opener(1), embed.SessionOptions{Auth: []embed.Auth{{Scheme: "none"}}})
		if err := election.Run(bounded(t), stranger, path, nil, fn); !errors.Is(err, embed.ErrAuthFailed) {
			t.Error(err)
		}
		latch := election.NewLatch(stranger, path, nil, election.Options{})
		<-latch.Done()
		if err := latch.Err(); !errors.Is(err, embed.ErrAuthFailed) {
			t.Error(err)
		}
	})
}

// Less than 1.5 times the session timeout passes from a leader's kill to the next leader's first
// write, at the default tick. That holds whether or not the killed member also led the shard, and
// wherever in its beats it was killed.
func TestFailover_IsWhatTheTimeoutSays(t *testing.T) {
	for _, timeout := range []time.Duration{3600 * time.Millisecond, embed.DefaultSessionTimeout, 30 * time.Second} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v shard leader %v", timeout, both), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFailover(t, timeout)
					least, most := time.Duration(1<<62), time.Duration(0)
					const rounds = 6
					for i := range rounds {
						<-time.After(timeout / 6 * time.Duration(i) / rounds)
						took := f.kill(both)
						least, most = min(least, took), max(most, took)
						if took >= timeout*3/2 {
							t.Errorf("the next leader wrote %v after the kill, the timeout is %v", took, timeout)
						}
					}
					t.Logf("%.2f to %.2f s, %.2f to %.2f timeouts", least.Seconds(), most.Seconds(), float64(least)/float64(timeout), float64(most)/float64(timeout))
				})
			})
		}
	}
}

// A failover is three members that run for election, each of which writes when it leads.
type failover struct {
	tb    testing.TB
	ens   *embedtest.Ensemble
	wrote chan turn
	leads embed.MemberID
}

// A turn is the first write of a leader.
type turn struct {
	by embed.MemberID
	at time.Time
}

func newFailover(tb testing.TB, timeout time.Duration) *failover {
	f := &failover{tb: tb, wrote: make(chan turn)}
	f.ens = embedtest.New(tb, 3, embedtest.Options{Config: func(c *embed.Config) { c.Tick, c.SessionTimeout = embed.DefaultTick, timeout }})
	must(tb, func() error {
		_, err := f.ens.Session(1, embed.SessionOptions{}).Put(tb.Context(), "/work", nil)
		return err
	}())
	for _, id := range f.ens.Members() {
		f.run(id)
	}
	f.leads = (<-f.wrote).by
	return f
}

// run runs a member for election until it is killed or the test ends.
func (f *failover) run(id embed.MemberID) {
	n := f.ens.Node(id)
	go election.RunWith(f.tb.Context(), n, path, nil, election.Options{}, func(ctx context.Context, l *election.Leadership) error {
		if _, err := l.Session().Multi(ctx, election.Guard(l), embed.OpSet("/work", nil, embed.AnyVersion)); err != nil {
			return nil
		}
		select {
		case f.wrote <- turn{id, time.Now()}:
			<-ctx.Done()
		case <-ctx.Done():
		}
		return nil
	})
}

// kill kills the leader and returns how long nobody wrote. both says whether it leads the shard
// too.
func (f *failover) kill(both bool) time.Duration {
	dead := f.leads
	shardLeader := dead
	if !both {
		shardLeader = dead%3 + 1
	}
	f.ens.TransferLeadership(shardLeader)
	killed := time.Now()
	f.ens.Kill(dead)
	next := <-f.wrote
	f.leads = next.by
	f.ens.Start(dead)
	f.ens.Ready(dead)
	f.run(dead)
	return next.at.Sub(killed)
}

// The real figure: three members in one process, with files on a disk.
func BenchmarkFailover(b *testing.B) {
	for _, timeout := range []time.Duration{3600 * time.Millisecond, embed.DefaultSessionTimeout} {
		b.Run(timeout.String(), func(b *testing.B) {
			f := newFailover(b, timeout)
			var sum, most time.Duration
			for i := 0; b.Loop(); i++ {
				took := f.kill(i%2 == 0)
				sum, most = sum+took, max(most, took)
			}
			b.ReportMetric(sum.Seconds()/float64(b.N), "s/failover")
			b.ReportMetric(most.Seconds(), "s/longest")
		})
	}
}
