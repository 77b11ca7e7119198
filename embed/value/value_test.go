package value_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/membersflag"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
	membersflag.Define()
}

const path = "/app/config/x"

var (
	must    = testkit.Must
	bounded = testkit.Context
	wantErr = testkit.WantErr
)

type config struct {
	Rate int
	Name string `json:",omitempty"`
}

// one starts an ensemble of one member and opens a session on it.
func one(t testing.TB) (*embedtest.Ensemble, *embed.Session) {
	t.Helper()
	ens := embedtest.New(t, 1, embedtest.Options{})
	return ens, ens.Session(1, embed.SessionOptions{})
}

// sessions opens a session on each member.
func sessions(ens *embedtest.Ensemble) (list []*embed.Session) {
	for _, id := range ens.Members() {
		list = append(list, ens.Session(id, embed.SessionOptions{}))
	}
	return list
}

func TestValue_SetCreatesItAndGetReadsIt(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, plain := one(t)
		ctx := bounded(t)
		_, err := plain.Create(ctx, "/tenants", nil, embed.Persistent)
		must(t, err)
		for name, s := range map[string]*embed.Session{"the whole tree": plain, "a root": ens.Session(1, embed.SessionOptions{Root: "/tenants/a"})} {
			v := value.New(s, path, value.JSON[config]())
			_, err := v.Get(ctx)
			wantErr(t, err, embed.ErrNoNode)
			for i := range 3 {
				wrote, err := v.Set(ctx, config{Rate: i})
				must(t, err)
				got, err := v.Get(ctx)
				if err != nil || got != wrote || got.Value.Rate != i || got.Mzxid != got.Stat.Mzxid || got.Stat.Version != int32(i) {
					t.Errorf("%s: %+v, %v, want %+v", name, got, err, wrote)
				}
			}
			must(t, s.Delete(ctx, path, embed.AnyVersion))
			must(t, s.Delete(ctx, "/app/config", embed.AnyVersion))
			_, err = v.Set(ctx, config{Rate: 7}) // and those above it
			must(t, err)
		}
		far := value.New(ens.Session(1, embed.SessionOptions{Root: "/none/at/all"}), path, value.Codec[string]{})
		_, err = far.Set(ctx, "x") // and those above the root
		must(t, err)
	})
}

// The value may be at the root of its session, which need not exist, nor what is above it.
func TestSet_AtTheRoot(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, above := one(t)
		ctx := bounded(t)
		for _, root := range []string{"/tenants/1", "/a/b/c"} {
			v := value.New(ens.Session(1, embed.SessionOptions{Root: root}), "/", value.Codec[string]{})
			for range 2 {
				_, err := v.Set(ctx, "x")
				must(t, err)
			}
			data, _, err := above.Get(ctx, root)
			if err != nil || string(data) != "x" {
				t.Errorf("%s: %q, %v", root, data, err)
			}
		}
		v := value.New(ens.Session(1, embed.SessionOptions{Root: "/tenants/2"}), "/", value.Codec[string]{})
		_, err := v.Update(ctx, func(string, bool) (string, error) { return "y", nil })
		must(t, err)
		c := value.NewCounter(ens.Session(1, embed.SessionOptions{Root: "/tenants/3"}), "/", embed.Int64)
		n, err := c.Add(ctx, 1)
		if n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// The zero Codec writes bytes and strings as they are, and refuses what is neither.
func TestCodec_Zero(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		_, err := value.New(s, path, value.Codec[string]{}).Set(ctx, "läuft")
		must(t, err)
		if got, err := value.New(s, path, value.Codec[[]byte]{}).Get(ctx); string(got.Value) != "läuft" || err != nil {
			t.Errorf("%q, %v", got.Value, err)
		}
		if got, err := value.New(s, path, value.Codec[string]{}).Get(ctx); got.Value != "läuft" || err != nil {
			t.Errorf("%q, %v", got.Value, err)
		}
		ints := value.New(s, path, value.Codec[int]{})
		_, err = ints.Get(ctx)
		wantErr(t, err, embed.ErrInvalidArgument)
		_, err = ints.Set(ctx, 1)
		wantErr(t, err, embed.ErrInvalidArgument)
		_, err = ints.Swap(ctx, value.Versioned[int]{}, 1)
		wantErr(t, err, embed.ErrInvalidArgument)
	})
}

