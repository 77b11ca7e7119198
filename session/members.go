package session

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// A Lineage names one history of an ensemble's data. It is random and chosen in the log, once at the
// founding and again by each forced recovery. Zero means that none has been chosen yet.
//
// Two ensembles may be founded with the same config, apart from each other. Only the lineage tells
// their members apart.
type Lineage [16]byte

// String returns the first half, which is enough to tell lineages apart.
func (l Lineage) String() string { return fmt.Sprintf("%x", l[:len(l)/2]) }

// A Part is what a member is in the ensemble, or is to be. A member goes through the parts in this
// order and never back. Zero is none yet.
type Part uint8

// The parts.
const (
	Learner Part = 1 + iota // has the log and the state, and does not vote
	Voter
	Out // takes no part any more
)

var partNames = [...]string{"none", "learner", "voter", "out"}

// String returns the part's name.
func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return fmt.Sprintf("part %d", uint8(p))
}

// A Reason says why a member is to be out. Zero means that it is not.
type Reason uint8

// The reasons.
const (
	Replaced  Reason = 1 + iota // its directory has gone: the process has come back as a new member
	Left                        // it asked for it
	Removed                     // a person asked for it; its directory is never let in again
	Silent                      // it was silent for so long that another member took its place
	NeverCame                   // it was admitted and has never shown up
	Lost                        // a part of it is out already, or a forced recovery went on without it
)

var reasonNames = [...]string{"", "replaced", "left", "removed", "silent", "never came", "lost"}

// String returns the reason's name; empty for none.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// A Place is a member's part in one shard, as that shard's log has it.
type Place struct {
	Part   Part
	Change uint64 // the index in the shard's log of the change that made it so
}

// A Member is what the log knows about a member of the ensemble. Wish is what it is to be, and
// Places is what it is on each shard.
type Member struct {
	ID MemberID // never zero, and never given to another member
	// Directory is the random id of the member's directory, which is the member's identity. It is
	// zero for a founder that has not registered yet.
	Directory [16]byte
	// What the member says of itself: its name and zone for people, and where members and clients
	// reach it. Empty if it said nothing.
	Name, Zone, Address, Client string
	Observer                    bool // it must not vote

	Wish   Part
	Reason Reason
	Since  int64   // when it was admitted, or its Reason set: Unix ms of the proposer, for people
	Places []Place // by shard - 1; what is beyond its end is zero
}

// place returns the member's part in a shard.
func (m *Member) place(shard uint32) Place {
	if int(shard) > len(m.Places) {
		return Place{}
	}
	return m.Places[shard-1]
}

// An Ensemble is what the log knows about the ensemble as a whole.
type Ensemble struct {
	Lineage Lineage
	// Ancestors are the lineages before it, which forced recoveries have ended, the newest last.
	Ancestors []Lineage
	Next      MemberID // the id of the next member; all below it are given
	Shards    uint32   // how many there are
	// Govern is the number under which wishes count now, and Governor the member that took it. Who
	// begins to lead the home shard takes the next number.
	Govern   uint64
	Governor MemberID
}

// Members is the replicated table of the ensemble's members. The home shard has it. It is empty
// until Found, which an ensemble gets when all of its founders have a build that knows of it. It is
// not safe for concurrent use.
type Members struct {
	ensemble Ensemble
	members  map[MemberID]Member
	// What Drain passes on next.
	dirtyEnsemble bool
	dirty         map[MemberID]struct{}
	changed       bool // since the last TakeChanged
}

// NewMembers returns an empty table.
func NewMembers() *Members {
	return &Members{members: make(map[MemberID]Member), dirty: make(map[MemberID]struct{})}
}

// Lineage returns the lineage; zero before Found.
func (t *Members) Lineage() Lineage { return t.ensemble.Lineage }

// Member returns a member by its id.
func (t *Members) Member(id MemberID) (Member, bool) {
	m, ok := t.members[id]
	return m, ok
}

