package lock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// show returns queues in a short form, one line each: kind, path, and the holders' and waiters' notes.
func show(queues []lock.Queue) (lines []string) {
	notes := func(list []lock.Contender) string {
		var all []string
		for _, c := range list {
			all = append(all, c.Note)
		}
		return strings.Join(all, " ")
	}
	for _, q := range queues {
		lines = append(lines, fmt.Sprintf("%s %s: %s | %s", q.Kind, q.Path, notes(q.Holders), notes(q.Waiters)))
	}
	return lines
}

// all collects a sequence.
func all(t testing.TB, queues iter.Seq2[lock.Queue, error]) (list []lock.Queue) {
	t.Helper()
	for q, err := range queues {
		must(t, err)
		list = append(list, q)
	}
	return list
}

// Survey finds every kind of queue, and those of Curator's and kazoo's clients, at any depth.
func TestSurvey(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		ctx := bounded(t)
		waiting, stop := context.WithCancel(ctx)
		note := func(text string) lock.Options { return lock.Options{Note: text} }
		var holds []*lock.Hold
		hold := func(h *lock.Hold, err error) {
			t.Helper()
			must(t, err)
			holds = append(holds, h)
		}
		other := ens.Session(2, embed.SessionOptions{})
		var ended []chan error
		waits := func(parent string, acquire func(context.Context) (*lock.Hold, error)) {
			t.Helper()
			before, _, err := other.Children(ctx, parent)
			if err != nil && !errors.Is(err, embed.ErrNoNode) {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			ended = append(ended, done)
			go func() { _, err := acquire(waiting); done <- err }()
			ens.Until("the contender to queue", func() bool {
				names, _, _ := other.Children(ctx, parent)
				return len(names) > len(before)
			})
		}
		hold(lock.NewMutex(s, "/app/m").With(note("m1")).Lock(ctx))
		waits("/app/m", lock.NewMutex(other, "/app/m").With(note("m2")).Lock)
		hold(lock.NewRWMutex(s, "/app/m/rw").With(note("r1")).RLock(ctx))
		hold(lock.NewRWMutex(s, "/app/m/rw").With(note("r2")).RLock(ctx))
		waits("/app/m/rw", lock.NewRWMutex(other, "/app/m/rw").With(note("w3")).Lock)
		waits("/app/m/rw", lock.NewRWMutex(other, "/app/m/rw").With(note("r4")).RLock)
		hold(lock.NewSemaphore(s, "/app/s", 2).With(note("s1")).Acquire(ctx, 2))
		waits("/app/s/locks", func(ctx context.Context) (*lock.Hold, error) {
			return lock.NewSemaphore(other, "/app/s", 2).With(note("s2")).Acquire(ctx, 1)
		})
		hold(lock.NewMutex(s, "/app/locks").With(note("plain")).Lock(ctx)) // its name is a semaphore's
		led, err := election.New(s, "/app/e").Campaign(ctx, []byte("leader"))
		must(t, err)
		waits("/app/e", func(ctx context.Context) (*lock.Hold, error) {
			_, err := election.New(other, "/app/e").Campaign(ctx, []byte("next\nholding: /nothing"))
			return nil, err
		})
		for _, name := range []string{
			"curator/_c_e8cb1f2e-5d2c-4d14-9b05-7a1d8e8a2f3b-lock-0000000003", "curator/_c_a8cb1f2e-5d2c-4d14-9b05-7a1d8e8a2f3b-lock-0000000002",
			"kazoo/0f1e2d3c4b5a69788796a5b4c3d2e1f0__lock__0000000001", "kazoo/1f1e2d3c4b5a69788796a5b4c3d2e1f0__rlock__0000000000",
			"none/task-0000000001", "none/lock-1", "none/latch", "none/block-0000000001", "none/release-0000000001",
		} {
			_, _, err := s.CreateWith(ctx, "/others/"+name, []byte(name[len(name)-1:]), embed.CreateOptions{Parents: true})
			must(t, err)
		}
		_, err = s.Sync(ctx, "/")
		must(t, err)
		for _, where := range []struct {
			path string
			want []string
		}{
			{"/", []string{
				"election /app/e: leader | next\nholding: /nothing", "mutex /app/locks: plain | ", "read-write /app/m/rw: r1 r2 | w3 r4", "mutex /app/m: m1 | m2", "semaphore /app/s: s1 s1 | s2",
				"mutex /others/curator: 2 | 3", "read-write /others/kazoo: 0 | 1",
			}},
			{"/app/s", []string{"semaphore /app/s: s1 s1 | s2"}},
			{"/app/s/leases", []string{"semaphore /app/s/leases: s1 s1 | "}},
			{"/nothing/here", nil},
		} {
			got := show(all(t, lock.Survey(ctx, s, where.path)))
			slices.Sort(got)
			slices.Sort(where.want)
			if !slices.Equal(got, where.want) {
				t.Errorf("below %s:\n%q\nwant\n%q", where.path, got, where.want)
			}
		}
		for q, err := range lock.Survey(ctx, s, "/app/m") {
			must(t, err)
			for _, list := range [][]lock.Contender{q.Holders, q.Waiters} {
				for _, c := range list {
					if owner := c.Session; (owner != s.ID() || c.Member != 1) && (owner != other.ID() || c.Member != 2) {
						t.Errorf("%s belongs to session %v of member %d", c.Path, owner, c.Member)
					}
				}
			}
			break // a caller may stop at any queue
		}
		stop()
		for _, done := range ended {
			<-done
		}
		must(t, led.Resign())
		for _, h := range holds {
			must(t, h.Release())
		}
	})
}

