package campaign

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/session"
)

// outText is the error of a member that is out of the ensemble for good. dismissedText is that of
// one that asks to join on a directory which somebody has removed. supersededText is that of a
// member of an ensemble that goes on as another since a forced recovery.
var outText, dismissedText, supersededText = embed.ErrRemoved.Error(), session.ErrDismissed.Error(), embed.ErrSuperseded.Error()

// joining returns what a node waits for that has yet to join.
func joining(n *embed.Node) string { return n.Status().Joining }

// letGrow lets the members of an ensemble come and go. The name of a place stays, so a new member
// there replaces the one that was there before.
func letGrow(cfg *embed.Config, s *start, f *embedtest.Faults) {
	for address, place := range s.Places {
		f.SetPlace(address, place)
	}
	cfg.Join, cfg.Advertise, cfg.Listen = s.Join, s.Advertise, s.Advertise
	cfg.Name, cfg.Voters = fmt.Sprintf("place-%d", s.ID), s.Voters
	if _, founder := cfg.Members[cfg.ID]; !founder {
		cfg.ID, cfg.Members = 0, nil
	}
}

// changeMembers lists the members, or changes them.
func changeMembers(ctx context.Context, n *embed.Node, q *Request, r *Reply) error {
	switch q.Call {
	case callRemove:
		return n.RemoveMember(ctx, q.To)
	case callLeave:
		return n.Leave(ctx)
	}
	var err error
	if r.Voters, err = embedtest.Voters(ctx, n); err != nil {
		return err
	}
	for _, m := range n.Members() {
		r.Members = append(r.Members, fellow{m.ID, m.Name, embedtest.Votes(n, m.ID), m.Role == embed.Out, m.Leaving})
	}
	return nil
}
