package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/seeding"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// A node is an Engine without Raft, and without an image unless withImage gives it one. Its
// replicas, outboxes and sessions are real. The test controls the log.
type node struct {
	*Engine
	t    *testing.T
	log  *enginetest.Log
	fake *enginetest.Clock

	// Of the first shard.
	shard  *replica.Replica
	outbox *outbox.Outbox
	image  *storage.Image // nil if it has none

	applied []*enginetest.Proposal
	fails   bool   // the test makes the node fail
	told    func() // called when a replica has told the node what it is about to show; may be nil
}

// withNode runs fn in a bubble with a registered node. Another member leads.
func withNode(t *testing.T, fn func(t *testing.T, n *node)) {
	t.Helper()
	withShards(t, 1, fn)
}

// withSchemes is withNode for a node that knows other schemes.
func withSchemes(t *testing.T, schemes tree.Schemes, fn func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNodeWith(t, enginetest.Origin(), 1, schemes)
		n.lead(enginetest.Other)
		n.commit()
		fn(t, n)
	})
}

// withShards is withNode for a node with several shards.
func withShards(t *testing.T, shards int, fn func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newShardedNode(t, enginetest.Origin(), shards)
		n.lead(enginetest.Other)
		n.commit()
		fn(t, n)
	})
}

// newNode starts a node's loops. They end with the test.
func newNode(t *testing.T) *node { return newNodeOf(t, enginetest.Origin()) }

func newNodeOf(t *testing.T, origin session.Origin) *node { return newShardedNode(t, origin, 1) }

func newShardedNode(t *testing.T, origin session.Origin, shards int) *node {
	return newNodeWith(t, origin, shards, tree.BuiltinSchemes())
}

func newNodeWith(t *testing.T, origin session.Origin, shards int, schemes tree.Schemes) *node {
	origin.Level = max(origin.Level, LevelMin)
	n := &node{t: t, log: &enginetest.Log{}, fake: enginetest.NewClock()}
	d, err := disk.Open(memory.New(), "/")
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(Config{Dir: d.Dir(), Member: MemberID(origin.Member), RequestTimeout: 5 * time.Second, MaxDataSize: DefaultMaxDataSize,
		MinSessionTimeout: time.Second, MaxSessionTimeout: time.Minute, ContainerCheckInterval: replica.DefaultContainerCheckInterval, Schemes: schemes,
		Logger: slog.New(slog.DiscardHandler), Seams: Seams{Clock: n.fake.Clock()}})
	n.Engine, e.disk, e.identity.Disk = e, d, d
	e.roster.Claim(MemberID(origin.Member))
	for range shards {
		n.newShard(origin)
	}
	e.loaded()
	n.shard = e.home()
	n.outbox = n.shard.Outbox
	e.purger = replica.NewPurger(e.shards, n.log, e.log)
	e.seeding = seeding.New(seeding.Options{Shards: e.shards})
	e.loops.Go(func() { e.keeper.Loop(e.stop) })
	t.Cleanup(func() {
		if err := d.Err(); err != nil && !n.fails {
			t.Errorf("the node failed: %v", err)
		}
		e.finish(outbox.ErrClosed, nil)
		close(e.stop)
		e.loops.Wait()
		if err := e.undoOpen(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// newShard adds a shard to the node.
func (n *node) newShard(origin session.Origin) {
	r := n.newReplica(ShardID(len(n.shards)+1), n.log, spy{callbacks{n.Engine}, n}, origin)
	n.loops.Go(r.Outbox.Loop)
}

// A spy watches what a replica tells its node before it shows it.
type spy struct {
	callbacks
	n *node
}

func (s spy) Gone(changes []tree.Change) {
	s.callbacks.Gone(changes)
	s.look()
}

func (s spy) Reconcile(at replication.ShardID, old, next *tree.Tree, table *session.Table, registered bool) {
	s.callbacks.Reconcile(at, old, next, table, registered)
	s.look()
}

func (s spy) look() {
	if s.n.told != nil {
		s.n.told()
	}
}

// tree returns the tree of the node's first shard.
func (n *node) tree() *tree.Tree { return n.shard.Tree() }

// withImage gives each shard of the node an image, and loads what is in it.
func (n *node) withImage() *node {
	n.t.Helper()
	for _, r := range n.shards {
		image, err := storage.Open(storage.Options{Disk: n.disk, Dir: datadir.ImageDir(n.cfg.Dir, r.Shard)})
		if err != nil {
			n.t.Fatal(err)
		}
		if r.Shard == command.HomeShard {
			n.image = image
		}
		if err := r.Load(image); err != nil {
			n.t.Fatal(err)
		}
	}
	return n
}

// apply applies proposals on the node's replicas, in order.
func (n *node) apply(ps ...*enginetest.Proposal) {
	n.t.Helper()
	for _, p := range ps {
		r := n.shards[max(p.Shard, command.HomeShard)-1]
		if n.image == nil {
			n.applyOn(r.Shard, enginetest.Decode(n.t, p.Cmd))
			continue
		}
		r.Apply([]replication.Entry{{Index: r.Index() + 1, Cmd: p.Cmd}})
	}
	n.applied = append(n.applied, ps...)
	synctest.Wait()
}

func (n *node) applyCommand(c command.Command) { n.applyOn(command.HomeShard, c) }

func (n *node) applyOn(id ShardID, c command.Command) {
	r := n.shards[id-1]
	r.ApplyOne(r.Index(), &c)
}

// commit applies proposals until there are no more.
func (n *node) commit() {
	n.t.Helper()
	synctest.Wait()
	for ps := n.log.Drain(); len(ps) > 0; ps = n.log.Drain() {
		n.apply(ps...)
	}
}

// run lets time pass. Every proposal is committed at once.
func (n *node) run(d time.Duration) {
	n.t.Helper()
	const step = 10 * time.Millisecond
	for ; d > 0; d -= step {
		enginetest.Pass(min(d, step))
		n.commit()
	}
}

// requests returns the requests that were proposed since the last call, without repeats, and the
// proposals.
func (n *node) requests() (list []command.Request, ps []*enginetest.Proposal) {
	n.t.Helper()
	synctest.Wait()
	ps = n.log.Drain()
	seen := make(map[uint64]bool)
	for _, p := range ps {
		if c := enginetest.Decode(n.t, p.Cmd); c.Kind == command.KindBatch && !seen[c.Seq] {
			seen[c.Seq] = true
			list = append(list, c.Requests...)
		}
	}
	return list, ps
}

// open opens a session with the given identities. Its newest proof is now.
func (n *node) open(timeout time.Duration, who ...tree.Identity) *Session {
	n.t.Helper()
	var s *Session
	var err error
	go func() { s, err = n.OpenSession(n.t.Context(), timeout, who...) }()
	n.commit()
	if err != nil || s == nil {
		n.t.Fatalf("open: %v", err)
	}
	return s
}

func (n *node) mkdir(s *Session, path string) {
	n.t.Helper()
	p := s.Submit(n.t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: path}})
	n.commit()
	if err := outcome(p); err != nil {
		n.t.Fatalf("create %s: %v", path, err)
	}
}

// claim returns a claim whose znode exists.
func (n *node) claim(s *Session, path string) *keeper.Claim {
	n.t.Helper()
	c := s.Claim(n.t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: path, Mode: tree.Ephemeral}}, nil)
	n.commit()
	if _, err := c.Created(n.t.Context()); err != nil {
		n.t.Fatalf("claim %s: %v", path, err)
	}
	return c
}

