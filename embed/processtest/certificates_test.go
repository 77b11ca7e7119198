//go:build unix

package processtest

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The certificates of all members are replaced, one by one, while clients write. They are short-lived,
// and connections end with the certificate that they began with. First the new ones are of the same
// authority, then of another. Then one member gets none in time. Nothing acknowledged is lost. With
// -rounds it does so that many times, and says for how long nobody could write:
//
//	go test ./embed/processtest -run TestCertificates -v -timeout 0 -rounds 10
func TestCertificates(t *testing.T) {
	t.Parallel()
	const size = 3
	rounds := max(1, *roundsFlag)
	certs := newCertificates(t)
	f := newFleet(t, size, certs)
	w := startWriters(f, true)
	w.round()
	gaps := make(map[string][]time.Duration)
	record := func(what string) {
		gap, writes := w.round()
		gaps[what] = append(gaps[what], gap)
		t.Logf("%s: %d writes, at most %v between two", what, writes, gap.Round(time.Millisecond))
	}
	const (
		same, other = "replaced by ones of the same authority", "replaced by ones of another authority"
		out, back   = "one has run out", "it is replaced"
	)
	replace := func(n int, life time.Duration) { certs.replace(n, f.all()[n], life) }
	for range rounds {
		old := certs.ends
		for n := range size {
			replace(n, certs.long)
		}
		certs.until(old)
		record(same)

		old = certs.ends
		before := certs.ca
		certs.ca = testkit.NewAuthority(t, "next")
		certs.trust(before, certs.ca)
		for _, p := range f.all() {
			certs.reload(p)
		}
		for n := range size {
			replace(n, certs.long)
		}
		certs.trust(certs.ca)
		for _, p := range f.all() {
			certs.reload(p)
		}
		certs.until(old)
		record(other)

		old = certs.ends
		for n := range size - 1 {
			replace(n, certs.long)
		}
		certs.until(old)
		record(out)
		certs.renew(f.all(), certs.short)
		certs.serve(f, f.all())
		record(back)
	}
	certs.renew(f.all(), time.Hour) // the rest may take any time
	w.end()
	for _, what := range []string{same, other, out, back} {
		slices.Sort(gaps[what])
		t.Logf("%s: the longest gap of a round: median %v, worst %v", what,
			gaps[what][rounds/2].Round(time.Millisecond), gaps[what][rounds-1].Round(time.Millisecond))
	}
}

// certificates are the files of a fleet's members.
type certificates struct {
	t    *testing.T
	dir  string
	ca   *testkit.Authority
	ends time.Time // of the newest

	// How long they are valid. Those of the beginning of a round end in it. Each later one outlives
	// the one before, and the wait for that one's end.
	short, long time.Duration
	rest        time.Duration // after an end, for what comes of it
}

func newCertificates(t *testing.T) *certificates {
	c := &certificates{t: t, dir: workDir(t), ca: testkit.NewAuthority(t, "first"),
		short: 5 * time.Second, long: 6 * time.Second, rest: 500 * time.Millisecond}
	if testkit.Night() || *roundsFlag > 0 {
		c.short, c.long, c.rest = 8*time.Second, 20*time.Second, 2*time.Second
	}
	c.trust(c.ca)
	return c
}

// until waits until certificates have ended, and until what comes of that has come.
func (c *certificates) until(end time.Time) { <-time.After(time.Until(end) + c.rest) }

// serve waits until the first replicas of a fleet are ready. On a busy machine their certificates may
// end before that; then it replaces them.
func (c *certificates) serve(f *fleet, replicas []*process) {
	f.until("all members to be ready with valid certificates", func() bool {
		for _, p := range replicas {
			if _, err := p.callWithin(request{Call: callReady, Within: c.short}); err != nil {
				c.renew(replicas, c.short)
				return false
			}
		}
		return true
	})
}

// renew replaces the certificates of the first replicas.
func (c *certificates) renew(replicas []*process, life time.Duration) {
	for n, p := range replicas {
		c.replace(n, p, life)
	}
}

// replace gives a running replica a certificate.
func (c *certificates) replace(n int, p *process, life time.Duration) {
	for c.issue(n, life); !c.reload(p); c.issue(n, life) {
	}
}

// reload lets a replica read its files. It is false if its certificate has ended, and the replica
// keeps what it had: a busy machine may have taken so long.
func (c *certificates) reload(p *process) bool {
	_, err := p.callWithin(request{Call: callReload})
	if err != nil && !hasExpired(err) {
		c.t.Fatal(err)
	}
	return err == nil
}

// hasExpired reports whether a node refuses a certificate because of its age.
func hasExpired(err error) bool { return strings.Contains(err.Error(), "expired at") }

// issue gives a replica a certificate.
func (c *certificates) issue(n int, life time.Duration) {
	c.ends = time.Now().Add(life)
	cert, key := testkit.PEM(c.t, c.ca.Issue(c.t, func(x *x509.Certificate) { x.NotAfter = c.ends }))
	files := c.files(n)
	testkit.Must(c.t, os.WriteFile(files.CertFile, cert, 0o600))
	testkit.Must(c.t, os.WriteFile(files.KeyFile, key, 0o600))
}

// trust lets all members trust these authorities.
func (c *certificates) trust(authorities ...*testkit.Authority) {
	var all []byte
	for _, a := range authorities {
		all = append(all, a.PEM()...)
	}
	testkit.Must(c.t, os.WriteFile(c.files(0).CAFile, all, 0o600))
}

// files returns the files of a replica.
func (c *certificates) files(n int) *embed.TLS {
	of := func(kind string) string { return filepath.Join(c.dir, fmt.Sprintf("replica-%d.%s", n, kind)) }
	return &embed.TLS{CertFile: of("crt"), KeyFile: of("key"), CAFile: filepath.Join(c.dir, "ca.crt")}
}
