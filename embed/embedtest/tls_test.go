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
	"github.com/vivarium-go/vivarium/embed/lock"
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

// A member's certificate expires. Its connections end, and none can be made again until its files
// have a new one, which takes no restart. Everybody says whose certificate it is, and until when it
// was valid; the member itself warns two weeks before.
func TestBubble_ACertificateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certs := newCertificates(t)
		end := time.Now().Add(time.Hour)
		for id, end := range map[embed.MemberID]time.Time{1: end.Add(40 * day), 2: end, 3: end.Add(40 * day)} {
			certs.issue(id, end)
		}
		log := &logbook{}
		ens := embedtest.New(t, 3, embedtest.Options{
			Config: func(c *embed.Config) {
				c.Tick, c.TLS = time.Second, certs.tls(c.ID)
				c.Logger = slog.New(slog.NewJSONHandler(log, nil)).With("member", uint64(c.ID))
			},
		})
		write := func(id embed.MemberID) {
			t.Helper()
			s := ens.Session(id, embed.SessionOptions{})
			_, err := s.Create(bounded(t), "/z", nil, embed.Sequential)
			must(t, errors.Join(err, s.Close()))
		}
		<-time.After(30 * time.Minute)
		valid := fmt.Sprintf("valid from %s until %s", end.Add(-90*day).UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))
		if !log.has(`"member":2`, "the certificate ends soon", "member-2.test", valid) || log.has(`"member":1`, "ends soon") {
			t.Error("the member whose certificate ends should warn, and no other")
		}
		write(2)

		<-time.After(time.Until(end) + 15*time.Minute) // repeated lines of the log are held back
		write(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := ens.Node(2).Ready(ctx); err == nil || !strings.Contains(err.Error(), "refuses this member's certificate") || !strings.Contains(err.Error(), valid) {
			t.Errorf("Ready of member 2: %v", err)
		}
		for _, words := range [][]string{
			{`"member":2`, "no connection to member", `"peer":1`, "refuses this member's certificate", "member-2.test", valid},
			{fmt.Sprintf(`"member":%d`, ens.Leader()), "to member", `"peer":2`, "member-2.test", valid},
			{`"member":3`, "connection not secured", "member-2.test", valid},
			{"connection", "has expired since the connection began", "member-2.test", valid},
		} {
			if !log.has(words...) {
				t.Errorf("no line has %q", words)
			}
		}
		if ens.Node(2).Err() != nil {
			t.Errorf("member 2 has failed: %v", ens.Node(2).Err())
		}
		certs.issue(2, time.Now().Add(60*day))
		ens.Ready(2)
		write(2)
		if !log.has(`"member":2`, "the certificates were read again", "member-2.test") {
			t.Error("the member does not say that it has a new certificate")
		}
	})
}

// All certificates expire on one day, and nobody serves. With new files all members come back by
// themselves.
func TestBubble_AllCertificatesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certs := newCertificates(t)
		issue := func(end time.Time) {
			for id := range embed.MemberID(3) {
				certs.issue(id+1, end)
			}
		}
		issue(time.Now().Add(10 * time.Minute))
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Tick, c.TLS = time.Second, certs.tls(c.ID) }})
		<-time.After(20 * time.Minute)
		for id := range embed.MemberID(3) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := ens.Node(id + 1).Ready(ctx)
			cancel()
			if err == nil || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("member %d, whose certificate and whose peers' have expired: %v", id+1, err)
			}
		}
		issue(time.Now().Add(60 * day))
		for id := range embed.MemberID(3) {
			ens.Ready(id + 1)
		}
	})
}

