package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// A member is one of the other members, as a replica sees it: its Register and its batches.
type member struct {
	n      *node
	origin session.Origin
	seq    uint64
}

// joined registers another member on the node's replica.
func (n *node) joined(m session.MemberID, start uint64) *member {
	o := session.Origin{Member: m, Start: start, Directory: [16]byte{byte(m)}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
	n.applyCommand(command.Command{Kind: command.KindRegister, Origin: o, Rules: enginetest.Rules()})
	return &member{n: n, origin: o}
}

// batch applies the member's next batch.
func (m *member) batch(requests ...command.Request) {
	m.seq++
	m.again(m.seq, requests...)
}

// again applies a batch with a seq that the test chooses.
func (m *member) again(seq uint64, requests ...command.Request) {
	o := session.Origin{Member: m.origin.Member, Start: m.origin.Start}
	m.n.applyCommand(command.Command{Kind: command.KindBatch, Origin: o, Seq: seq, Wall: 1000 + int64(seq), Requests: requests})
}

// open opens a session of the member.
func (m *member) open(timeout time.Duration) tree.SessionID {
	id := tree.SessionID(zxidOf(m.n.shard) + 1)
	m.batch(command.Request{Kind: command.RequestOpen, Timeout: timeout})
	return id
}

func txn(id tree.SessionID, ops ...tree.Op) command.Request {
	return command.Request{Kind: command.RequestTxn, Session: id, Ops: ops}
}

func ephemeral(path string) tree.Op {
	return tree.Op{Kind: tree.KindCreate, Path: path, Mode: tree.Ephemeral}
}

func (n *node) sessionsOf(m session.MemberID) (ids []tree.SessionID) {
	for _, r := range tableOf(n.shard).Sessions(m) {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestRegisterClosesThePredecessorsSessions(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		other := n.joined(3, 1)
		stays := other.open(testTimeout)
		other.batch(txn(stays, ephemeral("/stays")))
		old := n.joined(2, 1)
		a, b := old.open(testTimeout), old.open(time.Minute)
		old.batch(txn(b, ephemeral("/b")), txn(a, ephemeral("/a"), create("/kept")))
		before := zxidOf(n.shard)
		n.joined(2, 2)
		if n.exists("/a") || n.exists("/b") || !n.exists("/kept") || !n.exists("/stays") {
			t.Fatal("the wrong znodes are gone")
		}
		if got := zxidOf(n.shard) - before; got != 2 {
			t.Fatalf("two sessions were closed in %d transactions", got)
		}
		if len(n.sessionsOf(2)) != 0 || !slices.Equal(n.sessionsOf(3), []tree.SessionID{stays}) {
			t.Fatalf("open are %v and %v", n.sessionsOf(2), n.sessionsOf(3))
		}
	})
}

// B1.1, B1.2: a copy of a Register or a batch arrives after its member was started again.
func TestLateCommandsOfARetiredStartChangeNothing(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		old := n.joined(2, 1)
		id := old.open(testTimeout)
		now := n.joined(2, 2)
		alive := now.open(testTimeout)
		before := n.dump()
		n.applyCommand(command.Command{Kind: command.KindRegister, Origin: old.origin})
		old.batch(txn(id, create("/late")), txn(alive, create("/late")))
		old.again(1, command.Request{Kind: command.RequestClose, Session: alive})
		n.applyCommand(command.Command{Kind: command.KindSilence, Step: session.Step{Member: 2, Start: 1, LastSeq: 1, Number: 1}, Silence: time.Hour})
		n.applyCommand(command.Command{Kind: command.KindRegister, Origin: now.origin}) // and a copy of the newest Register
		if got := n.dump(); got != before {
			t.Fatalf("it was\n%s\nand is\n%s", before, got)
		}
		now.batch(txn(alive, create("/next")))
		if !n.exists("/next") {
			t.Fatal("the stream does not go on")
		}
	})
}

func TestBatchIsAppliedInItsPlaceOnly(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		m := n.joined(2, 1)
		id := m.open(testTimeout)
		m.again(3, txn(id, create("/gap")))
		m.again(1, txn(id, create("/repeat")))
		m.batch(txn(id, create("/a")))
		m.again(2, txn(id, create("/repeat")))
		for _, path := range []string{"/gap", "/repeat"} {
			if n.exists(path) {
				t.Errorf("%s exists", path)
			}
		}
		if stat, _ := n.tree().Exists("/a"); stat.Ctime.UnixMilli() != 1002 {
			t.Errorf("created at %v, want the time of its batch", stat.Ctime)
		}
	})
}

