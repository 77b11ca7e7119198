//go:build unix

package processtest

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	reload := func(p *process) { p.must(t, request{Call: callReload}) }
	replace := func(n int, life time.Duration) {
		certs.issue(n, life)
		reload(f.all()[n])
	}
	for range rounds {
		old := certs.ends
		for n := range size {
			replace(n, longLife)
		}
		until(old)
		record(same)

		old = certs.ends
		before := certs.ca
		certs.ca = testkit.NewAuthority(t, "next")
		certs.trust(before, certs.ca)
		for _, p := range f.all() {
			reload(p)
		}
		for n := range size {
			replace(n, longLife)
		}
		certs.trust(certs.ca)
		for _, p := range f.all() {
			reload(p)
		}
		until(old)
		record(other)

		old = certs.ends
		for n := range size - 1 {
			replace(n, longLife)
		}
		until(old)
		record(out)
		f.until("the member to be back", func() bool {
			for n := range size {
				replace(n, shortLife) // again and again, on a slow machine
			}
			r, _ := f.all()[size-1].callWithin(request{Call: callReady, Within: shortLife / 2})
			return r.Outcome == applied
		})
		record(back)
	}
	w.end()
	for _, what := range []string{same, other, out, back} {
		slices.Sort(gaps[what])
		t.Logf("%s: the longest gap of a round: median %v, worst %v", what,
			gaps[what][rounds/2].Round(time.Millisecond), gaps[what][rounds-1].Round(time.Millisecond))
	}
}

// How long certificates are valid. Those of the beginning of a round end in it. Each later one
// outlives the one before, and the wait for that one's end.
const (
	shortLife = 8 * time.Second
	longLife  = 20 * time.Second
)

// until waits until certificates have ended, and until what comes of that has come.
func until(end time.Time) { <-time.After(time.Until(end) + 2*time.Second) }

// certificates are the files of a fleet's members.
type certificates struct {
	t    *testing.T
	dir  string
	ca   *testkit.Authority
	ends time.Time // of the newest
}

func newCertificates(t *testing.T) *certificates {
	c := &certificates{t: t, dir: workDir(t), ca: testkit.NewAuthority(t, "first")}
	c.trust(c.ca)
	return c
}

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
