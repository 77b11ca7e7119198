package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrNotSeeded is why a node with Config.Seed is never ready: its ensemble was used before anything
// was loaded.
var ErrNotSeeded = errors.New("the ensemble has begun without the backup in Config.Seed")

const (
	// seedLook is how often a node looks whether it has something to load.
	seedLook = 100 * time.Millisecond
	// seedPatience is how long a member that does not lead waits for the one that does, which may
	// have no backup, or another one.
	seedPatience = 3 * time.Second
	// seedAgain is how long a node waits after an error before it reads the backup again.
	seedAgain = 5 * time.Second
	// seedMoment is too short for another ensemble to be loaded, to serve and to be lost.
	seedMoment = 10 * time.Second
	// seedTries bounds how often a part is proposed in a row.
	seedTries = 10
)

// seeding loads Config.Seed into a new ensemble. Every member that has a backup can do it. Whoever
// leads a shard begins. If nothing comes of that, others do it, one after the other. What is
// proposed twice, or comes from another backup, changes nothing.
//
// The home shard begins, then the others are loaded, and the home shard at last. It opens no session
// from its first part to its last.
type seeding struct {
	engine *Engine

	lack atomic.Pointer[string] // what the loop waits for; nil or empty: nothing that it could say

	// Owned by the loop.
	plan  *seedPlan  // nil: the backup was not read yet
	turns []seedTurn // indexed by ShardID - 1
	after time.Time  // not before then, because of an error
	// lack has said the same since then, and logged says whether the log has it.
	since  time.Time
	logged bool
}

// A seedTurn says whether this member loads a shard, though it does not lead.
type seedTurn struct {
	leader Leader
	next   uint64
	since  time.Time // neither has changed since
	mine   bool
}

// errNotMyTurn says that another member loads the shard now.
var errNotMyTurn = errors.New("another member loads the backup")

// unseeded reports whether nobody may use the ensemble yet, because it begins with a backup.
func (e *Engine) unseeded() bool {
	home := e.home().Seed()
	return e.halfSeeded() || e.seeding != nil && !home.Done
}

// halfSeeded reports whether this member has a part of the backup that the ensemble begins with. The
// home shard begins with it before the others and ends after them. But here it may be ahead.
func (e *Engine) halfSeeded() bool {
	home := e.home().Seed()
	return slices.ContainsFunc(e.shards, func(r *replica.Replica) bool { s := r.Seed(); return s.Loading() || home.Next > 0 && s.Next == 0 })
}

// seedLack says what unseeded waits for, or nothing.
func (e *Engine) seedLack() string {
	if !e.unseeded() {
		return ""
	}
	if e.seeding != nil {
		if lack := e.seeding.lack.Load(); lack != nil && *lack != "" {
			return "the backup in Config.Seed is not loaded: " + *lack
		}
		return "the backup in Config.Seed is not loaded yet"
	}
	return "the ensemble is being loaded from a backup, by the members that have a Config.Seed"
}

// awaitSeed waits until the ensemble is loaded, if it begins with a backup.
func (e *Engine) awaitSeed(ctx context.Context) error {
	for e.unseeded() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.done:
			return e.over()
		case <-time.After(replica.PollInterval):
		}
	}
	return nil
}

// missedSeed returns ErrNotSeeded if this node has a backup for an ensemble that has begun without
// one.
func (e *Engine) missedSeed() error {
	if now := e.home().Seed(); e.seeding == nil || now.Next > 0 || !now.Done {
		return nil
	}
	return fmt.Errorf("%w: somebody used it before: remove Config.Seed if it should go on with what it has, or begin again with empty directories", ErrNotSeeded)
}

