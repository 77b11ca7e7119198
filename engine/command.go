package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// formatLevel is the highest level of commands and records that this build reads and writes. A member tells it
// when it registers, so that a later build can know when everybody reads a newer one.
const formatLevel = 1

// The commands of the log. Each is a MessagePack array that begins with its kind; docs draw them once, here:
//
//	register [1, member, start, directory, founding digest, level, wall ms, [scheme, ...]]
//	batch    [2, member, start, seq, wall ms, home zxid, [request, ...]]
//	silence  [3, member, start, last seq, step, duration ns, wall ms]
//	expire   [4, wall ms]
//	reap     [5, wall ms, [[path, czxid, mzxid, pzxid], ...]]
//	purge    [6, wall ms, [[session, [[member, start], ...], home zxid, lost], ...]]
//	purged   [7, shard, [session, ...]]
//
// and the requests of a batch:
//
//	txn      [1, session, [op, ...]]          op: [kind, path, data, mode, version, ttl ms, acl, czxid]
//	open     [2, timeout ns, password, remote, [identity, ...]]
//	close    [3, session, attached, lost]
//	release  [4, session, path, czxid, lost]
//	attach   [5, session, shard]
//	admit    [6, session, timeout ns, attached, [identity, ...]]
//	move     [7, session, password, timeout ns, [identity, ...]]
//	identify [8, session, attached, [identity, ...]]
//
// attached is the zxid that attached a remote client's session to its member, zero for an in-process one. An acl is nil or [[perms, scheme, id], ...], an identity [scheme, id].
type commandKind uint8

const (
	commandRegister commandKind = 1 + iota
	commandBatch
	commandSilence
	commandExpire
	commandReap
	commandPurge
	commandPurged
)

type requestKind uint8

const (
	requestTxn requestKind = 1 + iota
	requestOpen
	requestClose
	requestRelease
	requestAttach
	requestAdmit
	requestMove
	requestIdentify
)

// A request is one call as it travels in a batch.
type request struct {
	kind       requestKind
	session    tree.SessionID
	ops        []tree.Op       // txn
	timeout    time.Duration   // open, admit, move
	password   [16]byte        // open, move
	remote     bool            // open
	attached   tree.Zxid       // close, admit, identify
	identities []tree.Identity // open, admit, move, identify
	path       string          // release
	czxid      tree.Zxid       // release
	lost       bool            // close, release: it is not given up, but was lost to silence
	shard      uint32          // attach
}

// A command is one decoded entry of the log.
type command struct {
	kind     commandKind
	origin   session.Origin   // register; of a batch Member, Start and, as LastSeq, its own seq
	wall     int64            // Unix ms at the proposer; of all but purged
	home     tree.Zxid        // batch: what its node had applied of the home shard when it was sent
	rules    rules            // register: that transactions are judged by from here on
	requests []request        // batch
	step     session.Step     // silence
	duration time.Duration    // silence
	reap     []mortal         // reap
	purge    []ending         // purge
	shard    uint32           // purged
	sessions []tree.SessionID // purged
}

// An ending is a session that has ended on the home shard, and who spoke for it.
type ending struct {
	session tree.SessionID
	former  []session.Incarnation
	zxid    tree.Zxid
	lost    bool
}

// A mortal is a container or TTL znode as the reaper saw it.
type mortal struct {
	path string
	seen tree.Seen
}

// rules are what transactions are judged by, beside the tree. Those of the newest Register count, so
// that all replicas change them at the same entry.
type rules struct {
	schemes []string // the names of those that ACLs are judged by
	treeMax int64    // see Config.MaxTreeSize
}

func (e *encoder) rules(r rules) {
	e.strings(r.schemes)
	e.uint(uint64(r.treeMax))
}

func (d *decoder) rules() rules {
	return rules{schemes: d.strings(), treeMax: int64(d.uintTo(math.MaxInt64))}
}

