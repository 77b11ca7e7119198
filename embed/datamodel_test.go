package embed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// bob is somebody with a password.
var bob = []embed.Auth{{Scheme: "digest", Credential: []byte("bob:pw")}}

// What bob keeps to himself, nobody else can use on any member. Only super can.
func TestACL_OfASessionsIdentities(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.SuperDigest = embed.Digest("root:secret") }})
		ctx := bounded(t)
		owner := ens.Session(1, embed.SessionOptions{Auth: bob})
		_, stat, err := owner.CreateWith(ctx, "/own", []byte("x"), embed.CreateOptions{ACL: embed.CreatorACL()})
		must(t, err)
		if stat.DataLength != 1 {
			t.Errorf("Stat %+v", stat)
		}
		acl, _, err := owner.ACL(ctx, "/own")
		must(t, err)
		if want := []embed.ACL{{Perms: embed.PermAll, Scheme: "digest", ID: "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="}}; !slices.Equal(acl, want) {
			t.Errorf("ACL %v, want %v", acl, want)
		}
		for name, other := range map[string]*embed.Session{
			"nobody":         ens.Session(2, embed.SessionOptions{}),
			"another bob":    ens.Session(3, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("bob:guess")}}}),
			"an address":     ens.Session(2, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "ip", Credential: []byte("127.0.0.1")}}}),
			"the same place": ens.Session(1, embed.SessionOptions{}),
		} {
			_, err := other.Sync(ctx, "/")
			must(t, err)
			_, _, err = other.Get(ctx, "/own")
			embedkit.Wants(t, name+" gets", err, embed.ErrNoAuth)
			_, _, err = other.Children(ctx, "/own")
			embedkit.Wants(t, name+" lists", err, embed.ErrNoAuth)
			_, _, err = other.Exists(ctx, "/own")
			embedkit.Wants(t, name+" looks", err, embed.ErrNoAuth)
			_, _, err = other.ACL(ctx, "/own")
			embedkit.Wants(t, name+" asks for the ACL", err, embed.ErrNoAuth)
			_, err = other.CountDescendants(ctx, "/own")
			embedkit.Wants(t, name+" counts", err, embed.ErrNoAuth)
			_, err = other.Set(ctx, "/own", nil, embed.AnyVersion)
			embedkit.Wants(t, name+" sets", err, embed.ErrNoAuth)
			_, err = other.Create(ctx, "/own/x", nil, embed.Persistent)
			embedkit.Wants(t, name+" creates", err, embed.ErrNoAuth)
			_, err = other.SetACL(ctx, "/own", embed.OpenACL(), embed.AnyVersion)
			embedkit.Wants(t, name+" sets the ACL", err, embed.ErrNoAuth)
			embedkit.Wants(t, name+" deletes", other.Delete(ctx, "/own/none", embed.AnyVersion), embed.ErrNoAuth)
		}
		again := ens.Session(3, embed.SessionOptions{Auth: bob})
		_, err = again.Create(ctx, "/own/x", nil, embed.Persistent)
		must(t, err)
		super := ens.Session(2, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("root:secret")}}})
		_, err = super.SetACL(ctx, "/own", embed.ReadACL(), 0)
		must(t, err)
		_, err = super.SetACL(ctx, "/own", embed.ReadACL(), 0)
		embedkit.Wants(t, "an old aversion", err, embed.ErrBadVersion)
		_, err = again.Sync(ctx, "/")
		must(t, err)
		if _, stat, err := again.Get(ctx, "/own"); err != nil || stat.Aversion != 1 || stat.Version != 0 {
			t.Errorf("after SetACL: %+v, %v", stat, err)
		}
	})
}

