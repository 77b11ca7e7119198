package session

import (
	"cmp"
	"fmt"
	"slices"
)

// A MembersView is a copy of the table of members that does not change.
type MembersView struct {
	Ensemble Ensemble
	List     []Member // by their ids
}

// Find returns a member by its id.
func (v *MembersView) Find(id MemberID) (Member, bool) {
	i, found := slices.BinarySearchFunc(v.List, id, func(m Member, id MemberID) int {
		return cmp.Compare(m.ID, id)
	})
	if !found {
		return Member{}, false
	}
	return v.List[i], true
}

// Of returns the member with a directory.
func (v *MembersView) Of(directory [16]byte) (Member, bool) {
	i := slices.IndexFunc(v.List, func(m Member) bool { return m.Directory == directory })
	if i < 0 || directory == ([16]byte{}) {
		return Member{}, false
	}
	return v.List[i], true
}

// CheckAdmit returns why Admit would refuse a candidate, or nil.
func (v *MembersView) CheckAdmit(c Candidate) error {
	m, known := v.Of(c.Directory)
	former, had := v.Find(c.Former.ID)
	present := 0
	for _, m := range v.List {
		if m.Wish < Out {
			present++
		}
	}
	switch {
	case v.Ensemble.Lineage == (Lineage{}):
		return ErrNotFounded
	case known && m.Wish == Out:
		return fmt.Errorf("%w: member %d (%v)", ErrDismissed, m.ID, m.Reason)
	case had && former.Directory == c.Former.Directory && former.Reason == Removed:
		return fmt.Errorf("%w: somebody removed member %d, which this process was", ErrDismissed, former.ID)
	case !known && present >= MembersMax:
		return fmt.Errorf("%w: %d", ErrFull, MembersMax)
	}
	for _, other := range v.Namesakes(c) {
		if !slices.Contains(c.Instead, other.ID) {
			return fmt.Errorf("%w: member %d has the Name %q: give each replica a Name of its own, or none", ErrNameTaken, other.ID, c.Name)
		}
	}
	return nil
}

// Namesakes returns the members that are to stay and have the name of a candidate, which was none of
// them.
func (v *MembersView) Namesakes(c Candidate) (list []Member) {
	for _, m := range v.List {
		was := m.Directory == c.Directory || m.ID == c.Former.ID && m.Directory == c.Former.Directory
		if c.Name != "" && m.Name == c.Name && m.Wish < Out && !was {
			list = append(list, m)
		}
	}
	return list
}
