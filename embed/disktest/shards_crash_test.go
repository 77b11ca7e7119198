package disktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// F2: a session of member 3 with ephemerals on all four shards is closed. Each of the members
// crashes at each step from then on, or at some steps without -every.
func TestShards_CrashWhileASessionCloses(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		newStage(t).sweep(everybody, func(s *stage, c *crash) {
			dying, beside := s.enter("dying", s.lifeOfOwned(c)), s.enter("beside", s.lifeOfOwned(c))
			witness := s.enterAt(s.others(c.victim, stageOwner)[0], "witness", longLife)
			s.arm(c)
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = dying.Close() // fails if its own member crashes, or nobody leads for too long
			}()
			s.crashBy(c, closed)
			<-closed
			for _, id := range s.others(c.victim) {
				s.wantNothing(id, dying)
				s.wantAll(id, witness)
				if c.victim == stageOwner {
					s.wantNothing(id, beside)
				} else {
					s.wantAll(id, beside)
				}
			}
			s.ens.Restart(c.victim)
			s.wantNothing(c.victim, dying)
			s.wantAll(c.victim, witness)
			s.leave(witness, beside)
		})
	})
}

// F2: the same while a session is opened and introduced to one shard after the other, with an
// ephemeral on each.
func TestShards_CrashWhileASessionOpens(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		newStage(t).sweep(everybody, func(s *stage, c *crash) {
			witness := s.enterAt(s.others(c.victim, stageOwner)[0], "witness", longLife)
			node := s.ens.Node(stageOwner)
			s.arm(c)
			var a *actor
			entered := make(chan struct{})
			go func() {
				defer close(entered)
				a = s.tryEnter(node, "entering", s.lifeOfOwned(c))
			}()
			s.crashBy(c, entered)
			if c.victim != stageOwner {
				s.ens.Restart(c.victim)
			}
			<-entered
			if c.victim != stageOwner {
				for _, id := range s.ens.Members() {
					s.wantAsTold(id, a)
				}
				s.leave(a)
			}
			for _, id := range s.others(stageOwner) {
				s.wantNothing(id, a)
				s.wantAll(id, witness)
			}
			if c.victim == stageOwner {
				s.ens.Restart(stageOwner)
			}
			s.wantNothing(stageOwner, a)
			s.leave(witness)
		})
	})
}

// F2: the same for the two members that remain when the owner has died. They expire its session.
// One of them leads the home shard and purges the others; without that member there is no quorum
// until it is back.
func TestShards_CrashWhileASessionExpires(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		newStage(t).sweep([]embed.MemberID{1, 2}, func(s *stage, c *crash) {
			dying := s.enter("dying", shortLife)
			witness := s.enterAt(s.others(c.victim, stageOwner)[0], "witness", longLife)
			changes, err := witness.Watch(bounded(s.t), "/", embed.WatchRecursive)
			must(s.t, err)
			s.arm(c)
			s.ens.Kill(stageOwner)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				s.seeGo(witness, changes, dying)
			}()
			s.crashBy(c, gone)
			s.ens.Restart(c.victim)
			for _, id := range s.others(stageOwner) {
				s.wantNothing(id, dying)
				s.wantAll(id, witness)
			}
			<-gone
			s.ens.Restart(stageOwner)
			s.wantNothing(stageOwner, dying)
			s.leave(witness)
		})
	})
}

// A crash ends a member at one of its steps. A step is a call that changes the member's disk. What
// the member did and sent before has happened. If it is mute, the step happens too, but nobody
// hears of it.
type crash struct {
	victim embed.MemberID
	at     int // which step, from 1
	mute   bool

	left   atomic.Int64
	cut    func() // cuts the victim off from the others
	sprung chan struct{}
	once   sync.Once
}

func (c *crash) String() string {
	return fmt.Sprintf("member %d at step %d, mute: %v", c.victim, c.at, c.mute)
}

// ask is called before each step.
func (c *crash) ask() error {
	left := c.left.Add(-1)
	if left > 0 {
		return nil
	}
	defer c.once.Do(func() { close(c.sprung) })
	if left == 0 && c.mute {
		c.cut()
		return nil
	}
	return syscall.EIO
}

func (c *crash) happened() bool {
	select {
	case <-c.sprung:
		return true
	default:
		return false
	}
}

// steps returns how many steps the victim has made or begun.
func (c *crash) steps() int { return c.at - int(c.left.Load()) }

