package lock

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/vivarium-go/vivarium/embed"
)

// A Token fences: it grows with every grant on a path, also across restarts, changes of leader, and the deletion of the
// path itself. Pass it to whatever the lock protects; a resource that refuses tokens smaller than the greatest it has seen
// is safe from a holder that was paused for too long. The zero Token is smaller than every granted one.
//
// Tokens of different paths compare too, if their paths are of one shard, but mean nothing to one another.
type Token struct {
	// Zxid is of the commit that made the grant: in order of arrival that which created the contender. At a place that was taken over, before
	// contenders who came earlier, it is one that this place counts from: later than those of all before it, earlier than those behind it.
	Zxid embed.Zxid
	// Local orders the grants of one Zxid: zero is the first. Those made without a commit (Options.Keep) count, and those of a place that is
	// taken over have the zxid of the commit that did it.
	Local uint64
}

// Compare returns -1, 0 or 1: whether t is smaller than, equal to or greater than u.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.Zxid, u.Zxid), cmp.Compare(t.Local, u.Local))
}

// String returns a text of fixed length that sorts as tokens do: 20 decimal digits, a hyphen, 20 digits.
func (t Token) String() string { return fmt.Sprintf("%020d-%020d", uint64(t.Zxid), t.Local) }

// MarshalText returns String's text.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads String's text and nothing else.
func (t *Token) UnmarshalText(text []byte) error {
	s := string(text)
	if len(s) == 41 && s[20] == '-' {
		zxid, err1 := strconv.ParseUint(s[:20], 10, 64)
		local, err2 := strconv.ParseUint(s[21:], 10, 64)
		if err1 == nil && err2 == nil {
			*t = Token{Zxid: embed.Zxid(zxid), Local: local}
			return nil
		}
	}
	return fmt.Errorf("%q is no token", s)
}