// Who waits tells what its caller holds, if that passes its ctx on: its own locks and leaderships,
// and those of its callers. Others find it below their session's root.
func TestContender_Holding(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		below := ens.Session(1, embed.SessionOptions{Root: "/app"})
		_, err := s.Create(bounded(t), "/app", nil, embed.Persistent)
		must(t, err)
		led, err := election.New(s, "/e").Campaign(bounded(t), nil)
		must(t, err)
		a, err := lock.NewMutex(below, "/a").Lock(led.Context())
		must(t, err)
		gone, err := lock.NewMutex(s, "/gone").Lock(a.Context())
		must(t, err)
		b, err := lock.NewRWMutex(s, "/b").Lock(gone.Context())
		must(t, err)
		must(t, gone.Release())
		in := context.WithValue(b.Context(), heldNothing{}, 1)
		c, err := lock.NewSemaphore(s, "/c", 2).With(lock.Options{Note: "why"}).Acquire(in, 1)
		must(t, err)
		defer c.Release()
		holders, err := lock.Holders(bounded(t), s, "/c")
		must(t, err)
		if want := []string{b.Path(), "/app" + a.Path(), led.Path()}; len(holders) != 1 || !slices.Equal(holders[0].Holding, want) || holders[0].Note != "why" {
			t.Errorf("%+v, want %q", holders, want)
		}
		d, err := lock.NewMutex(below, "/d").Lock(in)
		must(t, err)
		defer d.Release()
		holders, err = lock.Holders(bounded(t), below, "/d")
		must(t, err)
		if len(holders) != 1 || !slices.Equal(holders[0].Holding, []string{a.Path()}) || holders[0].Note != "" {
			t.Errorf("below /app: %+v", holders)
		}
		// More than a kibibyte of paths is left out.
		name := "/" + strings.Repeat("n", 300)
		for range 4 {
			h, err := lock.NewMutex(s, name).Lock(in)
			must(t, err)
			defer h.Release()
			in, name = h.Context(), name+"n"
		}
		h, err := lock.NewMutex(s, "/h").Lock(in)
		must(t, err)
		defer h.Release()
		data, _, err := s.Get(bounded(t), h.Path())
		must(t, err)
		if len(data) > 1024 || len(data) < 512 {
			t.Errorf("%d bytes of paths", len(data))
		}
	})
}

type heldNothing struct{}

// A hundred thousand contenders are no burden.
func BenchmarkQueues(b *testing.B) {
	znodes := []embed.Znode{{Path: "/l"}}
	for i := range 100_000 {
		znodes = append(znodes, embed.Znode{Path: fmt.Sprintf("/l/_c_00000000-0000-4000-8000-%012d-lock-%010d", i, i), Stat: embed.Stat{EphemeralOwner: 1, Czxid: embed.Zxid(i)}})
	}
	for b.Loop() {
		queues := all(b, lock.Queues("/", walked(znodes)))
		if len(queues) != 1 || len(queues[0].Waiters) != 99_999 || cycles(b, queues) != nil {
			b.Fatal("another queue")
		}
	}
}

func walked(znodes []embed.Znode) iter.Seq2[embed.Znode, error] {
	return func(yield func(embed.Znode, error) bool) {
		for _, z := range znodes {
			if !yield(z, nil) {
				return
			}
		}
	}
}

// Znodes that a caller has read itself may be wrong.
func TestQueues_WrongPath(t *testing.T) {
	for _, path := range []string{"", "l", "l/_c_00000000-0000-4000-8000-000000000000-lock-0000000001"} {
		for q, err := range lock.Queues("/", walked([]embed.Znode{{Path: path}})) {
			if !errors.Is(err, embed.ErrInvalidPath) {
				t.Errorf("%q: %+v, %v", path, q, err)
			}
		}
	}
}

// An evicted waiter is told, and an evicted holder's Hold ends. Nothing but a contender is deleted.
func TestEvict(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s, other, third := ens.Session(1, embed.SessionOptions{}), ens.Session(2, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
		first, err := lock.NewMutex(s, "/evict").Lock(bounded(t))
		must(t, err)
		waiting := make(chan error, 1)
		go func() { _, err := lock.NewMutex(other, "/evict").Lock(bounded(t)); waiting <- err }()
		ens.Until("the waiter to queue", func() bool { w, _ := lock.Waiters(bounded(t), third, "/evict"); return len(w) == 1 })
		waiters, err := lock.Waiters(bounded(t), third, "/evict")
		must(t, err)
		must(t, lock.Evict(bounded(t), third, waiters[0].Path))
		if err := <-waiting; !errors.Is(err, embed.ErrDeleted) {
			t.Errorf("the waiter got %v", err)
		}
		must(t, lock.Evict(bounded(t), third, first.Path()))
		<-first.Done()
		if err := first.Err(); !errors.Is(err, embed.ErrDeleted) {
			t.Errorf("the holder got %v", err)
		}
		if err := lock.Evict(bounded(t), third, first.Path()); !errors.Is(err, embed.ErrNoNode) {
			t.Errorf("it has gone: %v", err)
		}
		for _, p := range []string{"/evict", "/", "", "/evict/.", "/evict/lock-1", "/evict/block-0000000001"} {
			if err := lock.Evict(bounded(t), third, p); !errors.Is(err, embed.ErrInvalidPath) {
				t.Errorf("%q: %v", p, err)
			}
		}
	})
}

// A leader's data is its value, which nobody replaces by a request that it would not look at.
func TestRevoke_Leader(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		led, err := election.New(s, "/e").Campaign(bounded(t), []byte("address"))
		must(t, err)
		must(t, lock.Revoke(bounded(t), s, "/e"))
		if leader, err := election.New(s, "/e").Leader(bounded(t)); err != nil || string(leader.Value) != "address" {
			t.Errorf("%q, %v", leader.Value, err)
		}
		must(t, led.Resign())
	})
}
