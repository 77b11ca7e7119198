package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// memberTLS is the config that a user writes for a member on loopback.
func memberTLS(t *testing.T, a *testkit.Authority) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{a.Issue(t, alsoIPv6)}, RootCAs: a.Pool}
}

func alsoIPv6(c *x509.Certificate) { c.IPAddresses = append(c.IPAddresses, net.IPv6loopback) }

// addresses holds the addresses of a test's members.
type addresses struct{ m sync.Map }

func (a *addresses) of(m uint64) string {
	v, _ := a.m.Load(m)
	s, _ := v.(string)
	return s
}

// onTCP starts a member on a free port of a loopback address.
func (a *addresses) onTCP(t *testing.T, m uint64, host string, config *tls.Config) *peer {
	t.Helper()
	return a.on(t, m, TCP(net.JoinHostPort(host, "0"), certs.Fixed(config), false))
}

// on starts a member on a network.
func (a *addresses) on(t *testing.T, m uint64, n Network) *peer {
	t.Helper()
	l, err := n.Listen()
	if err != nil {
		t.Fatal(err)
	}
	a.m.Store(m, l.Addr().String())
	return newPeer(t, Options{Self: identity(m), Address: a.of, Network: n, Listener: l})
}

// exchange checks that two members receive each other's messages, and that a snapshot arrives.
func exchange(t *testing.T, a, b *peer) {
	t.Helper()
	ab, ba := a.self().Member, b.self().Member
	ten := func(p *peer, from, to uint64) {
		link := p.connected(t, to)
		for i := range uint64(10) {
			link.SendMessageBatch(beat(from, to, i))
		}
	}
	ten(a, ab, ba)
	ten(b, ba, ab)
	for i := range uint64(10) {
		if got := get(t, b.batches, "batch").Requests[0]; got.Commit != i || got.From != ab {
			t.Fatalf("heard %+v", got)
		}
		if got := get(t, a.batches, "batch").Requests[0]; got.Commit != i || got.From != ba {
			t.Fatalf("heard %+v", got)
		}
	}
	stream, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(ba))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i := range uint64(4) {
		if err := stream.SendChunk(chunkOf(ab, ba, i, i == 3)); err != nil {
			t.Fatal(err)
		}
		get(t, b.chunks, "chunk")
	}
}

func TestTCP(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, secured := range []bool{false, true} {
			name := host
			var config *tls.Config
			if secured {
				name += " with TLS"
				config = memberTLS(t, testkit.NewAuthority(t, "authority"))
			}
			t.Run(name, func(t *testing.T) {
				if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
					t.Skip(err)
				} else {
					l.Close()
				}
				var at addresses
				a, b := at.onTCP(t, 1, host, config), at.onTCP(t, 2, host, config)
				exchange(t, a, b)
				a.module.Close()
				b.module.Close()
				noGoroutines(t)
			})
		}
	}
}

// A member of an older build reads only the first bytes of the largest hello and closes the
// connection. Its answer still arrives.
func TestTCP_OlderPeer(t *testing.T) {
	for _, config := range []*tls.Config{nil, memberTLS(t, testkit.NewAuthority(t, "authority"))} {
		var at addresses
		member := func(m uint64, highest uint16) *peer {
			n := TCP("127.0.0.1:0", certs.Fixed(config), false)
			l, err := n.Listen()
			if err != nil {
				t.Fatal(err)
			}
			at.m.Store(m, l.Addr().String())
			o := Options{Self: identity(m), Address: at.of, Shards: statesMax, Network: n, Listener: l, Highest: highest}
			o.Self.Shards = make([]ShardState, statesMax)
			return newPeer(t, o)
		}
		a, b := member(1, VersionNext), member(2, protocolMax)
		for range 20 {
			s, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2))
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		exchange(t, a, b)
	}
}

func TestPortInUse(t *testing.T) {
	var at addresses
	at.onTCP(t, 1, "127.0.0.1", nil)
	if l, err := TCP(at.of(1), nil, false).Listen(); err == nil {
		l.Close()
		t.Fatal("bound twice")
	}
}

// A restarted member is found at another address.
func TestAddressChanges(t *testing.T) {
	var at addresses
	a, b := at.onTCP(t, 1, "127.0.0.1", nil), at.onTCP(t, 2, "127.0.0.1", nil)
	exchange(t, a, b)
	link := a.link(t, 2)
	b.module.Close()
	b = at.onTCP(t, 2, "127.0.0.1", nil)
	until(t, "member 2 at its new address", func() bool {
		link.SendMessageBatch(beat(1, 2, 1))
		return len(b.batches) > 0
	})
}

