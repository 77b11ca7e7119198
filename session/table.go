package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// A Record is what the ensemble knows about one session. Everything in it is replicated and stored.
type Record struct {
	ID       tree.SessionID
	Password [16]byte
	Timeout  time.Duration
	// Origin is the member whose node speaks for the session; zero once it has ended.
	Origin MemberID
	// Attached is the transaction of the home shard that attached a remote client's session to its origin: the one that opened it,
	// or that of the newest Reattach. Zero: an in-process session, which no Reattach takes from its process.
	Attached tree.Zxid
	// Identities are what it has authenticated as, in the order of ACL's "auth".
	Identities []tree.Identity
	// Closing says that the session's end is decided whatever its origin does from now on. A session
	// is also past saving while it is due; ask Usable, not this field.
	Closing bool
	// Shards are those that the session uses besides the home shard, whose table has this record; ascending.
	Shards []uint32
	// Ended is the transaction of the home shard that ended the session; zero: none has. If it is
	// Closing at home, it is the newest one when its end was decided. At home such a record waits until
	// all Shards are purged; elsewhere, until nothing can come any more that the session was admitted for.
	Ended tree.Zxid
	// Lost says how, where Ended is set: the session was not closed, so some of its ephemerals linger.
	Lost bool
	// Former are the members besides Origin that have spoken for the session while it used other shards, each with the
	// incarnation in which it did so last; once it has ended, all that have. See Purge. No member occurs twice.
	Former []Incarnation
}

// Remote reports whether a session is a remote client's, which outlives the process of its origin and may move to another.
func (r *Record) Remote() bool { return r.Attached != 0 }

// Uses reports whether a session uses a shard besides the home shard.
func (r *Record) Uses(shard uint32) bool {
	_, uses := slices.BinarySearch(r.Shards, shard)
	return uses
}

// A Table is the replicated session table of one shard: which origins speak, how long each has been
// silent, which sessions they speak for, and who owns which ephemerals. Not safe for concurrent use.
//
// A session is opened, kept alive and ended on its home shard. The others have a record of those that use them, which is
// made by Introduce and ended by Purge; no silence is booked there.
//
// Invariants, held by Verify:
//  1. a session is in exactly one place: in a class of its origin, or in closing;
//  2. at every origin, live classes have a timeout beyond the origin's silence and due ones have not;
//  3. an origin without an accepted batch has no live in-process session, and one that has not registered no session at all;
//  4. a silence above zero has a step above zero, and the other way round;
//  5. all origins carry one founding digest;
//  6. whoever owns an ephemeral has a record in sessions;
//  7. who is in ended is not in sessions; of those without Shards, all Former members know, and none of them has registered a
//     later incarnation;
//  8. of those in sessions, only a remote one that uses other shards, and one that Purge was told of, has Former members, not
//     twice the same; its origin is not among those of the first.
type Table struct {
	origins  map[MemberID]*origin
	sessions map[tree.SessionID]*entry
	closing  map[tree.SessionID]*entry
	ended    map[tree.SessionID]end
	// ephemerals holds no empty set.
	ephemerals map[tree.SessionID]map[string]struct{}
	// leaving holds what Leaving has heaped and not returned: nothing is lost with it.
	leaving map[tree.SessionID]*paths

	dirtyOrigins  map[MemberID]struct{}
	dirtySessions map[tree.SessionID]struct{}
}

// entry is one session in the table, small because every member has an entry for every session of the ensemble: 48 bytes for
// the 136 of a Record. It is among the class's members, at pos, unless it is closing; its timeout and origin are the class's also then.
type entry struct {
	id       tree.SessionID
	password [16]byte
	class    *class
	extra    *extra
	pos      int32
	closing  bool
}

// extra is what the records of few sessions have; nil is none of it.
type extra struct {
	identities []tree.Identity
	shards     []uint32
	ended      tree.Zxid
	history    *history // apart, so that the others are not larger for it
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

// ensureExtra returns the entry's extra, which there is from now on.
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
		sessions:      make(map[tree.SessionID]*entry),
		closing:       make(map[tree.SessionID]*entry),
		ended:         make(map[tree.SessionID]end),
		ephemerals:    make(map[tree.SessionID]map[string]struct{}),
		leaving:       make(map[tree.SessionID]*paths),
		dirtyOrigins:  make(map[MemberID]struct{}),
		dirtySessions: make(map[tree.SessionID]struct{}),
	}
}

