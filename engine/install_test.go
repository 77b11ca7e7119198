package engine

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// withGap runs fn in a bubble with a node that has an image, and with a replica that has applied
// the same log and goes on without the node.
func withGap(t *testing.T, fn func(t *testing.T, n *node, ahead *peer)) {
	t.Helper()
	withShardsGap(t, 1, fn)
}

// withShardsGap is withGap for a node with several shards.
func withShardsGap(t *testing.T, shards int, fn func(t *testing.T, n *node, ahead *peer)) {
	t.Helper()
	withShards(t, shards, func(t *testing.T, n *node) {
		n.withImage()
		n.apply(n.applied...)
		fn(t, n, &peer{node: newShardedNode(t, session.Origin{Member: 9}, shards).withImage(), of: n})
	})
}

// A peer is a replica that applies what its node has applied, and then what the test invents.
type peer struct {
	*node
	of *node
}

// catchUp applies what the node has applied since.
func (r *peer) catchUp() {
	r.node.apply(r.of.applied[len(r.node.applied):]...)
}

// do applies transactions of a session of another member. It opens the session.
func (r *peer) do(ops ...tree.Op) {
	r.t.Helper()
	r.catchUp()
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{9}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
	seq := uint64(0)
	batch := func(q command.Request) {
		seq++
		r.node.apply(&enginetest.Proposal{Cmd: command.EncodeBatch(2, 1, seq, 0, 0, 1, slices.Values([][]byte{command.EncodeRequest(&q)}))})
	}
	r.node.apply(&enginetest.Proposal{Cmd: command.EncodeRegister(o, 0, enginetest.Rules())})
	batch(command.Request{Kind: command.RequestOpen, Timeout: testTimeout})
	id := tableOf(r.shard).Sessions(2)[0].ID
	before := zxidOf(r.shard)
	for _, op := range ops {
		batch(command.Request{Kind: command.RequestTxn, Session: id, Ops: []tree.Op{op}})
	}
	if zxidOf(r.shard) != before+tree.Zxid(len(ops)) {
		r.t.Fatalf("of %d transactions %d were applied", len(ops), zxidOf(r.shard)-before)
	}
}

func (r *peer) stream() []byte {
	r.t.Helper()
	return r.streamOf(command.HomeShard)
}

func (r *peer) streamOf(id ShardID) []byte {
	r.t.Helper()
	snapshot, err := r.shards[id-1].Snapshot()
	if err != nil {
		r.t.Fatal(err)
	}
	defer snapshot.Close()
	var buf bytes.Buffer
	if err := snapshot.WriteTo(&buf, nil); err != nil {
		r.t.Fatal(err)
	}
	return buf.Bytes()
}

// install brings the node's first shard to the peer's state.
func (r *peer) install() {
	r.t.Helper()
	r.installOn(command.HomeShard)
}

