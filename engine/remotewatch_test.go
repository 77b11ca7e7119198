package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// write applies a transaction of a session on a node without Raft.
func (n *node) write(s *Session, ops ...tree.Op) tree.Zxid {
	n.t.Helper()
	p := s.Submit(n.t.Context(), ops)
	n.commit()
	if err := outcome(p); err != nil {
		n.t.Fatalf("%v: %v", ops, err)
	}
	return n.shards.At(ops[0].Path).Visible()
}

// sent receives all waiting events.
func sent(t *testing.T, w *RemoteWatches) (texts []string) {
	t.Helper()
	events, err := w.Take(w.Here())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		texts = append(texts, fmt.Sprint(e.Type, " ", e.Path))
	}
	return texts
}

func wantSent(t *testing.T, w *RemoteWatches, want ...string) {
	t.Helper()
	if got := sent(t, w); !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

var (
	alice      = tree.Identity{Scheme: "ip", ID: "10.0.0.1"}
	alicesOnly = []tree.ACL{{Perms: tree.PermsAll, Scheme: "ip", ID: "10.0.0.1"}}
)

func createFor(path string, acl []tree.ACL) tree.Op {
	return tree.Op{Kind: tree.KindCreate, Path: path, ACL: acl}
}

// 3.4, 3.5, 14.17: which answers leave a watch.
func TestRemoteWatches_WhichReadsArm(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.write(s, create("/a"))
		n.write(s, createFor("/secret", alicesOnly))
		for _, c := range []struct {
			path                 string
			exists, get, list    error
			armsExists, armsRead bool
		}{
			{path: "/a", armsExists: true, armsRead: true},
			{path: "/none", get: tree.ErrNoNode, list: tree.ErrNoNode, armsExists: true},
			{path: "/secret", exists: tree.ErrNoAuth, get: tree.ErrNoAuth, list: tree.ErrNoAuth},
			{path: "/nul\x00", exists: tree.ErrInvalidPath, get: tree.ErrNoNode, list: tree.ErrNoNode},
		} {
			w := n.WatchRemotely(0)
			_, ok, place, err := w.Exists(c.path)
			if !errors.Is(err, c.exists) || ok != (c.path == "/a") || w.Has(c.path, watch.Data) != c.armsExists || place.Zxid != n.tree().Visible() {
				t.Errorf("exists %q: %v, %v, armed %v, %+v", c.path, ok, err, w.Has(c.path, watch.Data), place)
			}
			w.Remove(c.path, watch.Data)
			if _, _, _, err := w.Get(c.path); !errors.Is(err, c.get) || w.Has(c.path, watch.Data) != c.armsRead {
				t.Errorf("get %q: %v, armed %v", c.path, err, w.Has(c.path, watch.Data))
			}
			if _, _, _, err := w.Children(c.path); !errors.Is(err, c.list) || w.Has(c.path, watch.Children) != c.armsRead {
				t.Errorf("children %q: %v, armed %v", c.path, err, w.Has(c.path, watch.Children))
			}
			w.End(nil)
			if _, _, _, err := w.Get(c.path); err != watch.ErrEnded {
				t.Errorf("get after the end: %v", err)
			}
		}
	})
}

// The reads return the same as a session's reads.
func TestRemoteWatches_ReadAsSessionsDo(t *testing.T) {
	withShards(t, 3, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		for id := range ShardID(3) {
			n.write(s, create(n.on(id+1, 0)))
		}
		n.write(s, tree.Op{Kind: tree.KindSet, Path: n.on(2, 0), Data: []byte("x"), Version: tree.AnyVersion})
		w := n.WatchRemotely(0)
		for _, path := range []string{"/", command.QuotaPath, "/zookeeper", n.on(2, 0), n.on(1, 0)} {
			data, stat, _, err := w.Get(path)
			wantData, wantStat, _ := s.Get(path)
			if err != nil || !bytes.Equal(data, wantData) || stat != wantStat {
				t.Errorf("get %s: %q %+v %v, want %q %+v", path, data, stat, err, wantData, wantStat)
			}
			names, stat, _, err := w.Children(path)
			wantNames, wantStat, _ := s.Children(path)
			if err != nil || !slices.Equal(names, wantNames) || stat != wantStat {
				t.Errorf("children of %s: %q %+v %v, want %q %+v", path, names, stat, err, wantNames, wantStat)
			}
			if stat, ok, _, err := w.Exists(path); err != nil || !ok || stat != wantStat {
				t.Errorf("exists %s: %+v %v %v", path, stat, ok, err)
			}
		}
	})
}

