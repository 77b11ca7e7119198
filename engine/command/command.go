package command

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// HomeShard is the shard of the session table. Sessions are opened, kept alive and ended there.
const HomeShard replication.ShardID = 1

// Limits of a batch. Requests beyond them wait for the next batch.
const (
	BatchMax      = 1024    // requests
	BatchBytesMax = 1 << 20 // bytes of its requests; a larger request travels alone
)

// A Kind is the kind of a command. The package doc says what each kind does.
type Kind uint8

// The kinds of commands.
const (
	KindRegister Kind = 1 + iota
	KindBatch
	KindSilence
	KindExpire
	KindReap
	KindPurge
	KindPurged
	KindRaise
	KindFound
	KindJoin
	KindReport
	KindGovern
	KindWant
	KindRetire
	KindRecover
	KindLoad
)

// A RequestKind is the kind of a request. The package doc says what each kind does.
type RequestKind uint8

// The kinds of requests.
const (
	RequestTxn RequestKind = 1 + iota
	RequestOpen
	RequestClose
	RequestRelease
	RequestAddShard
	RequestIntroduce
	RequestReattach
	RequestSetIdentities
	RequestAnnounce
)

// A Request is one call as it travels in a batch. The comments say which kinds use a field.
type Request struct {
	Kind       RequestKind
	Session    tree.SessionID  // all but open
	Ops        []tree.Op       // txn
	Timeout    time.Duration   // open, introduce, reattach
	Password   [16]byte        // open, reattach
	Remote     bool            // open
	Attached   tree.Zxid       // close, introduce, setIdentities
	Identities []tree.Identity // open, introduce, reattach, setIdentities
	Path       string          // release
	Czxid      tree.Zxid       // release
	Lost       bool            // close, release
	Shard      uint32          // addShard
	Announce   Announce        // announce
}

// An Announce is what a member says of itself: its name, where members and clients reach it, and
// its zone.
type Announce struct{ Name, Address, Client, Zone string }

// A Command is one decoded entry of the log. The comments say which kinds use a field.
type Command struct {
	Kind     Kind
	Origin   session.Origin     // register; in a batch only Member and Start
	Seq      uint64             // batch: its place in its stream
	Wall     int64              // all but purged, raise, govern and retire: Unix ms at the proposer
	Home     tree.Zxid          // batch: what its node had applied of the home shard
	Rules    Rules              // register
	Requests []Request          // batch
	Step     session.Step       // silence
	Silence  time.Duration      // silence
	Reap     []Mortal           // reap
	Purge    []Ending           // purge
	Shard    uint32             // purged, report; in found the number of shards
	Sessions []tree.SessionID   // purged
	Level    uint32             // raise
	Behind   []session.MemberID // raise
	Lineage  session.Lineage    // found
	Founders []session.MemberID // found
	Join     session.Candidate  // join
	Member   session.MemberID   // report, govern, want, retire
	Place    session.Place      // report
	Number   uint64             // govern, want
	Wish     session.Part       // want
	Reason   session.Reason     // want
	Recovery session.Recovery   // recover
	Lost     []session.MemberID // recover
	Zxid     tree.Zxid          // recover
	Load     *Load              // load
}

// A Load is one part of a backup that a new ensemble begins with.
type Load struct {
	Part   uint64       // from 0, which begins the loading of a shard and has no znodes
	Source Source       // which backup
	Zxid   tree.Zxid    // part 0: the shard's transactions go on after this one
	Last   bool         // there are no more parts
	Znodes []tree.Named // parents before their children
}

// A Source is the SHA-256 of a backup.
type Source [32]byte

// An Ending is the end of a session on the home shard.
type Ending struct {
	Session tree.SessionID
	Former  []session.Incarnation // who spoke for the session
	Zxid    tree.Zxid             // the transaction that ended it
	Lost    bool                  // the owner did not close it
}

// A Mortal is a container or TTL znode as the reaper saw it.
type Mortal struct {
	Path string
	Seen tree.Seen
}

// Rules are the settings by which replicas judge transactions. Registers decide, so all replicas
// change the rules at the same entry.
type Rules struct {
	Schemes []string // names of the ACL schemes: in force, or in a Register those that the member has
	TreeMax int64    // see Config.MaxTreeSize; the newest Register decides
}