// A stage is three members with four shards. Each leads its share of the shards; member 1 leads the
// home shard and one more.
type stage struct {
	t     *testing.T
	ens   *embedtest.Ensemble
	crash atomic.Pointer[crash]
	roots []string // a znode on each shard, the home shard's first
	runs  int
}

// stageOwner owns the sessions that the test watches.
const stageOwner embed.MemberID = 3

var everybody = []embed.MemberID{1, 2, stageOwner}

const (
	shortLife = embedkit.LivesAWhile // the timeout of a session that expires in a run
	longLife  = 30 * time.Second     // and of a session that must not
)

func newStage(t *testing.T) *stage {
	s := &stage{t: t, roots: embedkit.OnShard}
	s.ens = embedtest.New(t, 3, embedtest.Options{
		Config: func(c *embed.Config) {
			id := c.ID
			c.Shards = len(embedkit.OnShard)
			c.Inside = &inside.Seams{Fault: func(disk.Op, string) error {
				if c := s.crash.Load(); c != nil && c.victim == id {
					return c.ask()
				}
				return nil
			}}
		},
	})
	setup := s.ens.Session(1, embed.SessionOptions{})
	for _, path := range s.roots {
		_, err := setup.Create(bounded(t), path, nil, embed.Persistent)
		must(t, err)
	}
	must(t, setup.Close())
	return s
}

// sweep plays with each victim: once without a crash to count the steps, and then with a crash at
// every step or at some.
func (s *stage) sweep(victims []embed.MemberID, play func(*stage, *crash)) {
	rng := seeded(s.t)
	for _, victim := range victims {
		steps := s.run(play, &crash{victim: victim, at: 1 << 30})
		s.t.Logf("member %d makes %d steps", victim, steps)
		if !*everyCall {
			s.run(play, &crash{victim: victim, at: 1 + rng.IntN(steps), mute: rng.IntN(2) == 0})
			continue
		}
		for at := 1; s.run(play, &crash{victim: victim, at: at}) >= at; at++ {
			s.run(play, &crash{victim: victim, at: at, mute: true})
		}
	}
}

// run plays once and returns how many steps the victim made.
func (s *stage) run(play func(*stage, *crash), c *crash) int {
	s.runs++
	s.lead()
	c.left.Store(int64(c.at))
	c.sprung = make(chan struct{})
	c.cut = func() {
		for _, other := range s.others(c.victim) {
			s.ens.Faults(c.victim).SetLink(other, embedtest.Link{Cut: true})
		}
	}
	play(s, c)
	if s.t.Failed() {
		s.t.Fatal(c)
	}
	return c.steps()
}

// lead makes every member lead its share of the shards.
func (s *stage) lead() {
	s.ens.Until("every member to lead its share", func() bool {
		all := true
		for _, id := range s.ens.Members() {
			n := s.ens.Node(id)
			for i, shard := range n.Status().Shards {
				share := s.ens.Members()[i%3]
				all = all && shard.Leader == share
				if shard.Leader == id && id != share {
					// This may fail; the next look asks again.
					_ = n.TransferLeadership(shard.Shard, share)
				}
			}
		}
		return all
	})
}

// arm counts the victim's steps from now on.
func (s *stage) arm(c *crash) { s.crash.Store(c) }

// crashBy waits until the victim has crashed, or until done is closed and the victim's steps are
// over. In both cases it is dead afterwards.
func (s *stage) crashBy(c *crash, done <-chan struct{}) {
	s.t.Helper()
	select {
	case <-c.sprung:
	case <-done:
		steps, since := c.steps(), time.Now()
		s.ens.Until("the victim to have nothing more to do", func() bool {
			if now := c.steps(); now != steps {
				steps, since = now, time.Now()
			}
			return c.happened() || time.Since(since) > 20*embedtest.DefaultTick
		})
	}
	s.crash.Store(nil)
	s.ens.Kill(c.victim)
	s.ens.HealAll()
}

// others returns the members except some.
func (s *stage) others(but ...embed.MemberID) []embed.MemberID {
	return slices.DeleteFunc(s.ens.Members(), func(id embed.MemberID) bool { return slices.Contains(but, id) })
}

// lifeOfOwned returns the timeout of a session of the owner. The session must expire if the owner
// is the victim.
func (s *stage) lifeOfOwned(c *crash) time.Duration {
	if c.victim == stageOwner {
		return shortLife
	}
	return longLife
}

// An actor is a session with an ephemeral on every shard.
type actor struct {
	*embed.Session // nil if no session could be opened
	name           string
	told           []error // the outcomes of its creates, by shard
}

