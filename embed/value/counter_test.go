package value_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The golden files have what Curator and kazoo themselves have written, see clienttest. A Counter
// writes the same bytes, and reads them.
func TestCounter_OthersBytes(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		kinds := map[string]map[string]embed.Width{
			"curator": {"SharedCount": embed.Int32, "Integer": embed.Int32, "Long": embed.Int64},
			"kazoo":   {"Text": embed.Text, "Int32": embed.Int32},
		}
		lines := 0
		for file, kinds := range kinds {
			golden, err := os.ReadFile("testdata/" + file + ".golden")
			must(t, err)
			for line := range strings.Lines(string(golden)) {
				lines++
				path, text, _ := strings.Cut(strings.TrimSpace(line), " ")
				want, err := hex.DecodeString(text)
				must(t, err)
				for kind, width := range kinds {
					number, ok := strings.CutPrefix(path, "/golden-"+kind)
					if !ok {
						continue
					}
					n, err := strconv.ParseInt(number, 10, 64)
					must(t, err)
					path = "/" + file + path
					_, err = value.NewCounter(s, path, width).Add(ctx, n)
					must(t, err)
					if data, _, err := s.Get(ctx, path); !bytes.Equal(data, want) || err != nil {
						t.Errorf("%s: %x, %v, want %x", path, data, err, want)
					}
					_, err = s.Set(ctx, path, want, embed.AnyVersion)
					must(t, err)
					if got, err := value.NewCounter(s, path, width).Get(ctx); got != n || err != nil {
						t.Errorf("%s: %x is read as %d, %v", path, want, got, err)
					}
				}
			}
		}
		if lines != 15 {
			t.Errorf("%d lines", lines)
		}
	})
}

// The bytes are those of Curator's SharedCount and DistributedAtomicLong, and of kazoo's Counter.
// An empty znode is zero: kazoo creates one first, on which SharedCount throws.
func TestCounter_GoldenBytes(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		for _, c := range []struct {
			width embed.Width
			n     int64
			data  string
		}{
			{embed.Int64, 5, "\x00\x00\x00\x00\x00\x00\x00\x05"},
			{embed.Int64, -2, "\xff\xff\xff\xff\xff\xff\xff\xfe"},
			{embed.Int64, math.MaxInt64, "\x7f\xff\xff\xff\xff\xff\xff\xff"},
			{embed.Int32, 5, "\x00\x00\x00\x05"},
			{embed.Int32, math.MinInt32, "\x80\x00\x00\x00"},
			{embed.Text, 5, "5"},
			{embed.Text, -120, "-120"},
		} {
			path := fmt.Sprintf("/golden/%d/%d", c.width, c.n)
			counter := value.NewCounter(s, path, c.width)
			check := func(how string) {
				t.Helper()
				data, _, err := s.Get(ctx, path)
				n, got := counter.Get(ctx)
				if string(data) != c.data || err != nil || n != c.n || got != nil {
					t.Errorf("%s: %d is %q, %v, %v", how, n, data, err, got)
				}
				must(t, s.Delete(ctx, path, embed.AnyVersion))
			}
			if sum, err := counter.Add(ctx, c.n); sum != c.n || err != nil {
				t.Errorf("%d, %v", sum, err)
			}
			check("added to nothing")
			must(t, counter.Set(ctx, c.n))
			check("set")
			must(t, counter.Swap(ctx, 0, c.n))
			check("swapped")
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
			if n, err := counter.Get(ctx); n != 0 || err != nil {
				t.Errorf("an empty znode is %d, %v", n, err)
			}
			if sum, err := counter.Add(ctx, c.n); sum != c.n || err != nil {
				t.Errorf("%d, %v", sum, err)
			}
			check("added to an empty znode")
		}
	})
}

// What is refused changes nothing.
func TestCounter_Refused(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		add := func(c value.Counter, d int64, want error) {
			t.Helper()
			_, err := c.Add(ctx, d)
			wantErr(t, err, want)
		}
		small := value.NewCounter(s, path, embed.Int32)
		add(small, math.MaxInt32+1, embed.ErrOverflow)
		wantErr(t, small.Set(ctx, math.MinInt32-1), embed.ErrOverflow)
		wantErr(t, small.Swap(ctx, 0, math.MaxInt64), embed.ErrOverflow)
		if _, there, err := s.Exists(ctx, "/app"); there || err != nil {
			t.Errorf("%v, %v", there, err)
		}
		must(t, small.Set(ctx, -1))
		if sum, err := small.Add(ctx, math.MaxInt32+1); sum != math.MaxInt32 || err != nil {
			t.Errorf("%d, %v", sum, err)
		}
		add(small, 1, embed.ErrOverflow)
		add(value.NewCounter(s, path, embed.Int64), 1, embed.ErrNotNumber)
		add(value.NewCounter(s, path, 9), 1, embed.ErrInvalidMode)
		add(value.NewCounter(s, "x", embed.Int64), 1, embed.ErrInvalidPath)
		_, err := value.NewCounter(s, path, embed.Text).Get(ctx)
		wantErr(t, err, embed.ErrNotNumber)
		wantErr(t, value.NewCounter(s, path, embed.Text).Swap(ctx, 0, 1), embed.ErrNotNumber)
		if n, err := small.Get(ctx); n != math.MaxInt32 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		_, err = s.Set(ctx, path, []byte("2.5"), embed.AnyVersion) // kazoo's, of a counter of floats
		must(t, err)
		add(value.NewCounter(s, path, embed.Text), 1, embed.ErrNotNumber)
	})
}

