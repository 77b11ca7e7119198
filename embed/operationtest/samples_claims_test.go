package operationtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
)

// claimValues are all values of holds and waiters, with some of them set.
func claimValues(set map[string]float64) map[string]float64 {
	all := make(map[string]float64)
	for _, kind := range []string{"mutex", "read", "write", "semaphore", "election"} {
		all["holds "+kind], all["waiters "+kind] = 0, 0
	}
	all["holds task"], all["holds other"] = 0, 0
	for key, v := range set {
		all[key] = v
	}
	return all
}

// A waiting is a call that waits until it is cancelled.
type waiting struct {
	cancel context.CancelFunc
	done   chan error
}

func begin(ctx context.Context, call func(context.Context) error) waiting {
	ctx, cancel := context.WithCancel(ctx)
	w := waiting{cancel, make(chan error, 1)}
	go func() { w.done <- call(ctx) }()
	return w
}

// end cancels the call and waits for it.
func (w waiting) end(t *testing.T) {
	t.Helper()
	w.cancel()
	if err := <-w.done; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that was cancelled returned %v", err)
	}
}

// Holds and waiters are counted by kind, on the node whose sessions hold and wait, and are gone when
// their calls are.
func TestSamples_HoldsAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 3, embedtest.Options{})
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(2, embed.SessionOptions{})
		mutex, rw := lock.NewMutex(s, "/mutex"), lock.NewRWMutex(s, "/rw")
		sem := lock.NewSemaphore(s, "/sem", 2)
		var release []func() error
		hold := func(h *lock.Hold, err error) {
			t.Helper()
			must(t, err)
			release = append(release, h.Release)
		}
		hold(mutex.Lock(ctx))
		hold(lock.NewMulti(s, "/multi/a", "/multi/b").Lock(ctx)) // counts once
		hold(rw.RLock(ctx))
		hold(rw.RLock(ctx))
		hold(sem.Acquire(ctx, 2)) // counts once
		leads, err := election.New(s, "/election").Campaign(ctx, nil)
		must(t, err)
		release = append(release, leads.Resign)
		q := task.New(s, "/tasks", task.Options{})
		_, err = q.Put(ctx, nil, task.PutOptions{})
		must(t, err)
		job, err := q.Claim(ctx)
		must(t, err)
		release = append(release, func() error { return job.Finish() })
		own, err := claim.New(ctx, s, embed.OpCreate("/own", nil, embed.Ephemeral))
		must(t, err)
		_, err = own.Created(ctx)
		must(t, err)
		_, err = own.Hold(false)
		must(t, err)
		release = append(release, own.Release)
		member := group.Join(ens.Node(1), "/group", "me", nil, group.Options{}) // it stands, and never waits
		release = append(release, member.Close)

		wait := func(call func(context.Context) (*lock.Hold, error)) waiting {
			return begin(ctx, func(ctx context.Context) error { _, err := call(ctx); return err })
		}
		held := map[string]float64{
			"holds mutex": 2, "holds read": 2, "holds semaphore": 1,
			"holds election": 1, "holds task": 1, "holds other": 1,
		}
		writer := map[string]float64{"waiters write": 1}
		maps.Copy(writer, held)
		waits := []waiting{wait(rw.Lock)}
		settle(t, ens, 1, claimValues(writer)) // before the reader, which would overtake it
		waits = append(waits,
			wait(mutex.Lock), wait(mutex.Lock), wait(rw.RLock),
			wait(func(ctx context.Context) (*lock.Hold, error) { return sem.Acquire(ctx, 1) }),
			wait(func(ctx context.Context) (*lock.Hold, error) { return sem.Acquire(ctx, 1) }),
			begin(ctx, func(ctx context.Context) error {
				_, err := election.New(s, "/election").Campaign(ctx, nil)
				return err
			}))
		elsewhere := wait(lock.NewMutex(other, "/mutex").Lock)
		queued := map[string]float64{
			"waiters mutex": 2, "waiters write": 1, "waiters read": 1,
			"waiters semaphore": 2, "waiters election": 1,
		}
		maps.Copy(queued, held)
		settle(t, ens, 1, claimValues(queued))
		settle(t, ens, 2, claimValues(map[string]float64{"waiters mutex": 1}))
		settle(t, ens, 3, claimValues(nil))
		elsewhere.end(t)
		for _, w := range slices.Backward(waits) { // the writer last, for it keeps the reader out
			w.end(t)
		}
		settle(t, ens, 1, claimValues(held))
		settle(t, ens, 2, claimValues(nil))
		for _, end := range release {
			must(t, end())
		}
		settle(t, ens, 1, claimValues(nil))
	})
}

