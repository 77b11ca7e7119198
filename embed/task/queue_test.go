package task_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

func put(t *testing.T, q *task.Queue, data string, o task.PutOptions) string {
	t.Helper()
	name, err := q.Put(bounded(t), []byte(data), o)
	must(t, err)
	return name
}

// claim claims a task that is there, or will be soon.
func claim(t *testing.T, q *task.Queue) *task.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := q.Claim(ctx)
	must(t, err)
	must(t, c.Err())
	return c
}

// none fails the test if there is a task that may be claimed for a second.
func none(t *testing.T, q *task.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c, err := q.Claim(ctx)
	if c != nil {
		t.Fatalf("%q is claimed", c.Data())
	}
	wantErr(t, err, context.DeadlineExceeded)
}

var layouts = map[string]task.Layout{
	"Locking": task.Locking, "Entries": task.Entries, "Plain": task.Plain,
	"Priority": task.Priority, "Delay": task.Delay, "Simple": task.Simple,
}

// The names and the bytes are those of kazoo and Curator, written down from their sources.
func TestPut_GoldenNamesAndBytes(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		framed := "000100010100000003" + hex.EncodeToString([]byte("abc")) + "02"
		for i, c := range []struct {
			layout task.Layout
			put    task.PutOptions
			path   string
			hex    string
		}{
			{task.Locking, task.PutOptions{}, "/entries/entry-100-0000000000", "616263"},
			{task.Locking, task.PutOptions{Priority: -100}, "/entries/entry-000-0000000000", "616263"},
			{task.Entries, task.PutOptions{Priority: 899}, "/entry-999-0000000000", "616263"},
			{task.Plain, task.PutOptions{}, "/queue-0000000000", framed},
			{task.Priority, task.PutOptions{}, "/queue-1000000000000000000", framed},
			{task.Priority, task.PutOptions{Priority: 255}, "/queue-1000000FF0000000000", framed},
			{task.Priority, task.PutOptions{Priority: -2}, "/queue-0FFFFFFFE0000000000", framed},
			{task.Delay, task.PutOptions{At: time.UnixMilli(0x19ABCDEF012)},
				"/queue-|19ABCDEF012|0000000000", framed},
			{task.Delay, task.PutOptions{At: time.UnixMilli(1)}, "/queue-|1000000000|0000000000", framed},
			{task.Simple, task.PutOptions{}, "/qn-0000000000", "616263"},
		} {
			path := fmt.Sprint("/q/", i)
			put(t, task.New(s, path, task.Options{Layout: c.layout}), "abc", c.put)
			data, _, err := s.Get(t.Context(), path+c.path)
			if err != nil || hex.EncodeToString(data) != c.hex {
				t.Errorf("%s: %x, %v", path+c.path, data, err)
			}
		}
	})
}

