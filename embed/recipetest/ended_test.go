package recipetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/discovery"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A looker is a ctx that calls do when it is asked for Err or Done for the n-th time. Every method
// of a Session asks for Err, and whatever waits asks for Done.
type looker struct {
	context.Context
	n     int32
	do    func()
	looks atomic.Int32
}

func (l *looker) look() {
	if l.looks.Add(1) == l.n {
		l.do()
	}
}

func (l *looker) Err() error {
	l.look()
	return l.Context.Err()
}

func (l *looker) Done() <-chan struct{} {
	l.look()
	return l.Context.Done()
}

// A visit is where one call is made.
type visit struct {
	t     *testing.T
	node  embed.Opener
	s     *embed.Session // for the call
	other *embed.Session // of somebody else
	path  string         // below a znode that nothing else is below

	hold *lock.Hold // of somebody else

	mu     sync.Mutex
	opened []*embed.Session // by the call
}

// NewSession implements embed.Opener.
func (c *visit) NewSession(ctx context.Context, o embed.SessionOptions) (*embed.Session, error) {
	s, err := c.node.NewSession(ctx, o)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.opened = append(c.opened, s)
	}
	return s, err
}

// endSessions ends the sessions of the call.
func (c *visit) endSessions() {
	c.mu.Lock()
	all := append([]*embed.Session{c.s}, c.opened...)
	c.mu.Unlock()
	for _, s := range all {
		_ = s.Close()
	}
}

// got is what a call leaves to its caller: how to give it back.
type got func()

func (g got) back() {
	if g != nil {
		g()
	}
}

// A blocking is a public call that takes a ctx.
type blocking struct {
	name string
	// prepare sets it up. It returns what ends it, or nil.
	prepare func(c *visit) got
	call    func(ctx context.Context, c *visit) (got, error)
	// wake brings about what the call waits for. If it is nil, or not enough, the call goes on until
	// it is cancelled.
	wake func(c *visit)
	// stays matches the znodes that are there to stay, relative to the path.
	stays string
	// outlives says that the call opens one session after the other.
	outlives bool
}

// put writes a znode as somebody else.
func (c *visit) put(rel, data string) {
	_, err := c.other.Put(c.t.Context(), c.path+rel, []byte(data))
	must(c.t, err)
}

// remove deletes a znode as somebody else, if it is there.
func (c *visit) remove(rel string) {
	_ = c.other.Delete(c.t.Context(), c.path+rel, embed.AnyVersion)
}

// tells returns the error of a sequence, or nil after some elements that are no errors.
func tells[K any](n int, seq func(func(K, error) bool)) (err error) {
	for _, err = range seq {
		if err != nil && !errors.Is(err, embed.ErrNoNode) {
			return err
		}
		if n--; n == 0 {
			return nil
		}
	}
	return errors.New("a sequence without a last error")
}

