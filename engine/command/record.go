package command

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// StateKey is the key of a shard's State record.
const StateKey = "state"

// IDKey returns the key of a session's or a member's record.
func IDKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

// EncodeZnode encodes a znode's record.
func EncodeZnode(z tree.Znode) []byte {
	e := newEncoder()
	e.znode(z)
	return e.done()
}

// AppendZnode appends a znode's record to buf.
func AppendZnode(buf []byte, z tree.Znode) []byte {
	e := encoder{buf: buf}
	e.znode(z)
	return e.buf
}

func (e *encoder) znode(z tree.Znode) {
	e.array(13)
	e.uint(uint64(z.Czxid))
	e.uint(uint64(z.Mzxid))
	e.uint(uint64(z.Pzxid))
	e.int(z.Ctime)
	e.int(z.Mtime)
	e.int(int64(z.Version))
	e.int(int64(z.Aversion))
	e.int(int64(z.Created))
	e.int(int64(z.Owner))
	e.flag(z.Container)
	e.int(z.TTL)
	e.acl(z.ACL)
	e.bytes(z.Data)
}

// DecodeZnode reads a znode's record. The data stays in b.
func DecodeZnode(b []byte) (z tree.Znode, err error) {
	d := newDecoder(b)
	z = d.znode()
	return z, d.end()
}

func (d *decoder) znode() (z tree.Znode) {
	d.want(13)
	z.Czxid = tree.Zxid(d.uint())
	z.Mzxid = tree.Zxid(d.uint())
	z.Pzxid = tree.Zxid(d.uint())
	z.Ctime = d.int()
	z.Mtime = d.int()
	z.Version = d.int32()
	z.Aversion = d.int32()
	z.Created = d.int32()
	z.Owner = tree.SessionID(d.int())
	z.Container = d.flag()
	z.TTL = d.int()
	z.ACL = d.acl()
	z.Data = d.data()
	return z
}

// EncodeSession encodes a session's record.
func EncodeSession(r session.Record) []byte {
	e := newEncoder()
	e.array(11)
	e.int(int64(r.ID))
	e.bytes(r.Password[:])
	e.int(int64(r.Timeout))
	e.uint(uint64(r.Origin))
	e.flag(r.Closing)
	e.identities(r.Identities)
	e.shards(r.Shards)
	e.uint(uint64(r.Ended))
	e.uint(uint64(r.Attached))
	e.incarnations(r.Former)
	e.flag(r.Lost)
	return e.done()
}

// DecodeSession reads a session's record.
func DecodeSession(b []byte) (r session.Record, err error) {
	d := newDecoder(b)
	d.want(11)
	r.ID = tree.SessionID(d.int())
	d.fixed(r.Password[:])
	r.Timeout = time.Duration(d.int())
	r.Origin = session.MemberID(d.uint())
	r.Closing = d.flag()
	r.Identities = d.identities()
	r.Shards = d.shards()
	r.Ended = tree.Zxid(d.uint())
	r.Attached = tree.Zxid(d.uint())
	r.Former = d.incarnations()
	r.Lost = d.flag()
	return r, d.end()
}

func (e *encoder) shards(list []uint32) {
	e.array(len(list))
	for _, shard := range list {
		e.uint(uint64(shard))
	}
}

func (d *decoder) shards() []uint32 {
	n := d.array()
	if n == 0 {
		return nil
	}
	list := make([]uint32, n)
	for i := range list {
		list[i] = uint32(d.uintTo(math.MaxUint32))
	}
	return list
}

func (e *encoder) incarnations(list []session.Incarnation) {
	e.array(len(list))
	for _, i := range list {
		e.array(2)
		e.uint(uint64(i.Member))
		e.uint(i.Start)
	}
}

func (d *decoder) incarnations() []session.Incarnation {
	n := d.array()
	if n == 0 {
		return nil
	}
	list := make([]session.Incarnation, n)
	for i := range list {
		d.want(2)
		list[i] = session.Incarnation{Member: session.MemberID(d.uint()), Start: d.uint()}
	}
	return list
}

const originFields = 10

// EncodeOrigin encodes an origin's record.
func EncodeOrigin(o session.Origin) []byte {
	e := newEncoder()
	e.array(originFields)
	e.uint(uint64(o.Member))
	e.uint(o.Start)
	e.bytes(o.Directory[:])
	e.bytes(o.Digest[:])
	e.uint(uint64(o.Level))
	e.uint(o.LastSeq)
	e.uint(o.Steps)
	e.int(int64(o.Silence))
	e.strings(o.Schemes)
	e.flag(o.Retired)
	return e.done()
}

// DecodeOrigin reads an origin's record.
func DecodeOrigin(b []byte) (o session.Origin, err error) {
	d := newDecoder(b)
	d.want(originFields)
	o.Member = session.MemberID(d.uint())
	o.Start = d.uint()
	d.fixed(o.Directory[:])
	d.fixed(o.Digest[:])
	o.Level = uint32(d.uintTo(math.MaxUint32))
	o.LastSeq = d.uint()
	o.Steps = d.uint()
	o.Silence = time.Duration(d.int())
	o.Schemes = d.strings()
	o.Retired = d.flag()
	return o, d.end()
}

// A State is what a shard has one record of.
type State struct {
	Level uint32 // at which the shard's records are written, LevelMin at first
	Zxid  tree.Zxid
	Lead  tree.Zxid // in µs, the most that Zxid was ahead of the wall clock of who proposed a command
	Rules Rules     // in force
	Seed  Seed
}