// Swaps compare with the number that the ensemble has, not with what this member shows.
func TestCounter_Swap(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx := bounded(t)
		const rounds = 10
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := make(map[int64]int)
		all := sessions(ens)
		for i := range 6 {
			c := value.NewCounter(all[i%3], path, embed.Int32)
			wg.Go(func() {
				for n := int64(0); n < rounds; {
					err := c.Swap(ctx, n, n+1)
					switch {
					case err == nil:
						mu.Lock()
						won[n]++
						mu.Unlock()
					case !errors.Is(err, value.ErrChanged):
						t.Error(err)
						return
					}
					n++ // it was n when the Swap returned, or has been before
				}
			})
		}
		wg.Wait()
		for n := range int64(rounds) {
			if won[n] != 1 {
				t.Errorf("%d swaps from %d", won[n], n)
			}
		}
		for range 20 {
			must(t, value.NewCounter(all[0], path, embed.Int32).Set(ctx, 100))
			must(t, value.NewCounter(all[2], path, embed.Int32).Swap(ctx, 100, 0))
		}
	})
}

// A tally is what callers know of their Adds of one.
type tally struct {
	mu          sync.Mutex
	sure, maybe int64
	sums        map[int64]bool
}

func (y *tally) count(t *testing.T, sum int64, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case err == nil:
		if y.sums[sum] {
			t.Errorf("two Adds returned %d", sum)
		}
		y.sums[sum] = true
		y.sure++
	case errors.Is(err, embed.ErrUnknownOutcome):
		y.maybe++
	}
}

// check compares a final sum.
func (y *tally) check(t *testing.T, sum int64) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	t.Logf("%d Adds, %d of unknown outcome, sum %d", y.sure, y.maybe, sum)
	if sum < y.sure || sum > y.sure+y.maybe || y.sure == 0 {
		t.Errorf("the sum of %d Adds, and %d of unknown outcome, is %d", y.sure, y.maybe, sum)
	}
}

// Each Add counts once, under many callers, when leaders are killed and members start again. One
// with an unknown outcome counts at most once: in flink#19199 a compare-and-set whose answer was
// lost was tried again, and counted twice.
func TestCounter_SumsAreExactUnderKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Tick = 50 * time.Millisecond }})
		ctx, cancel := context.WithCancel(t.Context())
		y := tally{sums: make(map[int64]bool)}
		var wg sync.WaitGroup
		nodes := make(chan struct{}, 1) // held while the members change
		for i := range 12 {
			wg.Go(func() {
				var s *embed.Session
				for ctx.Err() == nil {
					if s == nil || s.Err() != nil {
						nodes <- struct{}{}
						n := ens.Node(embed.MemberID(i%3 + 1))
						<-nodes
						var err error
						if s, err = n.NewSession(ctx, embed.SessionOptions{}); err != nil {
							s = nil
						}
					}
					if s != nil {
						short, end := context.WithTimeout(ctx, time.Second)
						sum, err := value.NewCounter(s, path, embed.Int64).Add(short, 1)
						end()
						y.count(t, sum, err)
					}
					<-time.After(time.Duration(i+30) * time.Millisecond)
				}
			})
		}
		for range 3 {
			<-time.After(3 * time.Second)
			leader := ens.Leader()
			nodes <- struct{}{}
			ens.Kill(leader)
			<-time.After(2 * time.Second)
			ens.Restart(leader)
			<-nodes
		}
		cancel()
		wg.Wait()
		sum, err := value.NewCounter(ens.Session(1, embed.SessionOptions{}), path, embed.Int64).Add(t.Context(), 0)
		must(t, err)
		y.check(t, sum)
	})
}

// A member hears no answer. What it has added counts once, although its callers give up.
func TestCounter_AnswersThatAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		c := value.NewCounter(s, path, embed.Text)
		must(t, c.Set(t.Context(), 0))
		y := tally{sums: make(map[int64]bool)}
		ens.Faults(2).SetLink(1, embedtest.Link{Cut: true})
		ens.Faults(3).SetLink(1, embedtest.Link{Cut: true})
		for range 10 {
			short, end := context.WithTimeout(t.Context(), 5*time.Millisecond)
			sum, err := c.Add(short, 1)
			end()
			y.count(t, sum, err)
		}
		ens.HealAll()
		sum, err := c.Add(t.Context(), 1)
		must(t, err)
		y.count(t, sum, err)
		y.check(t, sum)
		if y.maybe == 0 {
			t.Error("no answer was lost")
		}
	})
}