// Identities are part of the ensemble's state. They are the same after a restart, and on a member
// that got a snapshot.
func TestACL_OutlivesRestartsAndSnapshots(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{Auth: bob, Timeout: time.Minute})
		_, _, err := s.CreateWith(ctx, "/own", nil, embed.CreateOptions{ACL: embed.CreatorACL()})
		must(t, err)
		for id := range embed.MemberID(3) {
			must(t, ens.Snapshot(id+1))
		}
		ens.Stop(3)
		_, err = s.Create(ctx, "/own/while-3-is-away", nil, embed.Persistent)
		must(t, err)
		ens.Restart(3)
		_, err = s.Create(ctx, "/own/again", nil, embed.Persistent)
		must(t, err)
		for id := range embed.MemberID(3) {
			for name, auth := range map[string][]embed.Auth{"bob": bob, "nobody": nil} {
				o := ens.Session(id+1, embed.SessionOptions{Auth: auth})
				_, err := o.Sync(ctx, "/")
				must(t, err)
				n, err := o.CountDescendants(ctx, "/own")
				if auth != nil && (err != nil || n != 2) || auth == nil && !errors.Is(err, embed.ErrNoAuth) {
					t.Errorf("member %d, %s: %d, %v", id+1, name, n, err)
				}
			}
		}
	})
}

func TestACL_WatchesAreToldOnlyWhatMayBeRead(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx := bounded(t)
		owner, other := ens.Session(1, embed.SessionOptions{Auth: bob}), ens.Session(1, embed.SessionOptions{})
		once, err := other.Watch(ctx, "/own", embed.WatchOnce)
		must(t, err)
		all, err := other.Watch(ctx, "/", embed.WatchRecursive)
		must(t, err)
		_, _, err = owner.CreateWith(ctx, "/own", nil, embed.CreateOptions{ACL: embed.CreatorACL()})
		must(t, err)
		_, err = owner.Create(ctx, "/own/open", nil, embed.Persistent)
		must(t, err)
		if e, ok := <-once.Events(); ok {
			t.Errorf("told of %v", e)
		}
		embedkit.Wants(t, "the watch", once.Err(), embed.ErrNoAuth)
		// The ACL of the changed znode counts, not that of the watched znode or of one in between.
		if e := <-all.Events(); e.Path != "/own/open" || e.Type != embed.NodeCreated {
			t.Errorf("told of %v", e)
		}
	})
}

// A contender waits for a contender that it may not read, as for any other.
func TestACL_OfAContenderInFront(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx := bounded(t)
		owner, s := ens.Session(1, embed.SessionOptions{Auth: bob}), ens.Session(1, embed.SessionOptions{})
		_, err := owner.Create(ctx, "/lock", nil, embed.Container)
		must(t, err)
		o := embed.CreateOptions{Mode: embed.EphemeralSequential, ACL: embed.CreatorACL()}
		first, _, err := owner.CreateWith(ctx, "/lock/_c_x-lock-", nil, o)
		must(t, err)
		granted := make(chan error, 1)
		go func() {
			_, err := lock.NewMutex(s, "/lock").Lock(ctx)
			granted <- err
		}()
		until(t, "the second one to queue", func() bool {
			_, stat, err := owner.Get(ctx, "/lock")
			return err == nil && stat.NumChildren == 2
		})
		select {
		case err := <-granted:
			t.Fatalf("granted before its turn: %v", err)
		default:
		}
		must(t, owner.Delete(ctx, first, embed.AnyVersion))
		must(t, <-granted)
	})
}

func TestAuth_ASchemeOfTheService(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Schemes = map[string]embed.Scheme{"token": embedkit.Tokens{}} }})
		ctx := bounded(t)
		token := func(s string) embed.SessionOptions {
			return embed.SessionOptions{Auth: []embed.Auth{{Scheme: "token", Credential: []byte(s)}}}
		}
		a, b := ens.Session(1, token("a")), ens.Session(2, token("b"))
		_, _, err := a.CreateWith(ctx, "/a", nil, embed.CreateOptions{ACL: embed.CreatorACL()})
		must(t, err)
		_, _, err = a.CreateWith(ctx, "/any", nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "token", ID: "*"}}})
		must(t, err)
		_, _, err = a.CreateWith(ctx, "/bad", nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "token", ID: "?"}}})
		embedkit.Wants(t, "an id that is none", err, embed.ErrInvalidACL)
		_, err = b.Set(ctx, "/a", nil, embed.AnyVersion)
		embedkit.Wants(t, "b sets a's", err, embed.ErrNoAuth)
		_, err = b.Set(ctx, "/any", nil, embed.AnyVersion)
		must(t, err)
		for name, auth := range map[string]embed.Auth{
			"empty token":    {Scheme: "token"},
			"unknown scheme": {Scheme: "kerberos", Credential: []byte("x")},
			"no scheme":      {Credential: []byte("x")},
			"no address":     {Scheme: "ip", Credential: []byte("home")},
			"a network":      {Scheme: "ip", Credential: []byte("10.0.0.0/8")},
			"a long name":    {Scheme: "digest", Credential: []byte(strings.Repeat("x", 2000))},
			"a long secret":  {Scheme: "token", Credential: make([]byte, 17<<20)},
			"super":          {Scheme: "super", Credential: []byte("x")},
		} {
			_, err := ens.Node(1).NewSession(ctx, embed.SessionOptions{Auth: []embed.Auth{auth}})
			embedkit.Wants(t, name, err, embed.ErrAuthFailed)
		}
	})
}

