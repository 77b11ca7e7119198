package clienttest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

var seeds = flag.Int("seeds", 3, "how many random conversations TestSameAnswers has")

// Vivarium and ZooKeeper answer random requests alike, and deliver the same events to watches. The
// requests avoid what ZooKeeper 3.8.0 answers differently from newer versions: exists without Read,
// events of znodes that may not be read, two modes of watches on one path, checkWatches, and
// create2 in a multi.
func TestSameAnswers(t *testing.T) {
	t.Parallel()
	zooKeeper := startZooKeeper(t, 1)
	// both have the same history
	addrs := []string{start(t).Addr().String(), zooKeeper.doors[0].server}
	names := []string{"Vivarium", "ZooKeeper"}
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			var sides []*side
			for i, addr := range addrs {
				s := &side{t: t, name: names[i], addr: addr, zxids: map[int64]string{0: "0"}, sessions: map[int64]string{0: "-"}}
				for range talkers {
					s.talkers = append(s.talkers, s.open())
				}
				s.clear()
				s.before = s.visible()
				sides = append(sides, s)
				defer s.end()
			}
			var said []string
			for n := range 400 {
				who, batch := rng.IntN(talkers), randomBatch(rng)
				what := fmt.Sprintf("%d: client %d:", n, who)
				for i := range batch {
					what += " " + render(&batch[i])
				}
				said = append(said, what)
				var answers [2]string
				for i, s := range sides {
					answers[i] = s.ask(who, batch, n)
				}
				if answers[0] != answers[1] {
					t.Fatalf("%s\n%s says %s\n%s says %s\nbefore it:\n%s", what, names[0], answers[0], names[1], answers[1], strings.Join(said[max(0, n-60):n], "\n"))
				}
			}
		})
	}
}

const talkers = 3

// A side is one of the two systems that receive the same requests.
type side struct {
	t        *testing.T
	name     string
	addr     string
	talkers  []*talker
	before   int64            // the zxid at which the conversation began
	zxids    map[int64]string // by zxid: the request that caused it
	sessions map[int64]string
}

// A talker is a connection with a session.
type talker struct {
	net.Conn
	xid     int32
	session int64
	events  []string
}

func (s *side) open() *talker {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	q := wire.ConnectRequest{Timeout: 30_000, Password: make([]byte, 16)}
	_, err = c.Write(q.AppendFrame(nil))
	must(s.t, err)
	b, err := wire.ReadFrame(c, nil, 1<<20)
	must(s.t, err)
	var a wire.ConnectResponse
	must(s.t, a.Decode(b))
	s.sessions[a.SessionID] = fmt.Sprintf("session %d", len(s.sessions))
	return &talker{Conn: c, session: a.SessionID}
}

