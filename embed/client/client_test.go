package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() { shardsflag.Define() }

var must = testkit.Must

// A world is an ensemble of three with gateways, and a client of it, in virtual time.
type world struct {
	t   *testing.T
	ens *embedtest.Ensemble
	k   *client.Client
}

// virtually runs a test in virtual time.
func virtually(t *testing.T, test func(w *world)) {
	t.Helper()
	virtuallyOn(t, embedtest.Options{}, test)
}

func virtuallyOn(t *testing.T, o embedtest.Options, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ens: embedtest.New(t, 3, o)}
		for id := range embed.MemberID(3) {
			w.open(id + 1)
		}
		w.k = w.client(nil)
		test(w)
		_ = w.k.Close()
	})
}

// open opens a member's gateway.
func (w *world) open(id embed.MemberID) {
	w.t.Helper()
	_, err := gateway.Start(w.ens.Node(id), gateway.Config{Listen: "127.0.0.1:0"})
	must(w.t, err)
}

// client returns a client of the members, all of them by default. change may be nil.
func (w *world) client(change func(c *client.Config)) *client.Client {
	w.t.Helper()
	c := client.Config{Servers: []string{"member:1", "member:2", "member:3"}, SessionTimeout: 2 * time.Second,
		Logger: slog.New(slog.DiscardHandler), Dial: w.dial, Inside: &inside.ClientSeams{Clock: clienttest.Clock()}}
	if change != nil {
		change(&c)
	}
	k, err := client.New(c)
	must(w.t, err)
	return k
}

func (w *world) dial(ctx context.Context, address string) (net.Conn, error) {
	id, err := strconv.Atoi(strings.TrimPrefix(address, "member:"))
	if err != nil {
		return nil, err
	}
	return w.ens.Dial(ctx, embed.MemberID(id))
}

func (w *world) session(o embed.SessionOptions) *embed.Session {
	w.t.Helper()
	s, err := w.k.NewSession(w.t.Context(), o)
	must(w.t, err)
	return s
}

// member returns the member to which a session is attached.
func (w *world) member(s *embed.Session) embed.MemberID {
	w.t.Helper()
	m, err := s.Member(w.t.Context(), s.ID())
	must(w.t, err)
	return m
}

func TestDataModel(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx, s := t.Context(), w.session(embed.SessionOptions{})
		path, err := s.Create(ctx, "/a", []byte("1"), embed.Persistent)
		must(t, err)
		if path != "/a" {
			t.Errorf("created %s", path)
		}
		if _, err := s.Create(ctx, "/a", nil, embed.Persistent); !errors.Is(err, embed.ErrNodeExists) {
			t.Errorf("a second time: %v", err)
		}
		stat, err := s.Set(ctx, "/a", []byte("2"), 0)
		must(t, err)
		data, same, err := s.Get(ctx, "/a")
		must(t, err)
		if string(data) != "2" || same != stat || stat.Version != 1 {
			t.Errorf("read %q %+v, set %+v", data, same, stat)
		}
		if _, err := s.Set(ctx, "/a", nil, 0); !errors.Is(err, embed.ErrBadVersion) {
			t.Errorf("an old version: %v", err)
		}
		if _, _, err := s.Get(ctx, "/none"); !errors.Is(err, embed.ErrNoNode) {
			t.Errorf("a missing znode: %v", err)
		}
		if _, there, err := s.Exists(ctx, "/none"); there || err != nil {
			t.Errorf("a missing znode: %v, %v", there, err)
		}
		for i := range 5 {
			_, _, err := s.CreateWith(ctx, fmt.Sprint("/deep/er/n", i), nil, embed.CreateOptions{Parents: true})
			must(t, err)
		}
		names, _, err := s.Children(ctx, "/deep/er")
		must(t, err)
		page, err := s.Page(ctx, "/deep/er", "n1", 2)
		must(t, err)
		if fmt.Sprint(names) != "[n0 n1 n2 n3 n4]" || fmt.Sprint(page) != "[n2 n3]" {
			t.Errorf("children %v, page %v", names, page)
		}
		var walked []string
		for z, err := range s.WalkWith(ctx, "/deep", embed.WalkOptions{Depth: 1}) {
			must(t, err)
			walked = append(walked, z.Path)
		}
		if fmt.Sprint(walked) != "[/deep /deep/er]" {
			t.Errorf("walked %v", walked)
		}
		if n, err := s.CountDescendants(ctx, "/deep"); err != nil || n != 6 {
			t.Errorf("%d descendants, %v", n, err)
		}
		results, err := s.Multi(ctx, embed.OpCheck("/a", 1), embed.OpSet("/a", []byte("3"), 1), embed.OpCreate("/b", nil, embed.Ephemeral))
		must(t, err)
		if len(results) != 3 || results[2].Path != "/b" || results[2].Stat.EphemeralOwner != s.ID() {
			t.Errorf("results %+v", results)
		}
		var refused *embed.MultiError
		if _, err := s.Multi(ctx, embed.OpSet("/a", nil, embed.AnyVersion), embed.OpDelete("/none", embed.AnyVersion)); !errors.As(err, &refused) || refused.Index != 1 || !errors.Is(err, embed.ErrNoNode) {
			t.Errorf("a refused transaction: %v", err)
		}
		if own, err := s.Ephemerals(ctx, ""); err != nil || fmt.Sprint(own) != "[/b]" {
			t.Errorf("ephemerals %v, %v", own, err)
		}
		z, err := s.Sync(ctx, "/a")
		must(t, err)
		must(t, s.Await(ctx, "/a", z))
		acl, _, err := s.ACL(ctx, "/a")
		must(t, err)
		if fmt.Sprint(acl) != fmt.Sprint(embed.OpenACL()) {
			t.Errorf("ACL %v", acl)
		}
		must(t, s.Delete(ctx, "/a", embed.AnyVersion))
		must(t, s.Close())
		if _, there, err := w.ens.Session(1, embed.SessionOptions{}).Exists(ctx, "/b"); err != nil || there {
			if _, err := w.ens.Session(1, embed.SessionOptions{}).Sync(ctx, "/"); err != nil {
				t.Fatal(err)
			}
			t.Errorf("an ephemeral outlives its session: %v", err)
		}
		if _, err := s.Create(ctx, "/c", nil, embed.Persistent); !errors.Is(err, embed.ErrSessionClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestRootAndCredentials(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx := t.Context()
		s := w.session(embed.SessionOptions{Root: "/tenant", Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("ann:pw")}}})
		_, _, err := s.CreateWith(ctx, "/", nil, embed.CreateOptions{Parents: true})
		must(t, err)
		_, _, err = s.CreateWith(ctx, "/mine", []byte("x"), embed.CreateOptions{ACL: embed.CreatorACL()})
		must(t, err)
		other := w.session(embed.SessionOptions{})
		if _, _, err := other.Get(ctx, "/tenant/mine"); !errors.Is(err, embed.ErrNoAuth) {
			t.Errorf("another session reads it: %v", err)
		}
		if data, _, err := s.Get(ctx, "/mine"); err != nil || string(data) != "x" {
			t.Errorf("read %q, %v", data, err)
		}
		_, err = w.k.NewSession(ctx, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "nonsense"}}})
		if !errors.Is(err, embed.ErrAuthFailed) {
			t.Errorf("an unknown scheme: %v", err)
		}
	})
}

