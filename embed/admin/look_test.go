package admin_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// A look is what a member says of the others.
type look struct {
	Connected, Missing []embed.MemberID
	Leads              bool
	Members            []struct {
		ID      embed.MemberID
		Answers *bool
		Behind  *uint64
	}
}

func lookAt(t *testing.T, h http.Handler) (l look) {
	t.Helper()
	request{path: "/v1/status", role: "viewer"}.send(h).want(t, 200).json(t, &l)
	request{path: "/v1/members", role: "viewer"}.send(h).want(t, 200).json(t, &l)
	return l
}

// The members of a healthy ensemble find nothing missing, though two followers are not connected.
// Only the leader says who answers and who is behind. What others cannot know is absent.
func TestMembers_WhatAFollowerKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		handler := make(map[embed.MemberID]http.Handler)
		for _, id := range ens.Members() {
			h, err := admin.New(ens.Node(id), admin.Options{Authorize: as})
			must(t, err)
			handler[id] = h
		}
		ens.TransferLeadership(1)
		ens.Cut(2, 3)
		for id, h := range handler {
			ens.Until("what it says of a healthy ensemble", func() bool {
				l := lookAt(t, h)
				apart := id == 1 || len(l.Connected) == 1 && l.Connected[0] == 1
				for _, m := range l.Members {
					if known := m.Answers != nil && *m.Answers && m.Behind != nil; known != (id == 1) {
						return false
					}
				}
				return apart && len(l.Missing) == 0 && l.Leads == (id == 1) && len(l.Members) == 3
			})
		}

		ens.Kill(3)
		ens.Until("the leader to miss it", func() bool {
			l := lookAt(t, handler[1])
			m := l.Members[2]
			return slices.Equal(l.Missing, []embed.MemberID{3}) && m.Answers != nil && !*m.Answers && m.Behind == nil
		})
		ens.Kill(1)
		ens.Until("the last one to miss both", func() bool {
			return slices.Equal(lookAt(t, handler[2]).Missing, []embed.MemberID{1, 3})
		})
	})
}
