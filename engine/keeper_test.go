package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A recorder is a Raft group with a leader that takes every proposal and commits none.
type recorder struct{ sent []command }

func (r *recorder) Leader(replication.ShardID) replication.Leader {
	return replication.Leader{Member: 1, Term: 1}
}

func (r *recorder) Propose(_ replication.ShardID, cmd []byte) (proposal, error) {
	c, err := decodeCommand(cmd)
	if err != nil {
		return nil, err
	}
	r.sent = append(r.sent, c)
	return nil, nil
}

// newOwner is the owner's side of a node, registered, on a Raft group that commits nothing.
func newOwner() (*Engine, *recorder) {
	raft := &recorder{}
	e := &Engine{cfg: Config{RequestTimeout: time.Minute, MaxDataSize: DefaultMaxDataSize}, clock: SystemClock()}
	e.pipe = newPipeline(theShard, raft, e.clock, session.Origin{Member: 1, Start: 1})
	e.pipe.mu.registered = true
	e.keeper = newKeeper(e.clock, e.pipe)
	return e, raft
}

func (e *Engine) testSession(id tree.SessionID) *Session {
	s := &Session{engine: e, timeout: time.Minute, done: make(chan struct{}), changed: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	e.keeper.add(s, id, e.clock.Boot(), e.clock.drift())
	return s
}

func testTree(t *testing.T, owner tree.SessionID, paths ...string) *tree.Tree {
	t.Helper()
	tr := tree.New()
	for i, p := range paths {
		op := tree.Op{Kind: tree.KindCreate, Path: p, Mode: tree.Ephemeral}
		if i == 0 {
			op.Mode = tree.Persistent
		}
		if _, err := tr.Apply(tree.Header{Zxid: tree.Zxid(i + 1), Session: owner}, []tree.Op{op}); err != nil {
			t.Fatal(err)
		}
		tr.Publish()
	}
	return tr
}

// A node was away for so long that a snapshot takes the place of the entries it missed, and among them are the creation of
// a contender and the opening of a session whose callers were told that nobody knows. Both exist; nobody would ever remove
// them while this node lives.
func TestKeeper_RemovesWhatASnapshotBroughtAndNobodyKnows(t *testing.T) {
	const known, unknown tree.SessionID = 7, 8
	e, raft := newOwner()
	s := e.testSession(known)
	lost := s.Claim(context.Background(), "/q/_c_a-lock-", nil, tree.EphemeralSequential)
	e.pipe.jumped(1)
	if _, err := lost.Created(context.Background()); err != ErrUnknownOutcome {
		t.Fatalf("outcome of a creation that a snapshot swallowed: %v", err)
	}

	table := session.NewTable()
	table.LoadOrigin(session.Origin{Member: 1, Start: 1, LastSeq: 1})
	for _, id := range []tree.SessionID{known, unknown} {
		if err := table.LoadRecord(session.Record{ID: id, Timeout: time.Minute, Origin: 1}); err != nil {
			t.Fatal(err)
		}
	}
	old := testTree(t, known, "/q", "/q/_c_a-lock-x")
	next := testTree(t, known, "/q", "/q/_c_a-lock-x", "/q/_c_b-lock-0000000001", "/q/_c_a-lock-0000000002")
	e.keeper.reconcile(old, next, table)
	e.pipe.pump()

	sent := raft.sent[len(raft.sent)-1]
	var got []string
	for _, r := range sent.requests {
		switch r.kind {
		case requestRelease:
			got = append(got, "release "+r.path)
		case requestClose:
			got = append(got, fmt.Sprint("close ", r.session))
		}
	}
	want := []string{"close 8", "release /q/_c_a-lock-0000000002"}
	slices.Sort(got)
	if !slices.Equal(got, want) || len(sent.requests) != len(want) {
		t.Errorf("the next batch has %v of %d requests, want %v", got, len(sent.requests), want)
	}
}