func TestGapInTheOwnStreamIsResent(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		first := s.Submit(t.Context(), []tree.Op{create("/a")})
		for range outbox.SecondBatchMin {
			s.Submit(t.Context(), []tree.Op{create("/b")})
		}
		_, ps := n.requests()
		if len(ps) != 2 {
			t.Fatalf("%d batches", len(ps))
		}
		n.apply(ps[1])
		n.commit()
		if err := outcome(first); err != nil || !n.exists("/b") {
			t.Fatal(err)
		}
		n.apply(ps...) // and copies
		if n.disk.Err() != nil {
			t.Fatal(n.disk.Err())
		}
	})
}

// B2: a batch that is accepted is accepted as a whole. Otherwise the next one would be a gap.
func TestBatchCountsAlsoIfAllInItFails(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		m := n.joined(2, 1)
		id := m.open(testTimeout)
		before := zxidOf(n.shard)
		m.batch(txn(id, create("/no/parent")), txn(id, create("/x"), create("/x")), txn(999, create("/y")))
		if zxidOf(n.shard) != before || n.exists("/x") {
			t.Fatal("a failed transaction left something behind")
		}
		m.batch(txn(id, create("/z")))
		if stat, _ := n.tree().Exists("/z"); stat.Czxid != before+1 {
			t.Fatalf("the next transaction is %d, want %d", stat.Czxid, before+1)
		}
	})
}

func TestSessionIsUsedByItsOriginOnly(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		m, thief := n.joined(2, 1), n.joined(3, 1)
		id := m.open(testTimeout)
		m.batch(txn(id, ephemeral("/e")))
		stat, _ := n.tree().Exists("/e")
		thief.batch(txn(id, create("/stolen")), command.Request{Kind: command.RequestClose, Session: id},
			command.Request{Kind: command.RequestRelease, Session: id, Path: "/e", Czxid: stat.Czxid})
		if n.exists("/stolen") || !n.exists("/e") || len(n.sessionsOf(2)) != 1 {
			t.Fatal("another member used the session")
		}
	})
}

func TestReleaseDeletesOnlyWhatItNames(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		m := n.joined(2, 1)
		a, b := m.open(testTimeout), m.open(testTimeout)
		m.batch(txn(a, ephemeral("/e"), create("/p")))
		stat, _ := n.tree().Exists("/e")
		for _, r := range []command.Request{
			{Session: b, Path: "/e", Czxid: stat.Czxid},     // another session
			{Session: a, Path: "/e", Czxid: stat.Czxid - 1}, // an earlier znode at that path
			{Session: a, Path: "/e", Czxid: stat.Czxid + 1}, // a later one
			{Session: a, Path: "/p", Czxid: stat.Czxid},     // not an ephemeral
			{Session: a, Path: "/none", Czxid: stat.Czxid},
			{Session: a, Path: "no path", Czxid: stat.Czxid},
		} {
			r.Kind = command.RequestRelease
			m.batch(r)
		}
		if !n.exists("/e") || !n.exists("/p") {
			t.Fatal("deleted")
		}
		release := command.Request{Kind: command.RequestRelease, Session: a, Path: "/e", Czxid: stat.Czxid}
		m.batch(release, release)
		if n.exists("/e") {
			t.Fatal("not deleted")
		}
	})
}