// The golden files have what Curator and kazoo themselves have written, see clienttest. Put writes
// the same names and bytes, and Claim reads them.
func TestPut_OthersBytes(t *testing.T) {
	at := func(ms int64) task.PutOptions { return task.PutOptions{At: time.UnixMilli(ms)} }
	priorities := func(all ...int) (list []task.PutOptions) {
		for _, p := range all {
			list = append(list, task.PutOptions{Priority: p})
		}
		return list
	}
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		for _, c := range []struct {
			file, path, entries string
			layout              task.Layout
			puts                []task.PutOptions
		}{
			{"curator", "/golden-Plain", "", task.Plain, priorities(0)},
			{"curator", "/golden-Simple", "", task.Simple, priorities(0)},
			{"curator", "/golden-Priority", "", task.Priority, priorities(0, 255, -2, -1<<31)},
			{"curator", "/golden-Delay", "", task.Delay,
				[]task.PutOptions{at(1764000000018), at(4000000000000)}},
			{"kazoo", "/golden-Queue", "", task.Entries, priorities(0, -100, 899)},
			{"kazoo", "/golden-LockingQueue", "/entries", task.Locking, priorities(0, -100, 899)},
		} {
			want, err := os.ReadFile("testdata/" + c.file + ".golden")
			must(t, err)
			q := task.New(s, c.path, task.Options{Layout: c.layout})
			for _, o := range c.puts {
				put(t, q, "abc", o)
			}
			names := children(t, s, c.path+c.entries)
			for _, name := range names {
				path := c.path + c.entries + "/" + name
				data, _, err := s.Get(t.Context(), path)
				must(t, err)
				if line := fmt.Sprintf("%s %x\n", path, data); !strings.Contains(string(want), line) {
					t.Errorf("the golden file lacks %s", line)
				}
			}
			prefix := c.path + c.entries + "/"
			if n := strings.Count(string(want), prefix); n != len(names) {
				t.Errorf("%s has %d tasks, here are %d", c.path, n, len(names))
			}
		}
		want, err := os.ReadFile("testdata/curator.golden")
		must(t, err)
		for line := range strings.Lines(string(want)) {
			path, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(path, "/golden-Multi/") {
				data, err := hex.DecodeString(text)
				must(t, err)
				_, err = s.Put(t.Context(), path, data)
				must(t, err)
			}
		}
		c := claim(t, task.New(s, "/golden-Multi", task.Options{Layout: task.Plain}))
		if got := fmt.Sprintf("%s", c.Items()); got != "[x yy z]" {
			t.Errorf("claimed %s", got)
		}
	})
}

// Tasks begin in the order of their priorities, and those of one priority as they were put. A task
// that is claimed, and foreign znodes, are passed over (Netflix/curator#30: foreign names made it
// loop).
func TestClaim_InOrder(t *testing.T) {
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
				s := ens.Session(1, embed.SessionOptions{})
				q := task.New(s, path, task.Options{Layout: layout})
				var want []string
				for i, p := range []int{5, -5, 0, 5, -5, 0} {
					data := fmt.Sprintf("%d-%d", p+10, i)
					o := task.PutOptions{Priority: p}
					switch layout {
					case task.Delay:
						o = task.PutOptions{At: time.Now().Add(time.Duration(p) * time.Minute)}
					case task.Plain, task.Simple:
						data, o = fmt.Sprint(i), task.PutOptions{}
					}
					put(t, q, data, o)
					want = append(want, data)
				}
				entries := path
				if layout == task.Locking {
					entries += "/entries"
				}
				for _, foreign := range []string{"a", "entry-", "queue-x", "queue-|zz|0000000001",
					"queue-123456789", "qn-", "zz-0000000001"} {
					_, err := s.Create(t.Context(), entries+"/"+foreign, nil, embed.Persistent)
					must(t, err)
				}
				<-time.After(10 * time.Minute)
				number := func(s string) (n int) { _, _ = fmt.Sscan(s, &n); return n }
				slices.SortStableFunc(want, func(a, b string) int { return number(a) - number(b) })
				var claims []*task.Task
				for _, data := range want {
					c := claim(t, q)
					if string(c.Data()) != data || len(c.Items()) != 1 || c.Attempt() != 1 {
						t.Errorf("%q, want %q", c.Data(), data)
					}
					claims = append(claims, c)
				}
				none(t, q)
				for _, c := range claims {
					must(t, c.Finish())
					wantErr(t, c.Err(), embed.ErrReleased)
					wantErr(t, c.Finish(), embed.ErrNotHeld)
					wantErr(t, c.Retry(0), embed.ErrNotHeld)
				}
				if left := children(t, s, entries); len(left) != 7 && layout != task.Locking {
					t.Errorf("%v", left)
				}
				for _, part := range []string{path + "/taken", path + "/tries", path + "-locks",
					path + "-tries", path + "/dead"} {
					if left := children(t, s, part); len(left) > 0 {
						t.Errorf("%s has %v", part, left)
					}
				}
			})
		})
	}
}

