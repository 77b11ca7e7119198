package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A logWriter invents a log: members that start again and again, sessions, transactions, silences,
// and everything that can go wrong with them. It looks at a replica that has applied the log so
// far, to write commands that have an effect.
type logWriter struct {
	rng  *rand.Rand
	seen *replica.Replica
}

// entry returns the next entry.
func (l *logWriter) entry() []byte {
	switch n := l.rng.IntN(100); {
	case n < 8:
		return l.register()
	case n < 24:
		return l.silence()
	case n < 27:
		return command.EncodeExpire(l.wall(), 1)
	case n < 35:
		return l.reap()
	}
	return l.batch()
}

// reap returns a reap command of what a reaper saw, now or earlier.
func (l *logWriter) reap() []byte {
	var due []command.Mortal
	l.seen.Tree().Mortals(func(m tree.Mortal) bool {
		if l.rng.IntN(2) == 0 {
			m.Mzxid = tree.Zxid(l.near(uint64(m.Mzxid)))
			due = append(due, command.Mortal{Path: m.Path, Seen: m.Seen})
		}
		return len(due) < 4
	})
	if l.rng.IntN(4) == 0 {
		due = append(due, command.Mortal{Path: l.path()})
	}
	return command.EncodeReap(l.wall(), due)
}

func (l *logWriter) identities() (who []tree.Identity) {
	for _, i := range []tree.Identity{{Scheme: "digest", ID: "a:x"}, {Scheme: "digest", ID: "b:y"}, {Scheme: "ip", ID: "10.0.0.7"}, {Scheme: "super"}} {
		if l.rng.IntN(3) == 0 {
			who = append(who, i)
		}
	}
	return who
}

func (l *logWriter) acl() (list []tree.ACL) {
	all := []tree.ACL{{Scheme: "world", ID: "anyone"}, {Scheme: "auth"}, {Scheme: "digest", ID: "a:x"}, {Scheme: "ip", ID: "10.0.0.0/8"}, {Scheme: "none"}}
	for range l.rng.IntN(4) {
		a := all[l.rng.IntN(len(all))]
		a.Perms = tree.Perms(l.rng.IntN(40))
		list = append(list, a)
	}
	return list
}

func (l *logWriter) wall() int64 { return l.rng.Int64N(1 << 42) }

func (l *logWriter) member() session.MemberID { return session.MemberID(1 + l.rng.IntN(3)) }

// near returns v, or rarely a number next to it.
func (l *logWriter) near(v uint64) uint64 {
	switch l.rng.IntN(12) {
	case 0:
		return v - 1
	case 1:
		return v + 1
	}
	return v
}

func (l *logWriter) register() []byte {
	m := l.member()
	o, _ := tableOf(l.seen).Origin(m)
	n := session.Origin{Member: m, Start: l.near(o.Start + 1), Directory: [16]byte{byte(m)}, Digest: [32]byte{7}, Level: 1}
	if l.rng.IntN(10) == 0 {
		n.Directory[1]++
	}
	names := []string{"digest", "ip", "super"}
	r := command.Rules{Schemes: names[l.rng.IntN(len(names)):]}
	if l.rng.IntN(2) == 0 { // the tree will soon be full
		r.TreeMax = l.seen.Tree().Weight() + l.rng.Int64N(1000)
	}
	return command.EncodeRegister(n, l.rng.Int64(), r)
}

func (l *logWriter) silence() []byte {
	step, d, _ := tableOf(l.seen).NextStep(l.member())
	step.Number = l.near(step.Number)
	step.LastSeq = l.near(step.LastSeq)
	return command.EncodeSilence(step, d+time.Duration(l.rng.IntN(3)-1)*100*time.Millisecond, l.wall())
}

func (l *logWriter) batch() []byte {
	m := l.member()
	o, _ := tableOf(l.seen).Origin(m)
	var list [][]byte
	for range l.rng.IntN(6) {
		r := l.request(m)
		list = append(list, command.EncodeRequest(&r))
	}
	return command.EncodeBatch(m, l.near(o.Start), l.near(o.LastSeq+1), l.wall(), 0, len(list), slices.Values(list))
}

// session returns a session of the member, or rarely another session.
func (l *logWriter) session(m session.MemberID) tree.SessionID {
	if l.rng.IntN(15) == 0 {
		m = l.member()
	}
	open := tableOf(l.seen).Sessions(m)
	if len(open) == 0 {
		return tree.SessionID(l.rng.IntN(100))
	}
	return open[l.rng.IntN(len(open))].ID
}

