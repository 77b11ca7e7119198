package group

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A Layout says how the znodes of a directory's members are named. All members of a directory use
// one.
type Layout uint8

const (
	// Curator is the layout of Curator's GroupMember and of its PersistentNode: the znode's name is
	// the member's id, and the data is the member's own. The directory has at most one member of
	// each id.
	Curator Layout = iota
	// Party is the layout of kazoo's Party. The name is random, and the data is the id. Several
	// members may have the same id.
	Party
	// ShallowParty is the layout of kazoo's ShallowParty. The id is the part of the name that
	// follows its first hyphen. Kazoo does not read the data, which is the id too. Several members
	// may have the same id.
	ShallowParty
)

// partyWord is what kazoo's Party looks for in the names of its members.
const partyWord = "__party__"

// Options are the settings of Announce, Join and Watch. The zero value is usable.
type Options struct {
	// Linger is for Announce and Join: how long the znode stays after its session was lost, in
	// whole milliseconds; see embed.CreateOptions.TTL. If the same member comes back meanwhile, it
	// has not left: Changes reports it in Change.Again. So an Announcement with Linger replaces a
	// znode at its path that lingers, or a TTL znode, which is the same to the ensemble. It never
	// replaces a znode that is there to stay. Zero means that the znode goes with its session.
	Linger time.Duration
	// Layout is for Join and Watch.
	Layout Layout
	// Settle is for Watch: how long Changes waits until nobody joins any more. It holds back
	// members that join, for at most ten times as long. It never holds back one that has left.
	Settle time.Duration
}

// check returns an error for options that are out of range.
func (o Options) check() error {
	var errs []error
	if o.Linger < 0 || o.Linger%time.Millisecond != 0 {
		const text = "%w: Options.Linger is %v, not whole milliseconds"
		errs = append(errs, wrong(text, embed.ErrInvalidTTL, o.Linger))
	}
	if o.Layout > ShallowParty {
		errs = append(errs, wrong("Options.Layout is %d", o.Layout))
	}
	if o.Settle < 0 {
		errs = append(errs, wrong("Options.Settle is %v", o.Settle))
	}
	return errors.Join(errs...)
}

// name returns the name and the data of a member's znode.
func (l Layout) name(id string, data []byte) (name string, own []byte, err error) {
	switch {
	case id == "":
		return "", nil, wrong("the member's id is empty")
	case l != Party && strings.Contains(id, "/"):
		return "", nil, wrong("the member's id %q has a slash", id)
	case l == Curator:
		return id, data, nil
	case len(data) > 0:
		return "", nil, errNoData
	case l == Party:
		return random() + partyWord, []byte(id), nil
	}
	return random() + "-" + id, []byte(id), nil
}

// errNoData refuses the data of a member of kazoo's layouts.
var errNoData = wrong("a member of kazoo's layouts has no data besides its id")

// wrong returns an embed.ErrInvalidArgument that says what is wrong.
func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %w", embed.ErrInvalidArgument, fmt.Errorf(format, args...))
}

// id returns the id of the member whose znode has a name and data.
func (l Layout) id(name string, data []byte) string {
	switch l {
	case Party:
		return string(data)
	case ShallowParty:
		return name[strings.IndexByte(name, '-')+1:] // the whole name if there is none, as in kazoo
	}
	return name
}

// random returns what kazoo's names begin with: a UUID of 32 hex digits.
func random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return hex.EncodeToString(b[:])
}
