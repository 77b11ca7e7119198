package client_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A claimant makes claims, and does to them whatever can be done.
type claimant struct {
	t       *testing.T
	rng     *rand.Rand
	s, peer *embed.Session
	network func(down bool) // of the claimant
	calls   sync.WaitGroup
	claims  []*claimed
}

// claimed is a claim with what its owner knows.
type claimed struct {
	*claim.Claim
	tenure *claim.Tenure
	path   string // of one of its znodes, once it is known
	// What was said of the end. It must not change.
	over, tenureOver error
}

// newClaim claims one or two znodes.
func (m *claimant) newClaim() {
	ops := []embed.Op{embed.OpCreate("/q/c-", nil, embed.EphemeralSequential), embed.OpCreate("/q/d-", nil, embed.EphemeralSequential)}
	c, err := claim.New(m.t.Context(), m.s, ops[m.rng.IntN(2):]...)
	must(m.t, err)
	m.claims = append(m.claims, &claimed{Claim: c})
}

// step does something to one of the claims.
func (m *claimant) step() {
	if len(m.claims) == 0 || m.rng.IntN(6) == 0 {
		m.newClaim()
		return
	}
	c := m.claims[m.rng.IntN(len(m.claims))]
	switch m.rng.IntN(12) {
	case 0, 1, 2:
		if t, err := c.Hold(true); err == nil {
			c.tenure, c.tenureOver = t, nil
		}
	case 3:
		if c.tenure != nil {
			c.tenure.End()
		}
	case 4:
		m.calls.Go(func() { _ = c.Release() })
	case 5:
		m.calls.Go(func() { _, _ = m.s.Multi(m.t.Context(), claim.OpRelease(c.Claim)) })
	case 6: // which is refused
		m.calls.Go(func() { _, _ = m.s.Multi(m.t.Context(), claim.OpRelease(c.Claim), embed.OpCheck("/none", 0)) })
	case 7:
		if c.path != "" {
			_ = m.peer.Delete(m.t.Context(), c.path, embed.AnyVersion)
		}
	case 8:
		m.calls.Go(func() {
			_, _ = m.s.Multi(m.t.Context(), claim.OpGuard(c.tenure), embed.OpSet("/q", nil, embed.AnyVersion))
		})
	case 9:
		m.network(true)
		<-time.After(time.Duration(m.rng.IntN(9000)) * time.Millisecond)
		m.check()
		m.network(false)
		<-time.After(2 * time.Second)
	case 10:
		m.calls.Go(func() { _ = c.Flush() })
	case 11:
		<-time.After(time.Duration(m.rng.IntN(300)) * time.Millisecond)
	}
}

// check compares what the claims say with what they said before.
func (m *claimant) check() {
	m.t.Helper()
	now, cancel := context.WithCancel(m.t.Context())
	cancel()
	for _, c := range m.claims {
		if results, err := c.Created(now); err == nil {
			c.path = results[0].Path
		}
		tenureOver := error(nil)
		if c.tenure != nil {
			tenureOver = c.tenure.Err()
		}
		over := c.Err()
		switch {
		case c.over != nil && over != c.over:
			m.t.Errorf("a claim ended with %v, and then with %v", c.over, over)
		case c.tenureOver != nil && tenureOver != c.tenureOver:
			m.t.Errorf("a tenure ended with %v, and then with %v", c.tenureOver, tenureOver)
		case c.tenure != nil && over != nil && c.tenure.Err() == nil:
			m.t.Errorf("a tenure lasts longer than its claim, which ended with %v", over)
		case testkit.Closed(c.Done()) && c.Err() == nil, over != nil && !testkit.Closed(c.Done()):
			m.t.Errorf("a claim ended with %v, and says the contrary", over)
		}
		c.over, c.tenureOver = over, tenureOver
	}
	m.claims = m.claims[max(0, len(m.claims)-4):]
}

// suspend holds a claim through an outage, if the session lives on. Then it is held no longer.
func (m *claimant) suspend() {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	c, err := claim.New(ctx, m.s, embed.OpCreate("/q/e-", nil, embed.EphemeralSequential))
	must(m.t, err)
	if _, err := c.Await(ctx); err != nil {
		return
	}
	tenure, err := c.Hold(false)
	if err != nil {
		return
	}
	m.network(true)
	<-time.After(12 * time.Second)
	if err := tenure.Err(); err == nil || err != c.Err() {
		m.t.Errorf("after an outage of more than the timeout, the tenure ended with %v, its claim with %v", err, c.Err())
	}
	m.network(false)
}

// left returns the znodes below /q as the peer sees them.
func (m *claimant) left() []string {
	_, err := m.peer.Sync(m.t.Context(), "/q")
	must(m.t, err)
	names, _, err := m.peer.Children(m.t.Context(), "/q")
	must(m.t, err)
	return names
}

// Whatever its owner, others and the network do to a claim, it keeps to the steps of its life, on a
// member and over a connection. When its owner has given it up, nothing is left of it.
func TestClaims_AtRandom(t *testing.T) {
	worlds := 2
	if testkit.Night() {
		worlds = 40
	}
	for _, over := range []string{"member", "client"} {
		t.Run(over, func(t *testing.T) {
			rng := testkit.Rand(t)
			for range worlds {
				virtually(t, func(w *world) {
					var o outage
					m := &claimant{t: w.t, rng: rng, peer: w.ens.Session(2, embed.SessionOptions{})}
					_, err := m.peer.Create(w.t.Context(), "/q", nil, embed.Persistent)
					must(w.t, err)
					var from embed.Opener = w.ens.Node(1)
					m.network = func(down bool) {
						if w.ens.HealAll(); down {
							w.ens.Isolate(1)
						}
					}
					if over == "client" {
						k := w.client(func(c *client.Config) { c.Dial = o.over(w.dial) })
						defer func() { _ = k.Close() }()
						from = k
						m.network = func(down bool) {
							if o.end(); down {
								o.begin()
							}
						}
					}
					m.s, err = from.NewSession(w.t.Context(), embed.SessionOptions{Timeout: 10 * time.Second})
					must(w.t, err)
					all := []*claimed{}
					for range 120 {
						m.step()
						if m.rng.IntN(3) > 0 {
							synctest.Wait()
						}
						if m.check(); over == "client" {
							must(w.t, client.VerifyClaims(m.s))
						}
						if all = append(all, m.claims[len(m.claims)-1]); m.s.Err() != nil {
							break
						}
					}
					m.suspend()
					for _, c := range all {
						m.calls.Go(func() { _ = c.Release() })
					}
					m.calls.Wait()
					w.ens.Until("the claims to go", func() bool { return len(m.left()) == 0 })
				})
			}
		})
	}
}