func encodeRegister(o session.Origin, wall int64, r rules) []byte {
	e := newEncoder()
	e.array(9)
	e.uint(uint64(commandRegister))
	e.uint(uint64(o.Member))
	e.uint(o.Start)
	e.bytes(o.Directory[:])
	e.bytes(o.Digest[:])
	e.uint(uint64(o.Level))
	e.int(wall)
	e.rules(r)
	return e.done()
}

func encodeBatch(m session.MemberID, start, seq uint64, wall int64, home tree.Zxid, waiters []*waiter) []byte {
	e := newEncoder()
	e.array(7)
	e.uint(uint64(commandBatch))
	e.uint(uint64(m))
	e.uint(start)
	e.uint(seq)
	e.int(wall)
	e.uint(uint64(home))
	e.array(len(waiters))
	for _, w := range waiters {
		e.buf = append(e.buf, w.wire...)
	}
	return e.done()
}

func encodeRequest(r *request) []byte {
	e := newEncoder()
	switch r.kind {
	case requestTxn:
		e.array(3)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.array(len(r.ops))
		for i := range r.ops {
			e.op(&r.ops[i])
		}
	case requestOpen:
		e.array(5)
		e.uint(uint64(r.kind))
		e.int(int64(r.timeout))
		e.bytes(r.password[:])
		e.flag(r.remote)
		e.identities(r.identities)
	case requestClose:
		e.array(4)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.uint(uint64(r.attached))
		e.flag(r.lost)
	case requestRelease:
		e.array(5)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.string(r.path)
		e.uint(uint64(r.czxid))
		e.flag(r.lost)
	case requestAttach:
		e.array(3)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.uint(uint64(r.shard))
	case requestAdmit:
		e.array(5)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.int(int64(r.timeout))
		e.uint(uint64(r.attached))
		e.identities(r.identities)
	case requestMove:
		e.array(5)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.bytes(r.password[:])
		e.int(int64(r.timeout))
		e.identities(r.identities)
	case requestIdentify:
		e.array(4)
		e.uint(uint64(r.kind))
		e.int(int64(r.session))
		e.uint(uint64(r.attached))
		e.identities(r.identities)
	}
	return e.done()
}

func (e *encoder) op(o *tree.Op) {
	e.array(8)
	e.uint(uint64(o.Kind))
	e.string(o.Path)
	e.bytes(o.Data)
	e.uint(uint64(o.Mode))
	e.int(int64(o.Version))
	e.int(o.TTL)
	e.acl(o.ACL)
	e.uint(uint64(o.Czxid))
}

func (e *encoder) acl(list []tree.ACL) {
	if list == nil {
		e.bytes(nil)
		return
	}
	e.array(len(list))
	for _, a := range list {
		e.array(3)
		e.int(int64(a.Perms))
		e.string(a.Scheme)
		e.string(a.ID)
	}
}

func (e *encoder) identities(list []tree.Identity) {
	e.array(len(list))
	for _, i := range list {
		e.array(2)
		e.string(i.Scheme)
		e.string(i.ID)
	}
}

func encodeSilence(s session.Step, d time.Duration, wall int64) []byte {
	e := newEncoder()
	e.array(7)
	e.uint(uint64(commandSilence))
	e.uint(uint64(s.Member))
	e.uint(s.Start)
	e.uint(s.LastSeq)
	e.uint(s.Step)
	e.int(int64(d))
	e.int(wall)
	return e.done()
}

func encodeReap(wall int64, znodes []mortal) []byte {
	e := newEncoder()
	e.array(3)
	e.uint(uint64(commandReap))
	e.int(wall)
	e.array(len(znodes))
	for _, z := range znodes {
		e.array(4)
		e.string(z.path)
		e.uint(uint64(z.seen.Czxid))
		e.uint(uint64(z.seen.Mzxid))
		e.uint(uint64(z.seen.Pzxid))
	}
	return e.done()
}