// A hold is a claim with its tenure.
type hold struct {
	*keeper.Claim
	tenure *keeper.Tenure
}

func (n *node) held(s *Session, path string) hold {
	n.t.Helper()
	c := n.claim(s, path)
	tenure, err := c.Hold(false)
	if err != nil {
		n.t.Fatalf("hold %s: %v", path, err)
	}
	return hold{c, tenure}
}

// holdErr returns the error of Hold.
func holdErr(c *keeper.Claim) error {
	_, err := c.Hold(false)
	return err
}

// exists reports whether a znode exists on the shard of its path.
func (n *node) exists(path string) bool {
	_, ok := n.shards.At(path).Tree().Exists(path)
	return ok
}

// lead changes the leader and tells the node.
func (n *node) lead(m replication.MemberID) {
	n.log.Elect(m)
	for _, s := range n.shards {
		s.Outbox.LeaderChanged()
	}
	synctest.Wait()
}

func (n *node) wantState(s *Session, want session.State) {
	n.t.Helper()
	if got, _ := s.State(); got != want {
		n.t.Fatalf("session is %v, want %v", got, want)
	}
}

// outcome returns the error of a request. Without an outcome, the error says that the request is
// waiting.
func outcome(p keeper.Pending) error {
	if !p.Known() {
		return errors.New("waiting")
	}
	_, err := p.Result()
	return err
}

// callOutcome returns the error of a call. Without an outcome, the error says that the call is
// waiting.
func callOutcome(c *outbox.Call) error {
	if !c.IsDone() {
		return errors.New("waiting")
	}
	return c.Err
}

// pathOf returns the path of the claim's first znode.
func pathOf(c *keeper.Claim) string {
	results, _ := c.Created(context.Background())
	return results[0].Path
}

// cause returns why a context has ended, or nil.
func cause(ctx context.Context) error { return context.Cause(ctx) }

// tableOf returns the session table of a shard. Nothing may be applied while a test reads it.
func tableOf(r *replica.Replica) (table *session.Table) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.Inspect(ctx, nil, func(t *session.Table) { table = t }); err != nil {
		panic(err) // the test itself holds the lock
	}
	return table
}

// applyNothing applies an entry that changes nothing, so that the image lacks an entry.
func (n *node) applyNothing() {
	n.apply(&enginetest.Proposal{Cmd: command.EncodePurged(uint32(command.HomeShard), nil)})
}

// mortals counts the containers and TTL znodes of the first shard.
func (n *node) mortals() (found int) {
	n.tree().Mortals(func(tree.Mortal) bool { found++; return true })
	return found
}

// zxidOf returns the newest transaction of a shard.
func zxidOf(r *replica.Replica) tree.Zxid { return r.Visible() }

// expire lets the log expire a session, as if all its silence had been counted.
func (n *node) expire(id tree.SessionID) {
	tableOf(n.shard).DecideEnd(id, zxidOf(n.shard), true)
	n.apply(&enginetest.Proposal{Cmd: command.EncodeExpire(1, 1)})
}
