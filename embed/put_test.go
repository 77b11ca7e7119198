package embed_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// zxid returns the newest zxid of a member's first shard.
func zxid(ens *embedtest.Ensemble) embed.Zxid { return ens.Node(1).Status().Shards[0].Zxid }

// Put creates a znode with what is above it in one commit, and sets one that exists in another.
func TestPut_CostsOneCommit(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), steps(t)
		s := ens.Session(1, embed.SessionOptions{Root: "/tenant/one"})
		for version, data := range []string{"first", "second", ""} {
			before := zxid(ens)
			stat, err := s.Put(ctx, "/a/b/c", []byte(data))
			must(t, err)
			if stat.Version != int32(version) || zxid(ens) != before+1 {
				t.Errorf("version %d after %d commits", stat.Version, zxid(ens)-before)
			}
			if got, _, err := s.Get(ctx, "/a/b/c"); string(got) != data || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
		if _, err := s.Put(ctx, "/", []byte("root")); err != nil {
			t.Error(err)
		}
		_, err := s.Create(ctx, "/e", nil, embed.Ephemeral)
		must(t, err)
		for path, want := range map[string]error{"a": embed.ErrInvalidPath, "/a//b": embed.ErrInvalidPath,
			"/e/x": embed.ErrNoChildrenForEphemerals, "/e/x/y": embed.ErrNoChildrenForEphemerals} {
			_, err := s.Put(ctx, path, nil)
			var op *embed.OpError
			if !errors.Is(err, want) || !errors.As(err, &op) || op.Op != "put" || op.Path != path {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
		}
	})
}

// Many put the same znodes while their parents are removed: each Put succeeds.
func TestPut_WhileOthersDelete(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		const puts = 30
		ctx, ens := bounded(t), steps(t)
		over := make(chan struct{})
		var deleting, putting sync.WaitGroup
		deleting.Go(func() {
			s := ens.Session(2, embed.SessionOptions{})
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond): // as the puts below, so that in a bubble both begin at once
					_ = s.Delete(ctx, "/p/q/z", embed.AnyVersion)
					_ = s.Delete(ctx, "/p/q", embed.AnyVersion)
					_ = s.Delete(ctx, "/p", embed.AnyVersion)
				}
			}
		})
		for i := range 3 {
			s := ens.Session(embed.MemberID(i+1), embed.SessionOptions{})
			putting.Go(func() {
				for n := range puts {
					if _, err := s.Put(ctx, "/p/q/z", fmt.Append(nil, i, n)); err != nil {
						t.Errorf("put %d: %v", n, err)
					}
					<-time.After(time.Millisecond)
				}
			})
		}
		putting.Wait()
		close(over)
		deleting.Wait()
	})
}

// A create with parents in a Multi, beside others: each has its own result, and a refusal its index.
func TestParents_InAMulti(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := steps(t).Session(1, embed.SessionOptions{Root: "/root"})
		below := embed.OpCreateWith("/a/b/n-", []byte("x"), embed.CreateOptions{Mode: embed.Sequential, Parents: true})
		results, err := s.Multi(ctx, below, embed.OpCreate("/a/c", nil, embed.Persistent), below, embed.OpSet("/a/c", nil, 0))
		must(t, err)
		var paths []string
		for _, r := range results {
			paths = append(paths, r.Path)
		}
		if fmt.Sprint(paths) != "[/a/b/n-0000000000 /a/c /a/b/n-0000000001 ]" || results[3].Stat.Version != 1 {
			t.Errorf("%v", results)
		}
		_, err = s.Multi(ctx, below, embed.OpSet("/a/c", nil, 0))
		var refused *embed.MultiError
		if !errors.As(err, &refused) || refused.Index != 1 || !errors.Is(err, embed.ErrBadVersion) {
			t.Errorf("%v", err)
		}
		_, err = s.Create(ctx, "/e", nil, embed.Ephemeral)
		must(t, err)
		_, err = s.Multi(ctx, embed.OpCheck("/a/c", 1), embed.OpCreateWith("/e/x/y", nil, embed.CreateOptions{Parents: true}))
		if !errors.As(err, &refused) || refused.Index != 1 || !errors.Is(err, embed.ErrNoChildrenForEphemerals) {
			t.Errorf("%v", err)
		}
	})
}