func encodePurge(wall int64, endings []ending) []byte {
	e := newEncoder()
	e.array(3)
	e.uint(uint64(commandPurge))
	e.int(wall)
	e.array(len(endings))
	for _, s := range endings {
		e.array(4)
		e.int(int64(s.session))
		e.incarnations(s.former)
		e.uint(uint64(s.zxid))
		e.flag(s.lost)
	}
	return e.done()
}

func encodePurged(shard uint32, sessions []tree.SessionID) []byte {
	e := newEncoder()
	e.array(3)
	e.uint(uint64(commandPurged))
	e.uint(uint64(shard))
	e.array(len(sessions))
	for _, id := range sessions {
		e.int(int64(id))
	}
	return e.done()
}

func encodeExpire(wall int64) []byte {
	e := newEncoder()
	e.array(2)
	e.uint(uint64(commandExpire))
	e.int(wall)
	return e.done()
}

// fields is the length of a command's array; zero for a kind that this build does not know.
func (k commandKind) fields() int {
	switch k {
	case commandRegister:
		return 9
	case commandBatch:
		return 7
	case commandSilence:
		return 7
	case commandExpire:
		return 2
	case commandReap:
		return 3
	case commandPurge:
		return 3
	case commandPurged:
		return 3
	}
	return 0
}

// decodeCommand reads one entry of the log. The data of a transaction's operations is that of the entry, which the log uses again;
// everything else is a copy.
func decodeCommand(b []byte) (command, error) { return new(room).decode(b) }

// A room is what one batch leaves of memory to the next; BenchmarkApply tells what that is worth.
type room struct {
	requests []request
	ops      []tree.Op // of all requests
}

// roomMax bounds what is kept of each; what a larger batch needed is left to the collector.
const roomMax = 2 * batchMax

// decode is decodeCommand of an entry that is done with when empty is called.
func (r *room) decode(b []byte) (command, error) {
	d := newDecoder(b)
	n := d.array()
	c := command{kind: commandKind(d.uintTo(math.MaxUint8))}
	if want := c.kind.fields(); want == 0 || n != want {
		d.fail(fmt.Errorf("%w: kind %d with %d fields, perhaps of a newer version", errMalformed, c.kind, n))
	}
	switch c.kind {
	case commandRegister:
		c.origin.Member = session.MemberID(d.uint())
		c.origin.Start = d.uint()
		d.fixed(c.origin.Directory[:])
		d.fixed(c.origin.Digest[:])
		c.origin.Level = uint32(d.uintTo(math.MaxUint32))
		c.wall = d.int()
		c.rules = d.rules()
	case commandBatch:
		c.origin.Member = session.MemberID(d.uint())
		c.origin.Start = d.uint()
		c.origin.LastSeq = d.uint()
		c.wall = d.int()
		c.home = tree.Zxid(d.uint())
		c.requests = r.decodeRequests(d)
	case commandSilence:
		c.step.Member = session.MemberID(d.uint())
		c.step.Start = d.uint()
		c.step.LastSeq = d.uint()
		c.step.Step = d.uint()
		c.duration = time.Duration(d.int())
		c.wall = d.int()
	case commandExpire:
		c.wall = d.int()
	case commandReap:
		c.wall = d.int()
		c.reap = d.mortals()
	case commandPurge:
		c.wall = d.int()
		c.purge = d.endings()
	case commandPurged:
		c.shard = uint32(d.uintTo(math.MaxUint32))
		c.sessions = d.sessions()
	}
	return c, d.end()
}

func (d *decoder) endings() []ending {
	list := make([]ending, d.array())
	for i := range list {
		d.want(4)
		list[i] = ending{session: tree.SessionID(d.int()), former: d.incarnations(), zxid: tree.Zxid(d.uint()), lost: d.flag()}
	}
	return list
}

func (d *decoder) sessions() []tree.SessionID {
	list := make([]tree.SessionID, d.array())
	for i := range list {
		list[i] = tree.SessionID(d.int())
	}
	return list
}

// empty lets go of what was decoded last.
func (r *room) empty() {
	r.requests, r.ops = emptied(r.requests), emptied(r.ops)
}