// A Swap compares with what its caller has read, not with what this process has read last, as in
// CURATOR-151. A value at version 0 counts, which CURATOR-329 took for none. A znode that was
// deleted and created again is another one, although its version is that of before.
func TestValue_SwapComparesWithItsCallersValue(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		v := value.New(s, path, value.Codec[string]{})
		first, err := v.Swap(ctx, value.Versioned[string]{}, "a")
		must(t, err)
		_, err = v.Swap(ctx, value.Versioned[string]{}, "b")
		wantErr(t, err, value.ErrChanged)
		second, err := v.Swap(ctx, first, "b")
		must(t, err)
		if got, err := v.Get(ctx); got != second || err != nil { // which must not make first newer
			t.Errorf("%+v, %v", got, err)
		}
		_, err = v.Swap(ctx, first, "c")
		wantErr(t, err, value.ErrChanged)
		must(t, s.Delete(ctx, path, embed.AnyVersion))
		_, err = v.Swap(ctx, second, "c")
		wantErr(t, err, value.ErrChanged)
		again, err := v.Set(ctx, "a")
		must(t, err)
		if again.Stat.Version != first.Stat.Version || again.Stat.Version != 0 {
			t.Errorf("version %d, %d", again.Stat.Version, first.Stat.Version)
		}
		_, err = v.Swap(ctx, first, "c")
		wantErr(t, err, value.ErrChanged)
		_, err = v.Swap(ctx, again, "c")
		must(t, err)
	})
}