// A member that lacks a scheme of the others would judge ACLs differently. It fails and says which
// scheme it lacks. With the scheme it comes back.
func TestAuth_AMemberWithoutASchemeGoesNoFurther(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var without atomic.Bool
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			if c.ID != 3 || !without.Load() {
				c.Schemes = map[string]embed.Scheme{"token": embedkit.Tokens{}}
			}
		}})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		create := func(path string) {
			t.Helper()
			_, _, err := s.CreateWith(ctx, path, nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "token", ID: "*"}}})
			must(t, err)
		}
		create("/a")
		ens.Stop(3)
		without.Store(true)
		n, err := ens.TryStart(3)
		if err == nil { // it has yet to replay or receive an entry that names the scheme
			<-n.Done()
			err = n.Err()
			ens.Kill(3)
		}
		if !strings.Contains(err.Error(), `"token"`) {
			t.Errorf("the member ended with %v", err)
		}
		create("/b")
		without.Store(false)
		ens.Restart(3)
		back := ens.Session(3, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "token", Credential: []byte("x")}}})
		_, err = back.Sync(ctx, "/")
		must(t, err)
		// Three of them were always there.
		if n, err := back.CountDescendants(ctx, "/"); err != nil || n != 5 {
			t.Errorf("%d znodes, %v", n, err)
		}
	})
}

// brittle is a scheme that panics at unexpected ids.
type brittle struct{ embedkit.Tokens }

func (brittle) Valid(id string) bool            { return id[3] != 'x' }
func (brittle) Matches(identity, _ string) bool { return identity[100] != 'x' }

// A scheme's panic counts as false on each member. So it does when the member starts again with the
// entry in its log.
func TestAuth_ASchemeThatPanics(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		log := new(embedkit.Journal)
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			c.Schemes = map[string]embed.Scheme{"brittle": brittle{}}
			if c.ID == 1 {
				c.Logger = log.Logger()
			}
		}})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "brittle", Credential: []byte("x")}}})
		create := func(path, id string) error {
			_, _, err := s.CreateWith(ctx, path, nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "brittle", ID: id}}})
			return err
		}
		embedkit.Wants(t, "Valid panics", create("/a", "?"), embed.ErrInvalidACL)
		must(t, create("/b", "somebody"))
		embedkit.Wants(t, "Matches panics", create("/b/c", "somebody"), embed.ErrNoAuth)
		ens.Until("the log to tell", func() bool { return log.Says("scheme=brittle") && log.Says("brittle.Valid") })
		for id := range embed.MemberID(3) {
			ens.Kill(id + 1)
			ens.Restart(id + 1)
			s = ens.Session(id+1, embed.SessionOptions{})
			_, err := s.Create(ctx, fmt.Sprint("/after-", id), nil, embed.Persistent)
			must(t, err)
			_, _, err = s.Get(ctx, "/b")
			embedkit.Wants(t, "a read", err, embed.ErrNoAuth)
		}
	})
}

