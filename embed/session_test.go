package embed_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A caller that makes its operations in a loop need not know how many there are: a refused
// operation has its index, even if it is the only one. The calls of one operation return the reason
// itself.
func TestMulti_OfOneOperationSaysWhichWasRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.MaxDataSize = 100 }})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/a", "/a/b"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		_, err := s.Create(ctx, "/e", nil, embed.Ephemeral)
		must(t, err)
		create := func(path string, data []byte, mode embed.CreateMode) (embed.Op, func() error) {
			return embed.OpCreate(path, data, mode), func() error { _, err := s.Create(ctx, path, data, mode); return err }
		}
		set := func(path string, version int32) (embed.Op, func() error) {
			return embed.OpSet(path, nil, version), func() error { _, err := s.Set(ctx, path, nil, version); return err }
		}
		remove := func(path string) (embed.Op, func() error) {
			return embed.OpDelete(path, embed.AnyVersion), func() error { return s.Delete(ctx, path, embed.AnyVersion) }
		}
		refused := func(want error) func(embed.Op, func() error) {
			return func(op embed.Op, single func() error) {
				t.Helper()
				_, multi := s.Multi(ctx, op)
				_, submitted := s.Submit(ctx, op).Result()
				for name, err := range map[string]error{"Multi": multi, "Submit": submitted} {
					if at, ok := errors.AsType[*embed.MultiError](err); !ok || at.Index != 0 || !errors.Is(err, want) {
						t.Errorf("%s of one operation: %v, want a MultiError of %v", name, err, want)
					}
				}
				err := single()
				if _, ok := errors.AsType[*embed.MultiError](err); ok || !errors.Is(err, want) {
					t.Errorf("alone: %v, want %v", err, want)
				}
			}
		}
		refused(embed.ErrNoNode)(remove("/none"))
		refused(embed.ErrNodeExists)(create("/a", nil, embed.Persistent))
		refused(embed.ErrBadVersion)(set("/a", 7))
		refused(embed.ErrNotEmpty)(remove("/a"))
		refused(embed.ErrNoChildrenForEphemerals)(create("/e/x", nil, embed.Persistent))
		refused(embed.ErrInvalidPath)(remove("/"))
		refused(embed.ErrInvalidPath)(set("a", embed.AnyVersion))
		refused(embed.ErrInvalidMode)(create("/x", nil, 77))
		refused(embed.ErrTooLarge)(create("/x", make([]byte, 101), embed.Persistent))
		if _, err := s.Multi(ctx, embed.Op{}); err == nil {
			t.Error("the zero Op was accepted")
		}
	})
}

// The text of a refusal names its znode.
func TestRefusalsNameTheZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := embedtest.New(t, 1, embedtest.Options{}).Session(1, embed.SessionOptions{Root: "/service"})
		ctx := bounded(t)
		_, below := s.Create(ctx, "/a/b", nil, embed.Persistent)
		_, multi := s.Multi(ctx, claim.OpGuard(nil), embed.OpDelete("/a/c", embed.AnyVersion))
		_, second := s.Multi(ctx, embed.OpCheck("/", embed.AnyVersion), embed.OpDelete("/a/c", embed.AnyVersion))
		_, invalid := s.Multi(ctx, embed.OpDelete("/a/c", embed.AnyVersion), embed.OpDelete("a/d", embed.AnyVersion))
		for want, err := range map[string]error{
			"create /a/b: its parent: znode does not exist":                            below,
			"multi: operation 0: " + embed.ErrNotHeld.Error() + ": there is no tenure": multi,
			"multi /: operation 0: znode does not exist":                               second,
			`multi a/d: operation 1: invalid path "a/d": does not start with a slash`:  invalid,
		} {
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		if !errors.Is(below, embed.ErrNoNode) {
			t.Error(below)
		}
	})
}

// An error that no operation caused has no index.
func TestMulti_OfOneOperationThatWasNotRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		over, cancel := context.WithCancel(bounded(t))
		cancel()
		_, cancelled := s.Multi(over, embed.OpDelete("/none", embed.AnyVersion))
		must(t, s.Close())
		_, closed := s.Multi(bounded(t), embed.OpDelete("/none", embed.AnyVersion))
		for want, err := range map[error]error{context.Canceled: cancelled, embed.ErrSessionClosed: closed} {
			if _, ok := errors.AsType[*embed.MultiError](err); ok || !errors.Is(err, want) {
				t.Errorf("%v, want %v and no index", err, want)
			}
		}
	})
}

// The outcome of a claim is not known in time. Created says so, and the claim still works.
func TestClaim_CreatedIsBoundedAndCanBeAskedAgain(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 100 * time.Millisecond }})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		ens.Isolate(1)
		made, err := claim.New(context.Background(), s, embed.OpCreate("/claim", nil, embed.Ephemeral))
		must(t, err)
		for range 2 {
			if _, err := made.Created(context.Background()); !errors.Is(err, embed.ErrUnknownOutcome) {
				t.Errorf("Created: %v", err)
			}
		}
		over, cancel := context.WithCancel(bounded(t))
		cancel()
		if _, err := made.Created(over); !errors.Is(err, context.Canceled) {
			t.Errorf("Created with a ctx that is over: %v", err)
		}
		ens.HealAll()
		results, err := made.Created(bounded(t))
		must(t, err)
		if path := results[0].Path; path != "/claim" {
			t.Errorf("created %s", path)
		}
		_, err = made.Hold(false)
		must(t, err)
		_ = made.Release() // may time out here; the node keeps trying
		until(t, "the claim's znode to go", func() bool {
			_, there, err := s.Exists(bounded(t), "/claim")
			must(t, err)
			return !there
		})
	})
}

