package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A member that talks both ways reaches members with TLS, without, and of its own kind, and they
// reach it. It uses TLS wherever the peer can. Only plain text is warned of.
func TestPlainToo(t *testing.T) {
	config := memberTLS(t, testkit.NewAuthority(t, "authority"))
	listen := "127.0.0.1:0"
	for name, peer := range map[string]Network{
		"off":     TCP(listen, nil, false),
		"migrate": TCP(listen, certs.Fixed(config), true),
		"on":      TCP(listen, certs.Fixed(config), false),
	} {
		t.Run(name, func(t *testing.T) {
			var at addresses
			a, b := at.on(t, 1, TCP(listen, certs.Fixed(config), true)), at.on(t, 2, peer)
			exchange(t, a, b)
			until(t, "both directions in the log", func() bool {
				return name != "off" || strings.Count(a.log.String(), "plain text with member") > 0
			})
			if warned := strings.Contains(a.log.String()+b.log.String(), "plain text"); warned != (name == "off") {
				t.Errorf("plain text is warned of: %v", warned)
			}
			a.module.Close()
			b.module.Close()
			noGoroutines(t)
		})
	}
}

// A peer that has TLS and refuses this member, or shows another's certificate, is not tried in plain
// text.
func TestPlainToo_NotWhereTLSFails(t *testing.T) {
	ours, theirs := testkit.NewAuthority(t, "ours"), testkit.NewAuthority(t, "theirs")
	elsewhere := memberTLS(t, ours)
	elsewhere.Certificates = []tls.Certificate{ours.Issue(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"example.invalid"} })}
	for name, config := range map[string]*tls.Config{"another authority": memberTLS(t, theirs), "another host": elsewhere} {
		t.Run(name, func(t *testing.T) {
			var at addresses
			a := at.on(t, 1, TCP("127.0.0.1:0", certs.Fixed(memberTLS(t, ours)), true))
			b := at.on(t, 2, TCP("127.0.0.1:0", certs.Fixed(config), true))
			a.link(t, 2).SendMessageBatch(beat(1, 2, 1))
			until(t, "the reason in the log", func() bool { return strings.Contains(a.log.String(), "no connection to member") })
			if len(b.batches) != 0 || strings.Contains(a.log.String()+b.log.String(), "plain text") {
				t.Errorf("%d messages passed\n%s\n%s", len(b.batches), a.log, b.log)
			}
		})
	}
}

// A peer that connects and says nothing does not hold up the end of the transport, and its place is
// free again after the time for a handshake.
func TestPlainToo_Silence(t *testing.T) {
	var at addresses
	n := TCP("127.0.0.1:0", certs.Fixed(memberTLS(t, testkit.NewAuthority(t, "authority"))), true)
	a := at.on(t, 1, n)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := TCP("", nil, false).Dial(ctx, Target{Address: at.of(1)})
	testkit.Must(t, err)
	a.module.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection was answered")
	}
	testkit.Must(t, conn.Close())
	noGoroutines(t)
}