// 6.4.1, 14.24: the event of a client's own write comes before its answer. An event that follows a
// read comes after that read's answer.
func TestRemoteWatches_EventsAndAnswers(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, w := n.open(testTimeout), n.WatchRemotely(0)
		n.write(s, create("/a"))
		_, stat, read, _ := w.Get("/a")
		z := n.write(s, set("/a"))
		answer := w.Here()
		if before, _ := w.Take(read); len(before) != 0 || read.Zxid != stat.Mzxid {
			t.Errorf("before the read's answer: %v, which is of %d", before, read.Zxid)
		}
		if own, _ := w.Take(answer); len(own) != 1 || own[0].Zxid != z || answer.Zxid != z {
			t.Errorf("before the write's answer: %v, which is of %d", own, answer.Zxid)
		}
	})
}

// 6.2, 6.3: what changes nothing fires nothing, and the end of a session counts as its deletes.
func TestRemoteWatches_CausesOfTheTree(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, owner, w := n.open(testTimeout), n.open(testTimeout), n.WatchRemotely(0)
		n.write(s, create("/a"))
		n.own(owner, "/a/e")
		n.own(owner, "/a/f")
		all := []watch.Mode{watch.Data, watch.Children, watch.Persistent, watch.Recursive}
		for _, mode := range all {
			for _, path := range []string{"/a", "/a/e"} {
				if _, err := w.Arm(path, mode, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		n.write(s, tree.Op{Kind: tree.KindSetACL, Path: "/a", ACL: tree.OpenACL(), Version: tree.AnyVersion})
		n.write(s, tree.Op{Kind: tree.KindCheck, Path: "/a", Version: tree.AnyVersion})
		failed := s.Submit(t.Context(), []tree.Op{set("/a"), create("/a/e")})
		n.commit()
		if outcome(failed) == nil {
			t.Fatal("the multi was applied")
		}
		wantSent(t, w)
		go owner.Close()
		n.commit()
		got := sent(t, w)
		slices.Sort(got) // their order is not specified
		if want := []string{"NodeChildrenChanged /a", "NodeChildrenChanged /a", "NodeDeleted /a/e", "NodeDeleted /a/f"}; !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	})
}

// 6.8, 14.19: events are judged by the identities of the connection at that moment, and by the ACL
// of that moment.
func TestRemoteWatches_AreToldWhatTheyMayRead(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, w := n.open(testTimeout), n.WatchRemotely(0)
		n.write(s, create("/a"))
		if _, _, _, err := w.Get("/a"); err != nil {
			t.Fatal(err)
		}
		n.write(s, tree.Op{Kind: tree.KindSetACL, Path: "/a", ACL: []tree.ACL{{Perms: tree.PermsAll &^ tree.Read, Scheme: "world", ID: "anyone"}, alicesOnly[0]}, Version: tree.AnyVersion})
		n.write(s, set("/a"))
		wantSent(t, w)
		if w.Has("/a", watch.Data) {
			t.Error("not used up")
		}
		if _, err := w.Arm("/a", watch.Persistent, nil); err != nil {
			t.Fatal(err)
		}
		w.SetIdentities(alice)
		n.write(s, set("/a"))
		wantSent(t, w, "NodeDataChanged /a")
		if _, _, _, err := w.Get("/a"); err != nil {
			t.Errorf("reading as another: %v", err)
		}
		w.SetIdentities()
		n.write(s, set("/a"))
		wantSent(t, w)
	})
}

// 6.6: a client that comes back.
func TestRemoteWatches_Reset(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		for _, path := range []string{"/same", "/set", "/list", "/deleted", "/recreated"} {
			n.write(s, create(path))
		}
		seen := n.tree().Visible()
		n.write(s, set("/set"))
		n.write(s, createFor("/list/x", alicesOnly))
		n.write(s, remove("/deleted"))
		n.write(s, remove("/recreated"))
		n.write(s, createFor("/recreated", alicesOnly)) // its zxids are for alice alone
		all := []string{"/same", "/set", "/list", "/deleted", "/recreated"}
		w := n.WatchRemotely(0)
		place, err := w.Reset(watch.Reset{Since: seen, Data: all, Exist: []string{"/list/x", "/none"}, Children: all, Persistent: []string{"/p"}, Recursive: []string{"/set"}})
		if err != nil || place.Zxid != n.tree().Visible() {
			t.Fatal(place, err)
		}
		wantSent(t, w, "NodeDataChanged /set", "NodeDeleted /deleted", "NodeCreated /list/x", "NodeChildrenChanged /list", "NodeDeleted /deleted")
		if got, want := w.Paths(), []string{"/list", "/none", "/p", "/recreated", "/same", "/set"}; !slices.Equal(got, want) || n.Tables.WatchedPaths() != len(want) {
			t.Errorf("left are %q, want %q", got, want)
		}
		n.write(s, set("/set"))
		n.write(s, set("/same"))
		n.write(s, create("/none"))
		wantSent(t, w, "NodeDataChanged /set", "NodeDataChanged /same", "NodeCreated /none")
	})
}

