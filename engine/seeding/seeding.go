package seeding

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrNotSeeded is why a node with Config.Seed is never ready: its ensemble was used before anything
// was loaded.
var ErrNotSeeded = errors.New("the ensemble has begun without the backup in Config.Seed")

const (
	// lookInterval is how often a node looks whether it has something to load.
	lookInterval = 100 * time.Millisecond
	// patience is how long a member that does not lead waits for the one that does, which may
	// have no backup, or another one.
	patience = 3 * time.Second
	// again is how long a node waits after an error before it reads the backup again.
	again = 5 * time.Second
	// moment is too short for another ensemble to be loaded, to serve and to be lost.
	moment = 10 * time.Second
	// triesMax bounds how often a part is proposed in a row.
	triesMax = 10
)

// A Node is the member that loads.
type Node interface {
	Self() replication.MemberID
	// Members returns all members, in one order everywhere.
	Members() []replication.MemberID
	Leader(replication.ShardID) replication.Leader
	Propose(replication.ShardID, []byte) (outbox.Proposal, error)
}

// Options say who loads what.
type Options struct {
	Node    Node
	Shards  []*replica.Replica // the home shard first
	Part    int                // when a part is full, in bytes; the same on all members
	Wall    func() time.Time
	Started time.Time // of the node
	Log     *slog.Logger

	// Open is Config.Seed. If it is nil, this member loads nothing, and waits for those that do.
	Open func(context.Context) (io.ReadCloser, error)
}

// A Loader loads Config.Seed into a new ensemble. Every member that has a backup can do it. Whoever
// leads a shard begins. If nothing comes of that, others do it, one after the other. What is
// proposed twice, or comes from another backup, changes nothing.
//
// The home shard begins, then the others are loaded, and the home shard at last. It opens no session
// from its first part to its last.
type Loader struct {
	o Options

	lack atomic.Pointer[string] // what Run waits for; nil or empty: nothing that it could say

	// Owned by Run.
	plan  *plan     // nil: the backup was not read yet
	turns []turn    // indexed by ShardID - 1
	after time.Time // not before then, because of an error
	// lack has said the same since then, and logged says whether the log has it.
	since  time.Time
	logged bool
}

// New returns a Loader. Its other methods may be called before Run, and at the same time.
func New(o Options) *Loader { return &Loader{o: o, turns: make([]turn, len(o.Shards))} }

func (l *Loader) home() *replica.Replica { return l.o.Shards[command.HomeShard-1] }

// A turn says whether this member loads a shard, though it does not lead.
type turn struct {
	leader replication.Leader
	next   uint64
	since  time.Time // neither has changed since
	mine   bool
}

// errNotMyTurn says that another member loads the shard now.
var errNotMyTurn = errors.New("another member loads the backup")

// Pending reports whether nobody may use the ensemble yet, because it begins with a backup.
func (l *Loader) Pending() bool {
	home := l.home().Seed()
	return l.o.Open != nil && !home.Done || l.hasPart(home)
}

// hasPart reports whether this member has a part of the backup that the ensemble begins with. The
// home shard begins with it before the others and ends after them. But here it may be ahead.
func (l *Loader) hasPart(home command.Seed) bool {
	return slices.ContainsFunc(l.o.Shards, func(r *replica.Replica) bool { s := r.Seed(); return s.Loading() || home.Next > 0 && s.Next == 0 })
}

// Lack says what Pending waits for, or nothing.
func (l *Loader) Lack() string {
	switch lack := l.lack.Load(); {
	case !l.Pending():
		return ""
	case l.o.Open == nil:
		return "the ensemble is being loaded from a backup, by the members that have a Config.Seed"
	case lack == nil || *lack == "":
		return "the backup in Config.Seed is not loaded yet"
	default:
		return "the backup in Config.Seed is not loaded: " + *lack
	}
}

// Missed returns ErrNotSeeded if this member has a backup for an ensemble that has begun without
// one.
func (l *Loader) Missed() error {
	if now := l.home().Seed(); l.o.Open == nil || now.Next > 0 || !now.Done {
		return nil
	}
	return fmt.Errorf("%w: somebody used it before: remove Config.Seed if it should go on with what it has, or begin again with empty directories", ErrNotSeeded)
}

