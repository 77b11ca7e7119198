package keeper

import (
	"fmt"

	"github.com/vivarium-go/vivarium/engine/claim"
	"github.com/vivarium-go/vivarium/session"
)

// Verify returns an error if an invariant of remotes or of claim.Life does not hold. table is the
// home shard's, as this node has applied it.
func (k *Keeper) Verify(table *session.Table) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var counts ClaimCounts
	for s := range k.allLocked() {
		if err := s.verifyClaimsLocked(&counts); err != nil {
			return err
		}
	}
	if counts != k.mu.claims {
		return fmt.Errorf("the claims are %v, counted were %v", counts, k.mu.claims)
	}
	r := &k.mu.remotes
	listed := 0
	for i, c := range r.classes {
		if listed += len(c.list); len(c.list) == 0 || i > 0 && r.classes[i-1].timeout >= c.timeout {
			return fmt.Errorf("the class of %v, at %d, has %d sessions", c.timeout, i, len(c.list))
		}
		for place, one := range c.list {
			if err := k.verifyLocked(c, place, one.s, table); err != nil {
				return err
			}
		}
	}
	if len(r.byID) != listed {
		return fmt.Errorf("%d remote sessions are attached, %d are in the lists", len(r.byID), listed)
	}
	select {
	case <-k.home.Ready:
		return nil
	default:
	}
	if listed > 0 {
		return fmt.Errorf("%d remote sessions are attached, and this node has not registered", listed)
	}
	return nil
}

// verifyLocked checks the session at a place of a class.
func (k *Keeper) verifyLocked(c *remoteClass, place int, s *Session, table *session.Table) error {
	if k.mu.remotes.byID[s.id] != s || s.remote.place != place || s.remote.class != c || rounded(s.timeout, k.tick) != c.timeout || s.end != nil {
		return fmt.Errorf("session %d of %v, at %d of the class of %v, is at %d and ended with %v", s.id, s.timeout, place, c.timeout, s.remote.place, s.end)
	}
	if rec, ok := table.Get(s.id); !ok || rec.Origin != k.home.Origin.Member || rec.Attached != s.remote.attached {
		return fmt.Errorf("session %d is attached by %d, the table has %+v", s.id, s.remote.attached, rec)
	}
	return nil
}

// verifyClaimsLocked returns an error if the session's claims break an invariant of claim.Life. It
// adds the claims to counts.
func (s *Session) verifyClaimsLocked(counts *ClaimCounts) error {
	for path, c := range s.claims {
		if err := c.VerifyLocked(path); err != nil || c.session != s {
			return fmt.Errorf("session %d: %v", s.id, err)
		}
		paths, _ := c.ZnodesLocked()
		switch {
		case path != paths[0]: // it is counted once
		case c.StateLocked() == claim.Held:
			counts.Held[c.kind]++
		case !c.WasHeldLocked():
			counts.Standing[c.kind]++
		}
	}
	return nil
}