// send sends requests in one go.
func (s *side) send(c *talker, batch ...wire.Request) {
	s.t.Helper()
	var frames []byte
	for _, q := range batch {
		c.xid++
		q.Xid = c.xid
		frames = q.AppendFrame(frames)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err := c.Write(frames)
	must(s.t, err)
}

// receive returns the next reply, which must belong to the request q. It keeps the events that come
// before the reply.
func (s *side) receive(c *talker, q *wire.Request) wire.Reply {
	s.t.Helper()
	for {
		b, err := wire.ReadFrame(c, nil, 8<<20)
		if err != nil {
			s.t.Fatalf("%s: %s: %v", s.name, render(q), err)
		}
		var r wire.Reply
		body, err := r.DecodeHeader(b)
		must(s.t, err)
		op := q.Op
		if r.Xid == wire.XidEvent {
			op = wire.OpEvent
		}
		if err := r.DecodeBody(op, body); err != nil {
			s.t.Fatalf("%s: reply to %s: %v", s.name, render(q), err)
		}
		if op != wire.OpEvent {
			return r
		}
		c.events = append(c.events, fmt.Sprintf("%d %d %q", r.Event.Type, r.Event.State, r.Event.Path))
	}
}

func (s *side) call(c *talker, q wire.Request) wire.Reply {
	s.t.Helper()
	s.send(c, q)
	return s.receive(c, &q)
}

// visible returns a zxid that is not smaller than any before.
func (s *side) visible() int64 {
	return s.call(s.talkers[0], wire.Request{Operation: wire.Operation{Op: wire.OpPing}}).Zxid
}

// end closes the sessions, whose ephemerals would otherwise stay for some time, and removes
// everything else.
func (s *side) end() {
	for _, c := range s.talkers {
		s.call(c, wire.Request{Operation: wire.Operation{Op: wire.OpCloseSession}})
	}
	s.clear()
}

// clear removes what another conversation has left.
func (s *side) clear() {
	s.t.Helper()
	c := s.open()
	var all func(path string)
	all = func(path string) {
		r := s.call(c, wire.Request{Operation: wire.Operation{Op: wire.OpGetChildren, Path: path}})
		for _, name := range r.Names {
			if child := strings.TrimSuffix(path, "/") + "/" + name; child != "/zookeeper" {
				all(child)
				s.call(c, wire.Request{Operation: wire.Operation{Op: wire.OpDelete, Path: child, Version: -1}})
			}
		}
	}
	s.call(c, wire.Request{Operation: wire.Operation{Op: wire.OpSetACL, Path: "/", Version: -1, ACL: everything}})
	all("/")
	s.call(c, wire.Request{Operation: wire.Operation{Op: wire.OpCloseSession}})
}

// ask returns the replies to requests, with the events before and after them, in a form that is the
// same on both sides.
func (s *side) ask(who int, batch []wire.Request, n int) string {
	s.t.Helper()
	c := s.talkers[who]
	s.send(c, batch...)
	var b strings.Builder
	for i := range batch {
		r := s.receive(c, &batch[i])
		s.told(&b, who, batch[i].Op)
		s.reply(&b, &r, fmt.Sprintf("#%d.%d", n, i))
	}
	last := batch[len(batch)-1].Op
	if last == wire.OpCloseSession {
		s.talkers[who] = s.open()
	}
	for i, c := range s.talkers {
		s.call(c, wire.Request{Operation: wire.Operation{Op: wire.OpPing}})
		s.told(&b, i, last)
	}
	return b.String()
}

// told writes the events that a client received. The ephemerals of a session go in any order.
func (s *side) told(b *strings.Builder, who int, cause wire.Op) {
	c := s.talkers[who]
	if cause == wire.OpCloseSession {
		slices.Sort(c.events)
	}
	for _, e := range c.events {
		fmt.Fprintf(b, "\n   client %d is told %s", who, e)
	}
	c.events = nil
}

func (s *side) reply(b *strings.Builder, r *wire.Reply, name string) {
	if _, known := s.zxids[r.Zxid]; !known && r.Zxid > s.before && r.Err == wire.OK {
		s.zxids[r.Zxid] = name
	}
	fmt.Fprintf(b, "\n   code %d", r.Err)
	if r.Err != wire.OK {
		return
	}
	s.result(b, &r.Result)
	for i := range r.Results {
		fmt.Fprintf(b, "\n      result of op %d: code %d", r.Results[i].Op, r.Results[i].Err)
		s.result(b, &r.Results[i])
	}
	slices.SortFunc(r.Users, func(a, b wire.User) int { return strings.Compare(a.Scheme+a.Name, b.Scheme+b.Name) })
	fmt.Fprintf(b, " %v", r.Users)
}

func (s *side) result(b *strings.Builder, r *wire.Result) {
	slices.Sort(r.Names)
	slices.SortFunc(r.ACL, func(a, b wire.ACL) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	fmt.Fprintf(b, " count %d path %q data %q (%v) names %q acl %v", r.Count, r.Path, r.Data, r.Data == nil, r.Names, r.ACL)
	zxid := func(z int64) string {
		if z != 0 && z <= s.before {
			return "earlier"
		}
		if name, ok := s.zxids[z]; ok {
			return name
		}
		return "unknown"
	}
	st := &r.Stat
	fmt.Fprintf(b, " stat %s %s %s versions %d %d %d owner %s length %d children %d", zxid(st.Czxid), zxid(st.Mzxid), zxid(st.Pzxid),
		st.Version, st.Cversion, st.Aversion, s.sessions[st.EphemeralOwner], st.DataLength, st.NumChildren)
}

var everything = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// randomPath returns a path that often exists, and sometimes one that cannot exist.
func randomPath(rng *rand.Rand) string {
	if rng.IntN(12) == 0 {
		return pick(rng, "", "a", "/a/", "//a", "/a//b", "/a/.", "/a/../b", "/a\x00b", "/\U0001f600", "/a/\x01", "/zookeeper", "/zookeeper/quota",
			"/zookeeper/x", "/a/\xff", "/a/\u00a0", "/a/\ufff0", "/missing/x", wire.Null)
	}
	return pick(rng, "/", "/a", "/b", "/c", "/a/b", "/a/c", "/a/b/c", "/a/b/d", "/b/s0000000000", "/a/s0000000001", "/c/x", "/c/y")
}

func randomOperation(rng *rand.Rand, op wire.Op) wire.Operation {
	o := wire.Operation{Op: op, Path: randomPath(rng), Version: pick[int32](rng, -1, -1, -1, 0, 1, 2, -2)}
	o.Data = pick(rng, nil, []byte{}, []byte("x"), []byte("some more"))
	o.ACL = pick(rng, everything, everything, everything, everything, everything,
		[]wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}},
		[]wire.ACL{{Perms: wire.PermRead | wire.PermAdmin, Scheme: "world", ID: "anyone"}, {Perms: wire.PermCreate, Scheme: "digest", ID: "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="}},
		[]wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}, {Perms: wire.PermAll, Scheme: "auth", ID: ""}},
		[]wire.ACL{{Perms: 255, Scheme: "ip", ID: "127.0.0.0/8"}, {Perms: 255, Scheme: "ip", ID: "127.0.0.0/8"}},
		[]wire.ACL{{Perms: wire.PermAll, Scheme: "nonsense", ID: "x"}}, []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "x"}}, nil, []wire.ACL{})
	switch op {
	case wire.OpCreate, wire.OpCreate2:
		o.Flags = pick(rng, wire.FlagsPersistent, wire.FlagsPersistent, wire.FlagsEphemeral, wire.FlagsSequential, wire.FlagsEphemeralSequential)
		if o.Flags&wire.FlagsSequential != 0 {
			o.Path = pick(rng, o.Path, "/a/s", "/b/s", "/b/")
		}
	case wire.OpCreateContainer:
		o.Flags = wire.FlagsContainer
	case wire.OpCreateTTL:
		o.Flags, o.TTL = pick(rng, wire.FlagsTTL, wire.FlagsSequentialTTL), pick[int64](rng, 1<<30, 1<<30, 0, -1, 1<<40-1, 1<<40)
	}
	// Watches of reads and watches of addWatch have separate paths.
	own := o.Path == "/" || o.Path == "/a" || o.Path == ""
	o.Watch = rng.IntN(2) == 0 && !own
	switch op {
	case wire.OpAddWatch:
		o.Path = pick(rng, "/", "/a")
		o.Mode = wire.WatchPersistent
		if o.Path == "/a" {
			o.Mode = wire.WatchRecursive
		}
	case wire.OpSync:
		if o.Path == "/\U0001f600" {
			o.Path = "/" // there the reply contains it, as invalid UTF-8
		}
	case wire.OpGetAllChildrenNumber:
		if o.Path == "" {
			o.Path = "/" // there it counts one more
		}
	case wire.OpCheckWatches, wire.OpRemoveWatches:
		if o.Kind = wire.KindAny; !own {
			o.Kind = pick(rng, wire.KindAny, wire.KindData, wire.KindChildren, 0, 9)
		}
	}
	return o
}

