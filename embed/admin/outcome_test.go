package admin_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// A write that was sent and whose quorum has gone is unknown, one that cannot be sent is refused,
// and reads go on.
func TestOutcomes_WithoutAQuorum(t *testing.T) {
	inBubble(t, 3, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		request{method: "POST", path: znode("/a"), body: "1"}.send(h).want(t, 201)
		ens.TransferLeadership(1)
		request{method: "POST", path: znode("/b"), body: "1"}.send(h).want(t, 201)
		ens.Isolate(1)
		// Member 1 still believes that it leads: what it is asked for now is sent.
		a := request{method: "POST", path: znode("/sent"), body: "1"}.send(h).want(t, 504)
		if a.outcome() != "unknown" {
			t.Errorf("a write that was sent: %s: %s", a.outcome(), a.body)
		}
		ens.Until("member 1 to know that it has no quorum", func() bool { return !ens.Node(1).Health().Ready })
		for _, role := range []string{"editor", "editor/new"} { // with a session, and with none
			a = request{method: "POST", path: znode("/not-sent"), role: role}.send(h).want(t, 503)
			if a.outcome() != "refused" || a.header.Get("Retry-After") == "" {
				t.Errorf("as %s, a write that was not sent: %s: %s", role, a.outcome(), a.body)
			}
		}
		request{path: znode("/a", "view", "data,stat,acl,children"), role: "viewer"}.send(h).want(t, 200)
		request{path: znode("/a", "sync", ""), role: "viewer"}.send(h).want(t, 503)
		for _, path := range []string{"/v1/status", "/v1/members", "/v1/sessions", "/v1/locks", "/v1/locks/graph", "/v1/recent", "/v1/watches", "/v1/usage?path=/", "/metrics"} {
			request{path: path, role: "viewer"}.send(h).want(t, 200)
		}
		request{path: "/readyz", role: "viewer"}.send(h).want(t, 503)
		request{path: "/livez", role: "viewer"}.send(h).want(t, 200)

		ens.HealAll()
		ens.Ready(1)
		ens.Until("a session again", func() bool { // the former one may have expired
			return request{method: "POST", path: znode("/again")}.send(h).outcome() == "applied" ||
				request{path: znode("/again")}.send(h).status == 200
		})
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Sync(t.Context(), "/")
		must(t, err)
		if _, ok, err := s.Exists(t.Context(), "/not-sent"); err != nil || ok {
			t.Errorf("what was refused was applied: %v", err)
		}
	})
}

// A node that is over refuses writes.
func TestOutcomes_AfterTheEnd(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		request{method: "POST", path: znode("/a")}.send(h).want(t, 201)
		ens.Kill(1)
		for _, role := range []string{"editor", "editor/new"} {
			if a := (request{method: "POST", path: znode("/b"), role: role}).send(h).want(t, 503); a.outcome() != "refused" || a.header.Get("Retry-After") != "" {
				t.Errorf("%s %v", a.outcome(), a.header)
			}
		}
		request{path: znode("/a")}.send(h).want(t, 503)
	})
}

// While a request waits for a session that cannot be opened, its caller may go away.
func TestSessions_CallerGoesAway(t *testing.T) {
	inBubble(t, 3, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		ens.Isolate(1)
		ens.Until("member 1 to know that it has no quorum", func() bool { return !ens.Node(1).Health().Ready })
		status := make(chan answer, 1)
		begun := time.Now()
		go func() { status <- request{method: "POST", path: znode("/a"), gone: 10 * time.Millisecond}.send(h) }()
		a := <-status
		if took := time.Since(begun); took > time.Second || a.outcome() != "refused" || a.status != 503 {
			t.Errorf("after %v: %d %s %s", took, a.status, a.outcome(), a.body)
		}
		ens.HealAll()
		ens.Ready(1)
		request{method: "POST", path: znode("/a")}.send(h).want(t, 201)
		<-time.After(3 * time.Minute)
		synctest.Wait()
	})
}