// All returns all members, by their ids.
func (t *Members) All() []Member {
	return slices.SortedFunc(maps.Values(t.members), func(a, b Member) int {
		return cmp.Compare(a.ID, b.ID)
	})
}

// View returns a copy of the table.
func (t *Members) View() *MembersView { return &MembersView{Ensemble: t.ensemble, List: t.All()} }

// TakeChanged reports whether the table has changed since the last call.
func (t *Members) TakeChanged() bool {
	changed := t.changed
	t.changed = false
	return changed
}

// Found chooses the lineage and enters the founders, each with its directory as table knows it from
// the member's Register, of an ensemble with so many shards. The first Found decides; every other
// changes nothing, and returns false.
func (t *Members) Found(l Lineage, founders []MemberID, shards uint32, table *Table) bool {
	if t.ensemble.Lineage != (Lineage{}) || l == (Lineage{}) || len(founders) == 0 || shards == 0 {
		return false
	}
	t.ensemble = Ensemble{Lineage: l, Next: slices.Max(founders) + 1, Shards: shards}
	t.dirtyEnsemble, t.changed = true, true
	for _, id := range founders {
		o, _ := table.Origin(id)
		t.put(Member{ID: id, Directory: o.Directory, Wish: Voter})
	}
	return true
}

const (
	// AncestorsMax bounds Ancestors; the oldest go first. Each is the loss of a majority for good.
	AncestorsMax = 100
	// idsSkipped is how many ids a forced recovery leaves out. The lost majority may have given some
	// of them.
	idsSkipped = 1000
)

// A Recovery begins a new lineage in which only one member is left.
type Recovery struct {
	Lineage  Lineage
	Parent   Lineage // which it ends
	Survivor MemberID
}

// Recover makes the survivor of a forced recovery the only voter, at the Unix time wall in ms. All
// others are out. It returns false and changes nothing if the table is not of the parent lineage, or
// does not know the survivor: a repeated or late Recovery does nothing.
func (t *Members) Recover(r Recovery, wall int64) bool {
	m, known := t.members[r.Survivor]
	e := &t.ensemble
	if !known || r.Lineage == (Lineage{}) || r.Parent == (Lineage{}) || r.Lineage == r.Parent || e.Lineage != r.Parent || slices.Contains(e.Ancestors, r.Lineage) {
		return false
	}
	e.Ancestors = append(slices.Clone(e.Ancestors), r.Parent)
	e.Ancestors = e.Ancestors[max(0, len(e.Ancestors)-AncestorsMax):]
	e.Lineage, e.Next = r.Lineage, e.Next+idsSkipped
	t.dirtyEnsemble = true
	for _, other := range t.All() {
		if other.ID != r.Survivor {
			t.put(other.lost(e.Shards, wall))
		}
	}
	m.Wish, m.Reason, m.Observer = Voter, 0, false
	t.put(m)
	return true
}

// lost returns the record of a member that a forced recovery has removed from all shards.
func (m Member) lost(shards uint32, wall int64) Member {
	if m.Wish != Out {
		m.Wish, m.Reason, m.Since = Out, Lost, wall
	}
	places := make([]Place, shards)
	for i := range places {
		places[i] = Place{Part: Out, Change: max(m.place(uint32(i+1)).Change, 1)} // nothing comes after it
	}
	m.Places = places
	return m
}

// CheckRegister returns why a member must not register with a directory, or nil: ErrNotMember,
// ErrDismissed or ErrOtherDirectory. Before the lineage everybody may.
func (t *Members) CheckRegister(id MemberID, directory [16]byte) error {
	m, known := t.members[id]
	owner, owned := t.of(directory)
	switch {
	case t.ensemble.Lineage == (Lineage{}):
		return nil
	case t.Gone(id):
		return fmt.Errorf("%w: member %d, long ago", ErrDismissed, id)
	case !known:
		return fmt.Errorf("%w: %d", ErrNotMember, id)
	case m.Wish == Out:
		return fmt.Errorf("%w: member %d (%v)", ErrDismissed, id, m.Reason)
	case m.Directory != directory && m.Directory != ([16]byte{}):
		return fmt.Errorf("member %d: %w: %x, not %x", id, ErrOtherDirectory, directory, m.Directory)
	case owned && owner.ID != id:
		return fmt.Errorf("member %d: %w: %x is that of member %d", id, ErrOtherDirectory, directory, owner.ID)
	}
	return nil
}