// seedLoop loads Config.Seed. It ends with the node, or when nothing can be loaded any more and
// Config.Seed was compared with what was.
func (e *Engine) seedLoop() {
	for _, r := range e.shards {
		select {
		case <-r.Outbox.Ready:
		case <-e.stop:
			return
		case <-e.done:
			return
		}
	}
	ctx, cancel := e.whole()
	defer cancel()
	ticker := time.NewTicker(seedLook)
	defer ticker.Stop()
	before := e.home().Seed()
	for !e.home().Seed().Done {
		e.seeding.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
	if err := e.missedSeed(); err != nil {
		e.log.Error("the backup is not loaded", "cause", err)
		return
	}
	if !before.Done {
		e.log.Info("the backup is loaded", "sum", sumOf(e.home().Seed().Source), "took", time.Since(e.started))
	}
	go e.seeding.compare() // Close does not wait for it: it may hang, and nothing depends on it
}

// whole returns a context that lasts as long as the node, or until cancel is called.
func (e *Engine) whole() (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		select {
		case <-e.stop:
		case <-e.done:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// compare warns if Config.Seed is not the backup that the ensemble has begun with. Nobody loads it,
// and its owner may believe that it is loaded. A backup that cannot be read is not needed any more.
func (s *seeding) compare() {
	e, began := s.engine, s.engine.home().Seed().Source
	ctx, cancel := e.whole()
	defer cancel()
	if s.plan != nil && s.plan.source == began {
		return
	}
	from, done, err := openSeed(ctx, e.cfg.Seed)
	if err != nil {
		return
	}
	defer done()
	sum := sha256.New()
	if _, err := io.Copy(sum, from); err != nil || bytes.Equal(sum.Sum(nil), began[:]) || ctx.Err() != nil {
		return
	}
	e.log.Warn("the backup in Config.Seed is ignored", "sum", sumOf(began), "ignored", hex.EncodeToString(sum.Sum(nil)), "file", from.name(), "cause", errBegun)
}

// errBegun is why a backup is ignored.
var errBegun = errors.New("the ensemble has begun with another backup, and loads none again: to begin with this one, empty the directories of all members first")

// look does what can be done now.
func (s *seeding) look(ctx context.Context) {
	if time.Now().Before(s.after) {
		return
	}
	err := s.load(ctx)
	if ctx.Err() != nil {
		return
	}
	s.say(err)
	if err == nil || errors.Is(err, errNotMyTurn) {
		return
	}
	if !isSeedWait(err) {
		s.plan, s.after = nil, time.Now().Add(seedAgain) // it may be mended
	} else if time.Since(s.since) < seedAgain {
		return // it may be over soon
	}
	if !s.logged {
		s.logged = true
		s.engine.log.Warn("the backup is not loaded yet", "cause", err)
	}
}

// say publishes what the loop waits for.
func (s *seeding) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if old := s.lack.Load(); old == nil || *old != text {
		s.lack.Store(&text)
		s.since, s.logged = time.Now(), false
	}
}

// A seedWait is something to wait for that reading the backup again does not change.
type seedWait string

func (w seedWait) Error() string { return string(w) }

func isSeedWait(err error) bool { return errors.As(err, new(seedWait)) }

// load loads what this member should load now. It returns what it waits for.
func (s *seeding) load(ctx context.Context) error {
	e := s.engine
	home := e.home()
	if home.Seed().Next == 0 {
		return s.begin(ctx)
	}
	for _, r := range e.shards[command.HomeShard:] {
		if r.Seed().Done {
			continue
		}
		if err := s.loadShard(ctx, r); err != nil && !errors.Is(err, errNotMyTurn) {
			return err
		}
	}
	for _, r := range e.shards[command.HomeShard:] {
		if !r.Seed().Done {
			return errNotMyTurn
		}
	}
	return s.loadShard(ctx, home)
}

// begin begins to load the home shard. From then on nobody opens a session.
func (s *seeding) begin(ctx context.Context) error {
	home := s.engine.home()
	if !s.isMyTurn(home) {
		return errNotMyTurn
	}
	if err := s.read(ctx); err != nil {
		return err
	}
	return s.beginShard(ctx, home)
}

// beginShard begins to load a shard.
func (s *seeding) beginShard(ctx context.Context, r *replica.Replica) error {
	return s.propose(ctx, r, r, isPast(r, 0), func() []byte { return s.plan.begin(s.engine.clock.Wall()) })
}

// isPast reports whether a part of a shard is loaded, or not needed.
func isPast(r *replica.Replica, part uint64) func() bool {
	return func() bool { now := r.Seed(); return now.Next > part || now.Done }
}

// rebase has all shards go on after the clock as it is now, the home shard last, unless they began
// a moment ago. Another ensemble that began with the same backup may have served since. The last part
// of the home shard follows, and until then this can be repeated.
func (s *seeding) rebase(ctx context.Context) error {
	e := s.engine
	home, wall := e.home(), e.clock.Wall()
	to := s.plan.base(wall)
	for _, r := range slices.Concat(e.shards[command.HomeShard:], e.shards[:command.HomeShard]) {
		isThere := func() bool { return r.Visible()+tree.Zxid(seedMoment.Microseconds()) >= to }
		if err := s.propose(ctx, home, r, isThere, func() []byte { return s.plan.begin(wall) }); err != nil {
			return err
		}
	}
	return nil
}

// read reads the whole backup, unless it was read before, and checks that this ensemble can have
// it.
func (s *seeding) read(ctx context.Context) error {
	e := s.engine
	if s.plan == nil {
		from, done, err := openSeed(ctx, e.cfg.Seed)
		if err != nil {
			return err
		}
		defer done()
		if s.plan, err = planSeed(from, len(e.shards), e.cfg.seedPart()); err != nil {
			return err
		}
	}
	in := e.home().SchemesInForce()
	for _, name := range s.plan.schemes {
		if !slices.Contains(in, name) {
			return seedWait(fmt.Sprintf("its ACLs may use the authentication scheme %q, which is not in force here: set Config.Schemes on all members", name))
		}
	}
	if now := e.home().Seed(); now.Next > 0 && now.Source != s.plan.source {
		return fmt.Errorf("this member's backup has the SHA-256 %s, the one that is being loaded has %s", sumOf(s.plan.source), sumOf(now.Source))
	}
	return nil
}

// sumOf returns the sum of a backup as sha256sum prints it.
func sumOf(s command.Source) string { return hex.EncodeToString(s[:]) }

// loadShard loads a shard, as long as it is this member's turn.
func (s *seeding) loadShard(ctx context.Context, r *replica.Replica) error {
	e := s.engine
	if !s.isMyTurn(r) {
		return errNotMyTurn
	}
	if err := s.read(ctx); err != nil {
		return err
	}
	if r.Seed().Next == 0 {
		if err := s.beginShard(ctx, r); err != nil {
			return err
		}
	}
	from, done, err := openSeed(ctx, e.cfg.Seed)
	if err != nil {
		return err
	}
	defer done()
	parts, err := newSeedCutter(s.plan, from, r.Shard, e.cfg.seedPart())
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
			if err := s.rebase(ctx); err != nil {
				return err
			}
		}
		load := command.Load{Part: n, Source: s.plan.source, Last: last, Znodes: part}
		if err := s.propose(ctx, r, r, isPast(r, n), func() []byte { return command.EncodeLoad(load, e.clock.Wall().UnixMilli()) }); err != nil {
			return err
		}
	}
	return nil
}