// A session goes on at another member when its own dies, and keeps its ephemerals and its lock.
func TestMovesWithItsLock(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx, s := t.Context(), w.session(embed.SessionOptions{})
		hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
		must(t, err)
		was := w.member(s)
		w.ens.Kill(was)
		w.ens.Until("the session to move", func() bool {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			m, err := s.Member(short, s.ID())
			return err == nil && m != was
		})
		if hold.Err() != nil || s.Err() != nil {
			t.Fatalf("hold %v, session %v", hold.Err(), s.Err())
		}
		other := was%3 + 1
		if _, err := lock.NewMutex(w.ens.Session(other, embed.SessionOptions{}), "/lock").TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("another session is granted it: %v", err)
		}
		_, err = s.Multi(ctx, lock.Guard(hold), embed.OpCreate("/guarded", nil, embed.Persistent))
		must(t, err)
		must(t, hold.Release())
	})
}

// Cut off from all members, a holder is told in time: before anyone else can be granted the lock.
func TestToldFirst(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx := t.Context()
		cut, lost := make(chan struct{}), make(chan time.Time, 1)
		k := w.client(func(c *client.Config) {
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				if err != nil {
					return nil, err
				}
				return &stopping{Conn: conn, stop: cut, closed: make(chan struct{})}, nil
			}
		})
		s, err := k.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
		must(t, err)
		go func() {
			<-hold.Done()
			lost <- time.Now()
		}()
		<-time.After(300 * time.Millisecond)
		close(cut)
		next, err := lock.NewMutex(w.ens.Session(1, embed.SessionOptions{}), "/lock").Lock(ctx)
		must(t, err)
		granted := time.Now()
		select {
		case at := <-lost:
			if !at.Before(granted) {
				t.Errorf("told %v after the grant", at.Sub(granted))
			}
		default:
			t.Error("somebody else was granted it, and the holder does not know")
		}
		if !errors.Is(hold.Err(), embed.ErrSuspended) {
			t.Errorf("the hold ended with %v", hold.Err())
		}
		must(t, next.Release())
		_ = k.Close()
	})
}

// A stopping connection loses everything, both ways, once stop is closed. Nobody is told.
type stopping struct {
	net.Conn
	stop   <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (c *stopping) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *stopping) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.stop:
		<-c.closed
		return 0, net.ErrClosed
	default:
	}
	return n, err
}

func (c *stopping) Write(p []byte) (int, error) {
	select {
	case <-c.stop:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

// A claim whose create was on its way when the connection broke is found and deleted.
func TestClaimWithAnUnknownOutcomeLeavesNothing(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx := t.Context()
		var mute gate
		k := w.client(func(c *client.Config) {
			c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := w.dial(ctx, address)
				if err != nil {
					return nil, err
				}
				return &muted{Conn: conn, gate: &mute}, nil
			}
		})
		s, err := k.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		_, err = s.Create(ctx, "/q", nil, embed.Persistent)
		must(t, err)
		_, err = s.Create(ctx, "/q/c-", nil, embed.EphemeralSequential) // somebody's own, which must stay
		must(t, err)
		mute.shut()
		c, err := claim.New(ctx, s, embed.OpCreate("/q/c-", nil, embed.EphemeralSequential))
		must(t, err)
		peer := w.ens.Session(1, embed.SessionOptions{})
		children := func() int {
			names, _, err := peer.Children(ctx, "/q")
			must(t, err)
			return len(names)
		}
		w.ens.Until("the claim's znode", func() bool { return children() == 2 })
		mute.drop()
		if _, err := c.Created(ctx); !errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("its outcome is %v", err)
		}
		w.ens.Until("the claim's znode to go", func() bool { return children() == 1 })
		if s.Err() != nil {
			t.Error(s.Err())
		}
		_ = k.Close()
	})
}
