package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// If more sessions are due than one entry may end, the expirer wakes up to propose the next
// portion.
func TestMoreThanAPortionWakesTheExpirer(t *testing.T) {
	r := newRig(t)
	r.Portion = 1
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
	open := command.EncodeRequest(&command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	r.apply(command.EncodeRegister(o, 1, command.Rules{}), command.EncodeBatch(2, 1, 1, 1, 0, 2, slices.Values([][]byte{open, open})))
	o.Start++
	r.apply(command.EncodeRegister(o, 1, command.Rules{})) // the sessions of the former start are due
	if left := r.mu.table.DueLen(); left != 1 || len(r.expirer.wake) != 1 {
		t.Errorf("%d sessions are due, and the expirer is woken %d times", left, len(r.expirer.wake))
	}
}

// The end of a session at home wakes the purger. Without that the other shards would keep the
// session's znodes until the purger looks by itself, an hour later.
func TestEndOfASessionWakesThePurger(t *testing.T) {
	r := newRig(t)
	silent := slog.New(slog.DiscardHandler)
	other := New(Options{Shard: 2, Log: silent})
	wake := NewPurger([]*Replica{r.Replica, other}, r.log, silent).shards[2].wake
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
	r.apply(command.EncodeRegister(o, 1, command.Rules{}))
	seq := uint64(0)
	batch := func(q command.Request) {
		seq++
		r.apply(command.EncodeBatch(2, 1, seq, 1, 0, 1, slices.Values([][]byte{command.EncodeRequest(&q)})))
	}
	batch(command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	if len(wake) > 0 {
		t.Fatal("it was woken before a session has ended")
	}
	batch(command.Request{Kind: command.RequestClose, Session: r.mu.table.Sessions(2)[0].ID})
	if len(wake) != 1 {
		t.Error("it sleeps on")
	}
}

// Where a session that is closed owns more than one entry may remove, the expirer is woken too, and
// again after each entry that leaves a rest.
func TestCloseOfMoreThanAPortionWakesTheExpirer(t *testing.T) {
	r := newRig(t)
	r.Portion = 2
	seq := uint64(0)
	batch := func(q command.Request) {
		seq++
		r.apply(command.EncodeBatch(2, 1, seq, 1, 0, 1, slices.Values([][]byte{command.EncodeRequest(&q)})))
	}
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
	r.apply(command.EncodeRegister(o, 1, command.Rules{}))
	batch(command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	id := r.mu.table.Sessions(2)[0].ID
	for _, path := range []string{"/a", "/b", "/c", "/d", "/e"} {
		op := tree.Op{Kind: tree.KindCreate, Path: path, Mode: tree.Ephemeral}
		batch(command.Request{Kind: command.RequestTxn, Session: id, Ops: []tree.Op{op}})
	}
	batch(command.Request{Kind: command.RequestClose, Session: id})
	for _, left := range []int{5, 3, 1, 0} {
		wakes := len(r.expirer.wake)
		if owns := r.mu.table.Owns(id); owns != left || wakes != min(left, 1) {
			t.Fatalf("%d znodes are left, want %d, and the expirer is woken %d times", owns, left, wakes)
		}
		if wakes > 0 {
			<-r.expirer.wake
		}
		r.apply(command.EncodeExpire(1, 1))
	}
}

// A tellingNode records what it is told of the ends of sessions.
type tellingNode struct {
	quietNode
	told *[]string
}

func (n tellingNode) Ended(_ replication.ShardID, why error, ids ...tree.SessionID) {
	for _, id := range ids {
		*n.told = append(*n.told, fmt.Sprintf("ended %d: %v", id, why))
	}
}

func (n tellingNode) Expired(id tree.SessionID) {
	*n.told = append(*n.told, fmt.Sprint("expired ", id))
}

// The node ends what it has of an expired session before the program hears of the expiry, which it
// does once.
func TestEndIsToldBeforeTheExpiry(t *testing.T) {
	r := newRig(t)
	var told []string
	r.node = tellingNode{quietNode{r.disk}, &told}
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
	open := command.EncodeRequest(&command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	r.apply(command.EncodeRegister(o, 1, command.Rules{}), command.EncodeBatch(2, 1, 1, 1, 0, 1, slices.Values([][]byte{open})))
	id := r.mu.table.Sessions(2)[0].ID
	o.Start++
	r.apply(command.EncodeRegister(o, 1, command.Rules{}), command.EncodeExpire(1, 1))
	ended, expired := fmt.Sprintf("ended %d: %v", id, session.ErrExpired), fmt.Sprint("expired ", id)
	if n := len(told); n < 2 || told[n-1] != expired || slices.ContainsFunc(told[:n-1], func(s string) bool { return s != ended }) {
		t.Errorf("told %q, want %q at last, and only %q before", told, expired, ended)
	}
}

// Who releases a znode of a session that has moved to another member learns so, and the znode
// stays. So a client that has come back asks the member to which its session is attached now.
func TestReleaseOfASessionThatHasMoved(t *testing.T) {
	r := newRig(t)
	seq := map[session.MemberID]uint64{}
	batch := func(from session.MemberID, q command.Request) {
		seq[from]++
		r.apply(command.EncodeBatch(from, 1, seq[from], 1, 0, 1, slices.Values([][]byte{command.EncodeRequest(&q)})))
	}
	for _, member := range []session.MemberID{2, 3} {
		o := session.Origin{Member: member, Start: 1, Directory: [16]byte{byte(member)}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
		r.apply(command.EncodeRegister(o, 1, command.Rules{}))
	}
	batch(2, command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second, Remote: true})
	id := r.mu.table.Sessions(2)[0].ID
	batch(2, command.Request{Kind: command.RequestTxn, Session: id, Ops: []tree.Op{{Kind: tree.KindCreate, Path: "/a", Mode: tree.Ephemeral}}})
	batch(3, command.Request{Kind: command.RequestReattach, Session: id, Timeout: 10 * time.Second})
	if n := len(r.mu.table.Sessions(3)); n != 1 {
		t.Fatalf("%d sessions have moved", n)
	}
	stat, ok := r.tree.Load().Exists("/a")
	release := command.Request{Kind: command.RequestRelease, Session: id, Path: "/a", Czxid: stat.Czxid}
	for _, c := range []struct {
		from session.MemberID
		err  error
		left bool
	}{{2, session.ErrMoved, true}, {3, nil, false}} {
		err := r.release(c.from, 1, &release)
		if _, left := r.tree.Load().Exists("/a"); !ok || !errors.Is(err, c.err) || left != c.left {
			t.Errorf("released by member %d: %v, and the znode is left: %v", c.from, err, left)
		}
	}
}
