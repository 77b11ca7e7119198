package main

import (
	"fmt"

	"github.com/vivarium-go/vivarium/embed/lock"
)

// A stay is a hold of an account's lock as the ledger sees it. It lasts from the first call with
// the hold's token until its holder leaves.
//
// The fence keeps the balances right even under a lock that does not work, so the balances alone
// prove nothing about the lock. That is what stays are for. While a stay lasts, nobody else may
// come with a hold of the same account, and the ledger may not refuse the stay's own token. Either
// is a fault of the lock, unless the holder dies, or says when it leaves that it knows of its
// hold's loss.
type stay struct {
	process int
	doubts  []string
	asked   bool // its holder was asked a second time
}

// stays are the stays of one account.
type stays struct {
	open map[lock.Token]*stay
	// the fence alone handles a call that was delayed for longer than its holder waited
	left map[lock.Token]bool
}

func newStays() stays {
	return stays{open: make(map[lock.Token]*stay), left: make(map[lock.Token]bool)}
}

// begin records a hold, and notes a doubt for every other stay that lasts.
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

// end ends a stay and returns the faults of the lock. If there are doubts and the holder leaves
// without a loss, end asks it once more: it may have looked at its hold before the doubts arose.
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
