package tree

import (
	"fmt"
	"slices"
	"strings"
)

// Perms is what an entry of an ACL allows, a sum of the constants. Other bits are kept but allow
// nothing.
type Perms int32

const (
	Read   Perms = 1  // of a znode: its data, Stat and children, and learning of changes
	Write  Perms = 2  // of a znode: setting its data
	Create Perms = 4  // of a parent: creating children
	Delete Perms = 8  // of a parent: deleting children
	Admin  Perms = 16 // of a znode: setting its ACL

	PermsAll = Read | Write | Create | Delete | Admin // all of them
)

// An ACL is one entry of a znode's list: what requesters may do whose identity matches Scheme and
// ID. Entries only allow and never forbid, and their order has no meaning.
type ACL struct {
	Perms  Perms
	Scheme string
	ID     string
}

// An Identity is a name that somebody has proved to have, under a scheme.
type Identity struct {
	Scheme string
	ID     string
}

// The tree's own words in an ACL, and the scheme whose identities may do everything.
const (
	worldScheme = "world"
	worldID     = "anyone"
	authScheme  = "auth"
	superScheme = "super"
)

var anyoneAll = ACL{Perms: PermsAll, Scheme: worldScheme, ID: worldID}

// OpenACL allows everybody everything. It is the default of a create without a list.
func OpenACL() []ACL { return []ACL{anyoneAll} }

// ReadACL allows everybody to read.
func ReadACL() []ACL { return []ACL{{Perms: Read, Scheme: worldScheme, ID: worldID}} }

// CreatorACL allows everything to the requester who sets it, under each of the requester's
// identities that can stand in an ACL.
func CreatorACL() []ACL { return []ACL{{Perms: PermsAll, Scheme: authScheme}} }

// permit reports whether a list allows who any of the needed permissions. An empty or absent list
// allows everything. Every list allows everything to a super identity.
func (s Schemes) permit(acl []ACL, who []Identity, need Perms) bool {
	if len(acl) == 0 {
		return true
	}
	if isSuper(who) {
		return true
	}
	for i := range acl {
		if acl[i].Perms&need != 0 && s.fits(&acl[i], who) {
			return true
		}
	}
	return false
}

// isSuper reports whether one of the identities may do everything.
func isSuper(who []Identity) bool {
	for i := range who {
		if who[i].Scheme == superScheme {
			return true
		}
	}
	return false
}

// fits reports whether an entry matches one of the identities.
func (s Schemes) fits(a *ACL, who []Identity) bool {
	if a.Scheme == worldScheme {
		return a.ID == worldID
	}
	scheme := s[a.Scheme]
	if scheme == nil {
		return false
	}
	return slices.ContainsFunc(who, func(i Identity) bool { return i.Scheme == a.Scheme && scheme.Matches(i.ID, a.ID) })
}

// fix returns the list to store for a requested list. It removes repetitions and replaces "auth" by
// the identities that it stands for. A list that allows everybody everything is stored as nil.
// Errors wrap ErrInvalidACL: the list is empty or too long, or an entry has an unknown scheme, an
// id that the scheme refuses, or an "auth" that stands for nobody.
func (s Schemes) fix(asked []ACL, who []Identity) ([]ACL, error) {
	if len(asked) == 0 {
		return nil, fmt.Errorf("%w: the list is empty", ErrInvalidACL)
	}
	fixed := make([]ACL, 0, len(asked))
	for _, a := range withoutRepeats(asked) {
		n := len(fixed)
		if a.Scheme == authScheme {
			fixed = s.expand(fixed, a.Perms, who)
		} else if s.valid(&a) {
			fixed = append(fixed, a)
		}
		if len(fixed) == n {
			return nil, fmt.Errorf("%w: %q:%q", ErrInvalidACL, a.Scheme, a.ID)
		}
		if len(fixed) > aclMax {
			break // before "auth" entries multiplied by identities make it much longer
		}
	}
	if isOpen(fixed) {
		return nil, nil
	}
	return fixed, boundACL(fixed)
}

// The limits of a stored list. Every "auth" becomes as many entries as there are identities, and
// each use of the znode looks at all entries.
const (
	aclMax      = 100
	aclBytesMax = 64 << 10
)

func boundACL(list []ACL) error {
	size := 0
	for i := range list {
		size += len(list[i].Scheme) + len(list[i].ID)
	}
	if len(list) > aclMax || size > aclBytesMax {
		return fmt.Errorf("%w: the list has %d entries and %d bytes, at most %d entries and %d bytes are allowed", ErrInvalidACL, len(list), size, aclMax, aclBytesMax)
	}
	return nil
}

// withoutRepeats returns each entry of a list once, in the order of first appearance.
func withoutRepeats(list []ACL) []ACL {
	seen := make(map[ACL]bool, len(list))
	return slices.DeleteFunc(slices.Clone(list), func(a ACL) bool {
		again := seen[a]
		seen[a] = true
		return again
	})
}

// expand appends an entry for each identity that "auth" stands for.
func (s Schemes) expand(list []ACL, p Perms, who []Identity) []ACL {
	for _, i := range who {
		if scheme := s[i.Scheme]; scheme != nil && scheme.Expands() {
			list = append(list, ACL{Perms: p, Scheme: i.Scheme, ID: i.ID})
		}
	}
	return list
}

// valid reports whether an entry may stand in a stored list.
func (s Schemes) valid(a *ACL) bool {
	if a.Scheme == worldScheme {
		return a.ID == worldID
	}
	scheme := s[a.Scheme]
	return scheme != nil && scheme.Valid(a.ID)
}

func isOpen(list []ACL) bool { return len(list) == 1 && list[0] == anyoneAll }

// cloneACL copies a list whose strings may lie in a buffer of the caller.
func cloneACL(list []ACL) []ACL {
	list = slices.Clone(list)
	for i := range list {
		list[i].Scheme, list[i].ID = strings.Clone(list[i].Scheme), strings.Clone(list[i].ID)
	}
	return list
}

// aclFault returns what is wrong with a stored list, or "". It does not ask the schemes: a list
// stays valid when a service no longer provides the scheme of an entry.
func aclFault(list []ACL) string {
	if list != nil && len(list) == 0 {
		return "has an empty ACL"
	}
	if isOpen(list) {
		return "has an open ACL, which is never stored"
	}
	for _, a := range list {
		switch {
		case a.Scheme == "", a.Scheme == authScheme:
			return "has an ACL entry whose scheme is empty or auth"
		case a.Scheme == worldScheme && a.ID != worldID:
			return "has an ACL entry of world that is not anyone"
		}
	}
	return ""
}