// A9: a member died with more ephemerals than one entry should remove. Its sessions end one by one,
// in order of their ids. A session that still waits is refused everything.
func TestExpiryIsPortioned(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		const each = 6000
		m, other := n.joined(2, 1), n.joined(3, 1)
		watcher := other.open(testTimeout)
		var ids []tree.SessionID
		for s := range 4 {
			id := m.open(testTimeout)
			ids = append(ids, id)
			ops := make([]tree.Op, each)
			for i := range ops {
				ops[i] = ephemeral(fmt.Sprintf("/e%d-%d", s, i))
			}
			m.batch(txn(id, ops...))
		}
		var told []tree.SessionID
		n.cfg.SessionExpired = func(id tree.SessionID) { told = append(told, id) }
		before, length := zxidOf(n.shard), n.tree().Len()

		silent := func() {
			step, d, _ := tableOf(n.shard).NextStep(2)
			n.applyCommand(command.Command{Kind: command.KindSilence, Step: step, Silence: d})
		}
		for range 4 {
			silent()
		}
		if !slices.Equal(n.sessionsOf(2), ids[2:]) || zxidOf(n.shard) != before+2 || n.tree().Len() != length-2*each {
			t.Fatalf("after the first portion %v are left and %d znodes gone", n.sessionsOf(2), length-n.tree().Len())
		}
		if due := tableOf(n.shard).DueLen(); due != 2 {
			t.Fatalf("%d more are due", due)
		}
		m.batch(txn(ids[2], create("/too-late")), command.Request{Kind: command.RequestRelease, Session: ids[3], Path: "/e3-0"})
		other.batch(txn(watcher, create("/other")))
		if n.exists("/too-late") || !n.exists("/other") || !n.exists("/e3-0") {
			t.Fatal("a session that is due was used")
		}
		n.applyCommand(command.Command{Kind: command.KindExpire})
		if len(n.sessionsOf(2)) != 0 || tableOf(n.shard).DueLen() != 0 || !slices.Equal(told, ids) {
			t.Fatalf("left %v, reported as expired %v", n.sessionsOf(2), told)
		}
		n.applyCommand(command.Command{Kind: command.KindExpire}) // a copy
		if zxidOf(n.shard) != before+5 {
			t.Fatalf("%d transactions", zxidOf(n.shard)-before)
		}
	})
}

// A9: a session that owns nothing costs an entry less than a znode does, but it does count.
func TestExpiryCountsSessionsThatOwnNothing(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.shard.Portion = 10
		m := n.joined(2, 1)
		for range 25 {
			m.open(testTimeout)
		}
		n.joined(2, 2) // makes all of them due
		for _, left := range []int{15, 5, 0} {
			if got := len(n.sessionsOf(2)); got != left {
				t.Fatalf("%d sessions are left, want %d", got, left)
			}
			n.applyCommand(command.Command{Kind: command.KindExpire})
		}
	})
}

// M20: a node cannot continue when its own commands are refused, because a copy of its directory
// was started elsewhere.
func TestNodeFailsWhenItsOwnStreamIsRefused(t *testing.T) {
	other := enginetest.Origin()
	other.Directory[0]++
	newer := enginetest.Origin()
	newer.Start++
	foreign := enginetest.Origin()
	foreign.Member, foreign.Digest[0] = 2, foreign.Digest[0]+1
	batch := command.Command{Kind: command.KindBatch, Origin: session.Origin{Member: enginetest.Member, Start: enginetest.Origin().Start}, Seq: 1}
	register := command.Command{Kind: command.KindRegister, Origin: enginetest.Origin()}
	for name, c := range map[string]struct {
		before session.Origin
		own    command.Command
		want   string
	}{
		"another directory": {other, register, session.ErrOtherDirectory.Error()},
		"an older copy":     {newer, register, session.ErrOlderStart.Error()},
		"another ensemble":  {foreign, register, session.ErrOtherFounding.Error()},
		"retired":           {newer, batch, "a newer start of member 1 has registered"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.fails = true
				n.applyCommand(command.Command{Kind: command.KindRegister, Origin: c.before})
				if n.disk.Err() != nil {
					t.Fatal(n.disk.Err())
				}
				n.applyCommand(c.own)
				if err := n.disk.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("the node failed with %v, want %q", err, c.want)
				}
			})
		})
	}
}

// If a Register of our own start was applied and this process never saw it, another process sent
// it: the directory is a copy.
func TestNodeFailsWhenItsStartHasRegisteredBefore(t *testing.T) {
	for _, batches := range []uint64{0, 5} {
		t.Run(fmt.Sprint(batches, " batches"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.fails = true
				n.applyCommand(command.Command{Kind: command.KindRegister, Origin: enginetest.Origin()})
				for seq := range batches {
					n.applyCommand(command.Command{Kind: command.KindBatch, Origin: session.Origin{Member: enginetest.Member, Start: enginetest.Origin().Start}, Seq: seq + 1})
				}
				n.log.Elect(enginetest.Other)
				n.outbox.LeaderChanged()
				n.commit()
				if err := n.disk.Err(); err == nil || !strings.Contains(err.Error(), "has registered before") {
					t.Errorf("the node failed with %v", err)
				}
			})
		})
	}
}

// The log decides which schemes judge ACLs. A replica that lacks one of them stops.
func TestSchemesInForceNeedBeKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.fails = true
		origin := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: 1}
		n.applyCommand(command.Command{Kind: command.KindRegister, Origin: origin, Rules: command.Rules{Schemes: []string{"corp", "digest", "ip", "super"}}})
		if err := n.disk.Err(); err == nil || !strings.Contains(err.Error(), `"corp"`) {
			t.Errorf("the node goes on without a scheme of the ensemble: %v", err)
		}
	})
}

