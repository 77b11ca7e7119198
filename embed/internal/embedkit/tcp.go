package embedkit

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

// A Journal is a log that tests read.
type Journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// Says reports whether the log has these words.
func (j *Journal) Says(words string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), words)
}

// Logger returns what writes the log.
func (j *Journal) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// StartTCP starts members on loopback ports, all or none: a port that was free a moment ago may be
// occupied by now. give sets what is particular to a member.
func StartTCP(t *testing.T, host string, n int, give func(*embed.Config)) map[embed.MemberID]*embed.Node {
	t.Helper()
	for {
		members := Addrs(t, host, n)
		nodes := make(map[embed.MemberID]*embed.Node)
		var err error
		for id := range members {
			cfg := embed.Config{ID: id, Members: members, Shards: shardsflag.N, Tick: 20 * time.Millisecond, Logger: Quiet}
			Patient(&cfg)
			give(&cfg)
			if nodes[id], err = embed.Start(cfg); err != nil {
				delete(nodes, id)
				break
			}
		}
		if err == nil {
			t.Cleanup(func() { CloseAll(t, nodes) })
			return nodes
		}
		CloseAll(t, nodes)
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// CloseAll closes nodes, and reports their errors.
func CloseAll(t *testing.T, nodes map[embed.MemberID]*embed.Node) {
	t.Helper()
	for id, n := range nodes {
		if err := n.Close(); err != nil {
			t.Errorf("member %d: %v", id, err)
		}
	}
}

// Ready waits until nodes are ready.
func Ready(t *testing.T, nodes ...*embed.Node) {
	t.Helper()
	for _, n := range nodes {
		must(t, n.Ready(bounded(t)))
	}
}

// Synced waits until a node shows everything that was acknowledged.
func Synced(t *testing.T, n *embed.Node) {
	t.Helper()
	must(t, n.Ready(bounded(t)))
}

// Complaint waits until Ready of a refused node ends with these words.
func Complaint(t *testing.T, n *embed.Node, words ...string) {
	t.Helper()
	var last error
	defer func() { t.Log(last) }()
	until(t, fmt.Sprintf("Ready to say %q", words), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := n.Ready(ctx)
		if last = err; err == nil {
			t.Fatal("it is ready")
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				return false
			}
		}
		return true
	})
}

// InLog returns a text as it is inside of a value that a log quotes.
func InLog(text string) string { return strings.ReplaceAll(text, `"`, `\"`) }

// An Authority signs certificates for members on loopback.
type Authority struct{ *testkit.Authority }

// NewAuthority returns an authority of this name.
func NewAuthority(t *testing.T, name string) Authority {
	return Authority{testkit.NewAuthority(t, name)}
}

// Files writes a member's certificate and key, and the certificate of the authority that the member
// trusts.
func (a Authority) Files(t *testing.T, trust Authority, changes ...func(*x509.Certificate)) *embed.TLS {
	t.Helper()
	cert, key := testkit.PEM(t, a.Issue(t, changes...))
	dir := t.TempDir()
	put := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		must(t, os.WriteFile(name, data, 0o600))
		return name
	}
	return &embed.TLS{CertFile: put("cert.pem", cert), KeyFile: put("key.pem", key), CAFile: put("ca.pem", trust.PEM())}
}

// Config returns what a member needs that trusts this authority.
func (a Authority) Config(t *testing.T) *embed.TLS {
	t.Helper()
	return &embed.TLS{Config: &tls.Config{Certificates: []tls.Certificate{a.Issue(t)}, RootCAs: a.Pool, ClientCAs: a.Pool}}
}

// Insists returns a config that shows a certificate of this authority even to peers that say they
// trust another.
func (a Authority) Insists(t *testing.T, trust Authority) *embed.TLS {
	t.Helper()
	cert := a.Issue(t)
	c := trust.Config(t)
	c.Config.Certificates = []tls.Certificate{cert}
	c.Config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	return c
}