// Members whose certificates come from different authorities do not talk, in neither direction.
// Both log the peer and the reason.
func TestOtherAuthorityStaysOut(t *testing.T) {
	t.Parallel()
	ours, theirs := testkit.NewAuthority(t, "ours"), testkit.NewAuthority(t, "theirs")
	both := x509.NewCertPool()
	both.AddCert(ours.Cert)
	both.AddCert(theirs.Cert)
	trusting := memberTLS(t, theirs)
	trusting.RootCAs = both // it would talk to us
	for name, foreign := range map[string]*tls.Config{
		"foreign certificate":               memberTLS(t, theirs),
		"foreign certificate, trusts all":   trusting,
		"no certificate":                    {RootCAs: ours.Pool},
		"a client's empty certificate list": {RootCAs: ours.Pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var at addresses
			a, b := at.onTCP(t, 1, "127.0.0.1", memberTLS(t, ours)), at.onTCP(t, 2, "127.0.0.1", memberTLS(t, ours))
			c := newPeer(t, Options{Self: identity(3), Address: at.of, Network: TCP("127.0.0.1:0", certs.Fixed(foreign), false)})
			exchange(t, a, b)
			link := c.link(t, 1)
			link.SendMessageBatch(beat(3, 1, 1))
			if _, err := c.module.GetSnapshotConnection(t.Context(), uuidOf(1)); err == nil {
				t.Fatal("a snapshot connection was made")
			}
			until(t, "reason in both logs", func() bool {
				return strings.Contains(a.log.String(), "tls: ") && strings.Contains(a.log.String(), "address=127.0.0.1:") &&
					strings.Contains(c.log.String(), "tls: ")
			})
			if len(a.batches) != 0 || len(a.refused) != 0 {
				t.Fatal("something passed")
			}
		})
	}
	t.Run("foreign server", func(t *testing.T) {
		t.Parallel()
		var at addresses
		at.onTCP(t, 1, "127.0.0.1", memberTLS(t, theirs))
		b := at.onTCP(t, 2, "127.0.0.1", memberTLS(t, ours))
		b.link(t, 1).SendMessageBatch(beat(2, 1, 1))
		until(t, "reason in the log", func() bool {
			return strings.Contains(b.log.String(), "tls with "+at.of(1)) && strings.Contains(b.log.String(), "unknown authority")
		})
	})
	t.Run("plain text", func(t *testing.T) {
		t.Parallel()
		var at addresses
		a := at.onTCP(t, 1, "127.0.0.1", memberTLS(t, ours))
		b := at.onTCP(t, 2, "127.0.0.1", nil)
		b.link(t, 1).SendMessageBatch(beat(2, 1, 1))
		a.link(t, 2).SendMessageBatch(beat(1, 2, 1))
		until(t, "reasons in the logs", func() bool {
			return strings.Contains(a.log.String(), "the peer does not use TLS and this member does") &&
				strings.Contains(b.log.String(), "the peer uses TLS and this member does not") &&
				strings.Contains(b.log.String(), "no connection to member")
		})
		if strings.Contains(a.log.String(), "tls: tls:") {
			t.Error(a.log)
		}
	})
	t.Run("certificate of another host", func(t *testing.T) {
		t.Parallel()
		var at addresses
		wrong := memberTLS(t, ours)
		wrong.Certificates = []tls.Certificate{ours.Issue(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"example.invalid"} })}
		a, b := at.onTCP(t, 1, "127.0.0.1", memberTLS(t, ours)), at.onTCP(t, 2, "127.0.0.1", wrong)
		a.link(t, 2).SendMessageBatch(beat(1, 2, 1))
		until(t, "reason in the log", func() bool { return strings.Contains(a.log.String(), "IP SANs") })
		if len(b.batches) != 0 {
			t.Fatal("a message passed")
		}
	})
}

// The user's config is not changed, and it cannot weaken the verification.
func TestTLSConfig(t *testing.T) {
	ca := testkit.NewAuthority(t, "authority")
	config := memberTLS(t, ca)
	server, client, err := mutual(config)
	if err != nil {
		t.Fatal(err)
	}
	if config.ClientAuth != tls.NoClientCert || config.ClientCAs != nil || config.SessionTicketsDisabled {
		t.Fatal("the user's config was changed")
	}
	if server.ClientAuth != tls.RequireAndVerifyClientCert || !server.ClientCAs.Equal(ca.Pool) || !client.RootCAs.Equal(ca.Pool) {
		t.Fatal("certificates are not verified")
	}

	onlyClients := &tls.Config{Certificates: config.Certificates, ClientCAs: ca.Pool}
	if _, client, err := mutual(onlyClients); err != nil || !client.RootCAs.Equal(ca.Pool) {
		t.Fatal("the authorities of clients do not serve for servers", err)
	}

	for _, c := range []struct {
		config *tls.Config
		err    error
	}{
		{&tls.Config{Certificates: config.Certificates}, ErrNoAuthority},
		{&tls.Config{Certificates: config.Certificates, RootCAs: ca.Pool, InsecureSkipVerify: true}, ErrNoVerification},
	} {
		n := TCP("127.0.0.1:0", certs.Fixed(c.config), false)
		if _, err := n.Listen(); !errors.Is(err, c.err) {
			t.Errorf("listen: %v", err)
		}
		if _, err := n.Dial(t.Context(), Target{Member: 1}); !errors.Is(err, c.err) {
			t.Errorf("dial: %v", err)
		}
	}

	// A config per connection and a certificate that is looked up, as in services that renew
	// certificates.
	renewing := &tls.Config{RootCAs: ca.Pool}
	renewing.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &config.Certificates[0], nil }
	renewing.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: config.Certificates}, nil // the user's config asks for no certificate
	}
	var at addresses
	a, b := at.onTCP(t, 1, "127.0.0.1", renewing), at.onTCP(t, 2, "127.0.0.1", renewing)
	exchange(t, a, b)
	c := newPeer(t, Options{Self: identity(3), Address: at.of, Network: TCP("127.0.0.1:0", certs.Fixed(&tls.Config{RootCAs: ca.Pool}), false)})
	c.link(t, 1).SendMessageBatch(beat(3, 1, 1))
	until(t, "refusal", func() bool { return strings.Contains(a.log.String(), "tls: client didn't provide a certificate") })
	if len(a.batches) != 0 {
		t.Fatal("a message passed")
	}

	picky := &tls.Config{RootCAs: ca.Pool}
	picky.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errors.New(h.Conn.RemoteAddr().String())
	}
	d := newPeer(t, Options{Self: identity(3), Address: at.of, Network: TCP("127.0.0.1:0", certs.Fixed(picky), false)})
	d.link(t, 1).SendMessageBatch(beat(3, 1, 1))
	until(t, "reason", func() bool { return strings.Contains(d.log.String(), "set GetClientCertificate too") })
}