// installOn brings a shard of the node to the peer's state.
func (r *peer) installOn(id ShardID) {
	r.t.Helper()
	if err := r.of.shards[id-1].Install(bytes.NewReader(r.streamOf(id)), nil); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func create(path string) tree.Op { return tree.Op{Kind: tree.KindCreate, Path: path} }
func set(path string) tree.Op {
	return tree.Op{Kind: tree.KindSet, Path: path, Version: tree.AnyVersion}
}
func remove(path string) tree.Op {
	return tree.Op{Kind: tree.KindDelete, Path: path, Version: tree.AnyVersion}
}

// D2: the states before and after a gap show of some znodes that nothing happened to them. They
// never show what happened to the others. (etcd#15271: after a gap a watch received events a second
// time.)
func TestInstallTellsWatchesWhatTheyMissed(t *testing.T) {
	// The tree before has /a, /a/b, /a/b/c and /z. Each case says what happens in the gap, and what
	// a watch gets: an event, "gap", or nothing. First it is a once-watch, then a persistent watch.
	cases := []struct {
		path             string
		mode             watch.Mode
		gap              []tree.Op
		once, persistent string
	}{
		{path: "/a", gap: []tree.Op{create("/x"), set("/a/b/c")}},
		{path: "/a", gap: []tree.Op{set("/a")}, once: "NodeDataChanged", persistent: "gap"},
		{path: "/a", gap: []tree.Op{create("/a/x")}, once: "NodeChildrenChanged", persistent: "gap"},
		{path: "/a", gap: []tree.Op{create("/a/x"), remove("/a/x")}, once: "NodeChildrenChanged", persistent: "gap"},
		{path: "/z", gap: []tree.Op{remove("/z")}, once: "NodeDeleted", persistent: "gap"},
		{path: "/z", gap: []tree.Op{remove("/z"), create("/z")}, once: "NodeDataChanged", persistent: "gap"},
		{path: "/n", gap: []tree.Op{create("/n")}, once: "NodeCreated", persistent: "gap"},
		{path: "/n", gap: []tree.Op{create("/n"), remove("/n")}, once: "NodeCreated", persistent: "gap"},
		{path: "/z/n", gap: []tree.Op{create("/a/n"), set("/a/b")}},
		{path: "/z/n/m", gap: []tree.Op{create("/a/n")}},
		{path: "/z/n/m", gap: []tree.Op{create("/z/n")}, once: "NodeCreated", persistent: "gap"},
		{path: "/z/n", gap: []tree.Op{remove("/z")}, once: "NodeCreated", persistent: "gap"},
		{path: "/z/n", gap: []tree.Op{remove("/z"), create("/z")}, once: "NodeCreated", persistent: "gap"},
		{path: "/", gap: []tree.Op{set("/a")}},
		{path: "/", gap: []tree.Op{remove("/z")}, once: "NodeChildrenChanged", persistent: "gap"},
		{path: "/a", mode: watch.Recursive, gap: []tree.Op{set("/z")}},
		{path: "/a", mode: watch.Recursive, gap: []tree.Op{set("/a")}, persistent: "gap"},
		{path: "/a", mode: watch.Recursive, gap: []tree.Op{set("/a/b/c")}, persistent: "gap"},
		{path: "/a", mode: watch.Recursive, gap: []tree.Op{remove("/a/b/c")}, persistent: "gap"},
		{path: "/a", mode: watch.Recursive, gap: []tree.Op{create("/a/b/c/d")}, persistent: "gap"},
		{path: "/", mode: watch.Recursive, gap: []tree.Op{set("/a/b/c")}, persistent: "gap"},
		{path: "/", mode: watch.Recursive},
	}
	for _, c := range cases {
		name := fmt.Sprintf("%s %d", c.path, c.mode)
		for _, op := range c.gap {
			name += fmt.Sprintf(" %v %s", op.Kind, op.Path)
		}
		t.Run(name, func(t *testing.T) {
			withGap(t, func(t *testing.T, n *node, ahead *peer) {
				s := n.open(testTimeout)
				for _, path := range []string{"/a", "/a/b", "/a/b/c", "/z"} {
					n.mkdir(s, path)
				}
				modes := []watch.Mode{c.mode}
				if c.mode == watch.Once {
					modes = append(modes, watch.Persistent)
				}
				var watches []*keeper.Watch
				for _, mode := range modes {
					w, err := s.Watch(c.path, mode, watch.Options{}, "")
					if err != nil {
						t.Fatal(err)
					}
					watches = append(watches, w)
				}
				ahead.do(c.gap...)
				ahead.install()
				for i, w := range watches {
					want := c.persistent
					if modes[i] == watch.Once {
						want = c.once
					}
					if got := afterGap(w, zxidOf(ahead.shard)); got != want {
						t.Errorf("%v: got %q, want %q", modes[i], got, want)
					}
				}
			})
		})
	}
}

// afterGap describes what an install did to a watch.
func afterGap(w *keeper.Watch, zxid tree.Zxid) string {
	select {
	case e, ok := <-w.Events():
		var gap *watch.GapError
		switch {
		case ok && e.Zxid != zxid:
			return "an event of another zxid"
		case ok:
			return e.Type.String()
		case errors.As(w.Err(), &gap) && gap.Zxid == zxid:
			return "gap"
		}
		return fmt.Sprint("the end: ", w.Err())
	default:
		return ""
	}
}

// D2, D3: a reader that sees the new state can already receive its event.
func TestInstallQueuesEventsBeforeTheNewTreeShows(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		w, err := s.Watch("/n", watch.Once, watch.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		ahead.do(create("/n"))
		early := make(chan bool)
		go func() {
			for !n.exists("/n") {
			}
			select {
			case <-w.Events():
				early <- false
			default:
				early <- true
			}
		}()
		if err := n.shard.Install(bytes.NewReader(ahead.stream()), nil); err != nil {
			t.Fatal(err)
		}
		if <-early {
			t.Fatal("read before the event")
		}
	})
}