func TestConfig_BadSchemes(t *testing.T) {
	err := embed.Config{Dir: "x", SuperDigest: "root:a:b", Schemes: map[string]embed.Scheme{
		"": embedkit.Tokens{}, "world": embedkit.Tokens{}, "auth": embedkit.Tokens{}, "digest": embedkit.Tokens{}, "ip": embedkit.Tokens{}, "super": embedkit.Tokens{}, "mine": nil, "token": embedkit.Tokens{},
	}}.Validate()
	for _, want := range []string{`SuperDigest is not a digest`, `Schemes[""]`, `Schemes["world"]`, `Schemes["auth"]`, `Schemes["digest"]`,
		`Schemes["ip"]`, `Schemes["super"]`, `Schemes["mine"] is nil`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), `"token"`) {
		t.Errorf("a good one is refused: %v", err)
	}
}

func TestRoot_IsWhatTheSessionKnows(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx := bounded(t)
		whole, app := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{Root: "/apps/one"})
		_, err := app.Create(ctx, "/x", nil, embed.Persistent)
		embedkit.Wants(t, "before the root exists", err, embed.ErrNoNode)
		for _, path := range []string{"/apps", "/apps/one", "/apps/oneself"} {
			_, err := whole.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		all, err := app.Watch(ctx, "/", embed.WatchRecursive)
		must(t, err)
		root, err := app.Watch(ctx, "/", embed.WatchPersistent)
		must(t, err)
		_, err = whole.Create(ctx, "/apps/oneself/x", nil, embed.Persistent)
		must(t, err)
		path, err := app.Create(ctx, "/e-", nil, embed.EphemeralSequential)
		must(t, err)
		if path != "/e-0000000000" {
			t.Errorf("created %s", path)
		}
		results, err := app.Multi(ctx, embed.OpCreate("/m", nil, embed.Persistent), embed.OpSet("/", []byte("root"), 0))
		must(t, err)
		if results[0].Path != "/m" {
			t.Errorf("created %s", results[0].Path)
		}
		p := app.Submit(ctx, embed.OpCreate("/s", nil, embed.Persistent))
		for range 2 {
			if results, err := p.Result(); err != nil || results[0].Path != "/s" {
				t.Errorf("submitted: %v, %v", results, err)
			}
		}
		if data, _, err := whole.Get(ctx, "/apps/one"); err != nil || string(data) != "root" {
			t.Errorf("the root has %q, %v", data, err)
		}
		names, _, err := app.Children(ctx, "/")
		if want := []string{"e-0000000000", "m", "s"}; err != nil || !slices.Equal(names, want) {
			t.Errorf("children %q, %v, want %q", names, err, want)
		}
		for _, want := range []string{"/e-0000000000", "/m", "/", "/s"} {
			if e := <-all.Events(); e.Path != want {
				t.Errorf("told of %v, want %s", e, want)
			}
		}
		if e := <-root.Events(); e.Path != "/" || e.Type != embed.NodeChildrenChanged {
			t.Errorf("told of %v", e)
		}
		if path, err := app.Create(ctx, "/", nil, embed.Sequential); err != nil || path != "/0000000003" {
			t.Errorf("a numbered child of the root: %s, %v", path, err)
		}
		made, err := claim.New(ctx, app, embed.OpCreate("/", nil, embed.EphemeralSequential))
		must(t, err)
		if results, err := made.Created(ctx); err != nil || results[0].Path != "/0000000004" {
			t.Errorf("a numbered claim below the root: %s, %v", path, err)
		}
		must(t, made.Release())
		if names, _, err := whole.Children(ctx, "/apps"); err != nil || !slices.Equal(names, []string{"one", "oneself"}) {
			t.Errorf("beside the root are %q, %v", names, err)
		}
		embedkit.Wants(t, "deleting the root", app.Delete(ctx, "/", embed.AnyVersion), embed.ErrInvalidPath)
		if paths, err := app.Ephemerals(ctx, "/apps/one/e"); err != nil || !slices.Equal(paths, []string{"/apps/one/e-0000000000"}) {
			t.Errorf("ephemerals %q, %v", paths, err)
		}
		if paths, err := app.Ephemerals(ctx, "/e"); err != nil || len(paths) != 0 {
			t.Errorf("ephemerals %q, %v", paths, err)
		}
		hold, err := lock.NewMutex(app, "/locks/a").Lock(ctx)
		must(t, err)
		if !strings.HasPrefix(hold.Path(), "/locks/a/") {
			t.Errorf("the hold is %s", hold.Path())
		}
		if _, ok, err := whole.Exists(ctx, "/apps/one"+hold.Path()); err != nil || !ok {
			t.Errorf("the hold is not below the root: %v", err)
		}
		must(t, hold.Release())
		_, err = ens.Node(1).NewSession(ctx, embed.SessionOptions{Root: "apps"})
		embedkit.Wants(t, "a root that is no path", err, embed.ErrInvalidPath)
	})
}

