package job_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// An answer is what a call of Once returned.
type answer struct {
	result []byte
	err    error
}

// wait waits for an answer.
func wait[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("nothing has come")
	}
	return v
}

// All members call Once, one runs, and all get its result, also those that come later. None reports
// that it is done while it is not (nextly#785).
func TestOnce_AllGetTheResult(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		var runs, over atomic.Int32
		var wg sync.WaitGroup
		once := func(id embed.MemberID) {
			result, err := job.Once(t.Context(), ens.Opener(id), "/migrations/7",
				func(ctx context.Context, token lock.Token) ([]byte, error) {
					n := runs.Add(1)
					<-time.After(time.Minute)
					over.Add(1)
					return fmt.Append(nil, "run ", n), ctx.Err()
				})
			if string(result) != "run 1" || err != nil || over.Load() == 0 {
				t.Errorf("%q, %v, %d runs are over", result, err, over.Load())
			}
		}
		for i := range 9 {
			wg.Go(func() { once(embed.MemberID(i%3 + 1)) })
		}
		wg.Wait()
		once(2)
		if runs.Load() != 1 {
			t.Errorf("it ran %d times", runs.Load())
		}
	})
}

// When there is a result nobody asks for the lock, also if somebody still holds it (stroom#5109:
// all waited for the lock one after the other). Those that wait for the lock leave at once.
func TestOnce_NobodyWaitsForTheLockInVain(t *testing.T) {
	bubble(t, 2, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		never := func(context.Context, lock.Token) ([]byte, error) { return nil, errors.New("it ran") }
		_, err := lock.NewMutex(s, "/m/lock").Lock(t.Context())
		must(t, err)
		answers := make(chan answer, 5)
		for i := range 5 {
			go func() {
				result, err := job.Once(t.Context(), ens.Opener(embed.MemberID(i%2+1)), "/m", never)
				answers <- answer{result, err}
			}()
		}
		<-time.After(time.Minute)
		_, err = s.Create(t.Context(), "/m/done", []byte("x"), embed.Persistent)
		must(t, err)
		begun := time.Now()
		for range 5 {
			if a := wait(t, answers); string(a.result) != "x" || a.err != nil {
				t.Errorf("%q, %v", a.result, a.err)
			}
		}
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// The member that runs it is killed, or cut off, or its function fails: another one runs it.
func TestOnce_AnotherRunsIt(t *testing.T) {
	sessionsflag.Member(t, "a client outlives a member")
	for name, lose := range map[string]func(ens *embedtest.Ensemble){
		"killed":  func(ens *embedtest.Ensemble) { ens.Kill(1) },
		"cut off": func(ens *embedtest.Ensemble) { ens.Isolate(1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
				first := make(chan answer, 1)
				begun, lost := make(chan lock.Token, 1), make(chan error, 1)
				go func() {
					result, err := job.Once(t.Context(), ens.Opener(1), "/m",
						func(ctx context.Context, token lock.Token) ([]byte, error) {
							begun <- token
							<-ctx.Done()
							lost <- context.Cause(ctx)
							return []byte("the first"), nil // although it is lost
						})
					first <- answer{result, err}
				}()
				token := wait(t, begun)
				second := make(chan answer, 1)
				go func() {
					result, err := job.Once(t.Context(), ens.Opener(2), "/m",
						func(_ context.Context, next lock.Token) ([]byte, error) {
							if next.Compare(token) <= 0 {
								t.Errorf("token %v after %v", next, token)
							}
							select {
							case <-lost:
							default:
								t.Error("the first does not know that it is lost")
							}
							return []byte("the second"), nil
						})
					second <- answer{result, err}
				}()
				<-time.After(time.Minute)
				lose(ens)
				if a := wait(t, second); string(a.result) != "the second" || a.err != nil {
					t.Errorf("%q, %v", a.result, a.err)
				}
				ens.HealAll()
				switch a := wait(t, first); {
				case name == "killed" && !errors.Is(a.err, embed.ErrClosed) &&
					!errors.Is(a.err, embed.ErrFailed),
					name != "killed" && (a.err != nil || string(a.result) != "the second"):
					t.Errorf("%q, %v", a.result, a.err)
				}
			})
		})
	}
}

// A function that fails gives its caller the error, and the next one runs.
func TestOnce_AFailure(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		bad := errors.New("no disk")
		for range 2 {
			_, err := job.Once(t.Context(), ens.Opener(1), "/m",
				func(context.Context, lock.Token) ([]byte, error) { return nil, bad })
			if err != bad {
				t.Errorf("%v", err)
			}
		}
		_, err := job.Once(t.Context(), ens.Opener(1), "/m",
			func(context.Context, lock.Token) ([]byte, error) { return make([]byte, 2<<20), nil })
		wantErr(t, err, embed.ErrTooLarge)
		for range 2 {
			result, err := job.Once(t.Context(), ens.Opener(1), "/m",
				func(context.Context, lock.Token) ([]byte, error) { return nil, nil })
			if result != nil || err != nil {
				t.Errorf("%q, %v", result, err)
			}
		}
		for _, path := range []string{"", "m", "/m/"} {
			_, err := job.Once(t.Context(), ens.Opener(1), path,
				func(context.Context, lock.Token) ([]byte, error) { return nil, bad })
			wantErr(t, err, embed.ErrInvalidPath)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = job.Once(over, ens.Opener(1), "/n",
			func(context.Context, lock.Token) ([]byte, error) { return nil, bad })
		wantErr(t, err, context.Canceled)
	})
}

