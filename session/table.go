package session

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// A Record is what the ensemble knows about one session. All of it is replicated and stored.
type Record struct {
	ID       tree.SessionID
	Password [16]byte
	Timeout  time.Duration
	// Origin is the member whose node speaks for the session; zero once the session has ended.
	Origin MemberID
	// Attached is the transaction of the home shard that attached a remote session to its origin:
	// the one that opened the session, or the newest Reattach. Zero means an in-process session,
	// which cannot be attached to another process.
	Attached tree.Zxid
	// Identities are what the session has authenticated as, in the order of the ACL scheme "auth".
	Identities []tree.Identity
	// Closing says that the session's end is decided, whatever its origin does from now on. A
	// session that is due is past saving too; ask Usable, not this field.
	Closing bool
	// Shards are the shards that the session uses besides its home shard, ascending. Only the
	// record at home has them.
	Shards []uint32
	// Ended is the transaction of the home shard that ended the session; zero if none has. If the
	// session is Closing at home, Ended is the newest transaction when its end was decided. At home
	// such a record waits until all Shards are purged. Elsewhere it waits until no member can still
	// ask for the session.
	Ended tree.Zxid
	// Lost is set only with Ended. It says that the session was not closed by its owner, so some of
	// its ephemerals linger.
	Lost bool
	// Former are the members besides Origin that have spoken for the session while it used other
	// shards, each with the incarnation in which it last did. Once the session has ended, Former
	// has all members that spoke for it. See Purge. No member occurs twice.
	Former []Incarnation
}

// Remote reports whether the session is a remote client's. Such a session outlives the process of
// its origin and may be attached to another member.
func (r *Record) Remote() bool { return r.Attached != 0 }

// Uses reports whether the session uses a shard besides its home shard.
func (r *Record) Uses(shard uint32) bool {
	_, uses := slices.BinarySearch(r.Shards, shard)
	return uses
}

// A Table is the replicated session table of one shard. It records which origins speak, how long
// each has been silent, which sessions they speak for, and which session owns which ephemerals. It
// is not safe for concurrent use.
//
// A session is opened, kept alive and ended on its home shard. The tables of other shards have a
// record of each session that uses them, which Introduce makes and Purge ends. They record no
// silence.
//
// Invariants, held by Verify:
//  1. a session is in exactly one place: in a class of its origin, or in closing;
//  2. at every origin, live classes have a timeout above the origin's silence, and due classes have
//     not;
//  3. an origin without an accepted batch has no live in-process session, and one that has not
//     registered has no session at all;
//  4. the silence is above zero if and only if its step is;
//  5. all origins have the same founding digest;
//  6. each session that owns an ephemeral has a record in sessions;
//  7. a session in ended is not in sessions; if it has no Shards, the origin of each Former member
//     has it in purged, and none of them is retired or has registered a later incarnation;
//  8. in sessions, only two kinds have Former members: remote sessions that use other shards, and
//     sessions that Purge has marked; no member occurs twice, and in the first kind none is the
//     origin.
type Table struct {
	origins map[MemberID]*origin
	// present has the origins that may be heard or have sessions. It may still have some that were
	// retired. The others cost memory and no time.
	present  map[MemberID]*origin
	sessions map[tree.SessionID]*entry
	closing  map[tree.SessionID]*entry
	ended    map[tree.SessionID]end
	// ephemerals holds no empty set.
	ephemerals map[tree.SessionID]map[string]struct{}
	owned      int // paths in ephemerals
	// leaving holds the paths that Leaving has put into a heap and not yet returned. It may be
	// dropped at any time.
	leaving map[tree.SessionID]*paths

	dirtyOrigins  map[MemberID]struct{}
	dirtySessions map[tree.SessionID]struct{}
}

// entry is one session in the table. Every member has an entry for every session of the ensemble,
// so it is small: 48 bytes, where a Record takes 136. It is in its class's members, at pos, unless
// it is closing. A closing entry also takes its timeout and origin from its class.
type entry struct {
	id       tree.SessionID
	password [16]byte
	class    *class
	extra    *extra
	pos      int32
	closing  bool
}

// extra is what few sessions have; it is nil if a session has none of it.
type extra struct {
	identities []tree.Identity
	shards     []uint32
	ended      tree.Zxid
	history    *history // apart, so that the other extras stay small
}

