package embedtest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

const day = 24 * time.Hour

// until is a certificate's end.
func until(end time.Time) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = end.Add(-90*day), end }
}

// certificates are the files of an ensemble's members.
type certificates struct {
	t   *testing.T
	ca  *testkit.Authority
	dir string
}

func newCertificates(t *testing.T) *certificates {
	c := &certificates{t: t, ca: testkit.NewAuthority(t, "authority", until(time.Now().Add(80*day))), dir: t.TempDir()}
	must(t, os.WriteFile(filepath.Join(c.dir, "ca"), c.ca.PEM(), 0o600))
	return c
}

// issue writes a member's certificate, which is valid for 90 days until end.
func (c *certificates) issue(id embed.MemberID, end time.Time) {
	cert, key := testkit.PEM(c.t, c.ca.Issue(c.t, until(end), func(x *x509.Certificate) {
		x.IPAddresses, x.DNSNames = nil, []string{fmt.Sprintf("member-%d.test", id)}
	}))
	must(c.t, os.WriteFile(c.file(id, "crt"), cert, 0o600))
	must(c.t, os.WriteFile(c.file(id, "key"), key, 0o600))
}

func (c *certificates) file(id embed.MemberID, kind string) string {
	return filepath.Join(c.dir, fmt.Sprintf("member-%d.%s", id, kind))
}

func (c *certificates) tls(id embed.MemberID) *embed.TLS {
	return &embed.TLS{CertFile: c.file(id, "crt"), KeyFile: c.file(id, "key"), CAFile: filepath.Join(c.dir, "ca")}
}

// A logbook keeps what all members log.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// has reports whether one line has all the words.
func (l *logbook) has(words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.text.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		return true
	}
	return false
}

// A member's certificate expires. Its connections live on, but none can be made again until the
// member is started with a new certificate. Everybody says whose certificate it is, and until when
// it was valid.
func TestBubble_ACertificateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certs := newCertificates(t)
		end := time.Now().Add(time.Hour)
		for id, end := range map[embed.MemberID]time.Time{1: end.Add(60 * day), 2: end, 3: end.Add(60 * day)} {
			certs.issue(id, end)
		}
		log := &logbook{}
		ens := embedtest.New(t, 3, embedtest.Options{
			Config: func(c *embed.Config) {
				c.Tick, c.TLS = time.Second, certs.tls(c.ID)
				c.Logger = slog.New(slog.NewJSONHandler(log, nil)).With("member", uint64(c.ID))
			},
		})
		break2 := func() { // long enough for member 2 to know that it is alone
			ens.Isolate(2)
			<-time.After(5 * time.Minute)
			ens.HealAll()
		}
		write := func(id embed.MemberID) {
			t.Helper()
			s := ens.Session(id, embed.SessionOptions{})
			_, err := s.Create(bounded(t), "/z", nil, embed.Sequential)
			must(t, errors.Join(err, s.Close()))
		}
		<-time.After(30 * time.Minute)
		break2()
		ens.Ready(2)
		if until := end.UTC().Format(time.RFC3339); log.has(until) {
			t.Error("a member speaks of the end before it comes")
		}

		<-time.After(time.Until(end) + 30*time.Minute)
		write(2) // over the connections that it has
		break2()
		<-time.After(15 * time.Minute) // repeated lines of the log are held back
		write(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		valid := fmt.Sprintf("valid from %s until %s", end.Add(-90*day).UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))
		if err := ens.Node(2).Ready(ctx); err == nil || !strings.Contains(err.Error(), "refuses this member's certificate") || !strings.Contains(err.Error(), valid) {
			t.Errorf("Ready of member 2: %v", err)
		}
		for _, words := range [][]string{
			{`"member":2`, "no connection to member", `"peer":1`, "refuses this member's certificate", "member-2.test", valid},
			{fmt.Sprintf(`"member":%d`, ens.Leader()), "no connection to member", `"peer":2`, "member-2.test", valid},
			{`"member":3`, "connection not secured", "member-2.test", valid},
		} {
			if !log.has(words...) {
				t.Errorf("no line has %q", words)
			}
		}

		ens.Stop(2)
		if _, err := ens.TryStart(2); err == nil || !strings.Contains(err.Error(), certs.file(2, "crt")) || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("a start with the old certificate: %v", err)
		}
		certs.issue(2, time.Now().Add(60*day))
		ens.Start(2)
		ens.Ready(2)
		write(2)
	})
}

// All certificates expire on one day. The members are started one by one with new ones. The first
// one stays alone until the second comes. Whether the others serve meanwhile is open: those that
// follow may have no connection without their leader.
func TestBubble_AllCertificatesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certs := newCertificates(t)
		issue := func(end time.Time) {
			for id := range embed.MemberID(3) {
				certs.issue(id+1, end)
			}
		}
		issue(time.Now().Add(time.Hour))
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Tick, c.TLS = time.Second, certs.tls(c.ID) }})
		<-time.After(2 * time.Hour)
		issue(time.Now().Add(60 * day))
		ens.Stop(1)
		ens.Start(1)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := ens.Node(1).Ready(ctx); err == nil || !strings.Contains(err.Error(), "the peer's certificate") || !strings.Contains(err.Error(), "member-2.test") {
			t.Errorf("the first one with a new certificate: %v", err)
		}
		ens.Stop(2)
		ens.Start(2)
		ens.Ready(1)
		ens.Ready(2)
		ens.Stop(3)
		ens.Start(3)
		ens.Ready(3)
	})
}

// A gateway's certificate expires: no client can come. A gateway does not start with it.
func TestBubble_ACertificateOfAGatewayExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certs := newCertificates(t)
		end := time.Now().Add(time.Hour)
		certs.issue(1, end)
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Tick = time.Second }})
		cfg := gateway.Config{Listen: ":0", Words: []string{"ruok"}, TLS: &gateway.TLS{CertFile: certs.file(1, "crt"), KeyFile: certs.file(1, "key")}}
		g, err := gateway.Start(ens.Node(1), cfg)
		must(t, err)
		dial := func() (net.Conn, error) {
			conn, err := ens.Dial(t.Context(), 1)
			must(t, err)
			secure := tls.Client(conn, &tls.Config{RootCAs: certs.ca.Pool, ServerName: "member-1.test"})
			return secure, secure.HandshakeContext(t.Context())
		}
		_, err = dial()
		must(t, err)

		<-time.After(time.Until(end) + time.Minute)
		var bad x509.CertificateInvalidError
		if _, err := dial(); !errors.As(err, &bad) || bad.Reason != x509.Expired || !bad.Cert.NotAfter.Equal(end.Truncate(time.Second)) {
			t.Errorf("a client that comes: %v", err)
		}
		must(t, g.Close())
		if _, err := gateway.Start(ens.Node(1), cfg); err == nil || !strings.Contains(err.Error(), certs.file(1, "crt")) || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("a gateway with the old certificate: %v", err)
		}
		certs.issue(1, time.Now().Add(time.Hour))
		g, err = gateway.Start(ens.Node(1), cfg)
		must(t, err)
		_, err = dial()
		must(t, errors.Join(err, g.Close()))
	})
}
