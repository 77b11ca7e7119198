package partition

import (
	"slices"
	"time"
)

// A settled is who counts as a member: newcomers do when they have been there for a while, and who
// has gone does not.
type settled struct {
	members []member
	here    []member // newcomers too
	after   time.Duration
	eager   bool        // as kazoo: while anything changes, nobody counts
	timer   *time.Timer // runs while there are newcomers; nil otherwise
}

// see takes in who is there now.
func (s *settled) see(here []member) {
	if s.eager {
		s.seeEager(here)
		return
	}
	s.here = here
	counts := make(map[string]bool, len(s.members))
	for _, m := range s.members {
		counts[m.id] = true
	}
	s.members = nil
	newcomers := false
	for _, m := range here {
		if counts[m.id] {
			s.members = append(s.members, m) // whose weight and parts may be new
		} else {
			newcomers = true
		}
	}
	switch {
	case !newcomers:
		s.stop()
	case s.timer == nil:
		s.timer = time.NewTimer(s.after)
	}
}

// seeEager is see for kazoo's members: all count when none has come or gone for a while.
func (s *settled) seeEager(here []member) {
	if slices.Equal(here, s.here) {
		return
	}
	s.stop()
	s.here, s.members, s.timer = here, nil, time.NewTimer(s.after)
}

// over returns the channel that tells that the newcomers count, or nil if there are none.
func (s *settled) over() <-chan time.Time {
	if s.timer == nil {
		return nil
	}
	return s.timer.C
}

// accept makes the newcomers count.
func (s *settled) accept() { s.members, s.timer = s.here, nil }

func (s *settled) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
