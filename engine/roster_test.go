package engine

import (
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// M56: a leader that became a voter a moment ago needs the vote of a member that lags. So an id
// that the table does not have yet is let in, and any id before there is a table. M5: who is out is not, nor an id that was given before
// and is forgotten. Who is to be out, and is not yet, still votes.
func TestKnows(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		want := func(member uint64, refused error) {
			t.Helper()
			no := n.roster.Knows(member)
			if (no == nil) != (refused == nil) || no != nil && !errors.Is(no, refused) {
				t.Errorf("member %d: %v, want %v", member, no, refused)
			}
		}
		do := func(commands ...[]byte) {
			for _, c := range commands {
				n.apply(&enginetest.Proposal{Cmd: c})
			}
		}
		want(4, nil)
		do(command.EncodeFound(session.Lineage{1}, []session.MemberID{enginetest.Member, 2, 5}, 1, 7))
		do(command.EncodeWant(0, 2, session.Out, session.Removed, 8))
		for member, refused := range map[uint64]error{1: nil, 2: nil, 3: transport.ErrRemoved, 5: nil, 6: nil, 900: nil} {
			want(member, refused)
		}
		do(command.EncodeReport(2, 1, session.Place{Part: session.Out, Change: 9}, 9))
		want(2, transport.ErrRemoved)
	})
}