// A task that is retried keeps its place, its priority and its name (CURATOR-225; Curator's requeue
// loses the first two, in CURATOR-56 the name grew, in CURATOR-224 the id was lost). It waits for
// its time, and is dead after its last attempt. What is dead keeps its bytes.
func TestRetry(t *testing.T) {
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
				s := ens.Session(1, embed.SessionOptions{})
				q := task.New(s, path, task.Options{Layout: layout, Attempts: 3})
				first := put(t, q, "first", task.PutOptions{})
				put(t, q, "second", task.PutOptions{})
				c := claim(t, q)
				begun := time.Now()
				must(t, c.Retry(time.Minute))
				second := claim(t, q) // which is free now
				if string(second.Data()) != "second" {
					t.Errorf("%q", second.Data())
				}
				c = claim(t, q)
				if d := time.Since(begun); c.Name() != first || c.Attempt() != 2 || d < time.Minute ||
					d > 61*time.Second {
					t.Errorf("%s, attempt %d after %v", c.Name(), c.Attempt(), d)
				}
				must(t, second.Retry(0))
				copy(c.Data(), "FIRST") // it is the caller's
				must(t, c.Retry(-time.Minute))
				c = claim(t, q)
				if c.Name() != first || c.Attempt() != 3 || string(c.Data()) != "first" {
					t.Errorf("%s, attempt %d, %q", c.Name(), c.Attempt(), c.Data())
				}
				copy(c.Data(), "FIRST")
				must(t, c.Retry(0))
				c = claim(t, q)
				if string(c.Data()) != "second" {
					t.Errorf("%q", c.Data())
				}
				must(t, c.Finish())
				none(t, q)
				dead := path + "-dead"
				if layout == task.Locking {
					dead = path + "/dead"
				}
				names := children(t, s, dead)
				if len(names) != 1 || !strings.HasPrefix(names[0], first+"-") {
					t.Fatalf("%v", names)
				}
				data, _, err := s.Get(t.Context(), dead+"/"+names[0])
				if err != nil || !strings.Contains(string(data), "first") {
					t.Errorf("%q, %v", data, err)
				}
			})
		})
	}
}

// Data that do not decode are kept among the dead. Curator drops them, and goes on.
func TestClaim_WhatDoesNotDecode(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{Layout: task.Plain})
		put(t, q, "", task.PutOptions{})
		bad := []string{"", "abc", "00010001", "0001000102", "00010002010000000002",
			"0001000101000000056162630200", "00010001010000000361626303",
			"00010001010000000361626302ff", "000100010100000003616263",
			"00010001" + "01ffffffff" + "02"}
		for _, b := range bad {
			data, err := hex.DecodeString(strings.ReplaceAll(b, "abc", "0a0b0c"))
			must(t, err)
			_, err = s.Create(t.Context(), path+"/queue-", data, embed.Sequential)
			must(t, err)
		}
		several, _ := hex.DecodeString("00010001" + "010000000161" + "010000000162" + "02")
		_, err := s.Create(t.Context(), path+"/queue-", several, embed.Sequential)
		must(t, err)
		c := claim(t, q)
		if len(c.Items()) != 1 || len(c.Data()) != 0 {
			t.Errorf("%q", c.Items())
		}
		must(t, c.Finish())
		c = claim(t, q)
		if len(c.Items()) != 2 || string(c.Data()) != "a" || string(c.Items()[1]) != "b" {
			t.Errorf("%q", c.Items())
		}
		must(t, c.Finish())
		none(t, q)
		if dead := children(t, s, path+"-dead"); len(dead) != len(bad) {
			t.Errorf("%d are dead: %v", len(dead), dead)
		}
		for _, b := range bad[:3] {
			data, _ := hex.DecodeString(strings.ReplaceAll(b, "abc", "0a0b0c"))
			_, err = s.Create(t.Context(), path+"/queue-", data, embed.Sequential)
			must(t, err)
		}
		put(t, q, "good", task.PutOptions{})
		data, err := q.Take(bounded(t))
		if string(data) != "good" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
		if dead := children(t, s, path+"-dead"); len(dead) != len(bad)+3 {
			t.Errorf("%d are dead: %v", len(dead), dead)
		}
	})
}

