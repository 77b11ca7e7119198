package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() { shardsflag.Define() }

var (
	must    = testkit.Must
	bounded = testkit.Context
)

func TestEnsemble_StopKillRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ens := embedtest.New(t, 3, embedtest.Options{Dir: dir, Config: embedkit.Patient})
	s := ens.Session(1, embed.SessionOptions{})
	_, err := s.Create(t.Context(), "/a", nil, embed.Persistent)
	must(t, err)
	if got, want := ens.Dir(2), filepath.Join(dir, "member-2"); got != want {
		t.Errorf("directory %s, want %s", got, want)
	}
	if _, err := ens.TryStart(2); err == nil {
		t.Error("member 2 runs twice")
	}
	must(t, ens.Snapshot(2))
	ens.Stop(2)
	ens.Kill(ens.Leader())
	for _, id := range ens.Members() {
		if n, err := ens.TryStart(id); err == nil {
			must(t, n.Ready(t.Context()))
		}
	}
	for _, id := range ens.Members() {
		if _, ok, err := ens.Session(id, embed.SessionOptions{}).Exists(t.Context(), "/a"); !ok || err != nil {
			t.Errorf("member %d: /a exists: %v, %v", id, ok, err)
		}
	}
}

// Two followers that cannot reach each other serve as before, because they need only their leader.
// A follower that reaches nobody does not serve.
func TestEnsemble_Links(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(3)
		ens.Cut(1, 2)
		for _, id := range ens.Members() {
			_, err := ens.Session(id, embed.SessionOptions{}).Create(t.Context(), "/job-", nil, embed.Sequential)
			must(t, err)
		}
		ens.Cut(1, 3)
		ctx, cancel := context.WithTimeout(t.Context(), 20*embedtest.DefaultTick)
		defer cancel()
		if _, err := ens.Node(1).NewSession(ctx, embed.SessionOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a session on a member that is cut off: %v", err)
		}
		ens.Heal(1, 3)
		ens.Session(1, embed.SessionOptions{})
		ens.Heal(1, 2)
		ens.Isolate(3)
		ens.Until("another to lead", func() bool { return ens.Leader() != 3 })
		ens.HealAll()
		ens.Ready(3)
	})
}

// A service's own test may look like this: its leader is cut off, and another replica leads.
func TestEnsemble_AnotherReplicaLeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.MaxSessionTimeout = time.Second }})
		took := make(chan embed.MemberID, 3)
		for _, id := range ens.Members() {
			n := ens.Node(id)
			go lock.Do(t.Context(), n, "/work", func(ctx context.Context, _ lock.Token) error {
				took <- id
				<-ctx.Done()
				return nil
			})
		}
		first := <-took
		ens.Isolate(first)
		if second := <-took; second == first {
			t.Errorf("member %d took over from itself", first)
		}
		ens.HealAll()
	})
}

// A failing is a test that records its fatal errors. Fatalf ends the goroutine, as testing's does.
type failing struct {
	testing.TB
	fatal atomic.Int32
	last  atomic.Value // the text of the last one
}

func (f *failing) Fatalf(format string, args ...any) {
	f.fatal.Add(1)
	f.last.Store(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// While a member starts on a slow disk, the others can be used, and the disk can be mended.
func TestEnsemble_StartOnASlowDisk(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		begun := make(chan struct{})
		again := false
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			if c.ID == 3 && again {
				close(begun)
			}
		}})
		ens.Stop(3)
		again = true
		ens.Faults(3).SetDisk(embedtest.Disk{Delay: time.Hour})
		started := make(chan error)
		go func() {
			_, err := ens.TryStart(3)
			started <- err
		}()
		<-begun
		ens.Ready(1)
		ens.Faults(3).SetDisk(embedtest.Disk{})
		must(t, <-started)
		ens.Ready(3)
	})
}

// Several goroutines end a member at once. One succeeds; the others learn that it is not running.
func TestEnsemble_StopAndKillAtOnce(t *testing.T) {
	f := &failing{TB: t}
	ens := embedtest.New(f, 1, embedtest.Options{})
	for name, end := range map[string]func(embed.MemberID){"Stop": ens.Stop, "Kill": ens.Kill} {
		f.fatal.Store(0)
		var wg sync.WaitGroup
		together := make(chan struct{})
		for range 32 {
			wg.Go(func() {
				<-together
				end(1)
			})
		}
		close(together)
		wg.Wait()
		if n := f.fatal.Load(); n != 31 {
			t.Errorf("%s: %d of 32 were told that it is not running", name, n)
		}
		ens.Restart(1)
	}
}