// Gone reports whether a member has been, and is forgotten.
func (t *Members) Gone(id MemberID) bool {
	_, known := t.members[id]
	return !known && id != 0 && id < t.ensemble.Next
}

// Registered enters the directory of a founder that registers for the first time.
func (t *Members) Registered(id MemberID, directory [16]byte) {
	if m, ok := t.members[id]; ok && m.Directory == ([16]byte{}) {
		m.Directory = directory
		t.put(m)
	}
}

// MembersMax bounds the members that are not out. An ensemble of so many would do little but send
// its log to them.
const MembersMax = 1000

// A Candidate asks to become a member.
type Candidate struct {
	Directory           [16]byte
	Name, Zone, Address string
	Observer            bool
	// Former is what the process was before it lost its directory, or moved it aside; zero if it was
	// nothing. The lock on that directory proves that nobody is Former any more.
	Former Former
	// Instead are the members with its Name that are gone, as who admits it knows. It may take their
	// places. Whoever else has the name by now keeps it.
	Instead []MemberID
}

// Former names a member and its directory.
type Former struct {
	ID        MemberID
	Directory [16]byte
}

// Admit makes a candidate a learner, with the next id, at the Unix time wall in ms. A candidate
// that was admitted before gets the same id. What it says of itself now counts, but who is to vote
// does not become an observer. Its former self is to be out from now on. Admit returns the id of
// that one too, or zero if there is none.
//
// It returns ErrNotFounded, ErrDismissed, ErrFull or ErrNameTaken, and then changes nothing.
func (t *Members) Admit(c Candidate, wall int64) (id, former MemberID, err error) {
	if err := t.CheckAdmit(c); err != nil {
		return 0, 0, err
	}
	m, known := t.of(c.Directory)
	if !known {
		m = Member{ID: t.ensemble.Next, Directory: c.Directory, Wish: Learner, Since: wall}
		t.ensemble.Next++
		t.dirtyEnsemble = true
	}
	m.Name, m.Zone, m.Address, m.Observer = c.Name, c.Zone, c.Address, c.Observer && m.Wish < Voter
	t.put(m)
	if old, ok := t.members[c.Former.ID]; ok && old.Directory == c.Former.Directory && old.Wish < Out && old.ID != m.ID {
		former = old.ID
		old.Wish, old.Reason, old.Since = Out, Replaced, wall
		t.put(old)
	}
	return m.ID, former, nil
}

// CheckAdmit returns why Admit would refuse a candidate, or nil.
func (t *Members) CheckAdmit(c Candidate) error { return t.View().CheckAdmit(c) }

// of returns the member with a directory.
func (t *Members) of(directory [16]byte) (Member, bool) {
	for _, m := range t.members {
		if m.Directory == directory && directory != ([16]byte{}) {
			return m, true
		}
	}
	return Member{}, false
}

// Govern takes the next number for a member that begins to lead the home shard, and reports whether
// it did. Wishes under other numbers are refused from then on: those of a leader that was deposed
// may arrive much later.
func (t *Members) Govern(number uint64, m MemberID) bool {
	if _, known := t.members[m]; !known || number != t.ensemble.Govern+1 {
		return false
	}
	t.ensemble.Govern, t.ensemble.Governor = number, m
	t.dirtyEnsemble, t.changed = true, true
	return true
}

