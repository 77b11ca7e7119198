package promisetest

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// F1: the path that a sequential create returns is on the shard of its name, even if the requested
// name ends in digits or is one of ZooKeeper's own.
func TestShards_NumberedNamesAreWhereTheyAreLookedFor(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		for _, asked := range []string{"/zookeeper", "/order-1700000000", "/event-1700000000123", "/0123456789", "/zookeeper/quota/day-1700000000"} {
			for _, mode := range []embed.CreateMode{embed.Sequential, embed.EphemeralSequential} {
				name, err := s.Create(ctx, asked, []byte(asked), mode)
				must(t, err)
				if data, _, err := s.Get(ctx, name); err != nil || string(data) != asked {
					t.Errorf("%s was created as %s, which has %q, %v", asked, name, data, err)
				}
				if err := s.Delete(ctx, name, 0); err != nil {
					t.Errorf("%s cannot be deleted: %v", name, err)
				}
			}
		}
	})
}

// F1: numbers of several shards have no common order. So a lock or an election on a path that is on
// every shard is refused, and leaves nothing behind.
func TestShards_LockOfTheRootIsRefused(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		for _, path := range []string{"/", "/zookeeper/quota"} {
			for name, contend := range map[string]func() error{
				"Lock":     func() error { _, err := lock.NewMutex(s, path).Lock(ctx); return err },
				"TryLock":  func() error { _, err := lock.NewMutex(s, path).TryLock(ctx); return err },
				"Campaign": func() error { _, err := election.New(s, path).Campaign(ctx, nil); return err },
			} {
				embedkit.WantCrossShard(t, name+" of "+path, contend())
				ens.Until("no contender to be left", func() bool {
					left, err := s.Ephemerals(ctx, "/")
					must(t, err)
					return len(left) == 0
				})
			}
		}
	})
}

// The quotas' parent is on every shard, so it cannot be changed on one of them.
func TestShards_TheQuotasParentIsFixed(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		const quotas = "/zookeeper/quota"
		_, err := s.SetACL(ctx, quotas, embed.ReadACL(), embed.AnyVersion)
		embedkit.WantCrossShard(t, "SetACL of "+quotas, err)
		_, err = s.Set(ctx, quotas, []byte("x"), embed.AnyVersion)
		embedkit.WantCrossShard(t, "Set of "+quotas, err)
		for _, path := range []string{"/", quotas} { // nor can their children be counted
			_, err = s.Multi(ctx, embed.OpCheckChildren(path, 1000))
			embedkit.WantCrossShard(t, "OpCheckChildren of "+path, err)
		}
	})
}

// While a machine stands still because it tells its watches, only calls that watch there wait. The
// sessions of its node go on, and work on other shards.
func TestShards_OneStandsStillWhileItTells(t *testing.T) {
	t.Parallel()
	slow := embedkit.NewStall(bounded(t))
	ens := embedtest.New(t, 3, embedkit.InMemory(embedtest.Options{Config: func(c *embed.Config) {
		embedkit.Patient(c)
		c.Shards, c.Schemes = len(embedkit.OnShard), map[string]embed.Scheme{"stall": &embedkit.Stall{}}
		if c.ID == 1 {
			c.Schemes["stall"] = slow
		}
	}}))
	t.Cleanup(slow.End)
	ctx := bounded(t)
	writer := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	watcher := ens.Session(1, embed.SessionOptions{Timeout: time.Minute, Auth: []embed.Auth{{Scheme: "stall"}}})
	known := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	for _, path := range embedkit.OnShard {
		_, err := known.Create(ctx, path, nil, embed.Persistent)
		must(t, err)
	}
	secret := embedkit.OnShard[3] + "/secret"
	acl := []embed.ACL{{Perms: embed.PermWrite, Scheme: "world", ID: "anyone"}, {Perms: embed.PermRead, Scheme: "stall", ID: "anybody"}}
	_, _, err := writer.CreateWith(ctx, secret, nil, embed.CreateOptions{ACL: acl})
	must(t, err)
	_, err = watcher.Sync(ctx, secret)
	must(t, err)
	_, err = watcher.Watch(ctx, secret, embed.WatchPersistent)
	must(t, err)

	slow.Begin()
	_, err = writer.Set(ctx, secret, []byte("x"), 0)
	must(t, err)
	ens.Until("the machine to stand still", func() bool { return slow.Stands() > 0 })
	watching, worked := make(chan struct{}), make(chan struct{})
	go func() {
		close(watching)
		_, _ = watcher.Watch(ctx, secret, embed.WatchOnce) // may wait for the shard
	}()
	<-watching
	go func() {
		defer close(worked)
		for range 50 {
			embedkit.Works(t, ctx, known, embedkit.OnShard[1])
		}
	}()
	select {
	case <-worked:
	case <-ctx.Done():
		slow.End()
		t.Fatal("another session of the node does not get on, on another shard")
	}
	if now, _ := known.State(); now != embed.Connected {
		t.Errorf("it is %v", now)
	}
	slow.End()
	<-worked
}
