package client_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
)

// A wait is a call that lasts as long as its ctx.
type wait func(ctx context.Context, s *embed.Session) error

// waits are those of the recipes. None ends while another session has what they want: see occupy.
var waits = map[string]wait{
	"Gate.Wait": func(ctx context.Context, s *embed.Session) error { return barrier.NewGate(s, "/gate").Wait(ctx) },
	"Countdown.Wait": func(ctx context.Context, s *embed.Session) error {
		return barrier.NewCountdown(s, "/work", 2).Wait(ctx)
	},
	"Enter": second(func(ctx context.Context, s *embed.Session) (*barrier.Pass, error) {
		return barrier.Enter(ctx, s, "/b", 2)
	}),
	"Mutex": second(func(ctx context.Context, s *embed.Session) (*lock.Hold, error) {
		return lock.NewMutex(s, "/locks/a").Lock(ctx)
	}),
	"RWMutex": second(func(ctx context.Context, s *embed.Session) (*lock.Hold, error) {
		return lock.NewRWMutex(s, "/locks/a").RLock(ctx)
	}),
	"Semaphore": second(func(ctx context.Context, s *embed.Session) (*lock.Hold, error) {
		return lock.NewSemaphore(s, "/locks/s", 1).Acquire(ctx, 1)
	}),
	"Multi": second(func(ctx context.Context, s *embed.Session) (*lock.Hold, error) {
		return lock.NewMulti(s, "/locks/b", "/locks/a").Lock(ctx)
	}),
	"Mutex, with an Identity": second(func(ctx context.Context, s *embed.Session) (*lock.Hold, error) {
		return lock.NewMutex(s, "/locks/a").With(lock.Options{Delay: time.Minute, Identity: "me"}).Lock(ctx)
	}),
	"Take": second(func(ctx context.Context, s *embed.Session) ([]byte, error) {
		return task.New(s, "/tasks", task.Options{}).Take(ctx)
	}),
	"Campaign": second(func(ctx context.Context, s *embed.Session) (*election.Leadership, error) {
		return election.New(s, "/e").Campaign(ctx, nil)
	}),
	"Candidate.Wait": func(ctx context.Context, s *embed.Session) error {
		c, err := election.New(s, "/e").Enter(ctx, nil, election.Options{Priority: 1})
		if err == nil {
			_, err = c.Wait(ctx)
		}
		return err
	},
	"TakeNumber": second(func(ctx context.Context, s *embed.Session) (*value.Number, error) {
		return value.TakeNumber(ctx, s, "/n", 1, value.NumberOptions{})
	}),
	"AwaitApplied": func(ctx context.Context, s *embed.Session) error {
		z, err := s.Sync(ctx, "/v")                // the member has joined before
		for errors.Is(err, embed.ErrUnavailable) { // which this test's network may be the reason of
			<-time.After(time.Second)
			z, err = s.Sync(ctx, "/v")
		}
		if err == nil {
			_, err = group.AwaitApplied(ctx, s, "/v", z)
		}
		return err
	},
	"Observe": func(ctx context.Context, s *embed.Session) error {
		for _, err := range election.New(s, "/e").Observe(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// second returns a wait that drops what it waits for.
func second[T any](call func(ctx context.Context, s *embed.Session) (T, error)) wait {
	return func(ctx context.Context, s *embed.Session) error {
		_, err := call(ctx, s)
		return err
	}
}

// occupy takes what the waits want.
func occupy(ctx context.Context, t *testing.T, s *embed.Session) {
	t.Helper()
	must(t, barrier.NewGate(s, "/gate").Shut(ctx))
	must(t, barrier.NewCountdown(s, "/work", 2).Done(ctx, "a"))
	_, err := lock.NewRWMutex(s, "/locks/a").Lock(ctx)
	must(t, err)
	_, err = lock.NewSemaphore(s, "/locks/s", 1).Acquire(ctx, 1)
	must(t, err)
	_, err = election.New(s, "/e").Campaign(ctx, nil)
	must(t, err)
	_, err = value.TakeNumber(ctx, s, "/n", 1, value.NumberOptions{})
	must(t, err)
	_, _, err = s.CreateWith(ctx, "/v/members/a", nil, embed.CreateOptions{Parents: true})
	must(t, err)
}

// M143: when a client's connection is back, the session's queue is full, and a recipe that waits has
// to look again. A refusal that passes does not end its wait.
func TestWaits_BesideAFullQueue(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty thousand callers take minutes under the race detector")
	}
	for name, call := range waits {
		onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
			t := w.t
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			occupy(ctx, t, writer)
			ended := make(chan error, 1)
			go func() { ended <- cmp.Or(call(ctx, s), errNoWait) }()
			<-time.After(3 * time.Second)
			o.begin()
			fill(ctx, s)
			o.end()
			<-time.After(5 * time.Second)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v; the session: %v", name, err, s.Err())
			}
		})
	}
}

var errNoWait = errors.New("it did not wait")

