package promisetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/engine/offline"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// lingerers starts an ensemble of three members that reap often. A session of member 2 has two
// ephemerals on each shard: one that lingers and one that does not.
func lingerers(t *testing.T, dir string, shards int, timeout time.Duration) (*embedtest.Ensemble, *embed.Session, []string) {
	t.Helper()
	ens := embedtest.New(t, 3, embedtest.Options{
		Dir:    dir,
		Config: func(c *embed.Config) { c.Shards, c.ContainerCheckInterval = shards, c.Tick },
	})
	ctx := bounded(t)
	s := ens.Session(2, embed.SessionOptions{Timeout: timeout})
	paths := embedkit.OnShard[:shards]
	for _, path := range paths {
		_, err := s.Create(ctx, path, nil, embed.Persistent)
		must(t, err)
		_, _, err = s.CreateWith(ctx, path+"/e", []byte("mine"), embed.CreateOptions{Mode: embed.Ephemeral, TTL: time.Hour})
		must(t, err)
		_, err = s.Create(ctx, path+"/plain", nil, embed.Ephemeral)
		must(t, err)
	}
	return ens, s, paths
}

// On every shard, a session's lingering ephemerals stay if the session is lost, and go if it is
// closed. Watches tell of that, everyone sees a znode without an owner, and it is reaped in time.
func TestLinger(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		lost    bool
		end     func(t *testing.T, ens *embedtest.Ensemble, s *embed.Session)
	}{
		"its member is cut off": {embedkit.LivesAWhile, true, func(t *testing.T, ens *embedtest.Ensemble, s *embed.Session) { ens.Isolate(2) }},
		"its member is killed":  {embedkit.LivesAWhile, true, func(t *testing.T, ens *embedtest.Ensemble, s *embed.Session) { ens.Kill(2) }},
		"its member is killed and starts again": {time.Minute, true, func(t *testing.T, ens *embedtest.Ensemble, s *embed.Session) {
			ens.Kill(2)
			ens.Restart(2)
		}},
		"it is closed": {time.Minute, false, func(t *testing.T, ens *embedtest.Ensemble, s *embed.Session) { must(t, s.Close()) }},
		"its member shuts down": {time.Minute, false, func(t *testing.T, ens *embedtest.Ensemble, s *embed.Session) {
			must(t, ens.Node(2).Shutdown(bounded(t)))
		}},
	} {
		for _, shards := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, %d shards", name, shards), func(t *testing.T) {
				t.Parallel()
				testkit.Bubble(t, func(t *testing.T) {
					ens, s, paths := lingerers(t, "", shards, c.timeout)
					ctx := bounded(t)
					other := ens.Session(1, embed.SessionOptions{})
					var watches []*embed.Watch
					for _, path := range paths {
						_, err := other.Sync(ctx, path)
						must(t, err)
						w, err := other.Watch(ctx, path+"/e", embed.WatchPersistent)
						must(t, err)
						watches = append(watches, w)
					}
					if m, err := other.Member(ctx, s.ID()); m != 2 || err != nil {
						t.Errorf("session %d is of member %d, %v", s.ID(), m, err)
					}
					c.end(t, ens, s)
					for i, path := range paths {
						want := embed.NodeDeleted
						if c.lost {
							want = embed.NodeDataChanged
						}
						select {
						case e := <-watches[i].Events():
							if e.Type != want {
								t.Fatalf("%s: %v, want %v", path, e, want)
							}
						case <-ctx.Done():
							t.Fatalf("%s: nothing happens", path)
						}
						data, stat, err := other.Get(ctx, path+"/e")
						if !c.lost {
							embedkit.Wants(t, path, err, embed.ErrNoNode)
							continue
						}
						if err != nil || string(data) != "mine" || stat.EphemeralOwner != 0 || stat.Version != 1 || time.Since(stat.Mtime).Abs() > time.Hour {
							t.Errorf("%s lingers as %q %+v, %v", path, data, stat, err)
						}
						if _, is, err := other.Exists(ctx, path+"/plain"); is || err != nil {
							t.Errorf("%s: what is not to linger is there: %v, %v", path, is, err)
						}
					}
					if _, err := other.Member(ctx, s.ID()); !errors.Is(err, embed.ErrNoSession) {
						t.Errorf("the member of a session that has ended: %v", err)
					}
				})
			})
		}
	}
}

// A lingering znode goes when its time is over, not before. A member that was away learns of it,
// and all directories stay in order.
func TestLinger_IsReaped(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, s, paths := lingerers(t, t.TempDir(), 4, time.Minute) // offline.Check reads real directories
		ctx := bounded(t)
		other := ens.Session(1, embed.SessionOptions{})
		for _, path := range paths {
			_, _, err := s.CreateWith(ctx, path+"/short", nil, embed.CreateOptions{Mode: embed.EphemeralSequential, TTL: 20 * time.Millisecond})
			must(t, err)
		}
		ens.Stop(3)
		ens.Kill(2)
		ens.Start(2)
		ens.Ready(2)
		for _, path := range paths {
			ens.Until("the short one to be reaped", func() bool {
				names, _, err := other.Children(ctx, path)
				must(t, err)
				return len(names) == 1 && names[0] == "e"
			})
		}
		must(t, ens.Snapshot(1))
		ens.Start(3)
		ens.Ready(3)
		third := ens.Session(3, embed.SessionOptions{})
		for _, path := range paths {
			_, err := third.Sync(ctx, path)
			must(t, err)
			_, stat, err := third.Get(ctx, path+"/e")
			if err != nil || stat.EphemeralOwner != 0 {
				t.Errorf("%s lingers at member 3 as %+v, %v", path, stat, err)
			}
			must(t, third.Delete(ctx, path+"/e", 1))
		}
		dirs := make(map[embed.MemberID]string)
		for _, id := range ens.Members() {
			dirs[id] = ens.Dir(id)
			ens.Kill(id)
		}
		for id, dir := range dirs {
			report, err := offline.Check(dir)
			if err != nil || report.Damaged() {
				t.Errorf("member %d: %+v, %v", id, report, err)
			}
		}
	})
}
