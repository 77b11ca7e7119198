package admin_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A member that lags asks the holder of a lock that it does not show yet.
func TestLocks_RevokeOnAMemberThatLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		h, err := admin.New(ens.Node(3), admin.Options{Authorize: as})
		must(t, err)
		order(h, "/v1/locks/revoke", `{"path":"/locks/none","reason":"x"}`).want(t, 404) // the operator's session is open by now
		for _, from := range []embed.MemberID{1, 2} {
			ens.Faults(from).SetLink(3, embedtest.Link{Delay: 300 * time.Millisecond})
		}
		s := ens.Session(1, embed.SessionOptions{})
		hold, err := lock.NewMutex(s, "/locks/a").Lock(t.Context())
		must(t, err)
		_ = hold
		a := order(h, "/v1/locks/revoke", `{"path":"/locks/a","reason":"a deadlock"}`)
		if a.status != 200 {
			t.Errorf("the lock is held, and the answer is %d %s (outcome %s)", a.status, a.body, a.outcome())
		}
		<-time.After(time.Second)
		order(h, "/v1/locks/revoke", `{"path":"/locks/a","reason":"a deadlock"}`).want(t, 200)
	})
}

// Nor does it deny a session that was opened elsewhere.
func TestSessions_EndOnAMemberThatLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		h, err := admin.New(ens.Node(3), admin.Options{Authorize: as})
		must(t, err)
		for _, from := range []embed.MemberID{1, 2} {
			ens.Faults(from).SetLink(3, embedtest.Link{Delay: 300 * time.Millisecond})
		}
		s := ens.Session(1, embed.SessionOptions{})
		a := order(h, "/v1/sessions/end", `{"session":"`+hexOf(s.ID())+`","reason":"stuck"}`)
		if a.status == 404 {
			t.Errorf("the session lives, and the answer is %d %s", a.status, a.body)
		}
	})
}