// B2: a snapshot contains a batch that is still waiting here. Its outcome is unknown, and later
// batches are not affected.
func TestInstallEndsCallsItPassedAndNoOthers(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		passed := s.Submit(t.Context(), []tree.Op{create("/passed")})
		inflight := n.wantRequests("create /passed")
		later := s.Submit(t.Context(), []tree.Op{create("/later")})
		ahead.catchUp()
		ahead.node.apply(inflight...)
		ahead.install()
		if err := outcome(passed); !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Fatalf("passed: %v", err)
		}
		n.apply(inflight...) // a second copy
		n.commit()
		if err := outcome(later); err != nil {
			t.Fatalf("later: %v", err)
		}
		if !n.exists("/passed") || !n.exists("/later") {
			t.Fatal("not applied")
		}
	})
}

// A snapshot replaces entries that created a contender and opened a session. Their callers were
// told that the outcome is unknown. Both exist, and no one else would ever remove them while this
// node lives.
func TestInstallRemovesWhatItBroughtAndNobodyKnows(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		n.mkdir(s, "/q")
		seq := tree.EphemeralSequential
		known := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q/_c_a-lock-", Mode: seq}}, nil)
		n.commit()
		plain := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q/_c_a-lock-", Mode: seq}})
		n.commit()
		n.lead(0)
		lost := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q/_c_a-lock-", Mode: seq}}, nil)
		s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q/_c_a-lock-", Mode: seq}}, nil)
		go n.OpenSession(t.Context(), testTimeout)
		synctest.Wait()
		n.lead(enginetest.Other)
		passed := n.wantRequests("create /q/_c_a-lock-", "create /q/_c_a-lock-", "open")
		ahead.catchUp()
		ahead.node.apply(passed...)
		ahead.install()
		if _, err := lost.Created(t.Context()); !errors.Is(err, outbox.ErrUnknownOutcome) || !errors.Is(lost.Err(), outbox.ErrUnknownOutcome) {
			t.Fatalf("created %v, ended with %v", err, lost.Err())
		}
		orphan := tableOf(n.shard).Sessions(enginetest.Member)[1].ID
		n.apply(n.wantRequests(fmt.Sprint("close ", orphan), "release /q/_c_a-lock-0000000002", "release /q/_c_a-lock-0000000003")...)
		names, _, _ := n.tree().Children("/q")
		if want := []string{"_c_a-lock-0000000000", "_c_a-lock-0000000001"}; !slices.Equal(names, want) {
			t.Fatalf("left are %q, want %q", names, want)
		}
		if err := errors.Join(known.Err(), outcome(plain), s.Err()); err != nil {
			t.Fatal(err)
		}
		if open := tableOf(n.shard).Sessions(enginetest.Member); len(open) != 1 {
			t.Fatalf("%d sessions are open", len(open))
		}
	})
}

