package session

import (
	"fmt"
	"maps"
	"slices"
)

// A Lineage names one history of an ensemble's data. It is random and chosen once, in the log. Zero
// means that none has been chosen yet.
//
// Two ensembles may be founded with the same config, apart from each other. Only the lineage tells
// their members apart.
type Lineage [16]byte

// String returns the first half, which is enough to tell lineages apart.
func (l Lineage) String() string { return fmt.Sprintf("%x", l[:len(l)/2]) }

// A Member is what the log knows about a member of the ensemble.
type Member struct {
	ID MemberID // never zero, and never given to another member
	// Directory is the random id of the member's directory, which is the member's identity. It is
	// zero for a founder that has not registered yet.
	Directory [16]byte
}

// An Ensemble is what the log knows about the ensemble as a whole.
type Ensemble struct {
	Lineage Lineage
	Next    MemberID // the id of the next member; all below it are given
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
}

// NewMembers returns an empty table.
func NewMembers() *Members {
	return &Members{members: make(map[MemberID]Member), dirty: make(map[MemberID]struct{})}
}

// Lineage returns the lineage; zero before Found.
func (t *Members) Lineage() Lineage { return t.ensemble.Lineage }

// All returns all members, by their ids.
func (t *Members) All() []Member {
	return slices.SortedFunc(maps.Values(t.members), func(a, b Member) int { return int(a.ID) - int(b.ID) })
}

// Found chooses the lineage and enters the founders, each with its directory as table knows it from
// the member's Register. The first Found decides; every other changes nothing, and returns false.
func (t *Members) Found(l Lineage, founders []MemberID, table *Table) bool {
	if t.ensemble.Lineage != (Lineage{}) || l == (Lineage{}) || len(founders) == 0 {
		return false
	}
	t.ensemble = Ensemble{Lineage: l, Next: slices.Max(founders) + 1}
	t.dirtyEnsemble = true
	for _, id := range founders {
		o, _ := table.Origin(id)
		t.put(Member{ID: id, Directory: o.Directory})
	}
	return true
}

// Registered enters the directory of a founder that registers for the first time.
func (t *Members) Registered(id MemberID, directory [16]byte) {
	if m, ok := t.members[id]; ok && m.Directory == ([16]byte{}) {
		m.Directory = directory
		t.put(m)
	}
}

func (t *Members) put(m Member) {
	t.members[m.ID] = m
	t.dirty[m.ID] = struct{}{}
}

// Drain passes on all that has changed since the last Drain, in its newest form. Members come in
// the order of their ids.
func (t *Members) Drain(ensemble func(Ensemble), member func(Member)) {
	if t.dirtyEnsemble {
		ensemble(t.ensemble)
	}
	for _, id := range slices.Sorted(maps.Keys(t.dirty)) {
		member(t.members[id])
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
	if founded := t.ensemble.Lineage != (Lineage{}); founded != (len(t.members) > 0) || founded != (t.ensemble.Next > 0) {
		return fmt.Errorf("%w: lineage %v, next id %d and %d members", ErrCorrupt, t.ensemble.Lineage, t.ensemble.Next, len(t.members))
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
	}
	return nil
}
