//go:build unix

package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// papers are the certificates of a night's members.
type papers struct {
	n  *night
	ca *testkit.Authority
}

func newPapers(n *night) *papers {
	p := &papers{n: n, ca: testkit.NewAuthority(n.t, "authority", lasting(3*month))}
	must(n.t, os.WriteFile(filepath.Join(n.dir, "ca"), p.ca.PEM(), 0o600))
	return p
}

// lasting changes a certificate so that it ends after a time.
func lasting(life time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(life) }
}

// issue writes a certificate of a member beside the old one, and renames it.
func (p *papers) issue(id int, life time.Duration) {
	p.n.t.Helper()
	cert, key := testkit.PEM(p.n.t, p.ca.Issue(p.n.t, lasting(life)))
	for kind, data := range map[string][]byte{"crt": cert, "key": key} {
		file := filepath.Join(p.n.dir, fmt.Sprintf("%d.%s", id, kind))
		must(p.n.t, os.WriteFile(file+".new", data, 0o600))
		must(p.n.t, os.Rename(file+".new", file))
	}
}

// config returns the line of config for a member's certificate.
func (p *papers) config(id int, migrate bool) string {
	return fmt.Sprintf(
		"tls: {certFile: %d.crt, keyFile: %[1]d.key, caFile: ca, migrate: %t}", id, migrate)
}

const month = 30 * 24 * time.Hour

// "From plain text to TLS": two rolling restarts, and the way back. A write works after each.
func TestRunbook_FromPlainTextToTLS(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	p := newPapers(n)
	runs := n.startAll()
	written := 0
	roll := func(more func(id int) []string) {
		t.Helper()
		for id := 1; id <= 3; id++ {
			end(t, runs[id-1])
			written++
			n.writes(id%3+1, fmt.Sprintf("/n-%d", written))
			runs[id-1] = n.start(id, more(id)...)
			runs[id-1].Says("msg=serving")
		}
	}
	migrate := func(id int) []string { return []string{p.config(id, true)} }
	with := func(id int) []string { return []string{p.config(id, false)} }
	without := func(int) []string { return nil }
	for id := 1; id <= 3; id++ {
		p.issue(id, month)
	}
	roll(migrate)
	for _, run := range runs {
		run.Says("plain text is allowed between members")
	}
	// A handshake that breaks in the middle looks as if the peer had no TLS.
	until(t, "the last one to need no plain text, as all have TLS", func() bool {
		if runs[2].Line("plain text with member") == "" {
			return true
		}
		end(t, runs[2])
		runs[2] = n.start(3, migrate(3)...)
		runs[2].Says("msg=serving")
		return false
	})
	roll(with)
	for _, run := range runs {
		if line := run.Line("plain text"); line != "" {
			t.Errorf("without migrate: %s", line)
		}
	}
	roll(migrate)
	roll(without)
}

// "A certificate has expired": that of one member, which serves again after SIGHUP. It does not
// start with an expired one.
func TestRunbook_ACertificateHasExpired(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	p := newPapers(n)
	for id := 1; id <= 3; id++ {
		p.issue(id, month)
	}
	runs := []*child.Program{n.start(1, p.config(1, false)), n.start(2, p.config(2, false))}
	// On a busy machine a start may outlast the certificate.
	var third *child.Program
	for life := 3 * time.Second; third == nil || third.Line("msg=serving") == ""; life *= 2 {
		p.issue(3, life)
		third = n.start(3, p.config(3, false))
		until(t, "the third to serve, or its certificate to expire", func() bool {
			return third.Line("msg=serving") != "" || third.Line("expired") != ""
		})
		if third.Line("msg=serving") == "" {
			third.Signal(syscall.SIGKILL)
			third.ExitCode()
		}
	}
	third.Says("the certificate ends soon")
	third.Says("refuses this member's certificate")
	runs[0].Says("msg=\"connection not secured\" member=1")
	runs[0].Says("certificate has expired")
	until(t, "the third to have no quorum", func() bool {
		return strings.Contains(mntr(t, n.clients[2]), notServing)
	})
	third.Says("msg=\"no quorum\"")
	n.writes(1, "/without")

	p.issue(3, month)
	third.Signal(syscall.SIGHUP)
	third.Says("the certificates were read again")
	n.writes(3, "/with")

	end(t, third)
	p.issue(3, -time.Second)
	third = n.start(3, p.config(3, false))
	if code := third.ExitCode(); code == exitOK || !strings.Contains(third.Log(), "expired") {
		t.Errorf("with an expired certificate: %d\n%s", code, third.Log())
	}
	p.issue(3, month)
	n.start(3, p.config(3, false)).Says("msg=serving")
}