func (l *logWriter) request(m session.MemberID) command.Request {
	switch n := l.rng.IntN(20); {
	case n < 3:
		timeouts := []time.Duration{0, time.Second, 4 * time.Second, 4100 * time.Millisecond}
		r := command.Request{Kind: command.RequestOpen, Timeout: timeouts[l.rng.IntN(len(timeouts))]}
		r.Password[0] = byte(l.rng.Uint32())
		r.Remote = l.rng.IntN(2) == 0
		r.Identities = l.identities()
		return r
	case n < 4:
		id := l.session(m)
		was, _ := tableOf(l.seen).Get(id)
		return command.Request{Kind: command.RequestClose, Session: id, Attached: tree.Zxid(l.near(uint64(was.Attached))), Lost: id%2 == 0}
	case n < 5:
		return l.move()
	case n < 6:
		id := l.session(m)
		was, _ := tableOf(l.seen).Get(id)
		return command.Request{Kind: command.RequestSetIdentities, Session: id, Attached: tree.Zxid(l.near(uint64(was.Attached))), Identities: l.identities()}
	case n < 9:
		r := command.Request{Kind: command.RequestRelease, Session: l.session(m), Path: l.path()}
		if owned := tableOf(l.seen).Ephemerals(r.Session); len(owned) > 0 {
			r.Path = owned[l.rng.IntN(len(owned))]
		}
		stat, _ := l.seen.Tree().Exists(r.Path)
		r.Czxid = tree.Zxid(l.near(uint64(stat.Czxid)))
		r.Lost = l.rng.IntN(2) == 0
		return r
	}
	r := command.Request{Kind: command.RequestTxn, Session: l.session(m)}
	for range 1 + l.rng.IntN(1+l.rng.IntN(4)) {
		r.Ops = append(r.Ops, l.op())
	}
	return r
}

// move attaches a session of any member to the member that sends it.
func (l *logWriter) move() command.Request {
	id := l.session(l.member())
	was, _ := tableOf(l.seen).Get(id)
	was.Password[0] = byte(l.near(uint64(was.Password[0])))
	return command.Request{Kind: command.RequestReattach, Session: id, Password: was.Password, Timeout: time.Duration(1+l.rng.IntN(4)) * time.Second, Identities: l.identities()}
}

func (l *logWriter) path() string {
	path := fmt.Sprint("/", l.rng.IntN(5))
	for l.rng.IntN(3) == 0 {
		path += fmt.Sprint("/", l.rng.IntN(3))
	}
	return path
}

// quota returns an operation on the limits or the use of a subtree.
func (l *logWriter) quota() tree.Op {
	path := "/zookeeper/quota" + l.path()
	switch l.rng.IntN(3) {
	case 0:
		path += "/zookeeper_limits"
	case 1:
		path += "/zookeeper_stats"
	}
	texts := []string{"count=3,bytes=100", "count=2,bytes=-1=;byteHardLimit=300;countHardLimit=4", "no text", ""}
	op := tree.Op{Kind: tree.KindCreate, Path: path, Data: []byte(texts[l.rng.IntN(len(texts))]), Version: tree.AnyVersion}
	if l.rng.IntN(3) == 0 {
		op.Kind = []tree.OpKind{tree.KindSet, tree.KindDelete}[l.rng.IntN(2)]
	}
	return op
}

func (l *logWriter) op() tree.Op {
	if l.rng.IntN(8) == 0 {
		return l.quota()
	}
	op := tree.Op{Kind: tree.OpKind(l.rng.IntN(54)/6 + 1), Path: l.path(), Version: int32(l.rng.IntN(3) - 1)}
	switch l.rng.IntN(8) {
	case 0, 1, 2, 3:
		op.Kind = tree.KindCreate
	case 4:
		op.Version = tree.AnyVersion
	}
	op.Mode = tree.CreateMode(l.rng.IntN(32) / 4)
	if op.Mode.IsTTL() != (l.rng.IntN(10) == 0) {
		op.TTL = l.rng.Int64N(3) - 1 + int64(l.rng.IntN(2))*tree.MaxTTL
	}
	if op.Mode.IsEphemeral() && l.rng.IntN(2) == 0 {
		op.TTL = 1 + l.rng.Int64N(3)
	}
	if l.rng.IntN(4) == 0 {
		stat, _ := l.seen.Tree().Exists(op.Path)
		op.Czxid = tree.Zxid(l.near(uint64(stat.Czxid)))
	}
	if l.rng.IntN(3) == 0 {
		op.ACL = l.acl()
	}
	if l.rng.IntN(2) == 0 {
		op.Data = make([]byte, l.rng.IntN(100))
	}
	return op
}