// settle waits until a member's metrics have values.
func settle(t *testing.T, ens *embedtest.Ensemble, id embed.MemberID, want map[string]float64) {
	t.Helper()
	var found map[string]float64
	for range 100 {
		synctest.Wait()
		found = values(t, ens.Node(id))
		same := true
		for key, v := range want {
			got, ok := found[key]
			same = same && ok && got == v
		}
		if same {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	wantValues(t, found, want)
}

// Callers that wait inside the process for a lock that it keeps count too. The kept lock itself is
// neither held nor waits while nobody has a Hold.
func TestSamples_HoldsAndWaitersOfAKeptLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 1, embedtest.Options{})
		s, keep := ens.Session(1, embed.SessionOptions{}), lock.Options{Keep: time.Minute}
		m := lock.NewMutex(s, "/mutex").With(keep)
		hold, err := m.Lock(ctx)
		must(t, err)
		call := func(ctx context.Context) error { _, err := m.Lock(ctx); return err }
		first := begin(ctx, call)
		settle(t, ens, 1, claimValues(map[string]float64{"holds mutex": 1, "waiters mutex": 1}))
		second := begin(ctx, call)
		settle(t, ens, 1, claimValues(map[string]float64{"holds mutex": 1, "waiters mutex": 2}))
		second.end(t)
		settle(t, ens, 1, claimValues(map[string]float64{"holds mutex": 1, "waiters mutex": 1}))
		must(t, hold.Release())
		must(t, <-first.done) // it has the lock until the test ends
		settle(t, ens, 1, claimValues(map[string]float64{"holds mutex": 1}))

		idle := lock.NewMutex(s, "/idle").With(keep)
		hold, err = idle.Lock(ctx)
		must(t, err)
		must(t, hold.Release()) // and the lock is kept
		settle(t, ens, 1, claimValues(map[string]float64{"holds mutex": 1}))
	})
}

// What a session holds and waits for is not counted after the session was lost.
func TestSamples_HoldsAndWaitersOfALostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 3, embedtest.Options{})
		id := ens.Leader()%3 + 1
		s := ens.Session(id, embed.SessionOptions{})
		_, err := lock.NewMutex(s, "/held").Lock(ctx)
		must(t, err)
		other := ens.Session(ens.Leader(), embed.SessionOptions{})
		_, err = lock.NewMutex(other, "/wanted").Lock(ctx)
		must(t, err)
		wanted := lock.NewMutex(s, "/wanted")
		w := begin(ctx, func(ctx context.Context) error { _, err := wanted.Lock(ctx); return err })
		settle(t, ens, id, claimValues(map[string]float64{"holds mutex": 1, "waiters mutex": 1}))
		ens.Isolate(id)
		ens.Until("the session to be suspended", func() bool { now, _ := s.State(); return now == embed.Suspended })
		settle(t, ens, id, claimValues(map[string]float64{"waiters mutex": 1})) // it may yet go on
		<-s.Done()
		settle(t, ens, id, claimValues(nil))
		if err := <-w.done; !errors.Is(err, embed.ErrSessionExpired) {
			t.Errorf("the waiter got %v", err)
		}
	})
}
