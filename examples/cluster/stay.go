package main

import (
	"fmt"

	"github.com/vivarium-go/vivarium/embed/lock"
)

// A stay is a hold of an account's lock as the ledger sees it: from the first call with its token until its holder leaves.
//
// The fence keeps the balances right even under a lock that does not work, so the balances alone prove nothing of the lock.
// While a stay lasts nobody else may come with a hold of the same account, and its own token may not be refused. Either is
// held against the lock, unless the holder says when it leaves that it has been told that its hold is lost, or dies.
type stay struct {
	process int
	doubts  []string
	asked   bool // its holder, for the second time
}

// stays are those of one account.
type stays struct {
	open map[lock.Token]*stay
	left map[lock.Token]bool // a call that was delayed for longer than its holder waited is for the fence alone
}

func newStays() stays {
	return stays{open: make(map[lock.Token]*stay), left: make(map[lock.Token]bool)}
}

// begin notes a hold, and that those whose stays last are not alone any more.
func (s stays) begin(e entry) {
	if s.of(e) == nil {
		return
	}
	for token, other := range s.open {
		if token != e.Token {
			other.doubt("process %d came with a hold of %s while process %d had one", e.Process, e.Order.Account, other.process)
		}
	}
}

// of returns the stay of a hold, or nil if it is over.
func (s stays) of(e entry) *stay {
	if s.left[e.Token] {
		return nil
	}
	if s.open[e.Token] == nil {
		s.open[e.Token] = &stay{process: e.Process}
	}
	return s.open[e.Token]
}

// end ends a stay and returns what is to be held against the lock. A holder that leaves without a loss, though there are
// doubts, is asked once more: it may have looked at its hold before they arose.
func (s stays) end(token lock.Token, lost bool) (faults []string, ended bool) {
	if it := s.open[token]; it != nil && len(it.doubts) > 0 && !lost {
		if !it.asked {
			it.asked = true
			return nil, false
		}
		faults = it.doubts
	}
	delete(s.open, token)
	s.left[token] = true
	return faults, true
}

func (s *stay) doubt(format string, args ...any) {
	if s != nil {
		s.doubts = append(s.doubts, fmt.Sprintf(format, args...))
	}
}