// tryEnter opens a session that creates its ephemerals. It repeats what was certainly not applied.
func (s *stage) tryEnter(n *embed.Node, name string, timeout time.Duration) *actor {
	a := &actor{name: fmt.Sprint(name, "-", s.runs), told: make([]error, len(s.roots))}
	ctx, err := bounded(s.t), embed.ErrUnavailable
	again := func(err error) bool {
		<-time.After(time.Millisecond) // virtual time does not pass by itself
		return errors.Is(err, embed.ErrUnavailable) && ctx.Err() == nil
	}
	for again(err) {
		a.Session, err = n.NewSession(ctx, embed.SessionOptions{Timeout: timeout})
	}
	for i := range s.roots {
		for a.told[i] = err; a.Session != nil; {
			_, a.told[i] = a.Create(ctx, s.path(a, i), nil, embed.Ephemeral)
			if !again(a.told[i]) {
				break
			}
		}
	}
	return a
}

func (s *stage) enterAt(id embed.MemberID, name string, timeout time.Duration) *actor {
	s.t.Helper()
	a := s.tryEnter(s.ens.Node(id), name, timeout)
	must(s.t, errors.Join(a.told...))
	return a
}

func (s *stage) enter(name string, timeout time.Duration) *actor {
	s.t.Helper()
	return s.enterAt(stageOwner, name, timeout)
}

// leave closes sessions, of which some may have ended.
func (s *stage) leave(actors ...*actor) {
	for _, a := range actors {
		if a.Session != nil {
			_ = a.Close()
		}
	}
}

func (s *stage) path(a *actor, shard int) string { return s.roots[shard] + "/" + a.name }

// look returns a session of a member that shows everything acknowledged before.
func (s *stage) look(at embed.MemberID) *embed.Session {
	s.t.Helper()
	by := s.ens.Session(at, embed.SessionOptions{})
	_, err := by.Sync(bounded(s.t), "/")
	must(s.t, err)
	return by
}

// has returns which of an actor's ephemerals exist, by shard.
func (s *stage) has(by *embed.Session, a *actor) []bool {
	s.t.Helper()
	there := make([]bool, len(s.roots))
	for i := range s.roots {
		var err error
		_, there[i], err = by.Exists(bounded(s.t), s.path(a, i))
		must(s.t, err)
	}
	return there
}

// wantNothing waits until a member has nothing of an actor.
func (s *stage) wantNothing(at embed.MemberID, a *actor) {
	s.t.Helper()
	by := s.look(at)
	s.ens.Until(fmt.Sprintf("member %d to have nothing of %s", at, a.name), func() bool { return !slices.Contains(s.has(by, a), true) })
	must(s.t, by.Close())
}

// wantAll checks that a member has everything of a live actor.
func (s *stage) wantAll(at embed.MemberID, a *actor) {
	s.t.Helper()
	by := s.look(at)
	if there := s.has(by, a); slices.Contains(there, false) {
		s.t.Errorf("member %d has not all of %s, which lives: %v", at, a.name, there)
	}
	must(s.t, by.Close())
}

// wantAsTold checks a member against what a live actor was told: what was acknowledged exists, and
// what was refused does not.
func (s *stage) wantAsTold(at embed.MemberID, a *actor) {
	s.t.Helper()
	by := s.look(at)
	for i, there := range s.has(by, a) {
		if unknown := errors.Is(a.told[i], embed.ErrUnknownOutcome); !unknown && there != (a.told[i] == nil) {
			s.t.Errorf("member %d has %s: %v; its creator was told: %v", at, s.path(a, i), there, a.told[i])
		}
	}
	must(s.t, by.Close())
}

// seeGo waits until a witness has seen all ephemerals of an actor go. None may go before the
// session has ended on the home shard, where its ephemeral goes in the same step.
func (s *stage) seeGo(witness *actor, changes *embed.Watch, a *actor) {
	ctx := bounded(s.t)
	for left := len(s.roots); left > 0; {
		e, ok := <-changes.Events()
		if !ok {
			s.t.Errorf("the witness saw %d ephemerals too few go: %v", left, changes.Err())
			return
		}
		if e.Type != embed.NodeDeleted || !strings.HasSuffix(e.Path, "/"+a.name) {
			continue
		}
		left--
		if _, err := witness.Sync(ctx, s.path(a, 0)); err != nil {
			s.t.Error(err)
		}
		if _, there, err := witness.Exists(ctx, s.path(a, 0)); there || err != nil {
			s.t.Errorf("%s went before the session had ended (%v)", e.Path, err)
		}
	}
}