// propose proposes a part for a shard until it is applied, from whomever, as long as it is this
// member's turn on another.
func (s *seeding) propose(ctx context.Context, turn, r *replica.Replica, isOver func() bool, cmd func() []byte) error {
	e := s.engine
	for try := 0; try < seedTries && !isOver(); try++ {
		if !s.isMyTurn(turn) {
			return errNotMyTurn
		}
		p, err := callbacks{e}.Propose(r.Shard, cmd())
		for since := time.Now(); !isOver() && time.Since(since) < replica.RetryAfter; {
			if err == nil && p.Dropped() {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(seedPoll):
			}
			if err != nil {
				break
			}
		}
	}
	if !isOver() {
		return seedWait(fmt.Sprintf("part %d of shard %d is not applied", r.Seed().Next, r.Shard))
	}
	return nil
}

// seedPoll is how often a member looks whether its part was applied.
const seedPoll = 2 * time.Millisecond

// isMyTurn reports whether this member should load a shard now.
func (s *seeding) isMyTurn(r *replica.Replica) bool {
	e, t := s.engine, &s.turns[r.Shard-1]
	leader, next := e.Leader(r.Shard), r.Seed().Next
	if leader != t.leader || next != t.next && !t.mine {
		*t = seedTurn{leader: leader, next: next, since: time.Now()}
	}
	if leader.Member == e.self() {
		return true
	}
	// Members take their turns at different times, so that rarely two of them do the same.
	nth := max(slices.Index(e.memberIDs(), e.self()), 0)
	t.mine = t.mine || leader.Member != 0 && time.Since(t.since) >= seedPatience+time.Duration(nth)*replica.RetryAfter
	return t.mine
}