// The members change to another authority while somebody writes, without a restart: first all trust
// both, then each shows a certificate of the new one, then all trust that alone. Files that do not
// fit together change nothing.
func TestBubble_AnotherAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certs := newCertificates(t)
		old, end := certs.ca, time.Now().Add(60*day)
		for id := range embed.MemberID(3) {
			certs.issue(id+1, end)
		}
		log := &logbook{}
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			c.Tick, c.TLS = time.Second, certs.tls(c.ID)
			c.Logger = slog.New(slog.NewJSONHandler(log, nil)).With("member", uint64(c.ID))
		}})
		reload := func(id embed.MemberID, want bool) {
			t.Helper()
			if changed, err := ens.Node(id).ReloadTLS(); changed != want || err != nil {
				t.Errorf("member %d: changed: %v, %v", id, changed, err)
			}
		}
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		hold, err := lock.NewMutex(s, "/lock").Lock(bounded(t))
		must(t, err)
		works := func() { // over new connections too
			t.Helper()
			for id := range embed.MemberID(3) {
				ens.Isolate(id + 1)
				<-time.After(time.Second)
				ens.HealAll()
				ens.Ready(id + 1)
			}
			_, err := s.Create(bounded(t), "/z", nil, embed.Sequential)
			must(t, err)
			if err := hold.Err(); err != nil {
				t.Errorf("the lock was lost: %v", err)
			}
		}
		ca := filepath.Join(certs.dir, "ca")
		next := testkit.NewAuthority(t, "next", until(time.Now().Add(80*day)))
		must(t, os.WriteFile(ca, append(old.PEM(), next.PEM()...), 0o600))
		for id := range embed.MemberID(3) {
			reload(id+1, true)
			reload(id+1, false)
		}
		works()
		certs.ca = next
		for id := range embed.MemberID(3) {
			key, err := os.ReadFile(certs.file(id+1, "key"))
			must(t, err)
			certs.issue(id+1, end)
			whole, err := os.ReadFile(certs.file(id+1, "key"))
			must(t, err)
			must(t, os.WriteFile(certs.file(id+1, "key"), key, 0o600)) // of the other certificate
			if changed, err := ens.Node(id + 1).ReloadTLS(); changed || err == nil || !strings.Contains(err.Error(), certs.file(id+1, "crt")) {
				t.Errorf("a key of another certificate: changed: %v, %v", changed, err)
			}
			<-time.After(2 * time.Minute)
			works()
			must(t, os.WriteFile(certs.file(id+1, "key"), whole, 0o600))
			<-time.After(2 * time.Minute) // the member looks once a minute
			reload(id+1, false)
			works()
		}
		if !log.has("the certificates of the files are not used", certs.file(3, "crt")) {
			t.Error("nobody says that the files do not fit together")
		}
		must(t, os.WriteFile(ca, next.PEM(), 0o600))
		for id := range embed.MemberID(3) {
			reload(id+1, true) // before time passes, in which the member looks by itself
		}
		works()
		must(t, hold.Release())
	})
}

// The members change from plain text to TLS, and back, one restart after another. Somebody holds a
// lock meanwhile and writes after each restart. At the end nobody without a certificate gets in.
func TestBubble_Migrate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		certs := newCertificates(t)
		for id := range embed.MemberID(3) {
			certs.issue(id+1, time.Now().Add(60*day))
		}
		const off, migrate, on = "off", "migrate", "on"
		var mu sync.Mutex
		modes := map[embed.MemberID]string{1: off, 2: off, 3: off}
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			mu.Lock()
			defer mu.Unlock()
			if c.Tick = time.Second; modes[c.ID] != off {
				c.TLS = certs.tls(c.ID)
				c.TLS.Migrate = modes[c.ID] == migrate
			}
		}})
		set := func(id embed.MemberID, mode string) {
			mu.Lock()
			defer mu.Unlock()
			modes[id] = mode
		}
		roll := func(mode string) {
			t.Helper()
			for id := range embed.MemberID(3) {
				s := ens.Session((id+1)%3+1, embed.SessionOptions{Timeout: time.Minute})
				hold, err := lock.NewMutex(s, "/lock").Lock(bounded(t))
				must(t, err)
				ens.Stop(id + 1)
				set(id+1, mode)
				ens.Start(id + 1)
				for id := range embed.MemberID(3) {
					ens.Ready(id + 1)
				}
				if _, err := s.Create(bounded(t), "/z", nil, embed.Sequential); err != nil || hold.Err() != nil {
					t.Errorf("%s: member %d: %v, the lock: %v", mode, id+1, err, hold.Err())
				}
				must(t, errors.Join(hold.Release(), s.Close()))
			}
		}
		roll(migrate)
		roll(on)
		ens.Stop(3)
		set(3, off)
		ens.Start(3)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := ens.Node(3).Ready(ctx); err == nil {
			t.Error("a member without TLS got in")
		}
		ens.Stop(3)
		set(3, on)
		ens.Start(3)
		ens.Ready(3)
		roll(migrate)
		roll(off)
	})
}

// A gateway's certificate expires: no client can come until the files have a new one. A gateway
// does not start with an expired one.
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
		if changed, err := g.ReloadTLS(); changed || err == nil || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("the same file: changed: %v, %v", changed, err)
		}
		certs.issue(1, time.Now().Add(time.Hour))
		<-time.After(2 * time.Minute)
		_, err = dial()
		must(t, err)
		must(t, g.Close())
		certs.issue(1, end)
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