// The caller that waits for a contender learns that the outcome is unknown, just when the snapshot
// is searched for that contender.
func TestInstallSearchesForAClaimBesideItsCall(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		lost := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		passed := n.wantRequests("create /q")
		told := make(chan error)
		go func() {
			r, err := lost.Created(t.Context())
			if len(r) > 0 {
				err = fmt.Errorf("%v seems to exist: %w", r, err)
			}
			told <- err
		}()
		ahead.catchUp()
		ahead.node.apply(passed...)
		ahead.install()
		if err := <-told; err != outbox.ErrUnknownOutcome {
			t.Error(err)
		}
		if r, err := lost.Created(t.Context()); len(r) > 0 || err != outbox.ErrUnknownOutcome {
			t.Errorf("asked again: %v, %v", r, err)
		}
		n.apply(n.wantRequests("release /q")...)
		if n.exists("/q") {
			t.Error("the znode is still there")
		}
	})
}

// If an heir's outcome is unknown and what it inherits was lost, the heir is lost too.
func TestInstallLosesAnHeirThatItBrought(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		heir := s.Claim(t.Context(), []tree.Op{lingering("/q")}, &keeper.With{Inherits: true})
		passed := n.wantRequests("create /q")
		ahead.catchUp()
		ahead.node.apply(passed...)
		ahead.install()
		if err := heir.Err(); !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Errorf("the heir: %v", err)
		}
		n.commit()
		if stat, ok := n.tree().Exists("/q"); !ok || stat.EphemeralOwner != 0 {
			t.Errorf("it is there: %v, %+v", ok, stat)
		}
	})
}

func TestInstallEndsSessionsAndClaimsThatAreGone(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s, gone := n.open(testTimeout), n.open(testTimeout)
		held, deleted, lost := n.held(s, "/held"), n.held(s, "/deleted"), n.held(gone, "/lost")
		w, err := gone.Watch("/held", watch.Persistent, watch.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		n.lead(0)
		queued := gone.Submit(t.Context(), []tree.Op{create("/x")})
		ahead.do(remove("/deleted"), create("/deleted"))
		ahead.node.expire(gone.ID())
		ahead.node.apply(&enginetest.Proposal{Cmd: command.EncodeExpire(1, 1)}) // saves
		ahead.install()
		if err := held.Err(); err != nil {
			t.Errorf("a claim whose znode is there: %v", err)
		}
		if err := deleted.Err(); !errors.Is(err, keeper.ErrDeleted) || !testkit.Closed(deleted.Done()) {
			t.Errorf("a claim whose znode is another: %v", err)
		}
		if err := lost.Err(); !errors.Is(err, session.ErrExpired) || !errors.Is(gone.Err(), session.ErrExpired) {
			t.Errorf("session %v, its claim %v", gone.Err(), err)
		}
		if e, ok := <-w.Events(); ok || !errors.Is(w.Err(), session.ErrExpired) {
			t.Errorf("its watch: %v, %v", e, w.Err())
		}
		if err := outcome(queued); !errors.Is(err, session.ErrExpired) {
			t.Errorf("its queued request: %v", err)
		}
		n.wantState(s, session.Connected)
	})
}