// M143: reads wait for room beside a full queue, and get their answers, in order and within the
// bounds. Their callers may give up, and the session may end.
func TestReads_BesideAFullQueue(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty thousand callers take minutes under the race detector")
	}
	onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
		t := w.t
		must(t, w.put(writer, "/a", "1"))
		read := func(ctx context.Context, n int) <-chan error {
			results := make(chan error, n)
			for range n {
				go func() { _, _, err := s.Get(ctx, "/a"); results <- err }()
			}
			synctest.Wait()
			return results
		}
		fullOf := func() (short context.Context, end func(), given, kept <-chan error) {
			o.begin()
			synctest.Wait()
			fill(t.Context(), s)
			short, end = context.WithCancel(t.Context())
			return short, end, read(short, 20_000), read(t.Context(), 20_000)
		}
		_, end, given, kept := fullOf()
		end()
		for range 20_000 {
			if err := <-given; !errors.Is(err, context.Canceled) {
				t.Fatalf("a read that was given up: %v", err)
			}
		}
		o.end()
		for range 20_000 {
			must(t, <-kept)
		}
		_, end, given, kept = fullOf()
		defer end()
		go s.Close()
		for range 20_000 {
			for _, results := range []<-chan error{given, kept} {
				if err := <-results; !errors.Is(err, embed.ErrSessionClosed) {
					t.Fatalf("a read of a session that is closed: %v", err)
				}
			}
		}
	})
}

// M159: more callers read over a client's connection, again and again, than the session has room for.
// Calls that last as long as their ctx, and have to write or Sync, come through beside them. No other
// write is refused either.
func TestWrites_BesideReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("ten thousand callers take minutes under the race detector")
	}
	writes := map[string]wait{
		"Gate.Wait": waits["Gate.Wait"], "Mutex": waits["Mutex"], "Semaphore": waits["Semaphore"],
		"Campaign": waits["Campaign"], "TakeNumber": waits["TakeNumber"],
		"Multi": second(func(ctx context.Context, s *embed.Session) (*lock.Hold, error) {
			return lock.NewMulti(s, "/locks/b", "/locks/c").Lock(ctx)
		}),
		"Enter": second(func(ctx context.Context, s *embed.Session) (*barrier.Pass, error) {
			return barrier.Enter(ctx, s, "/b", 1)
		}),
		"Sync": second(func(ctx context.Context, s *embed.Session) (embed.Zxid, error) {
			return s.Sync(ctx, "/a")
		}),
		"Put": second(func(ctx context.Context, s *embed.Session) (embed.Stat, error) {
			return s.Put(ctx, "/p", nil)
		}),
	}
	virtually(t, func(w *world) {
		t := w.t
		k := w.client(func(c *client.Config) {
			c.SessionTimeout = 30 * time.Second
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				return slow{conn, 20 * time.Millisecond}, err
			}
		})
		defer k.Close()
		must(t, w.put(w.session(embed.SessionOptions{}), "/a", "1"))
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		for range 10_200 {
			readers.Go(func() {
				var err error
				for err == nil {
					_, _, err = s.Get(ctx, "/a")
				}
				if ctx.Err() == nil {
					t.Errorf("a read: %v", err)
				}
			})
		}
		<-time.After(3 * time.Second)
		for name, call := range writes {
			bounded, end := context.WithTimeout(t.Context(), time.Minute)
			if err := call(bounded, s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			end()
		}
		cancel()
		readers.Wait()
	})
}

// A slow connection delivers what it reads late.
type slow struct {
	net.Conn
	by time.Duration
}

func (c slow) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(c.by)
	return n, err
}

// M144: a gate is opened and shut again after the ensemble has heard of the one who waits, and before
// that one has looked.
func TestGate_OpenBeforeTheFirstLook(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		k := w.client(func(c *client.Config) {
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				return slow{conn, 200 * time.Millisecond}, err
			}
		})
		defer k.Close()
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		theirs := barrier.NewGate(w.session(embed.SessionOptions{}), "/gate")
		must(t, theirs.Shut(t.Context()))
		<-time.After(10 * time.Second)
		var over atomic.Bool
		go func() {
			if err := barrier.NewGate(s, "/gate").Wait(t.Context()); err != nil {
				t.Errorf("the wait: %v", err)
			}
			over.Store(true)
		}()
		<-time.After(100 * time.Millisecond)
		must(t, theirs.Open(t.Context()))
		must(t, theirs.Shut(t.Context()))
		w.ens.Until("the end of the wait", over.Load)
	})
}

// M157: the last name of a countdown is done soon after the call of Wait, and all is deleted before that
// one has looked. The next round may have begun by then.
func TestCountdown_DoneBeforeTheFirstLook(t *testing.T) {
	for _, after := range []time.Duration{10, 100, 300, 500, 700} {
		for _, next := range []bool{false, true} {
			virtually(t, func(w *world) { doneBeforeTheFirstLook(w, after*time.Millisecond, next) })
		}
	}
}

func doneBeforeTheFirstLook(w *world, after time.Duration, next bool) {
	t, ctx := w.t, w.t.Context()
	k := w.client(func(c *client.Config) {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := w.dial(ctx, address)
			return slow{conn, 200 * time.Millisecond}, err
		}
	})
	defer k.Close()
	s, err := k.NewSession(ctx, embed.SessionOptions{})
	must(t, err)
	other := w.session(embed.SessionOptions{})
	theirs := barrier.NewCountdown(other, "/work", 2)
	must(t, theirs.Done(ctx, "a"))
	<-time.After(10 * time.Second)
	ended := make(chan error, 1)
	go func() { ended <- barrier.NewCountdown(s, "/work", 2).Wait(ctx) }()
	<-time.After(after)
	must(t, theirs.Done(ctx, "b"))
	for _, path := range []string{"/work/a", "/work/b", "/work"} {
		must(t, other.Delete(ctx, path, embed.AnyVersion))
	}
	if next {
		must(t, barrier.NewCountdown(other, "/work", 5).Done(ctx, "x"))
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("done after %v, a next round: %v: %v", after, next, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("done after %v, a next round: %v: it still waits", after, next)
	}
}