// A Seed says how far a shard has been loaded from a backup. It is zero until a backup is loaded or
// the shard is used.
type Seed struct {
	Source Source // which backup
	Next   uint64 // the part that comes next; zero: no backup is loaded
	Done   bool   // no more parts come: the last one is loaded, or the shard was used without a backup
}

// Loading reports whether more parts must come before anyone may use the shard.
func (s Seed) Loading() bool { return s.Next > 0 && !s.Done }

// stateFields returns how many fields the record of a shard has at a level.
func stateFields(level uint32) int {
	if level < LevelNext {
		return 6
	}
	return 7
}

// EncodeState encodes the record of a shard.
func EncodeState(s State) []byte {
	e := newEncoder()
	e.array(stateFields(s.Level))
	e.uint(uint64(s.Level))
	e.uint(uint64(s.Zxid))
	e.uint(uint64(s.Lead))
	e.rules(s.Rules)
	e.seed(s.Seed)
	if s.Level >= LevelNext {
		e.uint(LevelNext)
	}
	return e.done()
}

func (e *encoder) seed(s Seed) {
	if s == (Seed{}) {
		e.bytes(nil)
		return
	}
	e.array(3)
	e.bytes(s.Source[:])
	e.uint(s.Next)
	e.flag(s.Done)
}

func (d *decoder) seed() (s Seed) {
	if d.isNil() {
		return s
	}
	d.want(3)
	d.fixed(s.Source[:])
	s.Next, s.Done = d.uint(), d.flag()
	if s == (Seed{}) || s.Next == 0 && s != (Seed{Done: true}) {
		d.fail(ErrMalformed)
	}
	return s
}

// DecodeState reads the record of a shard. Its error wraps ErrLevel if the records are of a level
// above the highest that is read.
func DecodeState(b []byte, highest uint32) (State, error) {
	d := newDecoder(b)
	n := d.array()
	level := d.uintTo(math.MaxUint32)
	if err := CheckLevel(uint32(level), highest); err != nil && d.err == nil {
		return State{}, err // the rest may have another form
	}
	if n != stateFields(uint32(level)) {
		d.fail(ErrMalformed)
	}
	s := State{Level: uint32(level), Zxid: tree.Zxid(d.uint()), Lead: tree.Zxid(d.uint()), Rules: d.rules(), Seed: d.seed()}
	if s.Level >= LevelNext && d.uint() != LevelNext {
		d.fail(ErrMalformed)
	}
	if err := d.end(); err != nil {
		return State{}, err
	}
	return s, nil
}

// EnsembleKey is the key of the ensemble's record among those of its members.
var EnsembleKey = IDKey(0)

const ensembleFields = 6

// EncodeEnsemble encodes the ensemble's record.
func EncodeEnsemble(x session.Ensemble) []byte {
	e := newEncoder()
	e.array(ensembleFields)
	e.bytes(x.Lineage[:])
	e.uint(uint64(x.Next))
	e.uint(uint64(x.Shards))
	e.uint(x.Govern)
	e.uint(uint64(x.Governor))
	e.array(len(x.Ancestors))
	for _, l := range x.Ancestors {
		e.bytes(l[:])
	}
	return e.done()
}

// DecodeEnsemble reads the ensemble's record.
func DecodeEnsemble(b []byte) (x session.Ensemble, err error) {
	d := newDecoder(b)
	d.want(ensembleFields)
	d.fixed(x.Lineage[:])
	x.Next = session.MemberID(d.uint())
	x.Shards = uint32(d.uintTo(math.MaxUint32))
	x.Govern = d.uint()
	x.Governor = session.MemberID(d.uint())
	if n := d.array(); n > 0 {
		x.Ancestors = make([]session.Lineage, n)
	}
	for i := range x.Ancestors {
		d.fixed(x.Ancestors[i][:])
	}
	return x, d.end()
}

const memberFields = 11

// EncodeMember encodes a member's record in the table of members.
func EncodeMember(m session.Member) []byte {
	e := newEncoder()
	e.array(memberFields)
	e.uint(uint64(m.ID))
	e.bytes(m.Directory[:])
	e.string(m.Name)
	e.string(m.Zone)
	e.string(m.Address)
	e.string(m.Client)
	e.flag(m.Observer)
	e.uint(uint64(m.Wish))
	e.uint(uint64(m.Reason))
	e.int(m.Since)
	e.array(len(m.Places))
	for _, p := range m.Places {
		e.array(2)
		e.uint(uint64(p.Part))
		e.uint(p.Change)
	}
	return e.done()
}

// DecodeMember reads a member's record in the table of members.
func DecodeMember(b []byte) (m session.Member, err error) {
	d := newDecoder(b)
	d.want(memberFields)
	m.ID = session.MemberID(d.uint())
	d.fixed(m.Directory[:])
	m.Name, m.Zone, m.Address, m.Client = d.string(), d.string(), d.string(), d.string()
	m.Observer = d.flag()
	m.Wish = session.Part(d.uintTo(math.MaxUint8))
	m.Reason = session.Reason(d.uintTo(math.MaxUint8))
	m.Since = d.int()
	if n := d.array(); n > 0 {
		m.Places = make([]session.Place, n)
	}
	for i := range m.Places {
		d.want(2)
		m.Places[i] = d.place()
	}
	return m, d.end()
}