// Flush works before the outcome of a claim is known.
func TestClaim_IsFlushedWhileItIsOnItsWay(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := embedtest.New(t, 1, embedtest.Options{}).Session(1, embed.SessionOptions{})
		for range 20 {
			c, err := claim.New(bounded(t), s, embed.OpCreate("/x-", nil, embed.EphemeralSequential))
			must(t, err)
			must(t, c.Flush())
			_, err = c.Hold(false)
			must(t, errors.Join(err, c.Release()))
		}
		refused, err := claim.New(bounded(t), s, embed.OpCreate("/no/such", nil, embed.Ephemeral))
		must(t, err)
		if err := refused.Flush(); err != nil && !errors.Is(err, embed.ErrNoNode) {
			t.Error(err)
		}
	})
}

// Only the session of a claim gives it up in a transaction. Other sessions that try change nothing.
func TestClaim_IsGivenUpByItsSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 2, embedtest.Options{})
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(2, embed.SessionOptions{})
		c, err := claim.New(bounded(t), s, embed.OpCreate("/y", nil, embed.Ephemeral))
		must(t, err)
		_, err = c.Created(bounded(t))
		must(t, err)
		released := make(chan error)
		go func() { released <- c.Release() }()
		if _, err := other.Multi(bounded(t), claim.OpRelease(c)); !errors.Is(err, embed.ErrNotHeld) {
			t.Errorf("another's session: %v", err)
		}
		must(t, <-released)
	})
}

// A zero claim or tenure has ended: its methods do no harm, and a Multi that is guarded by it or
// releases it is refused.
func TestClaim_ThatNeverWas(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		var c claim.Claim
		var tenure claim.Tenure
		_, created := c.Created(ctx)
		_, held := c.Hold(false)
		for name, err := range map[string]error{
			"Created": created, "Hold": held, "Err": c.Err(), "the tenure": tenure.Err(), "its context": context.Cause(tenure.Context()),
		} {
			if !errors.Is(err, embed.ErrNotHeld) {
				t.Errorf("%s: %v", name, err)
			}
		}
		<-c.Done()
		<-tenure.Done()
		tenure.End()
		must(t, errors.Join(c.Flush(), c.Release()))
		for name, op := range map[string]embed.Op{
			"the zero tenure": claim.OpGuard(&tenure), "no tenure": claim.OpGuard(nil), "the zero claim": claim.OpRelease(&c), "no claim": claim.OpRelease(nil),
		} {
			var refused *embed.MultiError
			_, err := s.Multi(ctx, embed.OpCreate("/x", nil, embed.Persistent), op)
			if !errors.Is(err, embed.ErrNotHeld) || !errors.As(err, &refused) || refused.Index != 1 {
				t.Errorf("with %s: %v", name, err)
			}
			if _, err := s.Submit(ctx, op).Result(); !errors.Is(err, embed.ErrNotHeld) {
				t.Errorf("submitted with %s: %v", name, err)
			}
		}
		if _, ok, err := s.Exists(ctx, "/x"); ok || err != nil {
			t.Errorf("done all the same: %v, %v", ok, err)
		}
	})
}

// While a Lock creates the znodes above its own, the disk stands still for longer than a call may
// take. Lock waits.
func TestLock_OutwaitsASlowDiskAlsoWhereItsPathIsNew(t *testing.T) {
	t.Parallel()
	g := embedkit.NewGate()
	ens := embedtest.New(t, 1, embedtest.Options{
		Config: func(c *embed.Config) {
			c.RequestTimeout, c.Inside = 100*time.Millisecond, &inside.Seams{Fault: g.Ask}
		},
	})
	defer g.Set(false) // or Close would wait for the sync
	s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	// From here on the shard knows the session.
	if err := s.Delete(bounded(t), "/new", embed.AnyVersion); !errors.Is(err, embed.ErrNoNode) {
		t.Error(err)
	}
	g.Set(true)
	granted := make(chan error)
	go func() {
		_, err := lock.NewMutex(s, "/new/lock").Lock(context.Background())
		granted <- err
	}()
	g.Await()
	g.Pass() // the contender's znode is refused, because it has no parent
	for range 5 {
		if _, err := s.Set(context.Background(), "/new", nil, embed.AnyVersion); !errors.Is(err, embed.ErrUnknownOutcome) && !errors.Is(err, embed.ErrUnavailable) {
			t.Errorf("Set: %v", err)
		}
	}
	g.Set(false)
	must(t, <-granted)
}

// A failed Sync returns no zxid, because it has shown nothing.
func TestSync_ThatFailsSaysNothing(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(bounded(t), "/x", nil, embed.Persistent)
		must(t, err)
		ens.Isolate(1)
		ctx, cancel := context.WithTimeout(bounded(t), 10*embedtest.DefaultTick)
		defer cancel()
		for _, path := range []string{"/", "/x"} {
			if z, err := s.Sync(ctx, path); err == nil || z != 0 {
				t.Errorf("a Sync without a quorum: %d, %v", z, err)
			}
		}
	})
}