// A session expires while its node is cut off. The node first gets a snapshot of another shard than
// the home shard, on which the session has been purged. It is the expiry that the session's claims
// learn there: nobody has deleted their znodes.
func TestInstallOnAnotherShardEndsSessionsThatArePurgedThere(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote %v", remote), func(t *testing.T) {
			withShardsGap(t, 2, func(t *testing.T, n *node, ahead *peer) {
				open := func() *Session { return n.open(testTimeout) }
				if remote {
					open = func() (s *Session) {
						go func() { s, _ = n.OpenRemote(t.Context(), testTimeout) }()
						n.commit()
						return s
					}
				}
				gone, other, home := open(), open(), open()
				waiting, deleted := n.claim(gone, n.on(2, 0)), n.claim(other, n.on(2, 1))
				ahead.catchUp()
				ahead.node.expire(gone.ID())
				ahead.node.expire(home.ID())
				var endings []command.Ending
				for _, r := range tableOf(ahead.shard).Ended(2) {
					endings = append(endings, command.Ending{Session: r.ID, Former: r.Former, Zxid: r.Ended, Lost: r.Lost})
				}
				if len(endings) != 1 {
					t.Fatalf("shard 2 is to learn the end of %d sessions", len(endings))
				}
				ahead.node.apply(&enginetest.Proposal{Shard: 2, Cmd: command.EncodePurge(1, endings)})
				drop := other.Submit(t.Context(), []tree.Op{remove(n.on(2, 1))})
				_, ps := n.requests()
				ahead.node.apply(ps...)
				ahead.installOn(2)
				if err := waiting.Err(); err != session.ErrExpired || gone.Err() != session.ErrExpired {
					t.Errorf("its session expired: it ended with %v, the session with %v", err, gone.Err())
				}
				if err := deleted.Err(); err != keeper.ErrDeleted || other.Err() != nil {
					t.Errorf("its znode was deleted: it ended with %v, the session with %v", err, other.Err())
				}
				if err := outcome(drop); !errors.Is(err, outbox.ErrUnknownOutcome) {
					t.Errorf("the delete that the snapshot brought: %v", err)
				}
				if err := home.Err(); err != nil {
					t.Errorf("a session that shard 2 never knew ended with %v", err)
				}
				ahead.install()
				if err := home.Err(); err != session.ErrExpired || other.Err() != nil {
					t.Errorf("after the home shard's snapshot: %v, and %v", err, other.Err())
				}
			})
		})
	}
}

// E4: a node that was cut off speaks again, and gets a snapshot that already contains its batch.
// The batch is new enough to prove the node alive, but one of its sessions expired in the gap.
// Another session may have the lock, so this one is granted nothing meanwhile.
func TestInstallProvesNothingForASessionThatExpiredInTheGap(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s, own := n.open(testTimeout), n.open(testTimeout)
		waiting := n.claim(s, "/waiting")
		n.lead(0)
		enginetest.Pass(testTimeout)
		n.wantState(s, session.Suspended)
		n.wantState(own, session.Suspended)
		ahead.catchUp()
		ahead.node.expire(s.ID())
		n.lead(enginetest.Other)
		ahead.node.apply(n.log.Drain()...)
		proved := false
		own.OnStateChange(func() { // when it is Connected again
			proved = true
			if err := s.Live(); err != session.ErrExpired {
				t.Errorf("the ended session got %v", err)
			}
		})
		ahead.install()
		own.OnStateChange(nil)
		if err := holdErr(waiting); !errors.Is(err, session.ErrExpired) {
			t.Errorf("hold: %v", err)
		}
		if !proved {
			t.Error("a batch in the snapshot proves no session alive")
		}
	})
}

// Two snapshots are installed one right after the other. The second does not end again what the
// first has ended. (etcd#18055: a member that received two snapshots within a short time panicked.)
func TestInstallTwiceInQuickSuccession(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		n.mkdir(s, "/a")
		n.mkdir(s, "/b")
		kept, lost := n.held(s, "/kept"), n.held(s, "/lost")
		watches := make(map[string]*keeper.Watch)
		for _, path := range []string{"/a", "/b"} {
			w, err := s.Watch(path, watch.Persistent, watch.Options{}, "")
			if err != nil {
				t.Fatal(err)
			}
			watches[path] = w
		}
		passed := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/passed", Mode: tree.Ephemeral}}, nil)
		inflight := n.wantRequests("create /passed")
		ahead.catchUp()
		ahead.node.apply(inflight...)
		first := ahead.stream()
		at := zxidOf(ahead.shard)
		ahead.applied = ahead.applied[:len(n.applied)] // the node has not; do begins with what the node has
		ahead.do(set("/a"), remove("/lost"))
		for _, stream := range [][]byte{first, ahead.stream()} {
			if err := n.shard.Install(bytes.NewReader(stream), nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if zxid := n.tree().Visible(); zxid <= at {
			t.Errorf("at zxid %d after the second, the first was at %d", zxid, at)
		}
		for path, want := range map[string]string{"/a": "gap", "/b": ""} {
			if got := afterGap(watches[path], zxidOf(ahead.shard)); got != want {
				t.Errorf("the watch of %s: %q, want %q", path, got, want)
			}
		}
		if kept.Err() != nil || lost.Err() != keeper.ErrDeleted || passed.Err() != outbox.ErrUnknownOutcome {
			t.Errorf("claims: kept %v, lost %v, passed %v", kept.Err(), lost.Err(), passed.Err())
		}
		n.apply(n.wantRequests("release /passed")...)
		n.mkdir(s, "/c")
		n.wantState(s, session.Connected)
		if n.exists("/passed") || n.exists("/lost") || !n.exists("/kept") {
			t.Error("what is there is not what is known")
		}
	})
}

