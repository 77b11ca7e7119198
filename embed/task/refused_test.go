package task_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/refusals"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/tree"
)

// deletes reports whether a transaction deletes a task.
func deletes(ops []refusals.Write) bool {
	for _, op := range ops {
		if op.Kind == tree.KindDelete && len(op.Path) > len(path+"/entries/") &&
			op.Path[:len(path+"/entries/")] == path+"/entries/" {
			return true
		}
	}
	return false
}

// quota sets a hard limit for the number of znodes of the queue.
func quota(t *testing.T, s *embed.Session, limit string) {
	t.Helper()
	at := "/zookeeper/quota" + path
	_, err := s.Put(t.Context(), at+"/zookeeper_limits",
		[]byte("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit="+limit))
	must(t, err)
	_, err = s.Put(t.Context(), at+"/zookeeper_stats", nil)
	must(t, err)
}

// worked runs Work for a time, and returns how often fn was called.
func worked(t *testing.T, from embed.Opener, o task.Options, d time.Duration,
	fn func(context.Context, *task.Task) error) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var runs atomic.Int32
	err := task.Work(ctx, from, path, o, func(ctx context.Context, c *task.Task) error {
		runs.Add(1)
		return fn(ctx, c)
	})
	wantErr(t, err, context.DeadlineExceeded)
	return int(runs.Load())
}

// A task that cannot be removed is not worked on, since that would never end: one whose znode has
// children is passed over, and keeps nobody from the others. If the session may remove no task at
// all, Work says so.
func TestWork_WhatCannotBeRemoved(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{})
		first := put(t, q, "x", task.PutOptions{})
		put(t, q, "y", task.PutOptions{})
		put(t, q, "z", task.PutOptions{})
		below := path + "/entries/" + first + "/theirs"
		_, err := s.Put(t.Context(), below, nil)
		must(t, err)
		var done []string
		fn := func(_ context.Context, c *task.Task) error { done = append(done, string(c.Data())); return nil }
		worked(t, ens.Node(1), task.Options{}, time.Hour, fn)
		put(t, q, "w", task.PutOptions{})
		if data, err := q.Take(bounded(t)); string(data) != "w" {
			t.Errorf("Take: %q, %v", data, err)
		}
		must(t, s.Delete(t.Context(), below, embed.AnyVersion))
		worked(t, ens.Node(1), task.Options{Attempts: 1}, time.Hour, fn)
		if got := strings.Join(done, ""); got != "yzx" {
			t.Errorf("worked on %s", got)
		}
		put(t, q, "x", task.PutOptions{})
		_, err = s.SetACL(t.Context(), path+"/entries", []embed.ACL{{Perms: embed.PermRead, Scheme: "world", ID: "anyone"}}, embed.AnyVersion)
		must(t, err)
		wantErr(t, task.Work(bounded(t), ens.Node(1), path, task.Options{}, fn), embed.ErrNoAuth)
		if len(done) != 3 {
			t.Errorf("worked on %v", done)
		}
	})
}

// M141: a worker that may end no task is started again and again. Each time it is refused, and no task
// has lost an attempt by that.
func TestWork_ARefusedWorkerUsesNoAttempts(t *testing.T) {
	for _, part := range []string{"/entries", "/tries"} {
		bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
			o := task.Options{Attempts: 3}
			bob := embed.Auth{Scheme: "digest", Credential: []byte("bob:secret")}
			good := embed.OpenerWith(ens.Node(1), embed.SessionOptions{Auth: []embed.Auth{bob}})
			s, err := good.NewSession(t.Context(), embed.SessionOptions{})
			must(t, err)
			q := task.New(s, path, o)
			put(t, q, "x", task.PutOptions{})
			must(t, claim(t, q).Finish()) // so there are tries
			put(t, q, "y", task.PutOptions{})
			_, err = s.SetACL(t.Context(), path+part, []embed.ACL{
				{Perms: embed.PermRead | embed.PermCreate, Scheme: "world", ID: "anyone"},
				{Perms: embed.PermAll, Scheme: "auth"},
			}, embed.AnyVersion)
			must(t, err)
			ran := 0
			fn := func(context.Context, *task.Task) error { ran++; return nil }
			for range 3 {
				wantErr(t, task.Work(bounded(t), ens.Node(1), path, o, fn), embed.ErrNoAuth)
			}
			if ran != 0 {
				t.Errorf("%s: it ran", part)
			}
			worked(t, good, o, time.Hour, fn)
			if dead := children(t, s, path+"/dead"); ran != 1 || len(dead) > 0 {
				t.Errorf("%s: the good worker ran %d times; dead: %v", part, ran, dead)
			}
		})
	}
}

