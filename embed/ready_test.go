package embed_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// waitsFor calls Ready until it ends with all of these words, and returns that error. Every error
// of Ready must be the ctx's.
func waitsFor(t *testing.T, n *embed.Node, words ...string) (last error) {
	t.Helper()
	defer func() { t.Log(last) }()
	until(t, "Ready to say "+strings.Join(words, ", "), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if last = n.Ready(ctx); !errors.Is(last, context.DeadlineExceeded) {
			t.Fatalf("Ready: %v, want the ctx's error", last)
		}
		for _, w := range words {
			if !strings.Contains(last.Error(), w) {
				return false
			}
		}
		return true
	})
	return last
}

func TestReady_NamesMembersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.Kill(2)
		ens.Kill(3)
		waitsFor(t, ens.Node(1), "no leader", "no connection to member 2: dial mesh member 2: nobody listens", "no connection to member 3: dial mesh member 3: nobody listens")
		// One of them comes back, and cannot be heard.
		ens.Cut(1, 2)
		ens.Start(2)
		waitsFor(t, ens.Node(1), "no leader", "no connection to member 2", "no connection to member 3: dial mesh member 3: nobody listens")
		waitsFor(t, ens.Node(2), "no leader", "no connection to member 1", "no connection to member 3: dial mesh member 3: nobody listens")
		ens.HealAll()
		ens.Ready(1)
		ens.Ready(2)
	})
}

// A member is connected, and still there is no quorum.
func TestReady_NamesMembersThatAreConnected(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 4, embedtest.Options{})
		ens.Kill(3)
		ens.Kill(4)
		err := waitsFor(t, ens.Node(1), "no leader", "no connection to member 3", "no connection to member 4", "connected: 2")
		if strings.Contains(err.Error(), "connection to member 2") {
			t.Errorf("what is wrong with member 2? %v", err)
		}
	})
}

// A caller that cancels its ctx gets the ctx's own error.
func TestReady_CanceledIsCanceled(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.Isolate(1)
		waitsFor(t, ens.Node(1), "no leader")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := ens.Node(1).Ready(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no leader") {
			t.Errorf("Ready: %v", err)
		}
	})
}

// With several shards, Ready says which of them have no leader.
func TestReady_NamesShards(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 2 }})
		ens.Isolate(1)
		waitsFor(t, ens.Node(1), "no leader on any shard", "no connection to member 2")
	})
}

// One name does not resolve, and on one port nobody listens.
func TestReady_NamesAddressesThatLeadNowhere(t *testing.T) {
	t.Parallel()
	nodes := embedkit.StartTCP(t, "127.0.0.1", 1, func(c *embed.Config) {
		c.Dir = filepath.Join(t.TempDir(), "node")
		c.Members = map[embed.MemberID]string{1: c.Members[1], 2: "nowhere.invalid:7400", 3: "127.0.0.1:1"}
	})
	waitsFor(t, nodes[1], "members 2, 3 are missing", "nowhere.invalid:7400: lookup nowhere.invalid", "127.0.0.1:1: connect: connection refused")
}

// Calls that fail for lack of a quorum say so as Ready does. Their errors are otherwise unchanged.
func TestUnavailable_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 200 * time.Millisecond }})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		ens.Isolate(1)
		waitsFor(t, ens.Node(1), "no leader", "no connection to member 2", "no connection to member 3")
		_, unavailable := s.Create(t.Context(), "/a", nil, embed.Persistent)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, late := s.Create(ctx, "/b", nil, embed.Persistent)
		_, unsynced := s.Sync(t.Context(), "/a")
		_, unopened := ens.Node(1).NewSession(t.Context(), embed.SessionOptions{})
		for what, c := range map[string]struct{ err, want error }{
			"Create": {unavailable, embed.ErrUnavailable}, "Create in time": {late, context.DeadlineExceeded},
			"Sync": {unsynced, embed.ErrUnavailable}, "NewSession": {unopened, embed.ErrUnavailable},
		} {
			if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), ": no leader; no connection to member 2: ") {
				t.Errorf("%s: %v", what, c.err)
			}
		}
		t.Log(unavailable)
	})
}