// blockings are the calls of the recipes. Those of package lock besides Keys, and those of package
// election, have tests of their own.
func blockings() []blocking {
	var texts value.Codec[string]
	const some = "^$" // the path itself
	release := func(h *lock.Hold, err error) (got, error) {
		if err != nil {
			return nil, err
		}
		return func() { _ = h.Release() }, nil
	}
	list := []blocking{
		{name: "view.Open", call: func(ctx context.Context, c *visit) (got, error) {
			v, err := view.Open(ctx, c.s, c.path, view.Options[string]{})
			if err != nil {
				return nil, err
			}
			return func() { _ = v.Close() }, nil
		}},
		{name: "view.View.Await", call: func(ctx context.Context, c *visit) (got, error) {
			v, err := view.Open(context.WithoutCancel(ctx), c.s, c.path, view.Options[string]{})
			if err != nil {
				return nil, err
			}
			z, err := c.s.Sync(context.WithoutCancel(ctx), c.path)
			if err == nil {
				err = v.Await(ctx, z+1)
			}
			_ = v.Close()
			return nil, err
		}, wake: func(c *visit) { c.put("", "x") }, stays: some},
		{name: "view.View.Changes", call: func(ctx context.Context, c *visit) (got, error) {
			v, err := view.Open(context.WithoutCancel(ctx), c.s, c.path, view.Options[string]{})
			if err != nil {
				return nil, err
			}
			err = tells(1, v.Changes(ctx, v.Zxid()))
			_ = v.Close()
			return nil, err
		}, wake: func(c *visit) { c.put("", "x") }, stays: some},
		{name: "value.Value.Set", call: func(ctx context.Context, c *visit) (got, error) {
			_, err := value.New(c.s, c.path, texts).Set(ctx, "x")
			return nil, err
		}, stays: some},
		{name: "value.Value.Swap", call: func(ctx context.Context, c *visit) (got, error) {
			_, err := value.New(c.s, c.path, texts).Swap(ctx, value.Versioned[string]{}, "x")
			return nil, err
		}, stays: some},
		{name: "value.Value.Update", call: func(ctx context.Context, c *visit) (got, error) {
			calls := 0
			_, err := value.New(c.s, c.path, texts).Update(ctx, func(now string, _ bool) (string, error) {
				if calls++; calls == 1 {
					c.put("", "theirs") // so that it is called again
				}
				return now + "x", nil
			})
			return nil, err
		}, stays: some},
		{name: "value.Value.Changes", call: func(ctx context.Context, c *visit) (got, error) {
			return nil, tells(2, value.New(c.s, c.path, texts).Changes(ctx))
		}, wake: func(c *visit) { c.put("", "x") }, stays: some},
		{name: "value.Bind", call: func(ctx context.Context, c *visit) (got, error) {
			var p atomic.Pointer[string]
			stop, err := value.Bind(ctx, c.s, c.path, texts, &p, value.BindOptions[string]{})
			if err != nil {
				return nil, err
			}
			return func() { _ = stop() }, nil
		}},
		{name: "value.Counter.Add", call: func(ctx context.Context, c *visit) (got, error) {
			_, err := value.NewCounter(c.s, c.path, embed.Int64).Add(ctx, 1)
			return nil, err
		}, stays: some},
		{name: "value.Counter.Swap", call: func(ctx context.Context, c *visit) (got, error) {
			err := value.NewCounter(c.s, c.path, embed.Int64).Swap(ctx, 0, 1)
			return nil, err
		}, stays: some},
		{name: "value.Sequence.Next", call: func(ctx context.Context, c *visit) (got, error) {
			ids := value.NewSequence(c.node, c.path, 10)
			_, err := ids.Next(ctx)
			return func() { _ = ids.Close() }, errors.Join(err, shut(err, ids.Close))
		}, stays: some},
		{name: "value.TakeNumber", prepare: func(c *visit) got {
			c.put("/used/0", fmt.Sprint(time.Now().Add(3*time.Second).UnixMilli()))
			return nil
		}, call: func(ctx context.Context, c *visit) (got, error) {
			n, err := value.TakeNumber(ctx, c.s, c.path, 1, value.NumberOptions{})
			if err != nil {
				return nil, err
			}
			return func() { _ = n.Release() }, nil
		}, stays: "^/used"},
		{name: "value.TakeNumber of a held one", prepare: func(c *visit) got {
			c.put("/held/0", "")
			return nil
		}, call: func(ctx context.Context, c *visit) (got, error) {
			n, err := value.TakeNumber(ctx, c.s, c.path, 1, value.NumberOptions{Skew: time.Second})
			if err != nil {
				return nil, err
			}
			return func() { _ = n.Release() }, nil
		}, wake: func(c *visit) { c.remove("/held/0") }, stays: "^/used|/held"},

		{name: "group.Watch", call: func(ctx context.Context, c *visit) (got, error) {
			g, err := group.Watch(ctx, c.s, c.path, group.Options{})
			if err != nil {
				return nil, err
			}
			return func() { _ = g.Close() }, nil
		}},
		{name: "group.Group.Await", call: inGroup(func(ctx context.Context, g *group.Group) error {
			_, err := g.Await(ctx, func(all []group.Member) bool { return len(all) == 1 })
			return err
		}), wake: func(c *visit) { c.put("/a", "x") }, stays: "^/a"},
		{name: "group.Group.Changes", call: inGroup(func(ctx context.Context, g *group.Group) error {
			return tells(2, g.Changes(ctx))
		}), wake: func(c *visit) { c.put("/a", "x") }, stays: "^/a"},
		{name: "group.Group.Share", call: inGroup(func(ctx context.Context, g *group.Group) error {
			return tells(2, g.Share(ctx, 1))
		}), wake: func(c *visit) { c.put("/a", "x"); c.put("/b", "x") }, stays: "^/"},
		{name: "group.Announcement.Set", call: func(ctx context.Context, c *visit) (got, error) {
			a := group.Announce(c, c.path, nil, group.Options{})
			return func() { _ = a.Close() }, errors.Join(a.Set(ctx, []byte("x")), a.Close())
		}, outlives: true},
		{name: "group.Announcement.Changes", call: func(ctx context.Context, c *visit) (got, error) {
			a := group.Join(c, c.path, "a", nil, group.Options{Linger: time.Second})
			return nil, errors.Join(tells(2, a.Changes(ctx)), a.Close())
		}, outlives: true},
		{name: "group.Announce", call: func(ctx context.Context, c *visit) (got, error) {
			a := group.Announce(c, c.path, nil, group.Options{})
			_ = a.Set(ctx, nil) // so that it ends at a step
			return nil, a.Close()
		}, outlives: true},
		{name: "group.AwaitApplied", prepare: func(c *visit) got {
			c.put("/members/a", "none yet")
			return nil
		}, call: func(ctx context.Context, c *visit) (got, error) {
			_, err := group.AwaitApplied(ctx, c.s, c.path, 1)
			return nil, err
		}, wake: func(c *visit) { c.remove("/members/a") }, stays: "^/members"},
		{name: "group.Follow", prepare: func(c *visit) got { c.put("", "x"); return nil },
			call: func(ctx context.Context, c *visit) (got, error) {
				apply := func(context.Context, value.Versioned[string]) error { return nil }
				return nil, group.Follow(ctx, c, c.path, "a", texts, apply)
			}, stays: some, outlives: true},

		{name: "discovery.Watch", call: func(ctx context.Context, c *visit) (got, error) {
			v, err := discovery.Watch(ctx, c.s, c.path, "x")
			if err != nil {
				return nil, err
			}
			return func() { _ = v.Close() }, nil
		}},
		{name: "discovery.Service.Changes", call: func(ctx context.Context, c *visit) (got, error) {
			v, err := discovery.Watch(context.WithoutCancel(ctx), c.s, c.path, "x")
			if err != nil {
				return nil, err
			}
			return nil, errors.Join(tells(2, v.Changes(ctx)), v.Close())
		}, wake: func(c *visit) { c.put("/x/a", `{"name":"x","id":"a"}`) }, stays: "^/x/a"},
		{name: "discovery.Names", call: func(ctx context.Context, c *visit) (got, error) {
			_, err := discovery.Names(ctx, c.s, c.path)
			return nil, err
		}},
		{name: "discovery.Registration.Update", call: func(ctx context.Context, c *visit) (got, error) {
			r := discovery.Register(c, c.path, discovery.Instance{Name: "x", ID: "a"})
			err := r.Update(ctx, func(in *discovery.Instance) { in.Port = 80 })
			return nil, errors.Join(err, r.Close())
		}, outlives: true},

		{name: "partition.Run", call: func(ctx context.Context, c *visit) (got, error) {
			o := partition.Options{ID: "a", Settle: time.Second}
			work := func(ctx context.Context, _ string, _ *lock.Hold) error {
				<-ctx.Done()
				return nil
			}
			return nil, partition.Run(ctx, c, c.path, []string{"x", "y"}, o, work)
		}, outlives: true},
		{name: "partition.Run of a taken ID", prepare: func(c *visit) got {
			c.put("/members/a", "")
			return nil
		}, call: func(ctx context.Context, c *visit) (got, error) {
			return nil, partition.Run(ctx, c, c.path, []string{"x"}, partition.Options{ID: "a"}, nil)
		}, stays: "^/members/a", outlives: true},
		{name: "partition.Owners", prepare: func(c *visit) got {
			h, err := lock.NewKeys(c.other, c.path+"/parts").Lock(c.t.Context(), "x")
			must(c.t, err)
			return func() { must(c.t, h.Release()) }
		}, call: func(ctx context.Context, c *visit) (got, error) {
			_, err := partition.Owners(ctx, c.s, c.path)
			return nil, err
		}},

		{name: "job.Run", call: func(ctx context.Context, c *visit) (got, error) {
			ran := 0
			work := func(ctx context.Context, tick *job.Tick) error {
				if ran++; ran%2 == 0 {
					return tick.Commit()
				}
				return nil
			}
			j := job.Job{Name: "j", Schedule: job.Every(time.Second), Run: work}
			return nil, job.Run(ctx, c, c.path, j)
		}, stays: "^/j/ticks", outlives: true},
		{name: "job.Once behind another", prepare: func(c *visit) got {
			h, err := lock.NewMutex(c.other, c.path+"/lock").Lock(c.t.Context())
			must(c.t, err)
			return func() { must(c.t, h.Release()) }
		}, call: func(ctx context.Context, c *visit) (got, error) {
			work := func(context.Context, lock.Token) ([]byte, error) { return nil, nil }
			_, err := job.Once(ctx, c, c.path, work)
			return nil, err
		}, wake: func(c *visit) { c.put("/done", "") }, stays: "^/done", outlives: true},
		{name: "job.Reserve", call: func(ctx context.Context, c *visit) (got, error) {
			r, err := job.Reserve(ctx, c.s, c.path, "me", 2*time.Second)
			if err != nil {
				return nil, err
			}
			return func() { _ = r.Release() }, nil
		}},
		{name: "job.Reserve again", prepare: func(c *visit) got {
			r, err := job.Reserve(c.t.Context(), c.other, c.path, "me", 2*time.Second)
			must(c.t, err)
			return func() { _ = r.Release() }
		}, call: func(ctx context.Context, c *visit) (got, error) {
			r, err := job.Reserve(ctx, c.s, c.path, "me", 2*time.Second)
			if err != nil {
				return nil, err
			}
			return func() { _ = r.Release() }, nil
		}},
		{name: "job.Reservation.Renew", call: func(ctx context.Context, c *visit) (got, error) {
			r, err := job.Reserve(context.WithoutCancel(ctx), c.s, c.path, "me", 2*time.Second)
			if err != nil {
				return nil, err
			}
			return func() { _ = r.Release() }, r.Renew(ctx)
		}},
		{name: "job.History", call: func(ctx context.Context, c *visit) (got, error) {
			_, err := job.History(ctx, c.s, c.path, "j")
			return nil, err
		}},

		{name: "barrier.Enter", call: func(ctx context.Context, c *visit) (got, error) {
			p, err := barrier.Enter(ctx, c.s, c.path, 2)
			if err != nil {
				return nil, err
			}
			return func() { _ = p.Leave(c.t.Context()) }, nil
		}, wake: func(c *visit) {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			defer cancel()
			if p, err := barrier.Enter(ctx, c.other, c.path, 2); err == nil {
				go p.Leave(c.t.Context())
			}
		}, stays: "^/ready"},
		{name: "barrier.Enter beside a stale ready", prepare: func(c *visit) got {
			c.put("/ready", "")
			return nil
		}, call: func(ctx context.Context, c *visit) (got, error) {
			_, err := barrier.Enter(ctx, c.s, c.path, 2)
			return nil, err
		}, stays: "^/ready"},
		{name: "barrier.Pass.Leave", call: func(ctx context.Context, c *visit) (got, error) {
			over := make(chan *barrier.Pass, 1)
			both, cancel := context.WithCancel(c.t.Context())
			defer cancel()
			go func() {
				p, err := barrier.Enter(both, c.other, c.path, 2)
				if both.Err() == nil {
					must(c.t, err)
				}
				over <- p
			}()
			p, err := barrier.Enter(c.t.Context(), c.s, c.path, 2)
			if err != nil {
				cancel()
			}
			their := <-over
			if err != nil {
				return nil, err
			}
			time.AfterFunc(time.Second, func() { _ = their.Leave(c.t.Context()) })
			return nil, p.Leave(ctx)
		}, stays: "^/ready"},
		{name: "barrier.Gate.Shut", call: func(ctx context.Context, c *visit) (got, error) {
			return nil, barrier.NewGate(c.s, c.path).Shut(ctx)
		}, stays: some},
		{name: "barrier.Gate.Open", prepare: func(c *visit) got {
			must(c.t, barrier.NewGate(c.other, c.path).Shut(c.t.Context()))
			return nil
		}, call: func(ctx context.Context, c *visit) (got, error) {
			return nil, barrier.NewGate(c.s, c.path).Open(ctx)
		}, stays: some},
		{name: "barrier.Gate.Wait", prepare: func(c *visit) got {
			must(c.t, barrier.NewGate(c.other, c.path).Shut(c.t.Context()))
			return nil
		}, call: func(ctx context.Context, c *visit) (got, error) {
			return nil, barrier.NewGate(c.s, c.path).Wait(ctx)
		}, wake: func(c *visit) { c.remove("") }, stays: some},
		{name: "barrier.Countdown.Done", call: func(ctx context.Context, c *visit) (got, error) {
			return nil, barrier.NewCountdown(c.s, c.path, 2).Done(ctx, "a")
		}, stays: "^$|^/a"},
		{name: "barrier.Countdown.Wait", call: func(ctx context.Context, c *visit) (got, error) {
			return nil, barrier.NewCountdown(c.s, c.path, 1).Wait(ctx)
		}, wake: func(c *visit) {
			must(c.t, barrier.NewCountdown(c.other, c.path, 1).Done(c.t.Context(), "a"))
		}, stays: "^/a"},
		{name: "barrier.Countdown.Left", call: func(ctx context.Context, c *visit) (got, error) {
			_, err := barrier.NewCountdown(c.s, c.path, 1).Left(ctx)
			return nil, err
		}},

		{name: "lock.Keys.Lock", call: func(ctx context.Context, c *visit) (got, error) {
			return release(lock.NewKeys(c.s, c.path).Lock(ctx, "k"))
		}},
		{name: "lock.Keys.TryLock", call: func(ctx context.Context, c *visit) (got, error) {
			return release(lock.NewKeys(c.s, c.path).TryLock(ctx, "k"))
		}},
		{name: "lock.Keys.Lock of a held key", prepare: func(c *visit) got {
			var err error
			c.hold, err = lock.NewKeys(c.other, c.path).Lock(c.t.Context(), "k")
			must(c.t, err)
			return func() { must(c.t, c.hold.Release()) }
		}, call: func(ctx context.Context, c *visit) (got, error) {
			return release(lock.NewKeys(c.s, c.path).Lock(ctx, "k"))
		}, wake: func(c *visit) { must(c.t, c.hold.Release()) }},
		{name: "lock.Keys.Lock of a kept key", call: func(ctx context.Context, c *visit) (got, error) {
			keys := lock.NewKeys(c.s, c.path).With(lock.KeysOptions{Lock: lock.Options{Keep: time.Second}})
			h, err := keys.Lock(ctx, "k")
			if err != nil {
				return nil, err
			}
			return func() { must(c.t, errors.Join(h.Release(), c.s.Close())) }, nil // or it is kept
		}},
	}
	for kind, layout := range map[string]task.Layout{"": task.Locking, " of Curator": task.Plain} {
		o := task.Options{Layout: layout}
		const parts = "^/entries$|^/taken$|^/tries$|^$|^-locks$|^-tries$"
		const all = parts + "|^/entries/|^/queue-|^/tries/|^-tries/"
		put := func(c *visit) {
			_, err := task.New(c.other, c.path, o).Put(c.t.Context(), []byte("x"), task.PutOptions{})
			must(c.t, err)
		}
		list = append(list,
			blocking{name: "task.Queue.Put" + kind, call: func(ctx context.Context, c *visit) (got, error) {
				_, err := task.New(c.s, c.path, o).Put(ctx, []byte("x"), task.PutOptions{})
				return nil, err
			}, stays: all},
			blocking{name: "task.Queue.Take" + kind, call: func(ctx context.Context, c *visit) (got, error) {
				_, err := task.New(c.s, c.path, o).Take(ctx)
				return nil, err
			}, wake: put, stays: all},
			blocking{name: "task.Queue.Claim" + kind, call: func(
				ctx context.Context, c *visit,
			) (got, error) {
				claimed, err := task.New(c.s, c.path, o).Claim(ctx)
				if err != nil {
					return nil, err
				}
				return func() { _ = claimed.Finish() }, nil
			}, wake: put, stays: all},
			blocking{name: "task.Work" + kind, prepare: func(c *visit) got { put(c); put(c); return nil },
				call: func(ctx context.Context, c *visit) (got, error) {
					work := func(context.Context, *task.Task) error { return nil }
					return nil, task.Work(ctx, c, c.path, o, work)
				}, stays: all, outlives: true},
		)
	}
	return list
}