// A task that is taken by others while a new worker finds out whether it may end one is no error.
func TestClaim_TakenBeforeTheFirstClaim(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{})
		first := put(t, q, "x", task.PutOptions{})
		put(t, q, "y", task.PutOptions{})
		from := &refusals.Opener{From: ens.Opener(1), Judge: func(_ int, ops []refusals.Write) error {
			if deletes(ops) && first != "" {
				must(t, s.Delete(t.Context(), path+"/entries/"+first, embed.AnyVersion))
				first = ""
			}
			return nil
		}}
		var done []string
		worked(t, from, task.Options{}, time.Minute, func(_ context.Context, c *task.Task) error {
			done = append(done, string(c.Data()))
			return nil
		})
		if strings.Join(done, "") != "y" {
			t.Errorf("worked on %v", done)
		}
	})
}

// fn finishes its task together with a write that is refused. The task is claimed again after a
// second, then two, and so on: it is not dead after a moment.
func TestFinish_Refused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		o := task.Options{Attempts: 10}
		put(t, task.New(s, path, o), "x", task.PutOptions{})
		finish := func(_ context.Context, c *task.Task) error {
			err := c.Finish(embed.OpCheck("/not-there-yet", embed.AnyVersion))
			if !errors.Is(err, embed.ErrNoNode) {
				t.Error(err)
			}
			wantErr(t, c.Err(), embed.ErrReleased)
			return err
		}
		if n := worked(t, ens.Opener(1), o, 20*time.Second, finish); n > 5 {
			t.Errorf("in 20 seconds it ran %d times", n)
		}
		if dead := children(t, s, path+"/dead"); len(dead) > 0 {
			t.Errorf("%v is dead", dead)
		}
		_ = worked(t, ens.Opener(1), o, time.Hour, finish)
		if dead := children(t, s, path+"/dead"); len(dead) != 1 {
			t.Errorf("after ten attempts %v are dead", dead)
		}
	})
}

// What Work writes after fn has returned is refused for ten minutes. The work is not done again.
func TestWork_ARefusedFinish(t *testing.T) {
	for _, refusal := range []error{embed.ErrNoAuth, embed.ErrQuotaExceeded, embed.ErrUnavailable} {
		bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
			s := ens.Session(1, embed.SessionOptions{})
			q := task.New(s, path, task.Options{})
			put(t, q, "x", task.PutOptions{})
			put(t, q, "y", task.PutOptions{})
			until := time.Now().Add(10 * time.Minute)
			refused := 0
			var begun atomic.Bool
			from := &refusals.Opener{From: ens.Opener(1), Judge: func(_ int, ops []refusals.Write) error {
				if begun.Load() && deletes(ops) && time.Now().Before(until) {
					refused++
					return refusal
				}
				return nil
			}}
			ran := make(map[string]int)
			worked(t, from, task.Options{}, time.Hour, func(_ context.Context, c *task.Task) error {
				begun.Store(true)
				ran[string(c.Data())]++
				return nil
			})
			if ran["x"] != 1 || ran["y"] != 1 || len(children(t, s, path+"/entries")) > 0 {
				t.Errorf("%v: ran %v", refusal, ran)
			}
			if refused == 0 || refused > 100 && !errors.Is(refusal, embed.ErrUnavailable) {
				t.Errorf("%v: %d attempts", refusal, refused)
			}
		})
	}
}