// A delayed task begins at its time, not before, and those due earlier come first, though they were
// put later.
func TestClaim_Delayed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{Layout: task.Delay})
		begun := time.Now()
		for _, minutes := range []int{3, 1, 2, 4} {
			at := begun.Add(time.Duration(minutes) * time.Minute)
			put(t, q, fmt.Sprint(minutes), task.PutOptions{At: at})
		}
		other := task.New(ens.Session(2, embed.SessionOptions{}), path, task.Options{Layout: task.Delay})
		for _, minutes := range []int{1, 2, 3, 4} {
			c := claim(t, other)
			d := time.Since(begun).Round(time.Second)
			if string(c.Data()) != fmt.Sprint(minutes) || d != time.Duration(minutes)*time.Minute {
				t.Errorf("%q after %v", c.Data(), d)
			}
			must(t, c.Finish())
		}
	})
}

// The limit is exact, however many put at once; Curator's maxItems is a guess.
func TestPut_Limit(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		in := 0
		for i := range 12 {
			s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
			wg.Go(func() {
				for range 10 {
					_, err := task.New(s, path, task.Options{Limit: 50}).Put(bounded(t), nil, task.PutOptions{})
					if err == nil {
						mu.Lock()
						in++
						mu.Unlock()
					} else if !errors.Is(err, task.ErrFull) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Sync(bounded(t), path)
		must(t, err)
		if n := len(children(t, s, path+"/entries")); n != 50 || in != 50 {
			t.Errorf("%d tasks, %d were put", n, in)
		}
		q := task.New(s, path, task.Options{Limit: 50})
		must(t, claim(t, q).Finish())
		put(t, q, "x", task.PutOptions{})
		_, err = q.Put(bounded(t), nil, task.PutOptions{})
		wantErr(t, err, task.ErrFull)
	})
}

// Take takes nothing twice, and nothing that is claimed.
func TestTake(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{})
		const n = 60
		for i := range n {
			put(t, q, fmt.Sprint(i), task.PutOptions{})
		}
		claimed := claim(t, q)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := make(map[string]int)
		for i := range 6 {
			other := task.New(ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{}), path,
				task.Options{})
			wg.Go(func() {
				for {
					ctx, cancel := context.WithTimeout(bounded(t), 2*time.Second)
					data, err := other.Take(ctx)
					cancel()
					if err != nil {
						wantErr(t, err, context.DeadlineExceeded)
						return
					}
					mu.Lock()
					got[string(data)]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(got) != n-1 || got[string(claimed.Data())] != 0 {
			t.Errorf("%v", got)
		}
		for data, times := range got {
			if times != 1 {
				t.Errorf("%s was taken %d times", data, times)
			}
		}
		must(t, claimed.Retry(0))
		data, err := q.Take(bounded(t))
		if string(data) != "0" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
		if left := children(t, s, path+"/tries"); len(left) > 0 {
			t.Errorf("%v", left)
		}
	})
}

// A consumer that lost a race goes on at once with the next task (kazoo#501: it slept). Many work
// in one process, and all tasks get done.
func TestClaim_ManyAtOnce(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		q, rng := task.New(ens.Session(1, embed.SessionOptions{}), path, task.Options{}), testkit.Rand(t)
		var mu sync.Mutex
		live := make(map[string]bool)
		done := make(map[string]int)
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		var wg sync.WaitGroup
		const n = 150
		for i := range 9 {
			wg.Go(func() {
				err := task.Work(ctx, ens.Opener(embed.MemberID(i%3+1)), path, task.Options{},
					func(ctx context.Context, c *task.Task) error {
						mu.Lock()
						if live[c.Name()] {
							t.Errorf("%s is claimed twice", c.Name())
						}
						live[c.Name()] = true
						mu.Unlock()
						if rng.IntN(2) == 0 {
							<-time.After(time.Duration(rng.Int64N(int64(5 * time.Millisecond))))
						}
						mu.Lock()
						live[c.Name()] = false
						mu.Unlock()
						err := c.Finish()
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							if done[string(c.Data())]++; len(done) == n {
								cancel()
							}
						}
						return nil
					})
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		for i := range n {
			put(t, q, fmt.Sprint(i), task.PutOptions{})
		}
		wg.Wait()
		for data, times := range done {
			if times != 1 {
				t.Errorf("%s was done %d times", data, times)
			}
		}
		if len(done) != n {
			t.Errorf("%d of %d are done", len(done), n)
		}
	})
}

// Callers give up at any moment, in real time. Nothing is left of them: no claim, and the task is
// there for the next one, or was taken (kazoo#366, kazoo#523, kazoo@7a8167de: the lock of an item
// stayed).
func TestClaim_CancelledAtAnyMoment(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		embedkit.Distant(ens, time.Millisecond)
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{})
		for i := range 200 {
			name := put(t, q, "x", task.PutOptions{})
			ctx, cancel := context.WithTimeout(bounded(t), time.Duration(testkit.Rand(t).Int64N(int64(6*time.Millisecond))))
			var err error
			var c *task.Task
			if i%2 == 0 {
				c, err = q.Claim(ctx)
			} else {
				_, err = q.Take(ctx)
			}
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			switch {
			case c != nil:
				must(t, c.Finish())
			case i%2 == 1 && (err == nil || errors.Is(err, embed.ErrUnknownOutcome)):
				_, err = s.Put(bounded(t), "/tasks/after", nil) // it comes after the Take
				must(t, err)
				if _, there, _ := s.Exists(bounded(t), path+"/entries/"+name); there {
					must(t, claim(t, q).Finish())
				}
			default:
				next := claim(t, q)
				if next.Name() != name {
					t.Errorf("%s, want %s", next.Name(), name)
				}
				must(t, next.Finish())
			}
			ens.Until("no claim to be left", func() bool { return len(children(t, s, path+"/taken")) == 0 })
			if left := children(t, s, path+"/tries"); len(left) > 0 {
				t.Fatalf("%v", left)
			}
		}
	})
}