// randomBatch returns one request, or several that a client sends without waiting. A request whose
// answer may overtake others is alone.
func randomBatch(rng *rand.Rand) []wire.Request {
	batch := []wire.Request{randomRequest(rng)}
	for alone := rng.IntN(3) > 0; !alone && len(batch) < 9; alone = rng.IntN(6) == 0 {
		if q := randomRequest(rng); q.Op != wire.OpAuth && q.Op != wire.OpCloseSession && batch[0].Op != wire.OpAuth && batch[0].Op != wire.OpCloseSession {
			batch = append(batch, q)
		}
	}
	return batch
}

func randomRequest(rng *rand.Rand) (q wire.Request) {
	reads := []wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetACL, wire.OpGetAllChildrenNumber, wire.OpGetEphemerals,
		wire.OpSync, wire.OpWhoAmI}
	writes := []wire.Op{wire.OpCreate, wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData}
	watches := []wire.Op{wire.OpAddWatch, wire.OpRemoveWatches}
	switch n := rng.IntN(100); {
	case n < 45:
		q.Operation = randomOperation(rng, pick(rng, writes...))
	case n < 50:
		q.Operation = randomOperation(rng, wire.OpSetACL)
	case n < 75:
		q.Operation = randomOperation(rng, pick(rng, reads...))
	case n < 80:
		q.Operation = randomOperation(rng, pick(rng, watches...))
	case n < 92:
		q.Op = wire.OpMulti
		for range rng.IntN(5) {
			o := randomOperation(rng, pick(rng, append(writes, wire.OpCheck, wire.OpCheck)...))
			if o.ACL == nil {
				o.ACL = []wire.ACL{} // newer versions refuse null as a list
			}
			if o.Op == wire.OpCreate2 {
				o.Op = wire.OpCreate
			}
			if o.Op == wire.OpCreate && rng.IntN(8) == 0 {
				o.Flags = wire.FlagsContainer
			}
			q.Ops = append(q.Ops, o)
		}
	case n < 95:
		q.Op = wire.OpMultiRead
		for range rng.IntN(4) {
			q.Ops = append(q.Ops, randomOperation(rng, pick(rng, wire.OpGetData, wire.OpGetChildren)))
		}
	case n < 97:
		q.Op = pick(rng, wire.OpSetWatches, wire.OpSetWatches2)
		some := func() []string {
			paths := []string{}
			for range rng.IntN(3) {
				paths = append(paths, pick(rng, "/b", "/c", "/a/b", "/a/c", "/missing"))
			}
			return paths
		}
		q.Watches = wire.Watches{Zxid: pick[int64](rng, 0, 1<<60), Data: some(), Exist: some(), Child: some(), Persistent: []string{}, Recursive: []string{}}
	case n < 98:
		q.Operation = randomQuota(rng)
	case n < 99:
		q.Op = wire.OpAuth
		q.Auth = wire.Auth{Scheme: "digest", Proof: []byte(pick(rng, "bob:pw", "eve:pw", "nocolon", ":x", "a:b:c"))}
	default:
		q.Op = wire.OpCloseSession
	}
	return q
}