func (e *encoder) rules(r Rules) {
	e.strings(r.Schemes)
	e.uint(uint64(r.TreeMax))
}

func (d *decoder) rules() Rules {
	return Rules{Schemes: d.strings(), TreeMax: int64(d.uintTo(math.MaxInt64))}
}

// EncodeRegister encodes the first command of an origin's stream.
func EncodeRegister(o session.Origin, wall int64, r Rules) []byte {
	e := newEncoder()
	e.array(9)
	e.uint(uint64(KindRegister))
	e.uint(uint64(o.Member))
	e.uint(o.Start)
	e.bytes(o.Directory[:])
	e.bytes(o.Digest[:])
	e.uint(uint64(o.Level))
	e.int(wall)
	e.rules(r)
	return e.done()
}

// EncodeBatch encodes a batch of n requests, each encoded by EncodeRequest.
func EncodeBatch(m session.MemberID, start, seq uint64, wall int64, home tree.Zxid, n int, requests iter.Seq[[]byte]) []byte {
	e := newEncoder()
	e.array(7)
	e.uint(uint64(KindBatch))
	e.uint(uint64(m))
	e.uint(start)
	e.uint(seq)
	e.int(wall)
	e.uint(uint64(home))
	e.array(n)
	for r := range requests {
		e.buf = append(e.buf, r...)
	}
	return e.done()
}

// EncodeRequest encodes a request for EncodeBatch.
func EncodeRequest(r *Request) []byte {
	e := newEncoder()
	switch r.Kind {
	case RequestTxn:
		e.array(3)
		e.uint(uint64(r.Kind))
		e.int(int64(r.Session))
		e.array(len(r.Ops))
		for i := range r.Ops {
			e.op(&r.Ops[i])
		}
	case RequestOpen:
		e.array(5)
		e.uint(uint64(r.Kind))
		e.int(int64(r.Timeout))
		e.bytes(r.Password[:])
		e.flag(r.Remote)
		e.identities(r.Identities)
	case RequestClose:
		e.array(4)
		e.uint(uint64(r.Kind))
		e.int(int64(r.Session))
		e.uint(uint64(r.Attached))
		e.flag(r.Lost)
	case RequestRelease:
		e.array(5)
		e.uint(uint64(r.Kind))
		e.int(int64(r.Session))
		e.string(r.Path)
		e.uint(uint64(r.Czxid))
		e.flag(r.Lost)
	case RequestAddShard:
		e.array(3)
		e.uint(uint64(r.Kind))
		e.int(int64(r.Session))
		e.uint(uint64(r.Shard))
	case RequestIntroduce:
		e.array(5)
		e.uint(uint64(r.Kind))
		e.int(int64(r.Session))
		e.int(int64(r.Timeout))
		e.uint(uint64(r.Attached))
		e.identities(r.Identities)
	case RequestReattach:
		e.array(5)
		e.uint(uint64(r.Kind))
		e.int(int64(r.Session))
		e.bytes(r.Password[:])
		e.int(int64(r.Timeout))
		e.identities(r.Identities)
	case RequestSetIdentities:
		e.array(4)
		e.uint(uint64(r.Kind))
		e.int(int64(r.Session))
		e.uint(uint64(r.Attached))
		e.identities(r.Identities)
	case RequestAnnounce:
		e.array(5)
		e.uint(uint64(r.Kind))
		e.string(r.Announce.Name)
		e.string(r.Announce.Address)
		e.string(r.Announce.Client)
		e.string(r.Announce.Zone)
	}
	return e.done()
}