// Of many Swaps of one value just one is applied. Updates lose none.
func TestValue_RacesOfSwapsAndUpdates(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx := bounded(t)
		const rounds = 8
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := make(map[embed.Zxid]int)
		for i := range 9 {
			s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
			swapped, updated := value.New(s, path+"/swap", value.JSON[config]()), value.New(s, path+"/update", value.JSON[config]())
			wg.Go(func() {
				for range rounds {
					if _, err := updated.Update(ctx, func(now config, exists bool) (config, error) {
						if exists != (now.Rate > 0) {
							t.Errorf("%v, it exists: %v", now, exists)
						}
						return config{Rate: now.Rate + 1}, nil
					}); err != nil {
						t.Error(err)
					}
					old, err := swapped.Get(ctx)
					if err != nil && !errors.Is(err, embed.ErrNoNode) {
						t.Error(err)
					}
					if _, err = swapped.Swap(ctx, old, config{Rate: i}); err == nil {
						mu.Lock()
						won[old.Mzxid]++
						mu.Unlock()
					} else if !errors.Is(err, value.ErrChanged) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for zxid, n := range won {
			if n != 1 {
				t.Errorf("%d swaps replaced the value of zxid %d", n, zxid)
			}
		}
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Sync(ctx, path)
		must(t, err)
		if got, err := value.New(s, path+"/update", value.JSON[config]()).Get(ctx); got.Value.Rate != 9*rounds || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// An Update ends with the error of its function, and does not replace what it cannot read.
func TestValue_UpdateThatIsRefused(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		v := value.New(s, path, value.JSON[config]())
		enough := errors.New("enough")
		if _, err := v.Update(ctx, func(config, bool) (config, error) { return config{}, enough }); err != enough {
			t.Errorf("%v", err)
		}
		broken, err := value.New(s, path, value.Codec[string]{}).Set(ctx, "{")
		must(t, err)
		if _, err := v.Update(ctx, func(config, bool) (config, error) { return config{}, nil }); err == nil || !strings.Contains(err.Error(), "decode "+path) {
			t.Errorf("%v", err)
		}
		got, err := v.Get(ctx)
		if err == nil || got.Mzxid != broken.Mzxid {
			t.Errorf("%+v, %v", got, err)
		}
		_, err = v.Swap(ctx, got, config{Rate: 1})
		must(t, err)
	})
}

// What the caller has set it reads. In curator#1261 it read the old value.
func TestValue_ReadsItsOwnWrites(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx := bounded(t)
		var wg sync.WaitGroup
		for i, s := range sessions(ens) {
			wg.Go(func() {
				v := value.New(s, path+"/"+s.Root()[1:]+fmt.Sprint(i), value.Codec[string]{})
				for n := range 50 {
					if _, err := v.Set(ctx, fmt.Sprint(n)); err != nil {
						t.Error(err)
					}
					if got, err := v.Get(ctx); got.Value != fmt.Sprint(n) || err != nil {
						t.Errorf("%q, %v, want %d", got.Value, err, n)
					}
				}
			})
		}
		wg.Wait()
	})
}

// collect sends what Changes yields into a channel, which it closes at the end.
func collect[T any](ctx context.Context, v value.Value[T]) <-chan change[T] {
	ch := make(chan change[T], 10_000)
	go func() {
		defer close(ch)
		for now, err := range v.Changes(ctx) {
			ch <- change[T]{now, err}
		}
	}()
	return ch
}

type change[T any] struct {
	now value.Versioned[T]
	err error
}

// want receives a change and compares its value. An empty one stands for a znode that is not there.
func want(t testing.TB, ch <-chan change[string], text string) {
	t.Helper()
	select {
	case c, ok := <-ch:
		if !ok || c.now.Value != text || (text == "") != errors.Is(c.err, embed.ErrNoNode) || text != "" && c.err != nil {
			t.Fatalf("got %q, %v, %v; want %q", c.now.Value, c.err, ok, text)
		}
	case <-bounded(t).Done():
		t.Fatalf("there is no change to %q", text)
	}
}

// Every write of a single writer is seen once and in order, on every member, under changes of
// leader. In viper#892, viper#445 and viper#980 changes were not reported, in viper#326 some that
// were none.
func TestChanges_HaveEveryValueOnce(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		all := sessions(ens)
		var seen []<-chan change[string]
		for _, s := range all {
			seen = append(seen, collect(ctx, value.New(s, path, value.Codec[string]{})))
		}
		for _, ch := range seen {
			want(t, ch, "")
		}
		v := value.New(all[0], path, value.Codec[string]{})
		const writes = 300
		for i := range writes {
			_, err := v.Set(ctx, fmt.Sprint(i/2)) // each text twice
			must(t, err)
			if i%100 == 50 {
				ens.TransferLeadership(embed.MemberID(i/100%3 + 1))
			}
		}
		for _, ch := range seen {
			for i := range writes {
				want(t, ch, fmt.Sprint(i/2))
			}
		}
		cancel()
		for _, ch := range seen {
			if c := <-ch; !errors.Is(c.err, context.Canceled) {
				t.Errorf("%v", c)
			}
			if c, ok := <-ch; ok {
				t.Errorf("more: %v", c)
			}
		}
	})
}