// The log also decides how large the tree may be. A replica follows it, whatever its own config
// says.
func TestTreeSizeIsBoundedByTheNewestRegister(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		register := func(m session.MemberID, most int64) {
			rules := enginetest.Rules()
			rules.TreeMax = most
			n.applyCommand(command.Command{Kind: command.KindRegister, Rules: rules,
				Origin: session.Origin{Member: m, Start: 1, Directory: [16]byte{byte(m)}, Digest: enginetest.Origin().Digest, Level: 1}})
		}
		s := n.open(time.Minute)
		create := func(path string) error {
			p := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: path}})
			n.commit()
			return keeper.Single(outcome(p))
		}
		n.cfg.MaxTreeSize = 1
		if err := create("/a"); err != nil {
			t.Error(err)
		}
		register(2, n.Status()[0].TreeSize)
		if err := create("/b"); !errors.Is(err, tree.ErrQuotaExceeded) || n.exists("/b") {
			t.Errorf("the tree is full: %v", err)
		}
		register(3, 0)
		if err := create("/b"); err != nil {
			t.Error(err)
		}
	})
}

// silence logs that a node has not been heard for as long as its longest session may last.
func (n *node) silence() {
	for {
		step, d, ok := tableOf(n.shard).NextStep(enginetest.Member)
		if !ok {
			return
		}
		n.apply(&enginetest.Proposal{Cmd: command.EncodeSilence(step, d, 1)})
	}
}

// waitsForItsTurn returns a claim of a session that is due. Before it are more sessions than one
// entry removes.
func (n *node) waitsForItsTurn() *keeper.Claim {
	first, s := n.open(testTimeout), n.open(testTimeout)
	var ops []tree.Op
	n.shard.Portion = 3
	for i := range n.shard.Portion {
		ops = append(ops, tree.Op{Kind: tree.KindCreate, Path: fmt.Sprint("/e", i), Mode: tree.Ephemeral})
	}
	first.Submit(n.t.Context(), ops)
	n.commit()
	return n.claim(s, "/q")
}

// A due session keeps its znodes until its turn comes, but it is granted nothing. Its node may be
// heard again and believe the session alive, while the others see its contender go.
func TestDueSessionIsGrantedNothing(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		c := n.waitsForItsTurn()
		n.fake.Pause(testTimeout)
		n.silence()
		if tableOf(n.shard).DueLen() != 1 || !n.exists("/q") {
			t.Fatalf("%d sessions are due", tableOf(n.shard).DueLen())
		}
		n.outbox.Beat()
		n.commit()
		if err := holdErr(c); err != session.ErrExpired {
			t.Errorf("Hold: %v", err)
		}
	})
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		c := n.waitsForItsTurn()
		ahead.shard.Portion = n.shard.Portion
		ahead.catchUp()
		n.fake.Pause(testTimeout)
		ahead.silence()
		if err := n.shard.Install(bytes.NewReader(ahead.stream()), nil); err != nil {
			t.Fatal(err)
		}
		n.outbox.Beat()
		n.commit()
		if err := holdErr(c); err != session.ErrExpired {
			t.Errorf("Hold after an install: %v", err)
		}
	})
}

// After the log has ended a session, its requests can only come later in the log. So they have an
// outcome, even on a node that hears nothing any more.
func TestEndOfASessionIsTheOutcomeOfWhatItSent(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		p := s.Submit(t.Context(), []tree.Op{create("/a")})
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		n.log.Drain() // and they are lost
		n.silence()
		n.lead(0)
		if err := outcome(p); err != session.ErrExpired {
			t.Errorf("outcome %v", err)
		}
		if _, err := c.Created(t.Context()); err != session.ErrExpired {
			t.Errorf("outcome of the claim %v", err)
		}
	})
}

// Replication turns a panic in Apply into a failure of the node. A later caller of the replica must
// not wait for ever.
func TestPanicUnderApplyKeepsNoLock(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		w := outbox.NewCall(nil, &command.Request{Kind: command.RequestTxn, Session: s.ID(), Ops: []tree.Op{create("/a")}})
		w.OnOutcome = func(*outbox.Call) { panic("broken invariant") }
		if _, err := n.outbox.Submit(w); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { recover() }()
			n.commit()
		}()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.shard.Inspect(over, nil, func(*session.Table) {}); err != nil {
			t.Fatal("the replica stays locked")
		}
	})
}

