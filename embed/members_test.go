package embed_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// A journal is a log that tests read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) says(words string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), words)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// startTCP starts members on loopback ports, all or none: a port that was free a moment ago may be
// occupied by now. give sets what is particular to a member.
func startTCP(t *testing.T, host string, n int, give func(*embed.Config)) map[embed.MemberID]*embed.Node {
	t.Helper()
	for {
		members := addrs(t, host, n)
		nodes := make(map[embed.MemberID]*embed.Node)
		var err error
		for id := range members {
			cfg := embed.Config{ID: id, Members: members, Shards: shardsflag.N, Tick: 20 * time.Millisecond, Logger: quiet}
			give(&cfg)
			if nodes[id], err = embed.Start(cfg); err != nil {
				delete(nodes, id)
				break
			}
		}
		if err == nil {
			t.Cleanup(func() { closeAll(t, nodes) })
			return nodes
		}
		closeAll(t, nodes)
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

func closeAll(t *testing.T, nodes map[embed.MemberID]*embed.Node) {
	t.Helper()
	for id, n := range nodes {
		if err := n.Close(); err != nil {
			t.Errorf("member %d: %v", id, err)
		}
	}
}

func ready(t *testing.T, nodes ...*embed.Node) {
	t.Helper()
	for _, n := range nodes {
		must(t, n.Ready(bounded(t)))
	}
}

// synced waits until a node shows everything that was acknowledged.
func synced(t *testing.T, n *embed.Node) {
	t.Helper()
	must(t, n.Ready(bounded(t)))
}

// complaint waits until Ready of a refused node ends with these words.
func complaint(t *testing.T, n *embed.Node, words ...string) {
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

// F3: two members agree on who belongs to the ensemble. The config of a third names another set, or
// another ensemble. The logs of both sides say what each has.
func TestMembers_AnotherFoundingIsRefusedWithTheReason(t *testing.T) {
	const theirs = ` has Ensemble "", Members 1, 2, 3 and Shards 1`
	for name, c := range map[string]struct {
		odd embed.Config
		has string
	}{
		"other members": {embed.Config{Members: map[embed.MemberID]string{1: "m1:1", 3: "m3:1", 4: "m4:1"}}, `Ensemble "", Members 1, 3, 4 and Shards 1`},
		"fewer members": {embed.Config{Members: map[embed.MemberID]string{1: "m1:1", 3: "m3:1"}}, `Ensemble "", Members 1, 3 and Shards 1`},
		"other shards":  {embed.Config{Shards: 4, Members: map[embed.MemberID]string{1: "m1:1", 2: "m2:1", 3: "m3:1"}}, `Ensemble "", Members 1, 2, 3 and Shards 4`},
		"another name":  {embed.Config{Ensemble: "orders", Members: map[embed.MemberID]string{1: "m1:1", 2: "m2:1", 3: "m3:1"}}, `Ensemble "orders", Members 1, 2, 3 and Shards 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			odd := c.odd
			var logs [4]journal // by the member's id
			mesh := transporttest.NewMesh()
			start := func(cfg embed.Config) *embed.Node {
				cfg.Dir, cfg.Tick, cfg.Logger = t.TempDir(), 10*time.Millisecond, logs[cfg.ID].logger()
				cfg.Inside = &inside.Seams{Network: func(transport.Network) transport.Network {
					return mesh.Network(uint64(cfg.ID))
				}}
				n, err := embed.Start(cfg)
				must(t, err)
				t.Cleanup(func() { n.Close() })
				return n
			}
			odd.ID = 3
			outsider := start(odd)
			agreed := map[embed.MemberID]string{1: "m1:1", 2: "m2:1", 3: "m3:1"}
			one, two := start(embed.Config{ID: 1, Members: agreed}), start(embed.Config{ID: 2, Members: agreed})
			ready(t, one, two)
			complaint(t, outsider, "no leader", "refused by member 1", "founded as another ensemble", "ids of Members, Shards and Ensemble")
			others := inLog("member 3 has " + c.has)
			until(t, "the log of member 1 to say what both have", func() bool {
				return logs[1].says(others) && logs[1].says(inLog("member 1"+theirs))
			})
			until(t, "the log of member 3 to say what both have", func() bool { // at least the leader dials it
				return logs[3].says(others) && (logs[3].says(inLog("member 1"+theirs)) || logs[3].says(inLog("member 2"+theirs)))
			})
			if err := outsider.Err(); err != nil {
				t.Errorf("a wrong config is mended by a restart, not by replacing the member, but the node has failed: %v", err)
			}
			write(t, one, "/a")
			has(t, two, "/a")
			if s := outsider.Status().Shards[0]; s.Applied != 0 || s.Leader == 1 || s.Leader == 2 {
				t.Errorf("the outsider takes part: %+v", s)
			}
		})
	}
}

// inLog returns a text as it is inside of a value that a log quotes.
func inLog(text string) string { return strings.ReplaceAll(text, `"`, `\"`) }

// C1.7, C5: a member loses its disk and comes back empty. It has forgotten what it voted for and
// acknowledged. It must not form a quorum with a member that needs it.
//
// (dapr#8305: a scheduler whose disk was lost was refused for ever and nobody said what to do;
// dragonboat#256: one voted.)
func TestMembers_AnEmptiedDirectoryNeverVotes(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{})
	write(t, ens.Node(1), "/a")
	ens.Kill(2)
	ens.Kill(3)
	must(t, os.RemoveAll(ens.Dir(3)))
	wiped := ens.Start(3)
	<-wiped.Done()
	for _, words := range []string{"refused by member 1", "the directory of member 3 is new", replication.WayOut} {
		if !strings.Contains(wiped.Err().Error(), words) {
			t.Errorf("Err does not say %q: %v", words, wiped.Err())
		}
	}
	if err := wiped.Ready(bounded(t)); !errors.Is(err, embed.ErrFailed) || !strings.Contains(err.Error(), "is new") {
		t.Errorf("Ready: %v", err)
	}
	if _, err := wiped.NewSession(bounded(t), embed.SessionOptions{}); !errors.Is(err, embed.ErrFailed) {
		t.Errorf("NewSession: %v", err)
	}
	// Member 1 is alone now. With a vote of the wiped member it would lead within a few ticks.
	ctx, cancel := context.WithTimeout(t.Context(), 60*embedtest.DefaultTick)
	defer cancel()
	if _, err := ens.Node(1).NewSession(ctx, embed.SessionOptions{}); err == nil {
		t.Error("one member of three and a wiped one make a quorum")
	}
	ens.Restart(2)
	synced(t, ens.Node(1))
	write(t, ens.Node(1), "/b")
	has(t, ens.Node(2), "/a", "/b")
	if s := wiped.Status().Shards[0]; s.Applied != 0 {
		t.Errorf("the wiped member has applied %d entries", s.Applied)
	}
}

// C6.1, C6.2: the process moves to another machine, or its container is created anew. The host name
// and all addresses change.
func TestMembers_AnotherHostNameAndOtherAddresses(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	give := func(c *embed.Config) { c.Dir = filepath.Join(base, fmt.Sprint(c.ID)) }
	nodes := startTCP(t, "127.0.0.1", 3, give)
	ready(t, nodes[1], nodes[2], nodes[3])
	write(t, nodes[1], "/a", "/b")
	closeAll(t, nodes)

	host, err := os.Hostname()
	must(t, err)
	for id := range nodes {
		raft := filepath.Join(base, fmt.Sprint(id), "raft")
		must(t, os.Rename(filepath.Join(raft, host), filepath.Join(raft, fmt.Sprintf("old-host-%d", id))))
	}
	nodes = startTCP(t, "localhost", 3, func(c *embed.Config) {
		give(c)
		_, port, err := net.SplitHostPort(c.Members[c.ID])
		must(t, err)
		c.Listen = net.JoinHostPort("127.0.0.1", port)
	})
	for _, n := range nodes {
		ready(t, n)
		has(t, n, "/a", "/b")
	}
	write(t, nodes[2], "/c")
}

// C6.2: members may spell an address differently. dragonboat's own registry makes its host panic
// when a peer announces another spelling.
func TestMembers_EachSpellsTheAddressesInItsOwnWay(t *testing.T) {
	t.Parallel()
	nodes := startTCP(t, "127.0.0.1", 3, func(c *embed.Config) {
		c.Dir = t.TempDir()
		c.Listen = c.Members[c.ID]
		c.Members = maps.Clone(c.Members)
		for id, addr := range c.Members {
			if (id+c.ID)%2 == 0 {
				c.Members[id] = strings.Replace(addr, "127.0.0.1", "localhost", 1)
			}
		}
	})
	ready(t, nodes[1], nodes[2], nodes[3])
	for id, n := range nodes {
		write(t, n, fmt.Sprint("/", id))
		synced(t, nodes[id%3+1])
		has(t, nodes[id%3+1], fmt.Sprint("/", id))
	}
}

// C4.2: the members' transport also works with IPv6.
func TestMembers_IPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		l.Close()
	}
	t.Parallel()
	nodes := startTCP(t, "::1", 2, func(c *embed.Config) { c.Dir = t.TempDir() })
	ready(t, nodes[1], nodes[2])
	write(t, nodes[1], "/a")
	synced(t, nodes[2])
	has(t, nodes[2], "/a")
}

// An authority signs certificates for members on loopback.
type authority struct{ *testkit.Authority }

func newAuthority(t *testing.T, name string) authority {
	return authority{testkit.NewAuthority(t, name)}
}

// files writes a member's certificate and key, and the certificate of the authority that the member
// trusts.
func (a authority) files(t *testing.T, trust authority, changes ...func(*x509.Certificate)) *embed.TLS {
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

func (a authority) config(t *testing.T) *embed.TLS {
	t.Helper()
	return &embed.TLS{Config: &tls.Config{Certificates: []tls.Certificate{a.Issue(t)}, RootCAs: a.Pool, ClientCAs: a.Pool}}
}

// insists returns a config that shows a certificate of this authority even to peers that say they
// trust another.
func (a authority) insists(t *testing.T, trust authority) *embed.TLS {
	t.Helper()
	cert := a.Issue(t)
	c := trust.config(t)
	c.Config.Certificates = []tls.Certificate{cert}
	c.Config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	return c
}

// C4.6: two members trust one authority, one of them by files and the other by a tls.Config. A
// third member shows a certificate of another authority although it trusts theirs, or shows none.
// They do not connect to it, and refuse its connections.
func TestMembers_MutualTLS(t *testing.T) {
	ours, other := newAuthority(t, "ours"), newAuthority(t, "another")
	for name, c := range map[string]struct {
		odd  func(*testing.T) *embed.TLS
		why  string // in the logs of the members that refuse it
		says string // its own Ready
	}{
		"a certificate of another authority": {func(t *testing.T) *embed.TLS { return other.insists(t, ours) }, "failed to verify certificate", "tls: "},
		// Go sees which authorities the others trust, and shows no certificate.
		"no certificate of the authority": {func(t *testing.T) *embed.TLS { return other.files(t, ours) }, "client didn't provide a certificate", "tls: "},
		"plain text":                      {func(*testing.T) *embed.TLS { return nil }, "does not look like a TLS handshake", "as a member with TLS does to one without"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var outside, inside journal
			nodes := startTCP(t, "127.0.0.1", 3, func(cfg *embed.Config) {
				cfg.Dir = t.TempDir()
				switch cfg.ID {
				case 1:
					cfg.TLS, cfg.Logger = ours.files(t, ours), inside.logger()
				case 2:
					cfg.TLS, cfg.Logger = ours.config(t), inside.logger()
				default:
					cfg.TLS, cfg.Logger = c.odd(t), outside.logger()
				}
			})
			ready(t, nodes[1], nodes[2])
			write(t, nodes[1], "/a")
			synced(t, nodes[2])
			has(t, nodes[2], "/a")
			until(t, "both sides to have tried", func() bool {
				return outside.says("no connection to member") && inside.says("no connection to member") &&
					inside.says("connection not secured") && inside.says(c.why)
			})
			complaint(t, nodes[3], "no leader", "no connection to member 1: ", "no connection to member 2: ", c.says)
			if s := nodes[3].Status().Shards[0]; s.Leader != 0 || s.Applied != 0 {
				t.Errorf("the third member takes part: %+v", s)
			}
			write(t, nodes[2], "/b")
			has(t, nodes[2], "/a", "/b")
		})
	}
}