// shut closes what a call that failed has made.
func shut(err error, closer func() error) error {
	if err == nil {
		return nil
	}
	return closer()
}

// inGroup returns a call of a method of a Group.
func inGroup(
	fn func(ctx context.Context, g *group.Group) error,
) func(context.Context, *visit) (got, error) {
	return func(ctx context.Context, c *visit) (got, error) {
		g, err := group.Watch(context.WithoutCancel(ctx), c.s, c.path, group.Options{})
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(fn(ctx, g), g.Close())
	}
}

// Every call ends soon after it is cancelled, or its session has ended, at whatever step. It says
// why, and leaves nothing: no ephemeral, no goroutine, and no container that would stay for ever. A
// call that outlives its sessions goes on with the next one.
func TestRecipes_EndedAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, b := range blockings() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
					c.Tick, c.ContainerCheckInterval, c.Shards = 100*time.Millisecond, time.Second, 1
				}})
				other := ens.Session(1, embed.SessionOptions{})
				var steps []string
				for _, cancelled := range []bool{true, false} {
					for n := int32(1); ; n++ {
						if n > 300 {
							t.Fatal("it has no last step")
						}
						root := fmt.Sprint("/cancelled-", cancelled, "-", n)
						own := ens.Session(1, embed.SessionOptions{})
						c := &visit{t: t, node: ens.Node(1), s: own, other: other, path: root + "/a/b"}
						reached := c.play(&b, n, cancelled)
						steps = append(steps, root)
						if !reached {
							t.Logf("cancelled: %v, %d steps", cancelled, n-1)
							break
						}
					}
				}
				stays := regexp.MustCompile(b.stays)
				if b.stays == "" {
					stays = regexp.MustCompile("^nothing$")
				}
				for _, root := range steps {
					var left []string
					for limit := time.Now().Add(time.Minute); ; {
						if left = leaves(t, other, root, stays); len(left) == 0 || time.Now().After(limit) {
							break
						}
						<-time.After(time.Second)
					}
					if len(left) > 0 {
						t.Errorf("left: %v", left)
					}
				}
			})
		})
	}
}

