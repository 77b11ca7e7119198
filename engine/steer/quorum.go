package steer

import (
	"slices"

	"github.com/vivarium-go/vivarium/session"
)

// Quorum returns how many of a number of voters decide.
func Quorum(voters int) int { return voters/2 + 1 }

// Margin returns how many more voters may fail before the rest decide nothing. It is negative if
// those that answer are no quorum.
func Margin(voters, answering int) int { return answering - Quorum(voters) }

// SafeToRemove reports whether a shard keeps its quorum without a member: those of the other voters
// that answer now must be a quorum of them. A member that does not vote is always safe to remove.
func SafeToRemove(voters []session.MemberID, answers func(session.MemberID) bool, id session.MemberID) bool {
	if !slices.Contains(voters, id) {
		return true
	}
	others, answering := 0, 0
	for _, v := range voters {
		if v == id {
			continue
		}
		others++
		if answers(v) {
			answering++
		}
	}
	return others > 0 && Margin(others, answering) >= 0
}

// odd returns the largest odd number that is not above n; zero if there is none.
func odd(n int) int { return max(0, n-1+n%2) }
