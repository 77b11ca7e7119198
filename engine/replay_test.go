package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// A service that starts while the other members are down can at least see what its own replica has.
// When Start returns, memory has everything that the directory knows to be committed, including
// what the image lacks. Nothing waits for a quorum.
func TestStart_ShowsWhatTheDirectoryKnows(t *testing.T) {
	for name, end := range map[string]func(e *Engine) error{
		"crashed": func(e *Engine) error { e.Kill(); return e.Close() },
		"closed":  (*Engine).Close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ensemble := startCounted(t, 3)
				on := ensemble[0]
				s, err := on.OpenSession(t.Context(), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				for i := range 200 { // fewer than it takes to save the image
					op := tree.Op{Kind: tree.KindCreate, Path: fmt.Sprint("/config-", i), Data: []byte("data")}
					if _, err := s.Submit(t.Context(), []tree.Op{op}).Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				want := on.Status()[0].Zxid
				pass := func() bool { // the first entry of a new leader is committed, and no replica sees it
					next := ensemble[int(on.Status()[0].Leader.Member)%3]
					term := on.Status()[0].Leader.Term
					return on.TransferLeadership(1, next.cfg.Member) == nil && until(2*time.Second, func() bool {
						l := on.Status()[0].Leader
						return l.Term > term && l.Member != 0
					})
				}
				if !until(time.Minute, pass) {
					t.Fatal("the leadership does not move")
				}
				for _, c := range ensemble {
					if err := c.barrier(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range ensemble {
					if err := end(c.Engine); err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range ensemble {
					e, err := Start(c.cfg)
					if err != nil {
						t.Fatal(err)
					}
					got := e.Status()[0]
					data, _, err := e.home().Tree().Get("/config-199")
					if got.Zxid < want && c == on || err != nil || string(data) != "data" {
						t.Errorf("member %d has %+v, was at %v; /config-199 is %q, %v", c.cfg.Member, got, want, data, err)
					}
					if err := e.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// until asks every millisecond.
func until(patience time.Duration, ok func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if ok() {
			return true
		}
	}
	return false
}
