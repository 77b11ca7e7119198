package value_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// ids collects ids of which none may come twice.
type ids struct {
	mu  sync.Mutex
	all map[int64]bool
}

func (s *ids) add(t *testing.T, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] {
		t.Errorf("id %d comes twice", id)
	}
	if s.all == nil {
		s.all = make(map[int64]bool)
	}
	s.all[id] = true
}

// Ids come once, whatever the goroutines: Curator's CachedAtomicLong, whose index nothing guards,
// gives one id to two threads. A Sequence that starts after others have closed goes on behind them.
func TestSequence_ManyGoroutines(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx := bounded(t)
		var got ids
		for _, block := range []int64{1, 2, 7, 100} {
			var wg sync.WaitGroup
			for id := embed.MemberID(1); id <= 3; id++ {
				s := value.NewSequence(ens.Opener(id), path, block)
				t.Cleanup(func() { _ = s.Close() })
				for range 4 {
					wg.Go(func() {
						for range 10 * min(block, 10) {
							id, err := s.Next(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							got.add(t, id)
						}
					})
				}
			}
			wg.Wait()
		}
	})
}

// The next block is fetched when half of the present one is given out, one block and not more. The
// layout is that of Curator's CachedAtomicLong: the number is the next free id.
func TestSequence_FetchesAtHalf(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, session := one(t)
		ctx := bounded(t)
		c := value.NewCounter(session, path, embed.Int64)
		must(t, c.Set(ctx, 1000))
		s := value.NewSequence(ens.Opener(1), path, 10)
		for i := range 35 {
			id, err := s.Next(ctx)
			if id != 1000+int64(i) || err != nil {
				t.Fatalf("id %d, %v", id, err)
			}
			blocks := (i + 5) / 10
			ens.Until("the next block", func() bool {
				n, err := c.Get(ctx)
				must(t, err)
				if n > 1010+10*int64(blocks) {
					t.Fatalf("%d after %d ids", n, i+1)
				}
				return n == 1010+10*int64(blocks)
			})
		}
		for range 2 {
			must(t, s.Close())
			_, err := s.Next(ctx)
			wantErr(t, err, embed.ErrReleased)
		}
	})
}

func TestSequence_Refused(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, session := one(t)
		ctx := bounded(t)
		next := func(block int64, ctx context.Context, want error) {
			t.Helper()
			s := value.NewSequence(ens.Opener(1), path, block)
			defer s.Close()
			for range 2 {
				_, err := s.Next(ctx)
				wantErr(t, err, want)
			}
		}
		next(0, ctx, embed.ErrInvalidArgument)
		over, cancel := context.WithCancel(ctx)
		cancel()
		next(1, over, context.Canceled)
		c := value.NewCounter(session, path, embed.Int64)
		must(t, c.Set(ctx, math.MaxInt64-2))
		next(3, ctx, embed.ErrOverflow)
		_, err := session.Set(ctx, path, []byte("seven"), embed.AnyVersion)
		must(t, err)
		next(3, ctx, embed.ErrNotNumber)
		sessionsflag.Member(t, "a client outlives a member")
		s := value.NewSequence(ens.Opener(1), path+"2", 3)
		_, err = s.Next(ctx)
		must(t, err)
		ens.Stop(1)
		for err == nil {
			_, err = s.Next(ctx) // those that it has
		}
		wantErr(t, err, embed.ErrClosed)
		_ = s.Close()
	})
}

// Ids come once over the kills and restarts of members, and over cuts that cost sessions. A
// Sequence that cannot reach a quorum says so, and goes on afterwards.
func TestSequence_OverFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout, c.Tick = time.Second, 100*time.Millisecond }})
		ctx, cancel := context.WithCancel(t.Context())
		var got ids
		var wg sync.WaitGroup
		start := func(id embed.MemberID) *value.Sequence {
			s := value.NewSequence(ens.Opener(id), path, 20)
			for range 3 {
				wg.Go(func() {
					for ctx.Err() == nil {
						id, err := s.Next(ctx)
						if err == nil {
							got.add(t, id)
						}
						if errors.Is(err, embed.ErrUnknownOutcome) {
							t.Error(err)
						}
						if errors.Is(err, embed.ErrReleased) || errors.Is(err, embed.ErrClosed) {
							return
						}
						<-time.After(20 * time.Millisecond)
					}
				})
			}
			return s
		}
		sequences := map[embed.MemberID]*value.Sequence{1: start(1), 2: start(2), 3: start(3)}
		for range 2 {
			<-time.After(2 * time.Second)
			leader := ens.Leader()
			ens.Kill(leader)
			_ = sequences[leader].Close()
			<-time.After(time.Second)
			ens.Restart(leader)
			sequences[leader] = start(leader)
		}
		ens.Isolate(2)
		<-time.After(25 * time.Second) // its session is gone
		if _, err := sequences[2].Next(ctx); !errors.Is(err, embed.ErrUnavailable) {
			t.Errorf("cut off: %v", err)
		}
		ens.HealAll()
		ens.Until("it to go on", func() bool { _, err := sequences[2].Next(ctx); return err == nil })
		cancel()
		wg.Wait()
		t.Logf("%d ids", len(got.all))
		for _, s := range sequences {
			must(t, s.Close())
		}
	})
}

// Its sessions have the options of its Opener, as those of all recipes that open sessions.
func TestSequence_OpenerWith(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, session := one(t)
		ctx := bounded(t)
		tenant := embed.OpenerWith(ens.Opener(1), embed.SessionOptions{Root: "/tenant"})
		s := value.NewSequence(tenant, path, 3)
		defer s.Close()
		_, err := s.Next(ctx)
		must(t, err)
		_, there, err := session.Exists(ctx, "/tenant"+path)
		if !there || err != nil {
			t.Errorf("there is no sequence below the root: %v", err)
		}
	})
}