func (e *encoder) op(o *tree.Op) {
	switch o.Kind {
	case tree.KindCheckMzxid, tree.KindCheckLost:
		e.array(opLen(o.Kind))
		e.uint(uint64(o.Kind))
		e.string(o.Path)
		e.uint(uint64(o.Mzxid))
		return
	case tree.KindAdd:
		e.array(opLen(o.Kind))
		e.uint(uint64(o.Kind))
		e.string(o.Path)
		e.uint(uint64(o.Width))
		e.int(o.Delta)
		return
	case tree.KindEnsure:
		e.array(opLen(o.Kind))
		e.uint(uint64(o.Kind))
		e.string(o.Path)
		return
	}
	e.array(opLen(o.Kind))
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

// EncodeSilence encodes a step of an origin's silence.
func EncodeSilence(s session.Step, d time.Duration, wall int64) []byte {
	e := newEncoder()
	e.array(7)
	e.uint(uint64(KindSilence))
	e.uint(uint64(s.Member))
	e.uint(s.Start)
	e.uint(s.LastSeq)
	e.uint(s.Number)
	e.int(int64(d))
	e.int(wall)
	return e.done()
}

// EncodeReap encodes the removal of expired containers and TTL znodes.
func EncodeReap(wall int64, znodes []Mortal) []byte {
	e := newEncoder()
	e.array(3)
	e.uint(uint64(KindReap))
	e.int(wall)
	e.array(len(znodes))
	for _, z := range znodes {
		e.array(4)
		e.string(z.Path)
		e.uint(uint64(z.Seen.Czxid))
		e.uint(uint64(z.Seen.Mzxid))
		e.uint(uint64(z.Seen.Pzxid))
	}
	return e.done()
}

// EncodePurge encodes for a shard which sessions have ended on the home shard.
func EncodePurge(wall int64, endings []Ending) []byte {
	e := newEncoder()
	e.array(3)
	e.uint(uint64(KindPurge))
	e.int(wall)
	e.array(len(endings))
	for _, s := range endings {
		e.array(4)
		e.int(int64(s.Session))
		e.incarnations(s.Former)
		e.uint(uint64(s.Zxid))
		e.flag(s.Lost)
	}
	return e.done()
}

// EncodePurged encodes for the home shard which ended sessions have nothing left on a shard.
func EncodePurged(shard uint32, sessions []tree.SessionID) []byte {
	e := newEncoder()
	e.array(3)
	e.uint(uint64(KindPurged))
	e.uint(uint64(shard))
	e.array(len(sessions))
	for _, id := range sessions {
		e.int(int64(id))
	}
	return e.done()
}

// EncodeRaise encodes the rise of the shard's feature level by one. The members in behind need not
// read it.
func EncodeRaise(level uint32, behind []session.MemberID) []byte {
	e := newEncoder()
	e.array(3)
	e.uint(uint64(KindRaise))
	e.uint(uint64(level))
	e.members(behind)
	return e.done()
}

// EncodeFound encodes the choice of the ensemble's lineage, who the founders are, and how many
// shards there are.
func EncodeFound(l session.Lineage, founders []session.MemberID, shards uint32, wall int64) []byte {
	e := newEncoder()
	e.array(5)
	e.uint(uint64(KindFound))
	e.bytes(l[:])
	e.members(founders)
	e.uint(uint64(shards))
	e.int(wall)
	return e.done()
}

// EncodeJoin encodes the admission of a member.
func EncodeJoin(c session.Candidate, wall int64) []byte {
	e := newEncoder()
	e.array(10)
	e.uint(uint64(KindJoin))
	e.bytes(c.Directory[:])
	e.string(c.Name)
	e.string(c.Zone)
	e.string(c.Address)
	e.flag(c.Observer)
	e.uint(uint64(c.Former.ID))
	e.bytes(c.Former.Directory[:])
	e.members(c.Instead)
	e.int(wall)
	return e.done()
}

// EncodeReport encodes for the home shard what a member is on a shard.
func EncodeReport(m session.MemberID, shard uint32, p session.Place, wall int64) []byte {
	e := newEncoder()
	e.array(6)
	e.uint(uint64(KindReport))
	e.uint(uint64(m))
	e.uint(uint64(shard))
	e.uint(uint64(p.Part))
	e.uint(p.Change)
	e.int(wall)
	return e.done()
}

// EncodeGovern encodes that a member begins to lead the home shard, under a number.
func EncodeGovern(number uint64, m session.MemberID) []byte {
	e := newEncoder()
	e.array(3)
	e.uint(uint64(KindGovern))
	e.uint(number)
	e.uint(uint64(m))
	return e.done()
}

// EncodeWant encodes what a member is to be. The number is that of the leader that wishes it, or
// zero if a person does.
func EncodeWant(number uint64, m session.MemberID, wish session.Part, why session.Reason, wall int64) []byte {
	e := newEncoder()
	e.array(6)
	e.uint(uint64(KindWant))
	e.uint(number)
	e.uint(uint64(m))
	e.uint(uint64(wish))
	e.uint(uint64(why))
	e.int(wall)
	return e.done()
}

// EncodeRetire encodes that a shard takes nothing from a member any more.
func EncodeRetire(m session.MemberID) []byte {
	e := newEncoder()
	e.array(2)
	e.uint(uint64(KindRetire))
	e.uint(uint64(m))
	return e.done()
}

// EncodeRecover encodes the beginning of a shard's life after a forced recovery, without the lost
// members. Its transactions go on after the zxid.
func EncodeRecover(r session.Recovery, lost []session.MemberID, zxid tree.Zxid, wall int64) []byte {
	e := newEncoder()
	e.array(7)
	e.uint(uint64(KindRecover))
	e.bytes(r.Lineage[:])
	e.bytes(r.Parent[:])
	e.uint(uint64(r.Survivor))
	e.members(lost)
	e.uint(uint64(zxid))
	e.int(wall)
	return e.done()
}

// EncodeLoad encodes a part of a backup.
func EncodeLoad(l Load, wall int64) []byte {
	e := newEncoder()
	e.array(7)
	e.uint(uint64(KindLoad))
	e.uint(l.Part)
	e.bytes(l.Source[:])
	e.uint(uint64(l.Zxid))
	e.flag(l.Last)
	e.int(wall)
	e.array(len(l.Znodes))
	for _, n := range l.Znodes {
		e.array(2)
		e.string(n.Path)
		e.znode(n.Znode)
	}
	return e.done()
}

func (e *encoder) members(list []session.MemberID) {
	e.array(len(list))
	for _, m := range list {
		e.uint(uint64(m))
	}
}

// EncodeExpire encodes the order to expire the next portion of the sessions that are due, for a
// shard at a level.
func EncodeExpire(wall int64, level uint32) []byte {
	e := newEncoder()
	e.array(KindExpire.fields(level))
	e.uint(uint64(KindExpire))
	e.int(wall)
	if level >= LevelNext {
		e.uint(LevelNext)
	}
	return e.done()
}

// fields returns the length of a command's array at a level, or zero for a kind that this build does
// not know.
func (k Kind) fields(level uint32) int {
	switch k {
	case KindRegister:
		return 9
	case KindBatch:
		return 7
	case KindSilence:
		return 7
	case KindExpire:
		if level >= LevelNext {
			return 3
		}
		return 2
	case KindReap:
		return 3
	case KindPurge:
		return 3
	case KindPurged:
		return 3
	case KindRaise:
		return 3
	case KindFound:
		return 5
	case KindJoin:
		return 10
	case KindReport:
		return 6
	case KindGovern:
		return 3
	case KindWant:
		return 6
	case KindRetire:
		return 2
	case KindRecover:
		return 7
	case KindLoad:
		return 7
	}
	return 0
}

// Decode reads one entry of the log. The data of operations stays in the entry, whose memory the
// log uses again. Everything else is a copy.
func Decode(b []byte) (Command, error) { return new(Reader).Decode(b) }

// A Reader decodes entries one after another. It uses the memory of a batch again for the next one;
// BenchmarkApply shows what that is worth. The zero value is ready to use.
type Reader struct {
	Next bool // it reads what is of LevelNext, too

	requests []Request
	ops      []tree.Op // of all requests
}

// keptMax is how many requests and how many operations a Reader keeps memory for.
const keptMax = 2 * BatchMax

// Check returns the error of Decode, and needs no Reset.
func (r *Reader) Check(b []byte) error {
	_, err := r.Decode(b)
	r.Reset()
	return err
}

// Decode is like the function Decode, but the command must not be used after Reset.
func (r *Reader) Decode(b []byte) (Command, error) {
	d := newDecoder(b)
	n := d.array()
	c := Command{Kind: Kind(d.uintTo(math.MaxUint8))}
	if want := c.Kind.fields(LevelMax); want == 0 || n != want && !(r.Next && n == c.Kind.fields(LevelNext)) {
		d.fail(fmt.Errorf("%w: kind %d with %d fields, which this build does not know: start the build that wrote it, or a newer one", ErrMalformed, c.Kind, n))
	}
	switch c.Kind {
	case KindRegister:
		c.Origin.Member = session.MemberID(d.uint())
		c.Origin.Start = d.uint()
		d.fixed(c.Origin.Directory[:])
		d.fixed(c.Origin.Digest[:])
		c.Origin.Level = uint32(d.uintTo(math.MaxUint32))
		c.Wall = d.int()
		c.Rules = d.rules()
	case KindBatch:
		c.Origin.Member = session.MemberID(d.uint())
		c.Origin.Start = d.uint()
		c.Seq = d.uint()
		c.Wall = d.int()
		c.Home = tree.Zxid(d.uint())
		c.Requests = r.decodeRequests(d)
	case KindSilence:
		c.Step.Member = session.MemberID(d.uint())
		c.Step.Start = d.uint()
		c.Step.LastSeq = d.uint()
		c.Step.Number = d.uint()
		c.Silence = time.Duration(d.int())
		c.Wall = d.int()
	case KindExpire:
		c.Wall = d.int()
		if n > KindExpire.fields(LevelMax) && d.uint() != LevelNext {
			d.fail(ErrMalformed)
		}
	case KindReap:
		c.Wall = d.int()
		c.Reap = d.mortals()
	case KindPurge:
		c.Wall = d.int()
		c.Purge = d.endings()
	case KindPurged:
		c.Shard = uint32(d.uintTo(math.MaxUint32))
		c.Sessions = d.sessions()
	case KindRaise:
		c.Level = uint32(d.uintTo(math.MaxUint32))
		c.Behind = d.members()
	case KindFound:
		d.fixed(c.Lineage[:])
		c.Founders = d.members()
		c.Shard = uint32(d.uintTo(math.MaxUint32))
		c.Wall = d.int()
	case KindJoin:
		d.fixed(c.Join.Directory[:])
		c.Join.Name, c.Join.Zone, c.Join.Address = d.string(), d.string(), d.string()
		c.Join.Observer = d.flag()
		c.Join.Former.ID = session.MemberID(d.uint())
		d.fixed(c.Join.Former.Directory[:])
		c.Join.Instead = d.members()
		c.Wall = d.int()
	case KindReport:
		c.Member = session.MemberID(d.uint())
		c.Shard = uint32(d.uintTo(math.MaxUint32))
		c.Place = d.place()
		c.Wall = d.int()
	case KindGovern:
		c.Number = d.uint()
		c.Member = session.MemberID(d.uint())
	case KindWant:
		c.Number = d.uint()
		c.Member = session.MemberID(d.uint())
		c.Wish = session.Part(d.uintTo(math.MaxUint8))
		c.Reason = session.Reason(d.uintTo(math.MaxUint8))
		c.Wall = d.int()
	case KindRetire:
		c.Member = session.MemberID(d.uint())
	case KindRecover:
		d.fixed(c.Recovery.Lineage[:])
		d.fixed(c.Recovery.Parent[:])
		c.Recovery.Survivor = session.MemberID(d.uint())
		c.Lost = d.members()
		c.Zxid = tree.Zxid(d.uint())
		c.Wall = d.int()
	case KindLoad:
		c.Load = d.load(&c.Wall)
	}
	return c, d.end()
}

func (d *decoder) load(wall *int64) *Load {
	l := &Load{Part: d.uint()}
	d.fixed(l.Source[:])
	l.Zxid = tree.Zxid(d.uint())
	l.Last = d.flag()
	*wall = d.int()
	l.Znodes = make([]tree.Named, d.array())
	for i := range l.Znodes {
		d.want(2)
		l.Znodes[i].Path = d.string()
		l.Znodes[i].Znode = d.znode()
	}
	return l
}

func (d *decoder) place() session.Place {
	return session.Place{Part: session.Part(d.uintTo(math.MaxUint8)), Change: d.uint()}
}

func (d *decoder) members() []session.MemberID {
	list := make([]session.MemberID, d.array())
	for i := range list {
		list[i] = session.MemberID(d.uint())
	}
	return list
}

func (d *decoder) endings() []Ending {
	list := make([]Ending, d.array())
	for i := range list {
		d.want(4)
		list[i] = Ending{Session: tree.SessionID(d.int()), Former: d.incarnations(), Zxid: tree.Zxid(d.uint()), Lost: d.flag()}
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

// Reset ends the use of the last decoded entry.
func (r *Reader) Reset() {
	r.requests, r.ops = emptied(r.requests), emptied(r.ops)
}

func emptied[T any](s []T) []T {
	if cap(s) > keptMax {
		return nil
	}
	clear(s)
	return s[:0]
}

func (r *Reader) decodeRequests(d *decoder) []Request {
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

func (r *Reader) decodeRequest(d *decoder, q *Request) {
	n := d.array()
	*q = Request{Kind: RequestKind(d.uintTo(math.MaxUint8))}
	want := -1
	switch q.Kind {
	case RequestTxn:
		want = 3
		q.Session = tree.SessionID(d.int())
		q.Ops = r.decodeOps(d)
	case RequestOpen:
		want = 5
		q.Timeout = time.Duration(d.int())
		d.fixed(q.Password[:])
		q.Remote = d.flag()
		q.Identities = d.identities()
	case RequestClose:
		want = 4
		q.Session = tree.SessionID(d.int())
		q.Attached = tree.Zxid(d.uint())
		q.Lost = d.flag()
	case RequestRelease:
		want = 5
		q.Session = tree.SessionID(d.int())
		q.Path = d.word()
		q.Czxid = tree.Zxid(d.uint())
		q.Lost = d.flag()
	case RequestAddShard:
		want = 3
		q.Session = tree.SessionID(d.int())
		q.Shard = uint32(d.uintTo(math.MaxUint32))
	case RequestIntroduce:
		want = 5
		q.Session = tree.SessionID(d.int())
		q.Timeout = time.Duration(d.int())
		q.Attached = tree.Zxid(d.uint())
		q.Identities = d.identities()
	case RequestReattach:
		want = 5
		q.Session = tree.SessionID(d.int())
		d.fixed(q.Password[:])
		q.Timeout = time.Duration(d.int())
		q.Identities = d.identities()
	case RequestSetIdentities:
		want = 4
		q.Session = tree.SessionID(d.int())
		q.Attached = tree.Zxid(d.uint())
		q.Identities = d.identities()
	case RequestAnnounce:
		want = 5
		q.Announce = Announce{Name: d.string(), Address: d.string(), Client: d.string(), Zone: d.string()}
	}
	if n != want {
		d.fail(ErrMalformed)
	}
}

func (r *Reader) decodeOps(d *decoder) []tree.Op {
	n := d.array()
	if n == 0 {
		return []tree.Op{}
	}
	first := len(r.ops)
	r.ops = slices.Grow(r.ops, n)[:first+n] // if the array moves, earlier requests keep the old one
	ops := r.ops[first : first+n : first+n]
	for i := range ops {
		d.op(&ops[i])
	}
	return ops
}

func (d *decoder) op(o *tree.Op) {
	n := d.array()
	*o = tree.Op{Kind: tree.OpKind(d.uintTo(math.MaxUint8))}
	if n != opLen(o.Kind) {
		d.fail(ErrMalformed)
	}
	o.Path = d.word()
	switch o.Kind {
	case tree.KindCheckMzxid, tree.KindCheckLost:
		o.Mzxid = tree.Zxid(d.uint())
		return
	case tree.KindAdd:
		o.Width, o.Delta = tree.Width(d.uintTo(math.MaxUint8)), d.int()
		return
	case tree.KindEnsure:
		return
	}
	o.Data = d.data()
	o.Mode = tree.CreateMode(d.uintTo(math.MaxUint8))
	o.Version = d.int32()
	o.TTL = d.int()
	o.ACL = d.acl()
	o.Czxid = tree.Zxid(d.uint())
}

// opLen returns the length of an operation's array.
func opLen(k tree.OpKind) int {
	switch k {
	case tree.KindCheckMzxid, tree.KindCheckLost:
		return 3
	case tree.KindAdd:
		return 4
	case tree.KindEnsure:
		return 2
	}
	return 8
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

func (d *decoder) mortals() []Mortal {
	list := make([]Mortal, d.array())
	for i := range list {
		d.want(4)
		list[i].Path = d.string()
		list[i].Seen = tree.Seen{Czxid: tree.Zxid(d.uint()), Mzxid: tree.Zxid(d.uint()), Pzxid: tree.Zxid(d.uint())}
	}
	return list
}