func TestInstallThatBreaksOffChangesNothing(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		w, err := s.Watch("/n", watch.Persistent, watch.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		ahead.do(create("/n"))
		stream := ahead.stream()
		if err := n.shard.Install(bytes.NewReader(stream[:len(stream)-1]), nil); err == nil {
			t.Fatal("a stream that broke off was installed")
		}
		if n.exists("/n") || testkit.Closed(w.Events()) {
			t.Fatal("something of it was")
		}
		n.mkdir(s, "/n")
		if e := <-w.Events(); e.Type != watch.NodeCreated {
			t.Fatal(e)
		}
	})
}

// A state of a level or with a scheme that this member cannot work with does not replace its own.
func TestInstallOfAnotherBuildsStateChangesNothing(t *testing.T) {
	for says, state := range map[string]command.State{
		"another feature level": {Level: command.LevelMax + 1},
		`"token"`:               {Level: command.LevelMax, Rules: command.Rules{Schemes: []string{"token"}}},
	} {
		withGap(t, func(t *testing.T, n *node, ahead *peer) {
			n.mkdir(n.open(testTimeout), "/mine")
			if err := n.shard.Sync(); err != nil {
				t.Fatal(err)
			}
			ahead.do(create("/n"))
			ahead.stream() // saves the state
			b := ahead.image.NewBatch()
			b.Put(storage.Meta, []byte(command.StateKey), command.EncodeState(state))
			if err := b.Commit(ahead.image.Applied()); err != nil {
				t.Fatal(err)
			}
			snapshot, err := ahead.image.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer snapshot.Close()
			var stream bytes.Buffer
			if err := snapshot.WriteTo(&stream, nil); err != nil {
				t.Fatal(err)
			}
			before := testkit.Contents(t, datadir.ImageDir(n.cfg.Dir, 1), false)
			if err := n.shard.Install(&stream, nil); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("want an error with %s: %v", says, err)
			}
			if !reflect.DeepEqual(before, testkit.Contents(t, datadir.ImageDir(n.cfg.Dir, 1), false)) || !n.exists("/mine") {
				t.Errorf("%s: the image was replaced", says)
			}
		})
	}
}

func TestInstallBeginsTheMeasureOfSilenceAnew(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		n.open(testTimeout)
		enginetest.Pass(testTimeout)
		n.log.Drain()
		ahead.catchUp()
		ahead.install()
		_, d, _ := tableOf(n.shard).NextStep(enginetest.Member)
		n.log.Elect(enginetest.Member)
		if n.shard.ExpireDue(time.Now()); len(n.log.Drain()) > 0 {
			t.Error("silence was measured that this node did not see")
		}
		if n.shard.ExpireDue(time.Now().Add(d - 1)); len(n.log.Drain()) > 0 {
			t.Error("a step is proposed before it is over")
		}
		if n.shard.ExpireDue(time.Now().Add(d)); len(n.log.Drain()) != 1 {
			t.Error("a step that is over is not proposed")
		}
	})
}