// A session that owns more than the portion ends in several transactions.
func TestOptions_EndPortion(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		for portion, want := range map[int]int{0: 1, 3: 3} {
			ens := embedtest.New(t, 1, embedtest.Options{EndPortion: portion, Config: func(c *embed.Config) { c.Shards = 1 }})
			s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
			w, err := other.Watch(t.Context(), "/", embed.WatchRecursive)
			must(t, err)
			const owned = 8
			for i := range owned {
				_, err := s.Create(t.Context(), fmt.Sprint("/", i), nil, embed.Ephemeral)
				must(t, err)
			}
			must(t, s.Close())
			ended := make(map[embed.Zxid]int)
			for n := 0; n < owned; {
				e, ok := <-w.Events()
				if !ok {
					t.Fatal(w.Err())
				}
				if e.Type == embed.NodeDeleted {
					ended[e.Zxid]++
					n++
				}
			}
			if len(ended) != want {
				t.Errorf("portion %d: %d znodes ended in the transactions %v, want %d of them", portion, owned, ended, want)
			}
		}
	})
}

// A member that lags by more than the log keeps installs a snapshot, so its watches have a gap.
func TestOptions_KeepEntries(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{KeepEntries: 5})
		s, away := ens.Session(1, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(t.Context(), "/z", nil, embed.Persistent)
		must(t, err)
		_, err = away.Sync(t.Context(), "/z")
		must(t, err)
		w, err := away.Watch(t.Context(), "/z", embed.WatchPersistent)
		must(t, err)
		ens.Until("a gap", func() bool {
			ens.TransferLeadership(1)
			ens.Isolate(3)
			for range 20 {
				_, err := s.Set(t.Context(), "/z", nil, embed.AnyVersion)
				must(t, err)
			}
			for _, id := range []embed.MemberID{1, 2} {
				must(t, ens.Snapshot(id)) // it does not wait, so the log may be cut too late for this round
			}
			ens.HealAll()
			_, err = away.Sync(t.Context(), "/z")
			must(t, err)
			for {
				select {
				case _, ok := <-w.Events():
					if ok {
						continue
					}
				default:
				}
				break
			}
			return errors.Is(w.Err(), embed.ErrWatchGap)
		})
		ens.Kill(3)
		if err := ens.Snapshot(3); err == nil {
			t.Error("a dead member makes a snapshot")
		}
	})
}

// Files shows the files of a member, on its disk in memory or on a real one.
func TestEnsemble_Files(t *testing.T) {
	show := func(t *testing.T, dir string) {
		ens := embedtest.New(t, 1, embedtest.Options{Dir: dir})
		before, err := ens.Files(1)
		must(t, err)
		for _, name := range []string{"identity", "raft", "image"} {
			below, found := filepath.Join(ens.Dir(1), name), false
			for file, size := range before {
				found = found || size > 0 && strings.HasPrefix(file, below)
			}
			if !found {
				t.Errorf("nothing in %s: %v", below, before)
			}
		}
		ens.Kill(1)
		must(t, ens.Rename(1, ens.Dir(1), ens.Dir(1)+".taken"))
		if after, err := ens.Files(1); err != nil || len(after) > 0 {
			t.Errorf("%v, %v without a directory", after, err)
		}
	}
	show(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) { show(t, "") })
}

// Rename moves a file of a member, on its disk in memory or on a real one.
func TestEnsemble_Rename(t *testing.T) {
	test := func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: embedkit.Patient})
		_, err := ens.Session(1, embed.SessionOptions{}).Create(t.Context(), "/z", nil, embed.Persistent)
		must(t, err)
		ens.Kill(1)
		log := filepath.Join(ens.Dir(1), "raft")
		must(t, ens.Rename(1, log, log+".taken"))
		if err := ens.Rename(1, log, log+".taken"); err == nil {
			t.Error("the log was moved away twice")
		}
		must(t, ens.Rename(1, log+".taken", log))
		ens.Restart(1)
		_, _, err = ens.Session(1, embed.SessionOptions{}).Get(t.Context(), "/z")
		must(t, err)
	}
	test(t)
	synctest.Test(t, test)
}