func TestNodeFailsOnAnEntryItCannotRead(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.withImage()
		n.fails = true
		register := func(m session.MemberID) []byte {
			return command.EncodeRegister(session.Origin{Member: m, Start: 1, Level: LevelMin}, 0, command.Rules{})
		}
		n.shard.Apply([]replication.Entry{{Index: 7, Cmd: register(5)}, {Index: 8, Cmd: []byte{0x91, 0x4d}}, {Index: 9, Cmd: register(6)}})
		err := n.disk.Err()
		if !errors.Is(err, command.ErrMalformed) || !strings.Contains(err.Error(), "entry 8") {
			t.Fatalf("the node failed with %v", err)
		}
		if _, ok := tableOf(n.shard).Origin(6); ok || n.image.Applied() != 0 {
			t.Fatal("a later entry was applied")
		}
	})
}

// A path is a key of the image. A path that is too long for a key must be refused here. In the log
// it would stop every member, and again after each restart.
func TestPathThatNoImageCanKeepIsNeverProposed(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.withImage()
		n.apply(n.applied...)
		s := n.open(testTimeout)
		long := "/" + strings.Repeat("x", 1<<20)
		submitted := s.Submit(t.Context(), []tree.Op{create("/a"), create(long)})
		claimed := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: long, Mode: tree.EphemeralSequential}}, nil)
		n.commit()
		for what, err := range map[string]error{"submit": outcome(submitted), "claim": claimed.Err(), "node": n.disk.Err()} {
			if what != "node" && !errors.Is(err, keeper.ErrTooLarge) || what == "node" && err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		longest := "/" + strings.Repeat("y", PathMax-1)
		n.mkdir(s, longest)
		n.claim(s, "/z")
		if n.disk.Err() != nil || !n.exists(longest) {
			t.Fatal(n.disk.Err())
		}
	})
}

func TestRequestThatNoEntryCanHoldIsRefused(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		op := create("/a")
		op.Data = make([]byte, n.cfg.requestBytesMax())
		p := s.Submit(t.Context(), []tree.Op{op})
		if _, err := p.Result(); !errors.Is(err, keeper.ErrTooLarge) {
			t.Fatal(err)
		}
		n.wantRequests()
	})
}

// Applied entries are saved when enough have gathered, not one by one, and whenever a caller asks
// for all of them.
func TestImageIsWrittenWhenEnoughHasGathered(t *testing.T) {
	large := create("/large")
	large.Data = make([]byte, replica.SaveBytes)
	many := make([]tree.Op, replica.SaveRecords)
	for i := range many {
		many[i] = create(fmt.Sprint("/", i))
	}
	for name, c := range map[string]struct {
		ops  []tree.Op
		more int // entries after it
		want uint64
	}{
		"a few entries":    {[]tree.Op{create("/a")}, replica.SaveEntries - 3, 0},
		"many entries":     {[]tree.Op{create("/a")}, 2 * replica.SaveEntries, 2 * replica.SaveEntries},
		"many bytes":       {[]tree.Op{large}, 1, 2},
		"many znodes":      {many, 1, 2},
		"nearly so many":   {many[:replica.SaveRecords-10], 1, 0},
		"nearly the bytes": {[]tree.Op{{Kind: tree.KindCreate, Path: "/b", Data: large.Data[:replica.SaveBytes-300]}}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).withImage()
			tableOf(n.shard).LoadOrigin(session.Origin{Member: 2, Start: 1, LastSeq: 1})
			if err := tableOf(n.shard).LoadRecord(session.Record{ID: 1, Timeout: testTimeout, Origin: 2}); err != nil {
				t.Fatal(err)
			}
			r := txn(1, c.ops...)
			n.shard.Apply([]replication.Entry{{Index: 1, Cmd: command.EncodeExpire(1, 1)}, {Index: 2, Cmd: command.EncodeBatch(2, 1, 2, 0, 0, 1, slices.Values([][]byte{command.EncodeRequest(&r)}))}})
			last := uint64(2)
			for range c.more {
				last++
				n.shard.Apply([]replication.Entry{{Index: last, Cmd: command.EncodeExpire(1, 1)}})
			}
			if got := n.image.Applied(); got != c.want {
				t.Fatalf("after entry %d the image is at %d, want %d", last, got, c.want)
			}
			for what, write := range map[string]func() error{
				"sync":     n.shard.Sync,
				"close":    n.shard.Close,
				"snapshot": func() error { s, err := n.shard.Snapshot(); return errors.Join(err, s.Close()) },
			} {
				last++
				n.shard.Apply([]replication.Entry{{Index: last, Cmd: command.EncodeExpire(1, 1)}})
				if err := write(); err != nil || n.image.Applied() != last {
					t.Fatalf("%s: the image is at %d, want %d: %v", what, n.image.Applied(), last, err)
				}
			}
		})
	}
}