// A looker is a ctx that calls do when its Err is called for the n-th time. Every method of a
// Session calls Err first.
type looker struct {
	context.Context
	n     int64
	do    func()
	looks atomic.Int64
}

func (l *looker) Err() error {
	if l.looks.Add(1) == l.n {
		l.do()
	}
	return l.Context.Err()
}

// A Once that ends at any step leaves no contender, and another one is not held up by it. The
// member is cancelled, loses its session, or is killed.
func TestOnce_EndedAtAnyStep(t *testing.T) {
	for name, end := range map[string]func(ens *embedtest.Ensemble, cancel func()){
		"cancelled": func(_ *embedtest.Ensemble, cancel func()) { cancel() },
		"jumped":    func(ens *embedtest.Ensemble, _ func()) { ens.Faults(2).SetWallClock(time.Hour) },
		"killed":    func(ens *embedtest.Ensemble, _ func()) { ens.Kill(2) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
				s := ens.Session(1, embed.SessionOptions{})
				for n := int64(1); ; n++ {
					if n > 100 {
						t.Fatal("it has no end")
					}
					path := fmt.Sprint("/m/", n)
					inner, cancel := context.WithCancel(t.Context())
					ctx := &looker{Context: inner, n: n}
					ended := make(chan struct{})
					ctx.do = sync.OnceFunc(func() { close(ended) })
					done := make(chan answer, 1)
					node := ens.Node(2)
					go func() {
						result, err := job.Once(ctx, node, path,
							func(ctx context.Context, _ lock.Token) ([]byte, error) {
								<-time.After(time.Second)
								return []byte("a"), context.Cause(ctx)
							})
						done <- answer{result, err}
					}()
					reached := true
					var a answer
					select {
					case <-ended:
						end(ens, cancel)
						a = wait(t, done)
					case a = <-done:
						reached = false
					case <-time.After(patience):
						t.Fatal("it does not end")
					}
					cancel()
					if a.err == nil && string(a.result) != "a" {
						t.Errorf("step %d: %q, %v", n, a.result, a.err)
					}
					short, stop := context.WithTimeout(t.Context(), time.Hour)
					result, err := job.Once(short, ens.Opener(1), path,
						func(context.Context, lock.Token) ([]byte, error) { return []byte("b"), nil })
					stop()
					if want := "b"; err != nil || a.err == nil && string(result) != "a" || a.err != nil &&
						string(result) != want && string(result) != "a" {
						t.Errorf("step %d: %q, %v after %q, %v", n, result, err, a.result, a.err)
					}
					switch name {
					case "killed":
						if reached {
							ens.Restart(2)
						}
					case "jumped":
						ens.Faults(2).SetWallClock(0)
					}
					ens.Until("nobody to be left", func() bool {
						names, _, err := s.Children(t.Context(), path+"/lock")
						return len(names) == 0 && (err == nil || errors.Is(err, embed.ErrNoNode))
					})
					if !reached {
						t.Logf("%d steps", n-1)
						return
					}
				}
			})
		})
	}
}

// fn runs anew after <path>/done was deleted, also on a member that does not show that yet. A new
// session has come from the home shard, and proves nothing of the others.
func TestOnce_RunsAnewWhereItIsSeenTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 4 }})
		ens.TransferLeadership(1)
		for _, path := range []string{"/a", "/b", "/c", "/d", "/e", "/f"} {
			runs := 0
			fn := func(context.Context, lock.Token) ([]byte, error) { runs++; return nil, nil }
			_, err := job.Once(t.Context(), ens.Opener(1), path, fn)
			must(t, err)
			<-time.After(time.Second)
			ens.Faults(1).SetLink(3, embedtest.Link{Delay: 300 * time.Millisecond})
			<-time.After(time.Second)
			must(t, ens.Session(1, embed.SessionOptions{}).Delete(t.Context(), path+"/done", embed.AnyVersion))
			_, err = job.Once(t.Context(), ens.Opener(3), path, fn)
			must(t, err)
			if runs != 2 {
				t.Errorf("%s: fn ran %d times", path, runs)
			}
			ens.Faults(1).SetLink(3, embedtest.Link{})
		}
	})
}

// M122: Once on the root of an ensemble with several shards, or where it may not record a result. fn
// never runs, for no result of it could be recorded.
func TestOnce_RunsNothingThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 4 }})
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/shut/lock", "/full/lock"} {
			_, err := s.Put(t.Context(), path, nil)
			must(t, err)
		}
		_, err := s.SetACL(t.Context(), "/shut", []embed.ACL{{Perms: embed.PermRead, Scheme: "world", ID: "anyone"}}, embed.AnyVersion)
		must(t, err)
		_, err = s.Put(t.Context(), "/zookeeper/quota/full/zookeeper_limits", []byte("countHardLimit=3")) // itself, the lock, and one that waits
		must(t, err)
		_, err = s.Put(t.Context(), "/zookeeper/quota/full/zookeeper_stats", nil)
		must(t, err)
		for path, want := range map[string]error{"/": embed.ErrCrossShard, "/shut": embed.ErrNoAuth, "/full": embed.ErrQuotaExceeded} {
			ran := 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			_, err := job.Once(ctx, ens.Opener(1), path, func(context.Context, lock.Token) ([]byte, error) { ran++; return nil, nil })
			cancel()
			wantErr(t, err, want)
			if ran > 0 {
				t.Errorf("%s: fn ran %d times", path, ran)
			}
		}
	})
}