// The znodes made for a lock go when nobody wants the lock any longer. Locking at the same time
// does no harm.
func TestReaper_RemovesWhatLocksLeave(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.ContainerCheckInterval = c.Tick }})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		_, _, err := s.CreateWith(ctx, "/short", nil, embed.CreateOptions{Mode: embed.TTL, TTL: 20 * time.Millisecond})
		must(t, err)
		for i := range 50 {
			hold, err := lock.NewMutex(ens.Session(1+embed.MemberID(i%3), embed.SessionOptions{}), "/locks/a/b").Lock(ctx)
			must(t, err)
			must(t, hold.Release())
		}
		for _, path := range []string{"/short", "/locks"} {
			until(t, path+" to be reaped", func() bool {
				_, ok, err := s.Exists(ctx, path)
				return err == nil && !ok
			})
		}
	})
}

// Quotas are znodes, as in ZooKeeper. Hard limits refuse; soft ones are counted.
func TestQuota_OfASubtree(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/a", "/zookeeper/quota/a"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		_, err := s.Create(ctx, "/zookeeper/quota/a/zookeeper_limits", []byte("count=2,bytes=-1=;byteHardLimit=10;countHardLimit=-1"), embed.Persistent)
		must(t, err)
		_, err = s.Create(ctx, "/zookeeper/quota/a/zookeeper_stats", nil, embed.Persistent)
		must(t, err)
		_, err = s.Create(ctx, "/a/x", []byte("12345"), embed.Persistent)
		must(t, err)
		if n := overSoftQuota(ens.Node(1)); n != 0 {
			t.Errorf("%d transactions went over the soft limit", n)
		}
		// Over the soft limit with 3 znodes; just within the hard one with 10 bytes.
		_, err = s.Create(ctx, "/a/y", []byte("12345"), embed.Persistent)
		must(t, err)
		_, err = s.Create(ctx, "/a/z", []byte("1"), embed.Persistent)
		embedkit.Wants(t, "an eleventh byte", err, embed.ErrQuotaExceeded)
		_, err = s.Set(ctx, "/a/x", []byte("123456"), 77)
		embedkit.Wants(t, "and by Set, before its version", err, embed.ErrQuotaExceeded)
		_, err = s.Multi(ctx, embed.OpDelete("/a/y", 0), embed.OpCreate("/a/z", []byte("1"), embed.Persistent))
		embedkit.Wants(t, "in the transaction that makes room", err, embed.ErrQuotaExceeded)
		for id := range embed.MemberID(3) {
			o := ens.Session(id+1, embed.SessionOptions{})
			_, err := o.Sync(ctx, "/")
			must(t, err)
			data, stat, err := o.Get(ctx, "/zookeeper/quota/a/zookeeper_stats")
			if err != nil || string(data) != "count=3,bytes=10" || stat.Version != 0 {
				t.Errorf("member %d says %q, version %d, %v", id+1, data, stat.Version, err)
			}
			if n := overSoftQuota(ens.Node(id + 1)); n != 1 {
				t.Errorf("member %d: %d transactions went over the soft limit", id+1, n)
			}
		}
	})
}

