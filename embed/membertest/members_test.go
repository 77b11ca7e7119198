package membertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// F3: two members agree on who belongs to the ensemble. The config of a third names another set, or
// another ensemble. The logs of both sides say what each has.
func TestMembers_AnotherFoundingIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
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
			testkit.Bubble(t, func(t *testing.T) {
				odd := c.odd
				var logs [4]embedkit.Journal // by the member's id
				mesh := transporttest.NewMesh()
				start := func(cfg embed.Config) *embed.Node {
					cfg.Dir, cfg.Tick, cfg.Logger = "/", 10*time.Millisecond, logs[cfg.ID].Logger()
					seams := inside.Seams{Network: func(transport.Network) transport.Network {
						return mesh.Network(uint64(cfg.ID))
					}}
					seams.Files = memory.New()
					cfg.Inside = &seams
					n, err := embedtest.Start(cfg, embedtest.NewFaults()) // whose clock is that of the bubble
					must(t, err)
					t.Cleanup(func() { n.Close() })
					return n
				}
				odd.ID = 3
				outsider := start(odd)
				agreed := map[embed.MemberID]string{1: "m1:1", 2: "m2:1", 3: "m3:1"}
				one, two := start(embed.Config{ID: 1, Members: agreed}), start(embed.Config{ID: 2, Members: agreed})
				embedkit.Ready(t, one, two)
				embedkit.Complaint(t, outsider, "no leader", "refused by member 1", "founded as another ensemble", "ids of Members, Shards and Ensemble")
				others := embedkit.InLog("member 3 has " + c.has)
				until(t, "the log of member 1 to say what both have", func() bool {
					return logs[1].Says(others) && logs[1].Says(embedkit.InLog("member 1"+theirs))
				})
				until(t, "the log of member 3 to say what both have", func() bool { // at least the leader dials it
					return logs[3].Says(others) && (logs[3].Says(embedkit.InLog("member 1"+theirs)) || logs[3].Says(embedkit.InLog("member 2"+theirs)))
				})
				if err := outsider.Err(); err != nil {
					t.Errorf("a wrong config is mended by a restart, not by replacing the member, but the node has failed: %v", err)
				}
				embedkit.Write(t, one, "/a")
				embedkit.Has(t, two, "/a")
				if s := outsider.Status().Shards[0]; s.Applied != 0 || s.Leader == 1 || s.Leader == 2 {
					t.Errorf("the outsider takes part: %+v", s)
				}
			})
		})
	}
}

// C1.7, C5: a member loses its disk and comes back empty. It has forgotten what it voted for and
// acknowledged. It must not form a quorum with a member that needs it.
//
// (dapr#8305: a scheduler whose disk was lost was refused for ever and nobody said what to do;
// dragonboat#256: one voted.)
func TestMembers_AnEmptiedDirectoryNeverVotes(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		embedkit.Write(t, ens.Node(1), "/a")
		ens.Kill(2)
		ens.Kill(3)
		ens.Wipe(3)
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
		embedkit.Synced(t, ens.Node(1))
		embedkit.Write(t, ens.Node(1), "/b")
		embedkit.Has(t, ens.Node(2), "/a", "/b")
		if s := wiped.Status().Shards[0]; s.Applied != 0 {
			t.Errorf("the wiped member has applied %d entries", s.Applied)
		}
	})
}

// C6.1, C6.2: the process moves to another machine, or its container is created anew. The host name
// and all addresses change.
func TestMembers_AnotherHostNameAndOtherAddresses(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	give := func(c *embed.Config) { c.Dir = filepath.Join(base, fmt.Sprint(c.ID)) }
	nodes := embedkit.StartTCP(t, "127.0.0.1", 3, give)
	embedkit.Ready(t, nodes[1], nodes[2], nodes[3])
	embedkit.Write(t, nodes[1], "/a", "/b")
	embedkit.CloseAll(t, nodes)

	host, err := os.Hostname()
	must(t, err)
	for id := range nodes {
		raft := filepath.Join(base, fmt.Sprint(id), "raft")
		must(t, os.Rename(filepath.Join(raft, host), filepath.Join(raft, fmt.Sprintf("old-host-%d", id))))
	}
	nodes = embedkit.StartTCP(t, "localhost", 3, func(c *embed.Config) {
		give(c)
		_, port, err := net.SplitHostPort(c.Members[c.ID])
		must(t, err)
		c.Listen = net.JoinHostPort("127.0.0.1", port)
	})
	for _, n := range nodes {
		embedkit.Ready(t, n)
		embedkit.Has(t, n, "/a", "/b")
	}
	embedkit.Write(t, nodes[2], "/c")
}