// applyEntries applies entries on a node's replica, in portions of random length. Then it
// overwrites their bytes, as Raft does.
func (n *node) applyEntries(rng *rand.Rand, entries []replication.Entry) {
	n.t.Helper()
	for len(entries) > 0 {
		portion := slices.Clone(entries[:1+rng.IntN(min(len(entries), 20))])
		for i := range portion {
			portion[i].Cmd = bytes.Clone(portion[i].Cmd)
		}
		n.shard.Apply(portion)
		for _, e := range portion {
			for i := range e.Cmd {
				e.Cmd[i] ^= 0xff
			}
		}
		entries = entries[len(portion):]
	}
	if err := n.disk.Err(); err != nil {
		n.t.Fatal(err)
	}
}

// restart closes the replica and its image, and loads it again.
func (n *node) restart() {
	n.t.Helper()
	if err := errors.Join(n.shard.Close(), n.image.Close()); err != nil {
		n.t.Fatal(err)
	}
	n.withImage()
}

// crash loses what the image lacks, and returns the part of the log that comes after the image.
func (n *node) crash(log []replication.Entry) []replication.Entry {
	n.t.Helper()
	if err := n.image.Close(); err != nil {
		n.t.Fatal(err)
	}
	n.withImage()
	applied := n.shard.Applied()
	return log[slices.IndexFunc(log, func(e replication.Entry) bool { return e.Index > applied }):]
}

// Four replicas apply one log. One applies it entry by entry. One applies it in portions and is
// restarted in between. One crashes and applies again what its image lacks. One misses a part and
// installs a snapshot instead. All end with the same bytes, in memory and in their images.
func TestReplicasOfOneLogAreEqual(t *testing.T) {
	for _, seed := range enginetest.Seeds(t, 4) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareReplicas(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func compareReplicas(t *testing.T, rng *rand.Rand) {
	const length = 600
	replicaOf := func(m session.MemberID) *node {
		return newNodeOf(t, session.Origin{Member: m, Start: 1 << 40}).withImage()
	}
	plain, restarted, crashed, installed := replicaOf(1), replicaOf(2), replicaOf(3), replicaOf(9)
	for _, n := range []*node{plain, restarted, crashed, installed} {
		n.shard.Portion = 2 // znodes that a session may own and still end in one entry
	}
	l := logWriter{rng: rng, seen: plain.shard}

	leaves := 1 + rng.IntN(length-2) // where the fourth replica leaves …
	returns := leaves + rng.IntN(length-leaves)
	var stream []byte // … and what it gets when it returns
	var log []replication.Entry
	for i := range length {
		log = append(log, replication.Entry{Index: uint64(10 + i), Cmd: l.entry()})
		plain.shard.Apply(log[i:])
		if i == returns {
			stream = (&peer{node: plain}).stream()
		}
	}
	cuts := []int{0, rng.IntN(length), rng.IntN(length), length}
	slices.Sort(cuts)
	for i := range cuts[1:] {
		restarted.applyEntries(rng, log[cuts[i]:cuts[i+1]])
		restarted.restart()
	}
	for rest, crashes := log, 3; len(rest) > 0; {
		k := 1 + rng.IntN(len(rest))
		crashed.applyEntries(rng, rest[:k])
		if rest = rest[k:]; rng.IntN(2) == 0 {
			if err := crashed.shard.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if len(rest) > 0 && crashes > 0 {
			crashes--
			rest = crashed.crash(log)
		}
	}
	installed.applyEntries(rng, log[:leaves])
	if err := installed.shard.Install(bytes.NewReader(stream), nil); err != nil {
		t.Fatal(err)
	}
	installed.applyEntries(rng, log[returns+1:])

	want := plain.dump()
	for name, n := range map[string]*node{"restarted": restarted, "crashed": crashed, "installed": installed} {
		if got := n.dump(); got != want {
			t.Errorf("%s replica:\n%s\nthe plain one:\n%s", name, got, want)
		}
	}
	plain.restart()
	if got := plain.dump(); got != want {
		t.Errorf("image:\n%s\nmemory:\n%s", got, want)
	}
	if zxidOf(plain.shard) < length/8 {
		t.Errorf("%d entries made only %d transactions", length, zxidOf(plain.shard))
	}
}
