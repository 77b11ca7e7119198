package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

const (
	// Look is how often Loop reads the files again.
	Look = time.Minute
	// Soon is how long before the end of a certificate Loop begins to warn.
	Soon = 14 * 24 * time.Hour
	// again is how often Loop repeats a warning.
	again = 24 * time.Hour
)

// A Store has the TLS config of the moment. A connection that begins uses that one to its end. A
// Store may be used by any number of goroutines.
type Store struct {
	load func() (*tls.Config, error) // nil: the config stays

	now      atomic.Pointer[tls.Config]
	failures atomic.Int64
	changed  atomic.Pointer[func()] // nil: nobody wants to know

	mu rank.Mutex[rank.Certificates] // of one Reload
}

// New returns a Store with what load returns now and at each Reload. load reads files.
func New(load func() (*tls.Config, error)) (*Store, error) {
	c, err := load()
	if err != nil {
		return nil, err
	}
	s := Fixed(c)
	s.load = load
	return s, nil
}

// Fixed returns a Store whose config stays. For no config it returns nil.
func Fixed(c *tls.Config) *Store {
	if c == nil {
		return nil
	}
	s := &Store{}
	s.now.Store(c)
	return s
}

// Config returns the config of the moment. The caller does not change it.
func (s *Store) Config() *tls.Config { return s.now.Load() }

// Reload reads the files again and reports whether the config has changed. After an error the old
// one stays.
func (s *Store) Reload() (changed bool, err error) {
	if s.load == nil {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.load()
	if err != nil {
		s.failures.Add(1)
		return false, err
	}
	if same(c, s.Config()) {
		return false, nil
	}
	s.now.Store(c)
	if fn := s.changed.Load(); fn != nil {
		(*fn)()
	}
	return true, nil
}

// OnChange registers fn to be called when a Reload has changed the config. fn must not block.
func (s *Store) OnChange(fn func()) { s.changed.Store(&fn) }

// Failures returns how many calls of Reload have failed.
func (s *Store) Failures() int64 { return s.failures.Load() }

// Leaf returns the own certificate, or nil if a service's tls.Config chooses one for each
// connection.
func (s *Store) Leaf() *x509.Certificate {
	if c := s.Config(); len(c.Certificates) > 0 {
		return leaf(c.Certificates[0])
	}
	return nil
}

// same reports whether two configs that load has returned have the same certificates and
// authorities.
func same(a, b *tls.Config) bool {
	chains := func(a, b tls.Certificate) bool { return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal) }
	return slices.EqualFunc(a.Certificates, b.Certificates, chains) && equal(a.RootCAs, b.RootCAs) && equal(a.ClientCAs, b.ClientCAs)
}

func equal(a, b *x509.CertPool) bool { return a == b || a != nil && b != nil && a.Equal(b) }

// Loop reads the files again once a minute until stop is closed. It logs what changes, what cannot
// be used, and a certificate that ends soon.
func (s *Store) Loop(log *slog.Logger, stop <-chan struct{}) {
	look := time.NewTicker(Look)
	defer look.Stop()
	var failed string
	var warned time.Time
	for {
		if leaf := s.Leaf(); leaf != nil && time.Until(leaf.NotAfter) < Soon && time.Since(warned) >= again {
			warned = time.Now()
			log.Warn("the certificate ends soon", "cause", Validity(leaf))
		}
		select {
		case <-look.C:
		case <-stop:
			return
		}
		switch changed, err := s.Reload(); {
		case err != nil && err.Error() != failed:
			failed = err.Error()
			log.Warn("the certificates of the files are not used", "cause", err)
		case err == nil:
			failed = ""
			if changed {
				warned = time.Time{}
				log.Info("the certificates were read again", "cause", Validity(s.Leaf()))
			}
		}
	}
}

// Validity names a certificate and says when it is valid. Nobody may have signed it, so its names
// are quoted and cut.
func Validity(c *x509.Certificate) string {
	if c == nil {
		return "no certificate"
	}
	names := append([]string{c.Subject.CommonName}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return fmt.Sprintf("%.100q, valid from %s until %s", strings.Trim(strings.Join(names, " "), " "),
		c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339))
}