func newEntry(r Record) *entry {
	e := &entry{id: r.ID, password: r.Password, closing: r.Closing}
	if len(r.Identities) > 0 || len(r.Shards) > 0 || r.Ended != 0 {
		e.extra = &extra{identities: r.Identities, shards: r.Shards, ended: r.Ended}
	}
	if r.Remote() || r.Ended != 0 || len(r.Former) > 0 {
		e.ensureExtra().history = &history{attached: r.Attached, former: r.Former, lost: r.Lost}
	}
	return e
}

// ensureExtra returns the entry's extra and creates it if there is none.
func (e *entry) ensureExtra() *extra {
	if e.extra == nil {
		e.extra = new(extra)
	}
	return e.extra
}

func (e *entry) record() Record {
	r := Record{ID: e.id, Password: e.password, Timeout: e.class.timeout, Origin: e.class.origin, Closing: e.closing}
	if x := e.extra; x != nil {
		r.Identities, r.Shards, r.Ended = x.identities, x.shards, x.ended
	}
	r.Attached, r.Former, r.Lost = e.attached(), e.former(), r.Ended != 0 && e.lost()
	return r
}

// isDue reports whether the session's end is decided.
func (e *entry) isDue() bool { return e.closing || e.class.due }

func (e *entry) isMember() bool {
	return int(e.pos) < len(e.class.members) && e.class.members[e.pos] == e
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		origins:       make(map[MemberID]*origin),
		present:       make(map[MemberID]*origin),
		sessions:      make(map[tree.SessionID]*entry),
		closing:       make(map[tree.SessionID]*entry),
		ended:         make(map[tree.SessionID]end),
		ephemerals:    make(map[tree.SessionID]map[string]struct{}),
		leaving:       make(map[tree.SessionID]*paths),
		dirtyOrigins:  make(map[MemberID]struct{}),
		dirtySessions: make(map[tree.SessionID]struct{}),
	}
}

// Open adds a session at the origin whose accepted batch asks for it. The table keeps identities.
// For a remote session, attached is the transaction that opens it; for an in-process session it is
// zero. The caller chooses ids that were never used before.
//
// Open returns ErrInvalidID, ErrInvalidTimeout, ErrSessionExists or ErrUnregistered. It returns
// ErrSilent if the origin's newest entry in the log is not an accepted batch.
func (t *Table) Open(id tree.SessionID, password [16]byte, timeout time.Duration, at MemberID, attached tree.Zxid, identities []tree.Identity) error {
	if id == 0 {
		return ErrInvalidID
	}
	if timeout <= 0 {
		return ErrInvalidTimeout
	}
	if _, ok := t.sessions[id]; ok {
		return ErrSessionExists
	}
	o, err := t.heard(at)
	if err != nil {
		return err
	}
	t.insert(o, Record{ID: id, Password: password, Timeout: timeout, Origin: at, Attached: attached, Identities: identities})
	t.dirtySessions[id] = struct{}{}
	return nil
}

// insert adds a record in the place that invariants 1 and 2 demand.
func (t *Table) insert(o *origin, r Record) {
	e := newEntry(r)
	t.sessions[r.ID] = e
	if r.Closing {
		e.class = &class{timeout: r.Timeout, origin: o.Member} // a class of its own
		t.closing[r.ID] = e
		return
	}
	o.add(e, r.Timeout)
	t.present[o.Member] = o
}

// Close ends a session and reports whether there was one. On the home shard, ended is the
// transaction that does it. lost says that the session was not closed by its owner. The caller must
// first have deleted the session's ephemerals, or made them linger, and told Track. Any that are
// left keep their owner, and Verify complains. A record stays while there is something to remember:
// see Record.Ended.
func (t *Table) Close(id tree.SessionID, ended tree.Zxid, lost bool) bool {
	e, ok := t.sessions[id]
	if !ok {
		return false
	}
	delete(t.sessions, id)
	if e.closing {
		delete(t.closing, id)
	} else {
		t.origins[e.class.origin].remove(e)
	}
	t.dirtySessions[id] = struct{}{}
	delete(t.leaving, id)
	switch r := e.record(); {
	case len(r.Shards) > 0: // at home
		spoke := append(slices.Clone(r.Former), Incarnation{Member: r.Origin, Start: t.origins[r.Origin].Start})
		t.remember(id, end{zxid: ended, lost: lost, shards: r.Shards, former: spoke})
	case r.Ended != 0:
		t.awaitFormer(id, r.Ended, r.Former)
	}
	return true
}