// randomQuota creates, changes or reads a quota, or a znode above one.
func randomQuota(rng *rand.Rand) wire.Operation {
	o := randomOperation(rng, pick(rng, wire.OpCreate, wire.OpCreate, wire.OpSetData, wire.OpGetData, wire.OpDelete, wire.OpGetChildren2))
	o.ACL, o.Flags, o.Watch = everything, wire.FlagsPersistent, false
	o.Path = "/zookeeper/quota" + pick(rng, "/a", "/a/zookeeper_limits", "/a/zookeeper_stats", "/b", "/b/zookeeper_limits", "/b/zookeeper_stats", "/a/b", "/a/b/zookeeper_limits", "/a/b/zookeeper_stats")
	o.Data = []byte(pick(rng, "count=3,bytes=20", "count=2,bytes=-1=;byteHardLimit=-1;countHardLimit=3", "count=-1,bytes=-1=;byteHardLimit=6;countHardLimit=-1"))
	return o
}

// render returns a request as text, for a person who studies a difference.
func render(q *wire.Request) string {
	one := func(o *wire.Operation) string {
		return fmt.Sprintf("op %d %q version %d flags %d data %q watch %v mode %d kind %d ttl %d acl %v", o.Op, o.Path, o.Version, o.Flags, o.Data, o.Watch,
			o.Mode, o.Kind, o.TTL, o.ACL)
	}
	text := one(&q.Operation)
	for i := range q.Ops {
		text += "\n   " + one(&q.Ops[i])
	}
	if q.Op == wire.OpAuth {
		text += fmt.Sprintf(" %q", q.Auth.Proof)
	}
	if q.Op == wire.OpSetWatches || q.Op == wire.OpSetWatches2 {
		text += fmt.Sprintf(" %+v", q.Watches)
	}
	return text
}