// One task that may not be read, or that cannot be buried, stops no other.
func TestClaim_ATaskInTrouble(t *testing.T) {
	for name, trouble := range map[string]func(t *testing.T, s *embed.Session){
		"hidden": func(t *testing.T, s *embed.Session) {
			_, _, err := s.CreateWith(t.Context(), path+"/entries/entry-100-", []byte("x"),
				embed.CreateOptions{Mode: embed.Sequential, Parents: true, ACL: hidden})
			must(t, err)
		},
		"hidden tries": func(t *testing.T, s *embed.Session) {
			name := put(t, task.New(s, path, task.Options{}), "x", task.PutOptions{})
			_, _, err := s.CreateWith(t.Context(), path+"/tries/"+name, nil,
				embed.CreateOptions{Parents: true, ACL: hidden})
			must(t, err)
		},
		"hidden claim": func(t *testing.T, s *embed.Session) {
			name := put(t, task.New(s, path, task.Options{}), "x", task.PutOptions{})
			_, _, err := s.CreateWith(t.Context(), path+"/taken/"+name, nil,
				embed.CreateOptions{Mode: embed.Ephemeral, Parents: true, ACL: hidden})
			must(t, err)
		},
		"not to be buried": func(t *testing.T, s *embed.Session) {
			q := task.New(s, path, task.Options{Attempts: 1})
			put(t, q, "x", task.PutOptions{})
			lost := claim(t, q)
			must(t, lost.Session().Close())
			other := embed.ACL{Perms: embed.PermAll, Scheme: "digest", ID: "a:b"}
			again, err := sameNode(t).NewSession(t.Context(), embed.SessionOptions{})
			must(t, err)
			_, _, err = again.CreateWith(t.Context(), path+"/dead", nil,
				embed.CreateOptions{Parents: true, ACL: []embed.ACL{other}})
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
				sameNode = func(*testing.T) embed.Opener { return ens.Opener(1) }
				trouble(t, ens.Session(1, embed.SessionOptions{}))
				o := task.Options{Attempts: 1}
				s := ens.Session(1, embed.SessionOptions{})
				for i := range 3 {
					put(t, task.New(s, path, o), string(rune('a'+i)), task.PutOptions{})
				}
				counted := &refusals.Opener{From: ens.Opener(1)}
				n := worked(t, counted, o, 10*time.Minute, func(context.Context, *task.Task) error { return nil })
				if n != 3 {
					t.Errorf("%d of 3 tasks were worked on", n)
				}
				if writes := counted.Count(); writes > 60 {
					t.Errorf("%d writes", writes)
				}
				put(t, task.New(s, path, o), "d", task.PutOptions{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				data, err := task.New(s, path, o).Take(ctx)
				if string(data) != "d" || err != nil {
					t.Errorf("Take: %q, %v", data, err)
				}
			})
		})
	}
}

var sameNode func(t *testing.T) embed.Opener

// hidden is an ACL that lets nobody read.
var hidden = []embed.ACL{{Perms: embed.PermWrite, Scheme: "world", ID: "anyone"}}

// A task whose attempts were used up by losses goes to the dead ones, also by Take.
func TestTake_NoAttemptsLeft(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		o := task.Options{Attempts: 1}
		s, lost := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, o)
		put(t, q, "killer", task.PutOptions{})
		put(t, q, "good", task.PutOptions{})
		claim(t, task.New(lost, path, o))
		must(t, lost.Close())
		data, err := q.Take(bounded(t))
		if string(data) != "good" || err != nil {
			t.Errorf("Take: %q, %v", data, err)
		}
		if dead := children(t, s, path+"/dead"); len(dead) != 1 {
			t.Errorf("dead: %v", dead)
		}
	})
}

// A queue that Put has filled up to its hard quota can be drained, by Claim and by Take. Several
// calls of Work for which there is no room wait for one another.
func TestClaim_AtTheQuota(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		q := task.New(s, path, task.Options{})
		put(t, q, "first", task.PutOptions{})
		quota(t, s, "20")
		fill := func() (n int) {
			for ; ; n++ {
				_, err := q.Put(t.Context(), []byte("x"), task.PutOptions{})
				if err != nil {
					wantErr(t, err, embed.ErrQuotaExceeded)
					return n
				}
			}
		}
		n := fill()
		if n < 10 {
			t.Errorf("%d tasks fit", n)
		}
		c := claim(t, q)
		fill()
		_, err := q.Claim(bounded(t))
		wantErr(t, err, embed.ErrQuotaExceeded)
		if _, err := q.Take(bounded(t)); err != nil {
			t.Errorf("Take beside a claim: %v", err)
		}
		must(t, c.Finish())
		fill()
		if _, err := q.Take(bounded(t)); err != nil {
			t.Errorf("Take: %v", err)
		}
		for range 2 {
			fill()
			left := len(children(t, s, path+"/entries"))
			counted := &refusals.Opener{From: ens.Opener(1)}
			done := make(chan int, 3)
			for range 3 {
				go func() {
					done <- worked(t, counted, task.Options{}, 20*time.Minute,
						func(context.Context, *task.Task) error {
							<-time.After(time.Minute)
							return nil
						})
				}()
			}
			if did := <-done + <-done + <-done; did != left {
				t.Errorf("%d of %d tasks were worked on", did, left)
			}
			if writes := counted.Count(); writes > 300 {
				t.Errorf("%d writes for %d tasks", writes, left)
			}
		}
	})
}