// walk collects a Walk.
func walk(ctx context.Context, s *embed.Session, path string) (all []embed.Znode, last error) {
	for z, err := range s.Walk(ctx, path) {
		if last = err; err == nil {
			all = append(all, z)
		}
	}
	return all, last
}

// leaves returns the znodes without children at and below a root, except those that may stay.
func leaves(t *testing.T, s *embed.Session, root string, stays *regexp.Regexp) (left []string) {
	t.Helper()
	all, err := walk(t.Context(), s, root)
	if !errors.Is(err, embed.ErrNoNode) {
		must(t, err)
	}
	for _, z := range all {
		rel, below := strings.CutPrefix(z.Path, root+"/a/b")
		if z.Stat.NumChildren == 0 && !(below && stays.MatchString(rel)) {
			left = append(left, z.Path)
		}
	}
	return left
}

// play makes one call, which is cancelled or loses its session at a step. It reports whether the
// call has come that far.
func (c *visit) play(b *blocking, n int32, cancelled bool) (reached bool) {
	t := c.t
	where := fmt.Sprintf("cancelled %v, step %d", cancelled, n)
	var end got
	if b.prepare != nil {
		end = b.prepare(c)
	}
	inner, cancel := context.WithCancel(t.Context())
	ctx := &looker{Context: inner, n: n, do: cancel}
	if !cancelled {
		ctx.do = c.endSessions
	}
	type outcome struct {
		got got
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		g, err := b.call(ctx, c)
		done <- outcome{g, err}
	}()
	var over outcome
	asleep := func(d time.Duration) bool {
		for {
			before := ctx.looks.Load()
			select {
			case over = <-done:
				return false
			case <-time.After(d):
			}
			if b.outlives || ctx.looks.Load() == before {
				return true
			}
		}
	}
	waits := asleep(2 * time.Second)
	reached = ctx.looks.Load() >= n
	if waits && (!reached || b.outlives) && b.wake != nil {
		b.wake(c)
		waits = asleep(2 * time.Second)
		reached = ctx.looks.Load() >= n
	}
	if waits && (!reached || b.outlives) {
		cancel()
	}
	if waits && asleep(20*time.Second) {
		t.Fatalf("%s: it does not end\n%s", where, testkit.Stacks())
	}
	switch err := over.err; {
	case err == nil, errors.Is(err, context.Canceled):
	case !cancelled && errors.Is(err, embed.ErrSessionClosed):
	default:
		t.Errorf("%s: %v", where, err)
	}
	over.got.back()
	end.back()
	cancel()
	if what := c.left(); what != "" {
		t.Errorf("%s: %v, left: %s", where, over.err, what)
	}
	must(t, c.s.Close())
	return reached
}