// Want enters what a member is to be, at the Unix time wall in ms. The reason says why it is to be
// out. number is that of the leader which wishes it. Under zero, a person may wish a member to
// vote, or to be out with the reason Removed or Left. What is so already changes nothing.
//
// It returns ErrNotFounded, ErrNotMember, ErrOutdated, ErrBackward, ErrObserver or ErrLastVoter,
// and then changes nothing.
func (t *Members) Want(number uint64, id MemberID, wish Part, reason Reason, wall int64) error {
	byLeader := number != 0 && number == t.ensemble.Govern
	byPerson := number == 0 && (wish == Voter || reason == Removed || reason == Left)
	m, known := t.members[id]
	switch {
	case known && !byLeader && !byPerson:
		return fmt.Errorf("%w: its number is %d, and %d counts", ErrOutdated, number, t.ensemble.Govern)
	case t.ensemble.Lineage == (Lineage{}):
		return ErrNotFounded
	case !known:
		return fmt.Errorf("%w: %d", ErrNotMember, id)
	case wish == m.Wish:
		return nil
	case wish < m.Wish || wish > Out || (wish == Out) != (reason != 0) || reason > Lost:
		return fmt.Errorf("%w: member %d is to be %v, not %v (%v)", ErrBackward, id, m.Wish, wish, reason)
	case wish == Voter && m.Observer:
		return fmt.Errorf("%w: member %d", ErrObserver, id)
	case wish == Out && !t.votesWithout(id):
		return fmt.Errorf("%w: member %d", ErrLastVoter, id)
	}
	if m.Wish = wish; wish == Out {
		m.Reason, m.Since = reason, wall
	}
	t.put(m)
	return nil
}

// votesWithout reports whether anybody besides a member is to vote. If nobody is, not even a
// learner may go: Admit has taken the last voter for dead, and a learner is to take its place.
func (t *Members) votesWithout(id MemberID) bool {
	for _, other := range t.members {
		if other.ID != id && other.Wish == Voter {
			return true
		}
	}
	return false
}

// Forget removes the records of members that are out of all shards, and from which the home shard's
// table takes nothing and knows no session. Their ids are never given again. A member that a person
// has removed stays, so that its directory is never let in again.
func (t *Members) Forget(table *Table) {
	for id, m := range t.members {
		isOut := m.Wish == Out && m.OutOf() == int(t.ensemble.Shards)
		if isOut && m.Reason != Removed && table.IsRetired(id) && !table.Speaks(id) {
			delete(t.members, id)
			t.dirty[id], t.changed = struct{}{}, true
		}
	}
}

// FounderName is the name of a founder to which nobody has given one.
func FounderName(id MemberID) string { return fmt.Sprint("founder-", id) }

// Announce enters where a member and its clients' gateway are, its zone, and what it is called if
// nobody has given it a name yet. Who joins under the name of another replaces it, so a name that was
// given does not change.
func (t *Members) Announce(id MemberID, name, address, client, zone string) {
	m, ok := t.members[id]
	if m.Name != "" && m.Name != FounderName(id) || name == "" || t.isTaken(name, id) {
		name = m.Name
	}
	if ok && (m.Name != name || m.Address != address || m.Client != client || m.Zone != zone) {
		m.Name, m.Address, m.Client, m.Zone = name, address, client, zone
		t.put(m)
	}
}

// isTaken reports whether another member has a name. Who was admitted under it may have come after the
// one that announces it has looked.
func (t *Members) isTaken(name string, by MemberID) bool {
	for id, m := range t.members {
		if id != by && m.Name == name && m.Wish < Out {
			return true
		}
	}
	return false
}

// Report enters what a member is on a shard. What an older change made, and what is known, changes
// nothing.
func (t *Members) Report(id MemberID, shard uint32, p Place) {
	m, ok := t.members[id]
	if !ok || shard == 0 || shard > t.ensemble.Shards || p.Part > Out {
		return
	}
	if known := m.place(shard); p.Part <= known.Part || p.Change <= known.Change {
		return
	}
	m.Places = slices.Clone(m.Places) // All has given the old ones away
	if missing := int(shard) - len(m.Places); missing > 0 {
		m.Places = append(m.Places, make([]Place, missing)...)
	}
	m.Places[shard-1] = p
	t.put(m)
}

