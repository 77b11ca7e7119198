package lock

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/vivarium-go/vivarium/embed"
)

// A Token fences: it grows with every grant on a path, also across restarts, changes of leader, and
// the deletion of the path itself. Pass it to the resource that the lock protects. A resource that
// refuses tokens smaller than the greatest it has seen is safe from a holder that was paused for
// too long. The zero Token is smaller than every granted one.
//
// Compare tokens of the same path only. Those of different paths of one shard are ordered too, but
// their order says nothing about the locks.
type Token struct {
	// Zxid is the zxid of the commit that made the grant. For a contender that is served in order
	// of arrival, that commit created it. A contender that took over a place in front of earlier
	// ones has the zxid that its place counts from. That zxid is later than those of all contenders
	// before the place, and earlier than those behind it.
	Zxid embed.Zxid
	// Local orders the grants with the same Zxid; the first one has zero. It counts the grants that
	// needed no commit (Options.Keep). At a place that was taken over, it is the zxid of the commit
	// that did so.
	Local uint64
}

// Compare returns -1 if t is smaller than u, 0 if they are equal, and 1 if t is greater.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.Zxid, u.Zxid), cmp.Compare(t.Local, u.Local))
}

// String returns a text of fixed length that sorts as tokens do: 20 decimal digits, a hyphen, and
// 20 more digits.
func (t Token) String() string { return fmt.Sprintf("%020d-%020d", uint64(t.Zxid), t.Local) }

// MarshalText returns the text that String returns.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads a text that String returned, and refuses any other.
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
	return fmt.Errorf("%q is not a token", s)
}