// Run loads Config.Seed, which is there. It ends with ctx, or when nothing can be loaded any more and
// Config.Seed is compared with what was.
func (l *Loader) Run(ctx context.Context) {
	for _, r := range l.o.Shards {
		select {
		case <-r.Outbox.Ready:
		case <-ctx.Done():
			return
		}
	}
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	before := l.home().Seed()
	for !l.home().Seed().Done {
		l.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
	if err := l.Missed(); err != nil {
		l.o.Log.Error("the backup is not loaded", "cause", err)
		return
	}
	if !before.Done {
		l.o.Log.Info("the backup is loaded", "sum", sumOf(l.home().Seed().Source), "took", time.Since(l.o.Started))
	}
	go l.compare(ctx) // nobody waits for it: it may hang, and nothing depends on it
}

// compare warns if Config.Seed is not the backup that the ensemble has begun with. Nobody loads it,
// and its owner may believe that it is loaded. A backup that cannot be read is not needed any more.
func (l *Loader) compare(ctx context.Context) {
	began := l.home().Seed().Source
	if l.plan != nil && l.plan.source == began {
		return
	}
	from, done, err := openBackup(ctx, l.o.Open)
	if err != nil {
		return
	}
	defer done()
	sum := sha256.New()
	if _, err := io.Copy(sum, from); err != nil || bytes.Equal(sum.Sum(nil), began[:]) || ctx.Err() != nil {
		return
	}
	l.o.Log.Warn("the backup in Config.Seed is ignored", "sum", sumOf(began), "ignored", hex.EncodeToString(sum.Sum(nil)), "file", from.name(), "cause", errBegun)
}

// errBegun is why a backup is ignored.
var errBegun = errors.New("the ensemble has begun with another backup, and loads none again: to begin with this one, empty the directories of all members first")

// look does what can be done now.
func (l *Loader) look(ctx context.Context) {
	if time.Now().Before(l.after) {
		return
	}
	err := l.load(ctx)
	if ctx.Err() != nil {
		return
	}
	l.say(err)
	if err == nil || errors.Is(err, errNotMyTurn) {
		return
	}
	if !isWaiting(err) {
		l.plan, l.after = nil, time.Now().Add(again) // it may be mended
	} else if time.Since(l.since) < again {
		return // it may be over soon
	}
	if !l.logged {
		l.logged = true
		l.o.Log.Warn("the backup is not loaded yet", "cause", err)
	}
}

// say publishes what the loop waits for.
func (l *Loader) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if old := l.lack.Load(); old == nil || *old != text {
		l.lack.Store(&text)
		l.since, l.logged = time.Now(), false
	}
}

// A waiting is something to wait for that reading the backup again does not change.
type waiting string

func (w waiting) Error() string { return string(w) }

func isWaiting(err error) bool { return errors.As(err, new(waiting)) }

// load loads what this member should load now. It returns what it waits for.
func (l *Loader) load(ctx context.Context) error {
	home := l.home()
	if home.Seed().Next == 0 {
		return l.begin(ctx)
	}
	for _, r := range l.o.Shards[command.HomeShard:] {
		if r.Seed().Done {
			continue
		}
		if err := l.loadShard(ctx, r); err != nil && !errors.Is(err, errNotMyTurn) {
			return err
		}
	}
	for _, r := range l.o.Shards[command.HomeShard:] {
		if !r.Seed().Done {
			return errNotMyTurn
		}
	}
	return l.loadShard(ctx, home)
}

// begin begins to load the home shard. From then on nobody opens a session.
func (l *Loader) begin(ctx context.Context) error {
	home := l.home()
	if !l.isMyTurn(home) {
		return errNotMyTurn
	}
	if err := l.read(ctx); err != nil {
		return err
	}
	return l.beginShard(ctx, home)
}

// beginShard begins to load a shard.
func (l *Loader) beginShard(ctx context.Context, r *replica.Replica) error {
	return l.propose(ctx, r, r, isPast(r, 0), func() []byte { return l.plan.begin(l.o.Wall()) })
}

// isPast reports whether a part of a shard is loaded, or not needed.
func isPast(r *replica.Replica, part uint64) func() bool {
	return func() bool { now := r.Seed(); return now.Next > part || now.Done }
}