func (t *Members) put(m Member) {
	t.members[m.ID] = m
	t.dirty[m.ID], t.changed = struct{}{}, true
}

// Drain passes on all that has changed since the last Drain, in its newest form. Members come in
// the order of their ids. If exists is false, the member is forgotten and only its id is set.
func (t *Members) Drain(ensemble func(Ensemble), member func(m Member, exists bool)) {
	if t.dirtyEnsemble {
		ensemble(t.ensemble)
	}
	for _, id := range slices.Sorted(maps.Keys(t.dirty)) {
		m, exists := t.members[id]
		m.ID = id
		member(m, exists)
	}
	t.dirtyEnsemble, t.dirty = false, forget(t.dirty)
}

// Dirty returns how many records Drain would pass on.
func (t *Members) Dirty() int {
	n := len(t.dirty)
	if t.dirtyEnsemble {
		n++
	}
	return n
}

// LoadEnsemble restores what Drain passed on. It may be called before or after LoadMember; Verify
// then says whether all fits together.
func (t *Members) LoadEnsemble(e Ensemble) { t.ensemble = e }

// LoadMember restores a member that Drain passed on.
func (t *Members) LoadMember(m Member) { t.members[m.ID] = m }

// Verify returns the first invariant that does not hold, as ErrCorrupt.
func (t *Members) Verify() error {
	if err := t.verifyEnsemble(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	owners := make(map[[16]byte]MemberID)
	for _, m := range t.All() {
		if m.ID == 0 || m.ID >= t.ensemble.Next {
			return fmt.Errorf("%w: member %d, and the next id is %d", ErrCorrupt, m.ID, t.ensemble.Next)
		}
		if other, taken := owners[m.Directory]; taken && m.Directory != ([16]byte{}) {
			return fmt.Errorf("%w: members %d and %d have the same directory", ErrCorrupt, other, m.ID)
		}
		owners[m.Directory] = m.ID
		if err := m.verify(t.ensemble.Shards); err != nil {
			return fmt.Errorf("%w: member %d: %w", ErrCorrupt, m.ID, err)
		}
	}
	return nil
}

func (t *Members) verifyEnsemble() error {
	e := t.ensemble
	if e.Lineage == (Lineage{}) {
		if e.Next != 0 || e.Shards != 0 || e.Govern != 0 || e.Governor != 0 || len(e.Ancestors) > 0 || len(t.members) > 0 {
			return fmt.Errorf("%d members and %+v without a lineage", len(t.members), e)
		}
		return nil
	}
	if slices.Contains(e.Ancestors, e.Lineage) || slices.Contains(e.Ancestors, Lineage{}) || len(e.Ancestors) > AncestorsMax {
		return fmt.Errorf("lineage %v with ancestors %v", e.Lineage, e.Ancestors)
	}
	if e.Shards == 0 || (e.Govern == 0) != (e.Governor == 0) || e.Governor >= e.Next {
		return fmt.Errorf("%d shards, next id %d, and member %d governs under %d", e.Shards, e.Next, e.Governor, e.Govern)
	}
	for _, m := range t.members {
		if m.Wish < Out {
			return nil
		}
	}
	return fmt.Errorf("none of %d members is to stay", len(t.members))
}

// verify returns what cannot be in a member's record, in an ensemble with so many shards.
func (m *Member) verify(shards uint32) error {
	if m.Wish < Learner || m.Wish > Out || (m.Wish == Out) != (m.Reason != 0) || m.Reason > Lost || m.Observer && m.Wish == Voter {
		return fmt.Errorf("it is to be %v for the reason %d, observer: %v", m.Wish, m.Reason, m.Observer)
	}
	if len(m.Places) > int(shards) {
		return fmt.Errorf("it has places on %d of %d shards", len(m.Places), shards)
	}
	for i, p := range m.Places {
		if p.Part > Out || (p.Part == 0) != (p.Change == 0) {
			return fmt.Errorf("on shard %d it is %v since change %d", i+1, p.Part, p.Change)
		}
	}
	return nil
}
