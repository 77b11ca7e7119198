package group

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// A Member is one member of a directory, as the ensemble showed it at one zxid.
type Member struct {
	ID    string
	Path  string     // of its znode, below the session's Root
	Data  []byte     // of its znode; shared by all who see it, so do not change it
	Czxid embed.Zxid // of the znode's creation
	Mzxid embed.Zxid // of its last write
	// Session is the session that owns the znode; embed.Session.Member says where it is. It is zero
	// if the znode belongs to none: the member's session was lost, and the znode lingers.
	Session embed.SessionID
}

// A Change is the members at one time, and how they differ from those of the Change before it.
type Change struct {
	// Members are all members, sorted by ID and Czxid. They are those of one zxid.
	Members []Member
	// Zxid is a zxid that Members show. They may show later ones too.
	Zxid embed.Zxid
	// Joined are members that were not there before. Left are members that are gone, as they were
	// seen last. Changed are members whose data or Session has changed. Again are members that have
	// left and joined again meanwhile, under the same path. All are in the order of Members.
	Joined, Left, Changed, Again []Member
}

// byPath compares members by the paths of their znodes.
func byPath(a, b Member) int { return strings.Compare(a.Path, b.Path) }

// byID compares members by their ids, and those of one id by age.
func byID(a, b Member) int {
	return cmp.Or(strings.Compare(a.ID, b.ID), cmp.Compare(a.Czxid, b.Czxid), byPath(a, b))
}

// differ returns the Change from some members to others. Both are sorted by path.
func differ(was, now []Member) (c Change) {
	for len(was) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(was) > 0 && was[0].Path < now[0].Path:
			c.Left, was = append(c.Left, was[0]), was[1:]
			continue
		case len(was) == 0 || now[0].Path < was[0].Path:
			c.Joined, now = append(c.Joined, now[0]), now[1:]
			continue
		case was[0].Czxid != now[0].Czxid:
			c.Again = append(c.Again, now[0])
		case was[0].Mzxid != now[0].Mzxid || was[0].Session != now[0].Session:
			c.Changed = append(c.Changed, now[0])
		}
		was, now = was[1:], now[1:]
	}
	return c
}

// empty reports whether nothing has changed.
func (c *Change) empty() bool {
	return len(c.Joined) == 0 && len(c.Left) == 0 && len(c.Changed) == 0 && len(c.Again) == 0
}

// sort brings the lists into the order of Members.
func (c *Change) sort() {
	for _, list := range [][]Member{c.Members, c.Joined, c.Left, c.Changed, c.Again} {
		if !slices.IsSortedFunc(list, byID) {
			slices.SortFunc(list, byID)
		}
	}
}
