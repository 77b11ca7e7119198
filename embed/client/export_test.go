package client

import (
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
)

// VerifyClaims returns an error if a claim of a client's session breaks an invariant of its life, or
// took a step that nobody draws.
func VerifyClaims(of *embed.Session) error {
	s := (*inside.Session)(of).Parts().Session.(*session)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.defect {
		return fmt.Errorf("session %d has a defect", s.mu.id)
	}
	for path, c := range s.mu.claims {
		if err := c.VerifyLocked(path); err != nil || c.s != s {
			return fmt.Errorf("session %d: %v", s.mu.id, err)
		}
	}
	return nil
}
