package roster

import (
	"slices"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

// A book knows where members may be. An address is a guess about where to dial, never an identity:
// the handshake shows who answers. So a wrong address costs a dial, and the book tries the others.
type book struct {
	// Immutable.
	configured map[replication.MemberID]string
	table      func(replication.MemberID) string // the address in the table of members; empty if it has none

	mu struct {
		rank.Mutex[rank.Book]
		heard map[replication.MemberID]string // what members said in their newest handshakes
		tries map[replication.MemberID]int    // dials since the last handshake
	}
}

func newBook(configured map[replication.MemberID]string, table func(replication.MemberID) string) *book {
	b := &book{configured: configured, table: table}
	b.mu.heard, b.mu.tries = make(map[replication.MemberID]string), make(map[replication.MemberID]int)
	return b
}

// bookMax bounds what the book remembers. Members come and go, and anybody may claim to be one. When
// the book is full it is emptied: the table and the next handshakes say again where members are.
const bookMax = 2 * session.MembersMax

// met records where a member says it is reached, after a handshake with it.
func (b *book) met(m replication.MemberID, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.makeRoomLocked(m)
	b.mu.heard[m], b.mu.tries[m] = address, 0
}

// makeRoomLocked empties the book if it is full and does not have a member yet.
func (b *book) makeRoomLocked(m replication.MemberID) {
	_, tried := b.mu.tries[m] // who was heard of is among them
	if !tried && len(b.mu.tries) >= bookMax {
		clear(b.mu.heard)
		clear(b.mu.tries)
	}
}

// address returns where to dial a member next; empty if nothing is known. It goes through all that
// is known, the newest first.
func (b *book) address(m replication.MemberID) string {
	told := b.table(m) // before the lock
	b.mu.Lock()
	defer b.mu.Unlock()
	var known []string
	for _, a := range []string{b.mu.heard[m], told, b.configured[m]} {
		if a != "" && !slices.Contains(known, a) {
			known = append(known, a)
		}
	}
	if len(known) == 0 {
		return ""
	}
	b.makeRoomLocked(m)
	next := known[b.mu.tries[m]%len(known)]
	b.mu.tries[m]++
	return next
}

// newest returns the address that is most likely right, without counting a dial.
func (b *book) newest(m replication.MemberID) string {
	told := b.table(m)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range []string{b.mu.heard[m], told, b.configured[m]} {
		if a != "" {
			return a
		}
	}
	return ""
}