// Open adds a session at the origin whose accepted batch asks for it; the table keeps identities. attached is the transaction
// that opens it if it is a remote client's, and zero if it is an in-process one. It returns ErrInvalidID, ErrInvalidTimeout,
// ErrSessionExists, ErrUnregistered, or ErrSilent if the origin's newest entry in the log was not an accepted batch. The caller
// chooses ids that were never used before.
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

// insert puts a record where invariants 1 and 2 want it.
func (t *Table) insert(o *origin, r Record) {
	e := newEntry(r)
	t.sessions[r.ID] = e
	if r.Closing {
		e.class = &class{timeout: r.Timeout, origin: o.Member} // of its own
		t.closing[r.ID] = e
		return
	}
	o.add(e, r.Timeout)
}

// Close ends a session, in transaction ended of its home shard if this is it, and reports whether it was there; lost says that it
// was not its owner who closed it. Its ephemerals must have been deleted, or linger, and Track told, before: those that are left keep
// their owner and Verify complains. A record stays for as long as there is something to be remembered: see Record.Ended.
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

// DecideEnd ends a session of its home shard of which more is to be deleted than at once, and notes how:
// by its owner, or lost. It is Closing from now on; decided is the newest transaction, and not zero. It does
// nothing to a session whose end is decided.
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

// Due returns, in id order, the sessions that wait to be closed: those whose origin's silence has
// reached their timeout and those that are Closing. A session that was due once stays so, also if its
// origin is heard again before its turn comes. The cost is that of sorting what is returned.
func (t *Table) Due() []tree.SessionID {
	var ids []tree.SessionID
	for id := range t.closing {
		ids = append(ids, id)
	}
	for _, o := range t.origins {
		for _, c := range o.due {
			for _, e := range c.members {
				ids = append(ids, e.id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// DueLen returns how many sessions Due would name, without naming them.
func (t *Table) DueLen() int {
	n := len(t.closing)
	for _, o := range t.origins {
		for _, c := range o.due {
			n += len(c.members)
		}
	}
	return n
}

// Lost tells how a session ends that is due: lost, for its silence or for a Register; or as Purge or
// DecideEnd was told.
func (t *Table) Lost(id tree.SessionID) bool {
	e, ok := t.sessions[id]
	return ok && e.lost()
}

// Usable tells whether a request that the origin at makes for a session may be applied. It returns
// ErrExpired for a session that is unknown, due or closing, and ErrAttachedElsewhere if another origin speaks for it.
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

// Sessions returns the records of all sessions at an origin, due and closing ones included, in id order.
// It looks at every session of the table.
func (t *Table) Sessions(at MemberID) []Record {
	var rs []Record
	for _, e := range t.sessions {
		if e.class.origin == at {
			rs = append(rs, e.record())
		}
	}
	slices.SortFunc(rs, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return rs
}

// Len returns how many sessions have a record, due and closing ones included.
func (t *Table) Len() int { return len(t.sessions) }

// Origins returns all registered origins, by member.
func (t *Table) Origins() []Origin {
	list := make([]Origin, 0, len(t.origins))
	for _, m := range slices.Sorted(maps.Keys(t.origins)) {
		if o := t.origins[m]; o.Start > 0 {
			list = append(list, o.Origin)
		}
	}
	return list
}

// Origin returns what the table knows about a member's stream; false if it has not registered.
func (t *Table) Origin(m MemberID) (Origin, bool) {
	o, ok := t.origins[m]
	if !ok || o.Start == 0 {
		return Origin{}, false
	}
	return o.Origin, true
}

// markClosing decides a session's end: whatever its origin does from now on, it is due.
func (t *Table) markClosing(e *entry) {
	e.closing = true
	t.closing[e.id] = e
	t.dirtySessions[e.id] = struct{}{}
}