func emptied[T any](s []T) []T {
	if cap(s) > roomMax {
		return nil
	}
	clear(s)
	return s[:0]
}

func (r *room) decodeRequests(d *decoder) []request {
	n := d.array()
	if n == 0 {
		return nil
	}
	r.requests, r.ops = slices.Grow(r.requests[:0], n)[:n], r.ops[:0]
	for i := range r.requests {
		r.decodeRequest(d, &r.requests[i])
		if d.err != nil {
			return nil
		}
	}
	return r.requests
}

func (r *room) decodeRequest(d *decoder, q *request) {
	n := d.array()
	*q = request{kind: requestKind(d.uintTo(math.MaxUint8))}
	want := -1
	switch q.kind {
	case requestTxn:
		want = 3
		q.session = tree.SessionID(d.int())
		q.ops = r.decodeOps(d)
	case requestOpen:
		want = 5
		q.timeout = time.Duration(d.int())
		d.fixed(q.password[:])
		q.remote = d.flag()
		q.identities = d.identities()
	case requestClose:
		want = 4
		q.session = tree.SessionID(d.int())
		q.attached = tree.Zxid(d.uint())
		q.lost = d.flag()
	case requestRelease:
		want = 5
		q.session = tree.SessionID(d.int())
		q.path = d.word()
		q.czxid = tree.Zxid(d.uint())
		q.lost = d.flag()
	case requestAttach:
		want = 3
		q.session = tree.SessionID(d.int())
		q.shard = uint32(d.uintTo(math.MaxUint32))
	case requestAdmit:
		want = 5
		q.session = tree.SessionID(d.int())
		q.timeout = time.Duration(d.int())
		q.attached = tree.Zxid(d.uint())
		q.identities = d.identities()
	case requestMove:
		want = 5
		q.session = tree.SessionID(d.int())
		d.fixed(q.password[:])
		q.timeout = time.Duration(d.int())
		q.identities = d.identities()
	case requestIdentify:
		want = 4
		q.session = tree.SessionID(d.int())
		q.attached = tree.Zxid(d.uint())
		q.identities = d.identities()
	}
	if n != want {
		d.fail(errMalformed)
	}
}

func (r *room) decodeOps(d *decoder) []tree.Op {
	n := d.array()
	if n == 0 {
		return []tree.Op{}
	}
	first := len(r.ops)
	r.ops = slices.Grow(r.ops, n)[:first+n] // if they move, what the requests before have stays where it is
	ops := r.ops[first : first+n : first+n]
	for i := range ops {
		d.op(&ops[i])
	}
	return ops
}

func (d *decoder) op(o *tree.Op) {
	d.want(8)
	*o = tree.Op{Kind: tree.OpKind(d.uintTo(math.MaxUint8))}
	o.Path = d.word()
	o.Data = d.data()
	o.Mode = tree.CreateMode(d.uintTo(math.MaxUint8))
	o.Version = d.int32()
	o.TTL = d.int()
	o.ACL = d.acl()
	o.Czxid = tree.Zxid(d.uint())
}

func (d *decoder) acl() []tree.ACL {
	if d.isNil() {
		return nil
	}
	list := make([]tree.ACL, d.array())
	for i := range list {
		d.want(3)
		list[i] = tree.ACL{Perms: tree.Perms(d.int32()), Scheme: d.string(), ID: d.string()}
	}
	return list
}

func (d *decoder) identities() []tree.Identity {
	n := d.array()
	if n == 0 {
		return nil
	}
	list := make([]tree.Identity, n)
	for i := range list {
		d.want(2)
		list[i] = tree.Identity{Scheme: d.string(), ID: d.string()}
	}
	return list
}

func (d *decoder) mortals() []mortal {
	list := make([]mortal, d.array())
	for i := range list {
		d.want(4)
		list[i].path = d.string()
		list[i].seen = tree.Seen{Czxid: tree.Zxid(d.uint()), Mzxid: tree.Zxid(d.uint()), Pzxid: tree.Zxid(d.uint())}
	}
	return list
}