// As in ZooKeeper, limits without the znode of the usage do not hold, and one Multi may go over a hard
// limit. What comes after it may not.
func TestQuota_WhatItDoesNotHold(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/a", "/zookeeper/quota/a"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		_, err := s.Create(ctx, "/zookeeper/quota/a/zookeeper_limits", []byte("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3"), embed.Persistent)
		must(t, err)
		for range 5 {
			_, err := s.Create(ctx, "/a/n-", nil, embed.Sequential)
			must(t, err)
		}
		for i := range 5 {
			must(t, s.Delete(ctx, fmt.Sprintf("/a/n-%010d", i), embed.AnyVersion))
		}
		_, err = s.Create(ctx, "/zookeeper/quota/a/zookeeper_stats", nil, embed.Persistent)
		must(t, err)
		var ops []embed.Op
		for range 10 {
			ops = append(ops, embed.OpCreate("/a/n-", nil, embed.Sequential))
		}
		_, err = s.Multi(ctx, ops...)
		must(t, err)
		_, err = s.Create(ctx, "/a/one", nil, embed.Persistent)
		embedkit.Wants(t, "one more", err, embed.ErrQuotaExceeded)
	})
}

// The whole tree has a quota on each shard. It holds for every session on every member, even after
// a member has started again by replay or from its image. The newest member's setting counts, and
// the quota never prevents deletes.
func TestQuota_OfTheWholeTree(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var most atomic.Int64
		most.Store(1 << 20)
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards, c.MaxTreeSize = len(embedkit.OnShard), most.Load() }})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		fill := func(s *embed.Session, at, path string) (created int) {
			for i := 0; ; i++ {
				_, err := s.Create(ctx, fmt.Sprint(at, path, i), make([]byte, 100_000), embed.Persistent)
				if errors.Is(err, embed.ErrQuotaExceeded) {
					return i
				}
				must(t, err)
				if i > 100 {
					t.Fatal("there is no end to it")
				}
			}
		}
		for shard, at := range embedkit.OnShard {
			_, err := s.Create(ctx, at, nil, embed.Persistent)
			must(t, err)
			if n := fill(s, at, "/a"); n != 10 {
				t.Errorf("shard %d: %d znodes of 100,000 bytes in a megabyte", shard+1, n)
			}
			if size := ens.Node(1).Status().Shards[shard].TreeSize; size < 1_000_000 || size > 1<<20 {
				t.Errorf("shard %d: the tree takes %d bytes", shard+1, size)
			}
			must(t, s.Delete(ctx, at+"/a3", embed.AnyVersion))
			if n := fill(s, at, "/b"); n != 1 {
				t.Errorf("shard %d: %d znodes in the place of one", shard+1, n)
			}
		}
		must(t, ens.Snapshot(2))
		for id := range embed.MemberID(3) {
			ens.Kill(id + 1)
			ens.Restart(id + 1)
			s := ens.Session(id+1, embed.SessionOptions{})
			for shard, at := range embedkit.OnShard {
				if n := fill(s, at, "/c"); n != 0 {
					t.Errorf("member %d, shard %d: %d znodes more after a restart", id+1, shard+1, n)
				}
			}
		}
		most.Store(2 << 20)
		ens.Stop(1)
		ens.Restart(1)
		if n := fill(ens.Session(2, embed.SessionOptions{}), embedkit.OnShard[0], "/d"); n != 10 {
			t.Errorf("%d znodes more with twice the room", n)
		}
	})
}

// overSoftQuota returns how many transactions raised usage above a soft limit, as a member saw it.
func overSoftQuota(n *embed.Node) (sum uint64) {
	for _, s := range n.Status().Shards {
		sum += s.OverSoftQuota
	}
	return sum
}