// rebase has all shards go on after the clock as it is now, the home shard last, unless they began
// a moment ago. Another ensemble that began with the same backup may have served since. The last part
// of the home shard follows, and until then this can be repeated.
func (l *Loader) rebase(ctx context.Context) error {
	home, wall := l.home(), l.o.Wall()
	to := l.plan.base(wall)
	for _, r := range slices.Concat(l.o.Shards[command.HomeShard:], l.o.Shards[:command.HomeShard]) {
		isThere := func() bool { return r.Visible()+tree.Zxid(moment.Microseconds()) >= to }
		if err := l.propose(ctx, home, r, isThere, func() []byte { return l.plan.begin(wall) }); err != nil {
			return err
		}
	}
	return nil
}

// read reads the whole backup, unless it was read before, and checks that this ensemble can have
// it.
func (l *Loader) read(ctx context.Context) error {
	if l.plan == nil {
		from, done, err := openBackup(ctx, l.o.Open)
		if err != nil {
			return err
		}
		defer done()
		if l.plan, err = newPlan(from, len(l.o.Shards), l.o.Part); err != nil {
			return err
		}
	}
	in := l.home().SchemesInForce()
	for _, name := range l.plan.schemes {
		if !slices.Contains(in, name) {
			return waiting(fmt.Sprintf("its ACLs may use the authentication scheme %q, which is not in force here: set Config.Schemes on all members", name))
		}
	}
	if now := l.home().Seed(); now.Next > 0 && now.Source != l.plan.source {
		return fmt.Errorf("this member's backup has the SHA-256 %s, the one that is being loaded has %s", sumOf(l.plan.source), sumOf(now.Source))
	}
	return nil
}

// sumOf returns the sum of a backup as sha256sum prints it.
func sumOf(s command.Source) string { return hex.EncodeToString(s[:]) }

// loadShard loads a shard, as long as it is this member's turn.
func (l *Loader) loadShard(ctx context.Context, r *replica.Replica) error {
	if !l.isMyTurn(r) {
		return errNotMyTurn
	}
	if err := l.read(ctx); err != nil {
		return err
	}
	if r.Seed().Next == 0 {
		if err := l.beginShard(ctx, r); err != nil {
			return err
		}
	}
	from, done, err := openBackup(ctx, l.o.Open)
	if err != nil {
		return err
	}
	defer done()
	parts, err := newCutter(l.plan, from, r.Shard, l.o.Part)
	if err != nil {
		return err
	}
	for n := uint64(1); !r.Seed().Done; n++ {
		part, last, err := parts.next()
		if err != nil {
			return err
		}
		if n < r.Seed().Next {
			continue
		}
		if last && r.Shard == command.HomeShard {
			if err := l.rebase(ctx); err != nil {
				return err
			}
		}
		load := command.Load{Part: n, Source: l.plan.source, Last: last, Znodes: part}
		if err := l.propose(ctx, r, r, isPast(r, n), func() []byte { return command.EncodeLoad(load, l.o.Wall().UnixMilli()) }); err != nil {
			return err
		}
	}
	return nil
}

// propose proposes a part for a shard until it is applied, from whomever, as long as it is this
// member's turn on another.
func (l *Loader) propose(ctx context.Context, turn, r *replica.Replica, isOver func() bool, cmd func() []byte) error {
	for try := 0; try < triesMax && !isOver(); try++ {
		if !l.isMyTurn(turn) {
			return errNotMyTurn
		}
		p, err := l.o.Node.Propose(r.Shard, cmd())
		for since := time.Now(); !isOver() && time.Since(since) < replica.RetryAfter; {
			if err == nil && p.Dropped() {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pollInterval):
			}
			if err != nil {
				break
			}
		}
	}
	if !isOver() {
		return waiting(fmt.Sprintf("part %d of shard %d is not applied", r.Seed().Next, r.Shard))
	}
	return nil
}

// pollInterval is how often a member looks whether its part was applied.
const pollInterval = 2 * time.Millisecond

// isMyTurn reports whether this member should load a shard now.
func (l *Loader) isMyTurn(r *replica.Replica) bool {
	t := &l.turns[r.Shard-1]
	leader, next := l.o.Node.Leader(r.Shard), r.Seed().Next
	if leader != t.leader || next != t.next && !t.mine {
		*t = turn{leader: leader, next: next, since: time.Now()}
	}
	if leader.Member == l.o.Node.Self() {
		return true
	}
	// Members take their turns at different times, so that rarely two of them do the same.
	nth := max(slices.Index(l.o.Node.Members(), l.o.Node.Self()), 0)
	t.mine = t.mine || leader.Member != 0 && time.Since(t.since) >= patience+time.Duration(nth)*replica.RetryAfter
	return t.mine
}