// putRecords writes an image that no replica wrote.
func (n *node) putRecords(put func(b *storage.Batch)) error {
	n.t.Helper()
	n.withImage()
	n.shard.Apply([]replication.Entry{{Index: 1, Cmd: command.EncodeExpire(1, 1)}})
	if err := n.shard.Sync(); err != nil {
		n.t.Fatal(err)
	}
	b := n.image.NewBatch()
	put(b)
	if err := b.Commit(2); err != nil {
		n.t.Fatal(err)
	}
	return n.shard.Load(n.image)
}

func TestImageThatDoesNotFitTogetherIsNotLoaded(t *testing.T) {
	owned := tree.Znode{Czxid: 1, Mzxid: 1, Pzxid: 1, Owner: 9}
	record := session.Record{ID: 9, Timeout: testTimeout, Origin: 2}
	for name, c := range map[string]struct {
		put  func(b *storage.Batch)
		want string
	}{
		"a record cut short":         {func(b *storage.Batch) { b.Put(storage.Znodes, []byte("/a"), command.EncodeZnode(owned)[:9]) }, `znode "/a"`},
		"a session cut short":        {func(b *storage.Batch) { b.Put(storage.Sessions, command.IDKey(9), command.EncodeSession(record)[:9]) }, "session 0000000000000009"},
		"an origin cut short":        {func(b *storage.Batch) { b.Put(storage.Origins, command.IDKey(2), []byte{0x98}) }, "origin 0000000000000002"},
		"a session under another id": {func(b *storage.Batch) { b.Put(storage.Sessions, command.IDKey(8), command.EncodeSession(record)) }, "session 0000000000000008"},
		"an origin under another id": {func(b *storage.Batch) {
			b.Put(storage.Origins, command.IDKey(8), command.EncodeOrigin(enginetest.Origin()))
		}, "origin 0000000000000008"},
		"a session without its node": {func(b *storage.Batch) { b.Put(storage.Sessions, command.IDKey(9), command.EncodeSession(record)) }, "member 2"},
		"a znode of a later zxid":    {func(b *storage.Batch) { b.Put(storage.Znodes, []byte("/a"), command.EncodeZnode(owned)) }, "/a"},
		"a record of a newer version": {func(b *storage.Batch) {
			b.Put(storage.Meta, []byte("level"), command.EncodeState(command.State{Level: command.LevelMin, Zxid: 1}))
		}, "level"},
		"no state": {func(b *storage.Batch) { b.Delete(storage.Meta, []byte(command.StateKey)) }, "state"},
		"an ephemeral of nobody": {func(b *storage.Batch) {
			b.Put(storage.Znodes, []byte("/a"), command.EncodeZnode(owned))
			b.Put(storage.Znodes, []byte("/"), command.EncodeZnode(tree.Znode{Pzxid: 1, Created: 1}))
			b.Put(storage.Meta, []byte(command.StateKey), command.EncodeState(command.State{Level: command.LevelMin, Zxid: 1}))
		}, "session 9 has no record"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := newNode(t).putRecords(c.put)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("loaded with %v, want an error with %q", err, c.want)
				}
			})
		})
	}
}

// dump writes the whole replicated state of a node's replica as text.
func (n *node) dump() string {
	n.t.Helper()
	m := n.shard
	var out strings.Builder
	fmt.Fprintln(&out, "zxid", zxidOf(m), "visible", n.tree().Visible())
	err := n.tree().Walk(func(path string, z tree.Znode) error {
		fmt.Fprintf(&out, "znode %s %x\n", path, command.EncodeZnode(z))
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, o := range tableOf(m).Origins() {
		fmt.Fprintf(&out, "origin %d %x\n", o.Member, command.EncodeOrigin(o))
		for _, r := range tableOf(m).Sessions(o.Member) {
			fmt.Fprintf(&out, "session %d %x owns %q\n", r.ID, command.EncodeSession(r), tableOf(m).Ephemerals(r.ID))
		}
	}
	fmt.Fprintln(&out, "due", tableOf(m).Due())
	if err := tableOf(m).Verify(); err != nil {
		n.t.Fatal(err)
	}
	return out.String()
}