// A Multi is one change, whatever it does in between. A znode that vanishes and comes again is told
// as such, and so is one whose parents do.
func TestChanges_OfZnodesThatVanish(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, s := one(t)
		ctx := bounded(t)
		v := value.New(s, path, value.Codec[string]{})
		_, err := v.Set(ctx, "a")
		must(t, err)
		ch := collect(ctx, v)
		want(t, ch, "a")
		_, err = s.Multi(ctx, embed.OpDelete(path, embed.AnyVersion), embed.OpCreate(path, []byte("b"), embed.Persistent))
		must(t, err)
		want(t, ch, "b")
		_, err = s.Multi(ctx, embed.OpSet(path, []byte("-"), embed.AnyVersion), embed.OpSet(path, []byte("c"), embed.AnyVersion))
		must(t, err)
		want(t, ch, "c")
		_, err = s.Multi(ctx, embed.OpDelete(path, embed.AnyVersion), embed.OpDelete("/app/config", embed.AnyVersion), embed.OpDelete("/app", embed.AnyVersion))
		must(t, err)
		want(t, ch, "")
		_, err = s.Multi(ctx, embed.OpCreate("/app", nil, embed.Persistent), embed.OpCreate("/app/config", nil, embed.Persistent),
			embed.OpCreate(path, []byte("-"), embed.Persistent), embed.OpDelete(path, embed.AnyVersion))
		must(t, err)
		_, err = v.Set(ctx, "d")
		must(t, err)
		want(t, ch, "d")
		_, err = s.Create(ctx, path+"/child", nil, embed.Persistent) // is no change of the value
		must(t, err)
		_, err = v.Set(ctx, "e")
		must(t, err)
		want(t, ch, "e")
		for range 2 { // deleted and created in quick succession
			must(t, s.Delete(ctx, path+"/child", embed.AnyVersion))
			must(t, s.Delete(ctx, path, embed.AnyVersion))
			_, err = v.Set(ctx, "f")
			must(t, err)
			_, err = s.Create(ctx, path+"/child", nil, embed.Persistent)
			must(t, err)
		}
		for range 2 {
			want(t, ch, "")
			want(t, ch, "f")
		}
		must(t, s.Close())
		if c := <-ch; !errors.Is(c.err, embed.ErrSessionClosed) {
			t.Errorf("%v", c)
		}
		if _, ok := <-ch; ok {
			t.Error("it goes on after the session")
		}
		for _, err := range v.Changes(ctx) {
			wantErr(t, err, embed.ErrSessionClosed)
		}
		ens.Stop(1)
	})
}

// A consumer that lags misses values, but not the newest, and goes on. SharedValue stood still for
// good in CURATOR-688, and was stale after a reconnect in CURATOR-311.
func TestChanges_ASlowConsumerGetsTheNewest(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx := bounded(t)
		v := value.New(s, path, value.JSON[int]())
		_, err := v.Set(ctx, 0)
		must(t, err)
		const writes = 1000
		var got []int
		for now, err := range v.Changes(ctx) {
			must(t, err)
			if got = append(got, now.Value); now.Value == 0 {
				for i := range writes {
					_, err := v.Set(ctx, i+1)
					must(t, err)
				}
			}
			if now.Value == writes {
				break
			}
		}
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || len(got) == writes {
			t.Errorf("%d values: %v", len(got), got)
		}
	})
}

// A member that was away and gets the state of another one goes on with the newest value.
// SharedValue kept the one from before (CURATOR-311).
func TestChanges_AcrossASnapshot(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{KeepEntries: 1})
		ctx := bounded(t)
		ens.TransferLeadership(1)
		s := ens.Session(1, embed.SessionOptions{})
		away := ens.Session(3, embed.SessionOptions{Timeout: 30 * 60 * 1e9})
		v := value.New(s, path, value.Codec[string]{})
		_, err := v.Set(ctx, "a")
		must(t, err)
		_, err = away.Sync(ctx, path)
		must(t, err)
		ch := collect(ctx, value.New(away, path, value.Codec[string]{}))
		want(t, ch, "a")
		ens.Isolate(3)
		for i := range 50 {
			_, err = v.Set(ctx, fmt.Sprint(i))
			must(t, err)
		}
		_, err = v.Set(ctx, "z")
		must(t, err)
		for _, id := range ens.Members() {
			must(t, ens.Snapshot(id))
		}
		for range 50 {
			_, err = s.Create(ctx, "/filler-", nil, embed.Sequential)
			must(t, err)
		}
		for _, id := range ens.Members() {
			must(t, ens.Snapshot(id))
		}
		ens.HealAll()
		for {
			select {
			case c := <-ch:
				must(t, c.err)
				if c.now.Value == "z" {
					return
				}
			case <-ctx.Done():
				t.Fatal("the newest value does not come")
			}
		}
	})
}