// DecideEnd makes a session Closing on its home shard, if it owns more than can be deleted at once.
// It records how the session ends: closed by its owner, or lost. The zxid decided is the newest
// transaction's, and not zero. If the end is decided already, DecideEnd does nothing.
func (t *Table) DecideEnd(id tree.SessionID, decided tree.Zxid, lost bool) {
	e, ok := t.sessions[id]
	if !ok || e.isDue() {
		return
	}
	t.origins[e.class.origin].remove(e)
	t.markClosing(e)
	x := e.ensureExtra()
	if x.ended = decided; x.history == nil {
		x.history = new(history)
	}
	x.history.lost = lost
}

// Due returns, in id order, the sessions that wait to be closed: those whose timeout the silence of
// their origin has reached, and those that are Closing. A session that was due once stays so, even
// if its origin is heard again before the session is closed. It costs what sorting the result
// costs.
func (t *Table) Due() []tree.SessionID {
	var ids []tree.SessionID
	for id := range t.closing {
		ids = append(ids, id)
	}
	for o := range t.here() {
		for _, c := range o.due {
			for _, e := range c.members {
				ids = append(ids, e.id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// DueLen returns how many sessions Due would return.
func (t *Table) DueLen() int {
	n := len(t.closing)
	for o := range t.here() {
		for _, c := range o.due {
			n += len(c.members)
		}
	}
	return n
}

// Lost reports whether a due session ends as lost. A session that is due for silence or a Register
// is lost; otherwise Purge or DecideEnd said how it ends.
func (t *Table) Lost(id tree.SessionID) bool {
	e, ok := t.sessions[id]
	return ok && e.lost()
}

// Usable returns nil if a request that the origin at makes for a session may be applied. It returns
// ErrExpired for a session that is unknown, due or closing, and ErrAttachedElsewhere if another
// origin speaks for it.
func (t *Table) Usable(id tree.SessionID, at MemberID) error {
	e, ok := t.sessions[id]
	if !ok || e.isDue() {
		return ErrExpired
	}
	if e.class.origin != at {
		return ErrAttachedElsewhere
	}
	return nil
}

// Get returns a session's record.
func (t *Table) Get(id tree.SessionID) (Record, bool) {
	e, ok := t.sessions[id]
	if !ok {
		return Record{}, false
	}
	return e.record(), true
}

// All yields the records of all sessions, with those that are due and closing, in no order.
func (t *Table) All() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, e := range t.sessions {
			if !yield(e.record()) {
				return
			}
		}
	}
}

// Sessions returns the records of all sessions at an origin in id order, with those that are due
// and closing. It looks at every session of the table.
func (t *Table) Sessions(at MemberID) []Record {
	var rs []Record
	for r := range t.All() {
		if r.Origin == at {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return rs
}

// Len returns how many sessions have a record, with those that are due and closing.
func (t *Table) Len() int { return len(t.sessions) }

// IsEmpty reports whether there is no session, and none has ended of which another shard may still
// have something.
func (t *Table) IsEmpty() bool { return len(t.sessions) == 0 && len(t.ended) == 0 }

// Origins returns all registered origins, by member. Its cost grows with every member that has ever
// been; Present has what matters now.
func (t *Table) Origins() []Origin { return listed(maps.Values(t.origins)) }

// Present returns the registered origins, by member, without those that are retired and have no
// session that waits for their silence.
func (t *Table) Present() []Origin { return listed(t.here()) }

func listed(origins iter.Seq[*origin]) (list []Origin) {
	for o := range origins {
		if o.Start > 0 {
			list = append(list, o.Origin)
		}
	}
	slices.SortFunc(list, func(a, b Origin) int { return cmp.Compare(a.Member, b.Member) })
	return list
}

// here yields the origins that are present, in no order.
func (t *Table) here() iter.Seq[*origin] {
	return func(yield func(*origin) bool) {
		for _, o := range t.present {
			if !t.departed(o) && !yield(o) {
				return
			}
		}
	}
}

// departed reports whether an origin is retired and has no session that waits for its silence. Then
// it is present no more.
func (t *Table) departed(o *origin) bool {
	if !o.Retired || len(o.classes) > 0 {
		return false
	}
	delete(t.present, o.Member)
	return true
}

// Origin returns what the table knows about a member's stream; false if the member has not
// registered.
func (t *Table) Origin(m MemberID) (Origin, bool) {
	o, ok := t.origins[m]
	if !ok || o.Start == 0 {
		return Origin{}, false
	}
	return o.Origin, true
}

// markClosing decides a session's end: it stays due, whatever its origin does from now on.
func (t *Table) markClosing(e *entry) {
	e.closing = true
	t.closing[e.id] = e
	t.dirtySessions[e.id] = struct{}{}
}