// A client that does not respect the claim removes the task. Finish says so, and nothing is left. A
// worker learns that its claim is lost (CURATOR-336: it was not told).
func TestFinish_TheTaskIsGone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{})
		for _, end := range []func(*task.Task) error{
			func(c *task.Task) error { return c.Finish(embed.OpEnsure("/tasks/x")) },
			func(c *task.Task) error { return c.Retry(0) },
		} {
			put(t, q, "x", task.PutOptions{})
			c := claim(t, q)
			must(t, s.Delete(t.Context(), path+"/entries/"+c.Name(), 0))
			wantErr(t, end(c), embed.ErrNoNode)
			if _, there, err := s.Exists(t.Context(), "/tasks/x"); there || err != nil {
				t.Errorf("%v, %v", there, err)
			}
			none(t, q)
			if left := children(t, s, path+"/taken"); len(left) > 0 {
				t.Errorf("%v", left)
			}
		}
		// And the claim itself.
		put(t, q, "x", task.PutOptions{})
		c := claim(t, q)
		must(t, s.Delete(t.Context(), path+"/taken/"+c.Name(), 0))
		<-c.Done()
		wantErr(t, c.Err(), embed.ErrDeleted)
		wantErr(t, c.Finish(), embed.ErrNotHeld)
		again := claim(t, q)
		if again.Attempt() != 2 || again.Token().Compare(c.Token()) <= 0 {
			t.Errorf("attempt %d, token %v after %v", again.Attempt(), again.Token(), c.Token())
		}
		// An operation is refused: the task is there for the next claim.
		var no *embed.MultiError
		err := again.Finish(embed.OpEnsure("/tasks/y"), embed.OpCheck("/none", 0))
		if !errors.Is(err, embed.ErrNoNode) || !errors.As(err, &no) || no.Index != 1 {
			t.Errorf("%v", err)
		}
		_, err = s.Multi(t.Context(), again.Guard(), embed.OpEnsure("/tasks/z"))
		wantErr(t, err, embed.ErrNotHeld)
		third := claim(t, q)
		_, err = s.Multi(t.Context(), third.Guard(), embed.OpEnsure("/tasks/z"))
		must(t, err)
		must(t, third.Finish())
	})
	var zero task.Task
	wantErr(t, zero.Finish(), embed.ErrNotHeld)
	wantErr(t, zero.Retry(0), embed.ErrNotHeld)
	wantErr(t, zero.Err(), embed.ErrNotHeld)
	<-zero.Done()
	if zero.Session() != nil || zero.Data() != nil || zero.Token() != (lock.Token{}) ||
		zero.Context().Err() == nil {
		t.Error("the zero Task has something")
	}
}