// What does not decode is an error in the sequence, which goes on.
func TestChanges_WhatDoesNotDecode(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		_, s := one(t)
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		raw, v := value.New(s, path, value.Codec[string]{}), value.New(s, path, value.JSON[config]())
		_, err := raw.Set(ctx, "{")
		must(t, err)
		ch := collect(ctx, v)
		if c := <-ch; c.err == nil || c.now.Mzxid == 0 || c.now.Value != (config{}) {
			t.Errorf("%v", c)
		}
		for _, text := range []string{`{"Rate":1}`, ``, `{"Rate":2}`} {
			wrote, err := raw.Set(ctx, text)
			must(t, err)
			c := <-ch
			if c.now.Mzxid != wrote.Mzxid || (c.err == nil) != (text != "") || c.err == nil && c.now.Value.Rate == 0 {
				t.Errorf("%q: %+v", text, c)
			}
		}
	})
}

// D6: a value that is deleted and created again hidden, by one transaction, is told as one that may not
// be read.
func TestChanges_OfAZnodeThatIsHidden(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens, s := one(t)
		boss := ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("boss:secret")}}})
		_, err := boss.Put(ctx, path, []byte("open"))
		must(t, err)
		_, err = s.Sync(ctx, path)
		must(t, err)
		hide := func() {
			_, err := boss.Multi(ctx,
				embed.OpSet(path, []byte("moved"), embed.AnyVersion),
				embed.OpCreate(path+"/child", nil, embed.Persistent),
				embed.OpDelete(path+"/child", embed.AnyVersion),
				embed.OpDelete(path, embed.AnyVersion),
				embed.OpCreateWith(path, []byte("SECRET"), embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "auth"}}}))
			must(t, err)
		}
		var got []string
		for now, err := range value.New(s, path, value.Codec[string]{}).Changes(ctx) {
			if got = append(got, fmt.Sprint(now.Value, errors.Is(err, embed.ErrNoAuth))); len(got) == 1 {
				hide()
			}
		}
		if want := []string{"openfalse", "true"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// D12: the watch overflows between the two events of a transaction that creates the znode again. The
// newest value is told all the same.
func TestChanges_OverflowAmidATransaction(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		_, s := one(t)
		_, err := s.Put(ctx, path, []byte("first"))
		must(t, err)
		fill := func() {
			for range 255 { // leaves room for one event
				_, err := s.Set(ctx, path, []byte("more"), embed.AnyVersion)
				must(t, err)
			}
			_, err := s.Multi(ctx, embed.OpDelete(path, embed.AnyVersion), embed.OpCreate(path, []byte("last"), embed.Persistent))
			must(t, err)
		}
		for now, err := range value.New(s, path, value.Codec[string]{}).Changes(ctx) {
			must(t, err)
			if now.Value == "first" {
				fill()
			}
			if now.Value == "last" {
				break
			}
		}
	})
}

// M156: many children come below a large value while the loop is busy. They take no room from changes.
func TestChanges_BesideChildren(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		s := embedtest.New(t, 1, embedtest.Options{}).Session(1, embed.SessionOptions{})
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		v := value.New(s, path, value.Codec[string]{})
		_, err := v.Set(ctx, strings.Repeat("x", 900<<10))
		must(t, err)
		var sizes []int
		for now, err := range v.Changes(ctx) {
			must(t, err)
			if sizes = append(sizes, len(now.Value)); len(sizes) == 3 {
				break
			}
			if len(sizes) > 1 {
				continue
			}
			for range 70 {
				_, err := s.Create(ctx, path+"/i-", nil, embed.EphemeralSequential)
				must(t, err)
			}
			for _, text := range []string{"1", "22"} {
				_, err := v.Set(ctx, text)
				must(t, err)
			}
		}
		if want := []int{900 << 10, 1, 2}; !slices.Equal(sizes, want) {
			t.Errorf("values of these sizes: %v, want %v", sizes, want)
		}
	})
}