func TestCreateWith_BadOptions(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{})
		for name, c := range map[string]struct {
			o    embed.CreateOptions
			want error
		}{
			"TTL without the mode":    {embed.CreateOptions{TTL: time.Second}, embed.ErrInvalidTTL},
			"no TTL":                  {embed.CreateOptions{Mode: embed.TTL}, embed.ErrInvalidTTL},
			"part of a millisecond":   {embed.CreateOptions{Mode: embed.TTL, TTL: time.Second + 1}, embed.ErrInvalidTTL},
			"less than one":           {embed.CreateOptions{Mode: embed.TTL, TTL: time.Microsecond}, embed.ErrInvalidTTL},
			"a negative TTL":          {embed.CreateOptions{Mode: embed.SequentialTTL, TTL: -time.Second}, embed.ErrInvalidTTL},
			"more than 2^40-1":        {embed.CreateOptions{Mode: embed.TTL, TTL: 1 << 40 * time.Millisecond}, embed.ErrInvalidTTL},
			"an unknown mode":         {embed.CreateOptions{Mode: 7}, embed.ErrInvalidMode},
			"an empty ACL":            {embed.CreateOptions{ACL: []embed.ACL{}}, embed.ErrInvalidACL},
			"auth with no identity":   {embed.CreateOptions{ACL: embed.CreatorACL()}, embed.ErrInvalidACL},
			"a scheme nobody knows":   {embed.CreateOptions{ACL: []embed.ACL{{Perms: 31, Scheme: "sasl", ID: "x"}}}, embed.ErrInvalidACL},
			"too long an ACL":         {embed.CreateOptions{ACL: make([]embed.ACL, 1001)}, embed.ErrInvalidACL},
			"a world of one's own":    {embed.CreateOptions{ACL: []embed.ACL{{Perms: 31, Scheme: "world", ID: "me"}}}, embed.ErrInvalidACL},
			"the greatest TTL of all": {embed.CreateOptions{Mode: embed.TTL, TTL: (1<<40 - 1) * time.Millisecond}, nil},
		} {
			_, _, err := s.CreateWith(ctx, "/x", nil, c.o)
			embedkit.Wants(t, name, err, c.want)
			if err == nil {
				must(t, s.Delete(ctx, "/x", embed.AnyVersion))
			}
		}
		// The other operations of the Multi were not sent either.
		_, err := s.Multi(ctx, embed.OpCreate("/y", nil, embed.Persistent), embed.OpCreateWith("/y/x", nil, embed.CreateOptions{TTL: 1}))
		embedkit.Wants(t, "in a Multi", err, embed.ErrInvalidTTL)
		if _, ok, _ := s.Exists(context.Background(), "/y"); ok {
			t.Error("half of a Multi is there")
		}
	})
}

// However many callers try at once, no more get in than there is room for. One commit decides.
func TestOpCheckChildren_IsRoom(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		const room = 3
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{Root: "/app"})
		_, err := ens.Session(1, embed.SessionOptions{}).Create(ctx, "/app", nil, embed.Persistent)
		must(t, err)
		_, err = s.Create(ctx, "/leases", nil, embed.Persistent)
		must(t, err)
		var sent []*embed.Pending
		for i := range 4 * room {
			o := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{Root: "/app"})
			sent = append(sent, o.Submit(ctx, embed.OpCreate("/leases/lease-", nil, embed.EphemeralSequential), embed.OpCheckChildren("/leases", room)))
		}
		in := 0
		for _, p := range sent {
			results, err := p.Result()
			var at *embed.MultiError
			switch {
			case err == nil && results[1] != embed.Result{Kind: results[1].Kind}:
				t.Errorf("a check says %+v", results[1])
			case err == nil:
				in++
			case !errors.Is(err, embed.ErrTooManyChildren) || !errors.As(err, &at) || at.Index != 1:
				t.Errorf("no room: %v", err)
			}
		}
		_, err = s.Sync(ctx, "/")
		must(t, err)
		if names, _, err := s.Children(ctx, "/leases"); err != nil || in != room || len(names) != room {
			t.Errorf("%d got in, %v are there, %v", in, names, err)
		}
		_, err = s.Multi(ctx, embed.OpCheckChildren("/missing", 1))
		embedkit.Wants(t, "of what is not there", err, embed.ErrNoNode)
		_, err = s.Multi(ctx, embed.OpCheckChildren("/leases", math.MaxInt32), embed.OpCheckChildren("/", 1))
		embedkit.Wants(t, "the most there can be", err, nil)
		for _, most := range []int{-1, math.MinInt, math.MaxInt32 + 1} {
			_, err := s.Multi(ctx, embed.OpCreate("/x", nil, embed.Persistent), embed.OpCheckChildren("/leases", most))
			var at *embed.MultiError
			if !errors.As(err, &at) || at.Index != 1 || !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("at most %d children: %v", most, err)
			}
		}
		_, err = s.Multi(ctx, embed.OpCheckChildren("leases", 1))
		embedkit.Wants(t, "a path that is none", err, embed.ErrInvalidPath)
	})
}
