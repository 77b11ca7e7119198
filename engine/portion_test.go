package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A large is a session of another member that owns more than one entry may remove. The test tells
// its node when the next portion is due.
type large struct {
	*node
	*member
	id    tree.SessionID
	paths []string
	told  []tree.SessionID // the expired sessions
}

const largePortion, largeOwns = 10, 35

func withLarge(t *testing.T, fn func(t *testing.T, l *large)) {
	t.Helper()
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		n.shard.Portion = largePortion
		n.cfg.RequestTimeout = time.Second
		m := n.joined(2, 1)
		l := &large{node: n, member: m, id: m.open(testTimeout)}
		n.cfg.SessionExpired = func(id tree.SessionID) { l.told = append(l.told, id) }
		for i := range largeOwns {
			l.paths = append(l.paths, fmt.Sprintf("/e%02d", i))
		}
		slices.Sort(l.paths)
		for _, path := range l.paths {
			m.batch(txn(l.id, lingering(path)))
		}
		fn(t, l)
	})
}

// left returns how many of the session's znodes it still owns, and how many linger.
func (l *large) left() (own, lingers int) {
	for _, path := range l.paths {
		switch stat, ok := l.tree().Exists(path); {
		case ok && stat.EphemeralOwner == l.id:
			own++
		case ok:
			lingers++
		}
	}
	return own, lingers
}

// want checks what is left after a portion, which is one transaction. It also checks that nothing
// of the session is applied.
func (l *large) want(own, lingers int) {
	l.t.Helper()
	if o, g := l.left(); o != own || g != lingers {
		l.t.Fatalf("%d are its own and %d linger, want %d and %d", o, g, own, lingers)
	}
	if paths := tableOf(l.shard).Ephemerals(l.id); !slices.Equal(paths, l.paths[largeOwns-own:]) {
		l.t.Fatalf("left are %q: a peer that was started meanwhile would take others", paths)
	}
	l.batch(txn(l.id, create("/too-late")), command.Request{Kind: command.RequestRelease, Session: l.id, Path: l.paths[largeOwns-1]}, command.Request{Kind: command.RequestClose, Session: l.id, Lost: true})
	if o, g := l.left(); o != own || g != lingers || l.exists("/too-late") {
		l.t.Fatal("a session that has ended was used")
	}
	if due := tableOf(l.shard).DueLen(); due != 0 != (own > 0) {
		l.t.Fatalf("%d sessions are due", due)
	}
}

func (l *large) portions(lingers bool) {
	l.t.Helper()
	for own, gone := l.left(); own > 0; {
		n := min(own, largePortion)
		own -= n
		if lingers {
			gone += n
		}
		before := zxidOf(l.shard)
		l.applyCommand(command.Command{Kind: command.KindExpire})
		if zxidOf(l.shard) != before+1 {
			l.t.Fatalf("a portion made %d transactions", zxidOf(l.shard)-before)
		}
		l.want(own, gone)
	}
	if len(l.sessionsOf(2)) > 0 {
		l.t.Fatal("its record is left")
	}
	before := zxidOf(l.shard)
	l.applyCommand(command.Command{Kind: command.KindExpire}) // a copy
	if zxidOf(l.shard) != before {
		l.t.Fatal("an empty portion")
	}
}

// A9: a session owns more than one entry may remove. Its owner closes it, or it is lost. It ends in
// portions, with the same result as at once.
func TestLargeSessionEndsInPortions(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(l *large)
		own  int // after it
		lost bool
		told int
	}{
		"closed": {func(l *large) { l.batch(command.Request{Kind: command.RequestClose, Session: l.id}) }, largeOwns, false, 0},
		"lost by its node": {func(l *large) { l.batch(command.Request{Kind: command.RequestClose, Session: l.id, Lost: true}) },
			largeOwns, true, 0},
		"lost with its node": {func(l *large) { l.member = l.joined(2, 2) },
			largeOwns - largePortion, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			withLarge(t, func(t *testing.T, l *large) {
				c.end(l)
				gone := 0
				if c.lost {
					gone = largeOwns - c.own
				}
				l.want(c.own, gone)
				l.portions(c.lost)
				if len(l.told) != c.told {
					t.Errorf("reported expiries: %v", l.told)
				}
			})
		})
	}
}