func TestQueue_Refused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for path, want := range map[string]error{"": embed.ErrInvalidPath, "/": embed.ErrInvalidPath,
			"/q/": embed.ErrInvalidPath, "q": embed.ErrInvalidPath} {
			q := task.New(s, path, task.Options{})
			_, err := q.Put(ctx, nil, task.PutOptions{})
			wantErr(t, err, want)
			_, err = q.Claim(ctx)
			wantErr(t, err, want)
			_, err = q.Take(ctx)
			wantErr(t, err, want)
			wantErr(t, task.Work(ctx, ens.Opener(1), path, task.Options{}, nil), want)
		}
		for _, o := range []task.Options{{Layout: -1}, {Layout: 6}, {LockPath: "/x"},
			{Layout: task.Plain, LockPath: path}, {Limit: -1}, {Attempts: -1}} {
			q := task.New(s, path, o)
			_, err := q.Put(ctx, nil, task.PutOptions{})
			wantErr(t, err, embed.ErrInvalidArgument)
			_, err = q.Claim(ctx)
			wantErr(t, err, embed.ErrInvalidArgument)
			wantErr(t, task.Work(ctx, ens.Opener(1), path, o, nil), embed.ErrInvalidArgument)
		}
		for _, c := range []struct {
			layout task.Layout
			put    task.PutOptions
		}{
			{task.Locking, task.PutOptions{Priority: 900}}, {task.Entries, task.PutOptions{Priority: -101}},
			{task.Locking, task.PutOptions{At: time.Now()}}, {task.Priority,
				task.PutOptions{Priority: 1 << 31}},
			{task.Plain, task.PutOptions{Priority: 1}}, {task.Delay, task.PutOptions{Priority: 1}},
			{task.Delay, task.PutOptions{At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		} {
			_, err := task.New(s, path, task.Options{Layout: c.layout}).Put(ctx, nil, c.put)
			wantErr(t, err, embed.ErrInvalidArgument)
		}
		waits := task.New(s, path, task.Options{})
		over := make(chan error, 1)
		go func() { _, err := waits.Claim(ctx); over <- err }()
		<-time.After(time.Minute)
		must(t, s.Close())
		select {
		case err := <-over:
			wantErr(t, err, embed.ErrSessionClosed)
		case <-time.After(patience):
			t.Error("a Claim does not end with its session")
		}
	})
}

// Names have eleven hexadecimal digits for a time, up to June 2527. A longer one sorts before
// those of today: it must not hold them back.
func TestClaim_NotBehindAFarTime(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{Layout: task.Delay})
		_, err := q.Put(bounded(t), nil, task.PutOptions{At: time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC)})
		wantErr(t, err, embed.ErrInvalidArgument)
		put(t, q, "now", task.PutOptions{})
		_, err = s.Create(t.Context(), path+"/queue-|1214E18D0400|", nil, embed.Sequential) // by Java
		must(t, err)
		if got := claim(t, q); string(got.Data()) != "now" {
			t.Errorf("%q begins", got.Data())
		}
	})
}