// D2: a parent that has used up its sequence numbers still gets children. A client that comes back
// learns of them too.
func TestRemoteWatches_ResetBelowAFullParent(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.withImage()
		n.apply(n.applied...)
		s := n.open(testTimeout)
		n.write(s, create("/full"))
		if err := n.shard.Sync(); err != nil {
			t.Fatal(err)
		}
		full := n.image.NewBatch()
		full.Put(storage.Znodes, []byte("/full"), command.EncodeZnode(tree.Znode{Created: math.MaxInt32}))
		if err := errors.Join(full.Commit(n.image.Applied()), n.shard.Load(n.image)); err != nil {
			t.Fatal(err)
		}
		seen := n.tree().Visible()
		n.write(s, create("/full/child"))
		w := n.WatchRemotely(0)
		if _, err := w.Reset(watch.Reset{Since: seen, Children: []string{"/full"}}); err != nil {
			t.Fatal(err)
		}
		wantSent(t, w, "NodeChildrenChanged /full")
	})
}

// G4: with several shards, the zxid that a client has seen says nothing about the other shards. A
// change with a smaller zxid is reported too.
func TestRemoteWatches_ResetOnSeveralShards(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		one, two := n.on(1, 0), n.on(2, 0)
		n.write(s, create(two))
		for range 20 {
			n.write(s, create(n.on(1, int(zxidOf(n.shard))+1)))
		}
		n.write(s, create(one))
		seen := n.tree().Visible()
		if z := n.write(s, set(two)); z >= seen {
			t.Fatalf("shard 2 is at %d, shard 1 at %d: that shows nothing", z, seen)
		}
		w := n.WatchRemotely(0)
		if _, err := w.Reset(watch.Reset{Since: seen, Data: []string{one, two, "/"}, Children: []string{"/"}, Exist: []string{"/x"}}); err != nil {
			t.Fatal(err)
		}
		wantSent(t, w, "NodeDataChanged "+one, "NodeDataChanged "+two, "NodeDataChanged /", "NodeChildrenChanged /")
		if got := w.Paths(); !slices.Equal(got, []string{"/x"}) {
			t.Errorf("left are %q", got)
		}
	})
}

// F1: the root's children are on all shards. A watch on them fires once.
func TestRemoteWatches_RootOfSeveralShards(t *testing.T) {
	withShards(t, 3, func(t *testing.T, n *node) {
		s, w := n.open(testTimeout), n.WatchRemotely(0)
		for round := range 3 {
			names, _, _, err := w.Children("/")
			if err != nil || len(names) != 1+3*round {
				t.Fatalf("round %d: %q, %v", round, names, err)
			}
			for id := range ShardID(3) {
				n.write(s, create(n.on(1+(id+ShardID(round))%3, round)))
			}
			wantSent(t, w, "NodeChildrenChanged /")
		}
		if _, err := w.Arm("/", watch.Recursive, nil); err != nil {
			t.Fatal(err)
		}
		n.write(s, set(n.on(3, 0)))
		wantSent(t, w, "NodeDataChanged "+n.on(3, 0))
	})
}