// C6.2: members may spell an address differently. dragonboat's own registry makes its host panic
// when a peer announces another spelling.
func TestMembers_EachSpellsTheAddressesInItsOwnWay(t *testing.T) {
	t.Parallel()
	nodes := embedkit.StartTCP(t, "127.0.0.1", 3, func(c *embed.Config) {
		c.Dir = t.TempDir()
		c.Listen = c.Members[c.ID]
		c.Members = maps.Clone(c.Members)
		for id, addr := range c.Members {
			if (id+c.ID)%2 == 0 {
				c.Members[id] = strings.Replace(addr, "127.0.0.1", "localhost", 1)
			}
		}
	})
	embedkit.Ready(t, nodes[1], nodes[2], nodes[3])
	for id, n := range nodes {
		embedkit.Write(t, n, fmt.Sprint("/", id))
		embedkit.Synced(t, nodes[id%3+1])
		embedkit.Has(t, nodes[id%3+1], fmt.Sprint("/", id))
	}
}

// C4.2: the members' transport also works with IPv6.
func TestMembers_IPv6(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		l.Close()
	}
	nodes := embedkit.StartTCP(t, "::1", 2, func(c *embed.Config) { c.Dir = t.TempDir() })
	embedkit.Ready(t, nodes[1], nodes[2])
	embedkit.Write(t, nodes[1], "/a")
	embedkit.Synced(t, nodes[2])
	embedkit.Has(t, nodes[2], "/a")
}

// C4.6: two members trust one authority, one of them by files and the other by a tls.Config. A
// third member shows a certificate of another authority although it trusts theirs, or shows none.
// They do not connect to it, and refuse its connections.
func TestMembers_MutualTLS(t *testing.T) {
	t.Parallel()
	ours, other := embedkit.NewAuthority(t, "ours"), embedkit.NewAuthority(t, "another")
	for name, c := range map[string]struct {
		odd  func(*testing.T) *embed.TLS
		why  string // in the logs of the members that refuse it
		says string // its own Ready
	}{
		"a certificate of another authority": {func(t *testing.T) *embed.TLS { return other.Insists(t, ours) }, "failed to verify certificate", "tls: "},
		// Go sees which authorities the others trust, and shows no certificate.
		"no certificate of the authority": {func(t *testing.T) *embed.TLS { return other.Files(t, ours) }, "client didn't provide a certificate", "tls: "},
		"plain text":                      {func(*testing.T) *embed.TLS { return nil }, "does not look like a TLS handshake", "as a member with TLS does to one without"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var outside, inside embedkit.Journal
			nodes := embedkit.StartTCP(t, "127.0.0.1", 3, func(cfg *embed.Config) {
				cfg.Dir = t.TempDir()
				switch cfg.ID {
				case 1:
					cfg.TLS, cfg.Logger = ours.Files(t, ours), inside.Logger()
				case 2:
					cfg.TLS, cfg.Logger = ours.Config(t), inside.Logger()
				default:
					cfg.TLS, cfg.Logger = c.odd(t), outside.Logger()
				}
			})
			embedkit.Ready(t, nodes[1], nodes[2])
			embedkit.Write(t, nodes[1], "/a")
			embedkit.Synced(t, nodes[2])
			embedkit.Has(t, nodes[2], "/a")
			until(t, "both sides to have tried", func() bool {
				return outside.Says("no connection to member") && inside.Says("no connection to member") &&
					inside.Says("connection not secured") && inside.Says(c.why)
			})
			embedkit.Complaint(t, nodes[3], "no leader", "no connection to member 1: ", "no connection to member 2: ", c.says)
			if s := nodes[3].Status().Shards[0]; s.Leader != 0 || s.Applied != 0 {
				t.Errorf("the third member takes part: %+v", s)
			}
			embedkit.Write(t, nodes[2], "/b")
			embedkit.Has(t, nodes[2], "/a", "/b")
		})
	}
}
