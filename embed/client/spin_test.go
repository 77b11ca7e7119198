package client_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A counted connection breaks for good after too many writes.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	if c.n.Add(1) > 20_000 {
		return 0, errors.New("too many writes")
	}
	return c.Conn.Write(b)
}

// countedSession opens a session in a member, or over a connection that counts its writes.
func countedSession(ctx context.Context, w *world, remote bool) (s *embed.Session, n *atomic.Int64, end func()) {
	n = new(atomic.Int64)
	if !remote {
		return w.ens.Session(1, embed.SessionOptions{}), n, func() {}
	}
	k := w.client(func(c *client.Config) {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if n.Load() > 20_000 {
				return nil, errors.New("too many writes")
			}
			conn, err := w.dial(ctx, address)
			return counted{conn, n}, err
		}
	})
	s, err := k.NewSession(ctx, embed.SessionOptions{})
	must(w.t, err)
	return s, n, func() { _ = k.Close() }
}

// Who observes an election whose leader it may not read waits for a change, as a client too.
func TestElection_ObservesAHiddenLeader(t *testing.T) {
	for _, remote := range []bool{false, true} {
		virtually(t, func(w *world) {
			t := w.t
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			s, n, end := countedSession(ctx, w, remote)
			defer end()
			owner := w.ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("boss:secret")}}})
			_, err := owner.Create(ctx, "/election", nil, embed.Container)
			must(t, err)
			o := embed.CreateOptions{Mode: embed.EphemeralSequential, ACL: embed.CreatorACL()}
			_, _, err = owner.CreateWith(ctx, "/election/_c_x-latch-", nil, o)
			must(t, err)
			<-time.After(time.Second)
			begin, was := time.Now(), n.Load()
			for range election.New(s, "/election").Observe(ctx) {
			}
			if sent := n.Load() - was; sent > 1000 {
				t.Errorf("remote %v: the client has sent %d requests within %v", remote, sent, time.Since(begin))
			}
		})
	}
}

// An offer that its candidate may not read, planted by anybody who may create znodes there, does not
// make the candidate ask without a pause.
func TestElection_BehindAHiddenOffer(t *testing.T) {
	for _, remote := range []bool{false, true} {
		virtually(t, func(w *world) {
			t := w.t
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			s, n, end := countedSession(ctx, w, remote)
			defer end()
			lead, err := election.New(w.ens.Session(1, embed.SessionOptions{}), "/election").Campaign(ctx, nil)
			must(t, err)
			defer lead.Resign()
			ended := make(chan error, 1)
			go func() {
				_, err := election.New(s, "/election").Campaign(ctx, nil)
				ended <- err
			}()
			<-time.After(time.Second)
			hostile := w.session(embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("mallory:x")}}})
			names, _, err := hostile.Children(ctx, "/election")
			must(t, err)
			for _, name := range names {
				_, _, err = hostile.CreateWith(ctx, "/election/"+queue.Offer(name), nil, embed.CreateOptions{ACL: embed.CreatorACL()})
				must(t, err)
			}
			begin, was := time.Now(), n.Load()
			must(t, lead.Proclaim(ctx, []byte("still me"))) // the candidate looks again
			<-ended
			sent := n.Load() - was
			if sent > 1000 {
				t.Errorf("remote %v: the client has sent %d requests within %v", remote, sent, time.Since(begin))
			}
		})
	}
}