// D2: what an install does to the watches of a connection, with the tree of
// TestInstallTellsWatchesWhatTheyMissed.
func TestInstallTellsRemoteWatchesWhatTheyMissed(t *testing.T) {
	const gap = "gap"
	cases := []struct {
		path                                  string
		gap                                   []tree.Op
		data, children, persistent, recursive string
	}{
		{path: "/a", gap: []tree.Op{create("/x")}},
		{path: "/a", gap: []tree.Op{set("/a/b/c")}, recursive: gap},
		{path: "/a", gap: []tree.Op{set("/a")}, data: "NodeDataChanged", persistent: gap, recursive: gap},
		{path: "/a", gap: []tree.Op{create("/a/x")}, children: "NodeChildrenChanged", persistent: gap, recursive: gap},
		{path: "/a", gap: []tree.Op{create("/a/x"), remove("/a/x")}, children: "NodeChildrenChanged", persistent: gap, recursive: gap},
		{path: "/a", gap: []tree.Op{create("/a/x"), set("/a")}, data: "NodeDataChanged", children: "NodeChildrenChanged", persistent: gap, recursive: gap},
		{path: "/z", gap: []tree.Op{remove("/z")}, data: "NodeDeleted", children: "NodeDeleted", persistent: gap, recursive: gap},
		{path: "/z", gap: []tree.Op{remove("/z"), create("/z")}, data: "NodeDataChanged", children: "NodeChildrenChanged", persistent: gap, recursive: gap},
		{path: "/n", gap: []tree.Op{create("/n")}, data: "NodeCreated", persistent: gap, recursive: gap},
		{path: "/n", gap: []tree.Op{create("/n"), remove("/n")}, data: "NodeCreated", persistent: gap, recursive: gap},
		{path: "/z/n", gap: []tree.Op{create("/a/n"), set("/a/b")}},
	}
	for _, c := range cases {
		name := c.path
		for _, op := range c.gap {
			name += fmt.Sprintf(" %v %s", op.Kind, op.Path)
		}
		t.Run(name, func(t *testing.T) {
			withGap(t, func(t *testing.T, n *node, ahead *peer) {
				s := n.open(testTimeout)
				for _, path := range []string{"/a", "/a/b", "/a/b/c", "/z"} {
					n.mkdir(s, path)
				}
				modes := []watch.Mode{watch.Data, watch.Children, watch.Persistent, watch.Recursive}
				var all []*RemoteWatches
				for _, mode := range modes {
					w := n.WatchRemotely(0)
					if mode == watch.Children && !n.exists(c.path) {
						continue // cannot happen
					}
					if _, err := w.Arm(c.path, mode, nil); err != nil {
						t.Fatal(err)
					}
					all = append(all, w)
				}
				both := n.WatchRemotely(0) // 6.3.2
				_, _, _, _ = both.Get(c.path)
				_, _, _, _ = both.Children(c.path)
				ahead.do(c.gap...)
				ahead.install()
				wants := []string{c.data, c.children, c.persistent, c.recursive}
				if len(all) < len(wants) {
					wants = slices.Delete(wants, 1, 2)
				}
				for i, w := range all {
					if got := afterInstall(w, zxidOf(ahead.shard)); got != wants[i] {
						t.Errorf("watch %d: got %q, want %q", i, got, wants[i])
					}
				}
				if c.data == "NodeDeleted" {
					wantSent(t, both, "NodeDeleted "+c.path)
				}
			})
		})
	}
}

// afterInstall describes what an install did to a connection with one watch.
func afterInstall(w *RemoteWatches, zxid tree.Zxid) string {
	events, err := w.Take(w.Here())
	var gap *watch.GapError
	switch {
	case errors.As(err, &gap) && gap.Zxid == zxid:
		return "gap"
	case err != nil || len(events) > 1 || len(events) == 1 && events[0].Zxid != zxid:
		return fmt.Sprint(events, err)
	case len(events) == 1:
		return events[0].Type.String()
	}
	return ""
}

// D1: reads that arm watches run beside the replica that applies. After a read comes the next
// change of what it read, once.
func TestRemoteWatches_ReadAndArmAtOnce(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		const sets = 300
		s := n.open(testTimeout)
		n.write(s, create("/a"))
		var reading sync.WaitGroup
		for range 3 {
			w, woken := n.WatchRemotely(0), make(chan struct{}, 1)
			w.OnWake(func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
			reading.Go(func() {
				defer w.End(nil)
				for {
					_, stat, place, err := w.Get("/a")
					if err != nil {
						t.Error(err)
						return
					}
					if stat.Version == sets {
						return
					}
					if early, _ := w.Take(place); len(early) > 0 {
						t.Errorf("%v before an answer that shows %d", early, stat.Mzxid)
						return
					}
					<-woken
					events, err := w.Take(w.Here())
					if len(events) != 1 || events[0].Zxid != stat.Mzxid+1 || err != nil {
						t.Errorf("shown %d, sent %v, %v", stat.Mzxid, events, err)
						return
					}
				}
			})
		}
		for range sets {
			n.write(s, set("/a"))
		}
		reading.Wait()
	})
}

// A node that has ended does not answer from an empty tree.
func TestRemoteWatchesAnswerTheEndOfTheNode(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, w := n.open(testTimeout), n.WatchRemotely(0)
		n.write(s, create("/a"))
		n.finish(outbox.ErrClosed, nil)
		mustDo(n, n.shard.Drop())
		if _, ok, _, err := w.Exists("/a"); err != outbox.ErrClosed {
			t.Errorf("exists: %v, %v", ok, err)
		}
		if _, _, _, err := w.Get("/a"); err != outbox.ErrClosed {
			t.Errorf("get: %v", err)
		}
		if _, _, _, err := w.Children("/a"); err != outbox.ErrClosed {
			t.Errorf("children: %v", err)
		}
		if _, err := w.Reset(watch.Reset{Data: []string{"/a"}}); err != outbox.ErrClosed {
			t.Errorf("reset: %v", err)
		}
	})
}