// A9: between two portions, the node restarts, and someone deletes what would have gone next.
func TestPortionsGoOnAfterAStart(t *testing.T) {
	for _, start := range []bool{false, true} {
		t.Run(fmt.Sprint("start=", start), func(t *testing.T) {
			withLarge(t, func(t *testing.T, l *large) {
				other := l.joined(3, 1)
				s := other.open(testTimeout)
				l.batch(command.Request{Kind: command.RequestClose, Session: l.id})
				l.applyCommand(command.Command{Kind: command.KindExpire})
				l.want(largeOwns-largePortion, 0)
				other.batch(txn(s, remove(l.paths[largePortion]), create(l.paths[0])))
				if start {
					l.applyNothing()
					mustDo(l.node, l.shard.Sync())
					mustDo(l.node, l.shard.Load(l.image))
				}
				other.batch(txn(s, remove(l.paths[largePortion+1])))
				for range 3 {
					l.applyCommand(command.Command{Kind: command.KindExpire})
				}
				if own, others := l.left(); own != 0 || others != 1 || len(l.sessionsOf(2)) > 0 {
					t.Errorf("%d are left, and %d of others", own, others)
				}
				if err := tableOf(l.shard).Verify(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// F2: on a shard other than home, a large session waits for the word of the home shard, which
// leaves a record of the end. Otherwise a late introduce would make a record for ever.
func TestLargeSessionOfAnotherShardWaitsForHome(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		other := n.shards[1]
		other.Portion = 2
		for i := range 5 {
			s.Submit(t.Context(), []tree.Op{ephemeral(n.on(2, i))})
			n.commit()
		}
		go s.Close()
		n.commit()
		if due := tableOf(other).DueLen(); due != 0 || tableOf(other).Owns(s.ID()) != 5 {
			t.Fatalf("%d sessions are due, %d znodes are left", due, tableOf(other).Owns(s.ID()))
		}
		for range 5 {
			n.carryOn()
		}
		n.carry()
		if err := tableOf(other).Introduce(s.ID(), testTimeout, enginetest.Member, 0, nil); err != session.ErrExpired {
			t.Errorf("a late introduce: %v", err)
		}
	})
}

// A9: the closes of many sessions in one entry are bounded too.
func TestClosesOfOneEntryArePortioned(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		const each, sessions = 6, 5
		n.shard.Portion = 10
		m := n.joined(2, 1)
		var closes []command.Request
		for i := range sessions {
			id := m.open(testTimeout)
			for j := range each {
				m.batch(txn(id, ephemeral(fmt.Sprintf("/e%d-%d", i, j))))
			}
			closes = append(closes, command.Request{Kind: command.RequestClose, Session: id})
		}
		before := n.tree().Len()
		m.batch(closes...)
		if gone := before - n.tree().Len(); gone != 2*each {
			t.Fatalf("%d znodes were removed", gone)
		}
		n.applyCommand(command.Command{Kind: command.KindExpire})
		n.applyCommand(command.Command{Kind: command.KindExpire})
		if gone := before - n.tree().Len(); gone != sessions*each || len(n.sessionsOf(2)) > 0 {
			t.Fatalf("%d znodes are gone in the end", gone)
		}
	})
}

// A9: the leader commits one portion after the other.
func TestPortionsOfOneSessionFollowAtOnce(t *testing.T) {
	withWatchman(t, 10*time.Millisecond, func(t *testing.T, w *watchman) {
		const portions = 30
		w.shard.Portion = 20
		m := w.joined(2, 1)
		id := m.open(4 * time.Second)
		ops := make([]tree.Op, portions*w.shard.Portion)
		for i := range ops {
			ops[i] = ephemeral(fmt.Sprintf("/e%d", i))
		}
		m.batch(txn(id, ops...))
		m.batch(command.Request{Kind: command.RequestClose, Session: id})
		start := time.Now()
		for len(w.sessionsOf(2)) > 0 && time.Since(start) < 10*time.Second {
			w.watch(10 * time.Millisecond)
		}
		if took := time.Since(start); took > portions*(10+5+5)*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// A session that uses two shards owns more than a portion on each. It is closed, so nothing
// lingers.
func TestLargeSessionEndsOnAllShards(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost=", lost), func(t *testing.T) {
			withShards(t, 2, func(t *testing.T, n *node) {
				s, stays := n.open(testTimeout), n.open(testTimeout)
				var paths []string
				for _, r := range n.shards {
					r.Portion = 4
					for i := range 11 {
						path := n.on(r.Shard, i)
						p := s.Submit(t.Context(), []tree.Op{lingering(path)})
						n.commit()
						if err := outcome(p); err != nil {
							t.Fatal(err)
						}
						paths = append(paths, path)
					}
				}
				if lost {
					for _, r := range n.shards {
						r.Outbox.QueueEnd(outbox.NewCall(nil, &command.Request{Kind: command.RequestClose, Session: s.ID(), Lost: true}))
						r.Outbox.Pump()
					}
				} else {
					closed := make(chan error, 1)
					go func() { closed <- s.Close() }()
					defer func() {
						if err := <-closed; err != nil {
							t.Error(err)
						}
					}()
				}
				n.commit()
				for range 8 {
					n.carryOn()
				}
				n.carry()
				for _, path := range paths {
					if stat, ok := n.shards.At(path).Tree().Exists(path); ok != lost || ok && stat.EphemeralOwner != 0 {
						t.Errorf("%s is there: %v, of %d", path, ok, stat.EphemeralOwner)
					}
				}
				for _, r := range n.shards {
					if _, there := tableOf(r).Get(s.ID()); there {
						t.Errorf("shard %d knows it still", r.Shard)
					}
				}
				wantEnd(t, stays, nil)
			})
		})
	}
}

// carryOn lets the leader handle once what is due.
func (n *node) carryOn() {
	n.lead(enginetest.Member)
	n.lookAround()
	for _, r := range n.shards {
		r.ExpireDue(time.Now())
	}
	n.commit()
}