// left returns what a call has left when it has had some time: ephemerals or goroutines.
func (c *visit) left() string {
	look := func() string {
		all, err := walk(c.t.Context(), c.other, strings.TrimSuffix(c.path, "/a/b"))
		if !errors.Is(err, embed.ErrNoNode) {
			must(c.t, err)
		}
		var owned []string
		for _, z := range all {
			if z.Stat.EphemeralOwner != 0 {
				owned = append(owned, z.Path)
			}
		}
		if len(owned) > 0 {
			return fmt.Sprint(owned)
		}
		return recipesAtWork()
	}
	// A create that is on its way comes before the Sync, and is taken back after it.
	_, _ = c.s.Sync(c.t.Context(), c.path)
	what := look()
	for limit := time.Now().Add(20 * time.Second); what != "" && time.Now().Before(limit); what = look() {
		<-time.After(100 * time.Millisecond)
	}
	return what
}

// recipesAtWork returns the stacks of this bubble's goroutines that are in a recipe.
func recipesAtWork() string {
	buf := make([]byte, 1<<20)
	all := string(buf[:runtime.Stack(buf, true)])
	own, _, _ := strings.Cut(all, "\n")
	_, bubble, _ := strings.Cut(own, "synctest bubble ")
	bubble, _, _ = strings.Cut(bubble, "]")
	var at []string
	for stack := range strings.SplitSeq(all, "\n\n") {
		head, frames, _ := strings.Cut(stack, "\n")
		if strings.Contains(head, "synctest bubble "+bubble+"]") && recipeFrame.MatchString(frames) {
			at = append(at, stack)
		}
	}
	return strings.Join(at, "\n\n")
}

var recipeFrame = regexp.MustCompile(
	`vivarium/embed/(view|value|group|discovery|partition|job|task|barrier|lock|claim)\.`)
