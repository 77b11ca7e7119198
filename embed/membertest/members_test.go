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
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// F3: two founders agree on who belongs to the ensemble. The config of a third names another set, or
// another ensemble. Nobody founds, and each says what both have, until the config is mended.
func TestMembers_FoundersThatDoNotAgree(t *testing.T) {
	t.Parallel()
	const theirs = `Ensemble "", Members 1, 2, 3 and Shards 1`
	for name, c := range map[string]struct {
		odd embed.Config
		has string
	}{
		"other members": {embed.Config{Members: map[embed.MemberID]string{1: "m1:1", 3: "m3:1", 4: "m4:1"}}, `Ensemble "", Members 1, 3, 4 and Shards 1`},
		"fewer members": {embed.Config{Members: map[embed.MemberID]string{1: "m1:1", 3: "m3:1"}}, `Ensemble "", Members 1, 3 and Shards 1`},
		"other shards":  {embed.Config{Shards: 4}, `Ensemble "", Members 1, 2, 3 and Shards 4`},
		"another name":  {embed.Config{Ensemble: "orders"}, `Ensemble "orders", Members 1, 2, 3 and Shards 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mended := false
				e := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(cfg *embed.Config) {
					cfg.Shards = 1
					if cfg.ID != 3 || mended {
						return
					}
					if cfg.Ensemble, cfg.Shards = c.odd.Ensemble, max(1, c.odd.Shards); c.odd.Members != nil {
						cfg.Members = c.odd.Members
					}
				}})
				for _, id := range e.Members() {
					e.Start(id)
				}
				embedkit.Complaint(t, e.Node(1), "members 3 are missing", "this node has "+theirs, "has "+c.has)
				embedkit.Complaint(t, e.Node(3), "are missing", "this node has "+c.has, "has "+theirs)
				<-time.After(time.Minute)
				for _, id := range e.Members() {
					if s := e.Node(id).Status(); s.Member != 0 || s.Shards[0].Applied != 0 {
						t.Errorf("a node has founded: %+v", s)
					}
				}
				mended = true
				e.Stop(3)
				e.Restart(3) // a directory that is in no ensemble has no settings yet
				embedkit.Write(t, e.Node(1), "/a")
				embedkit.Synced(t, e.Node(3))
				embedkit.Has(t, e.Node(3), "/a")
			})
		})
	}
}

// C1.7, C5: a member loses its disk and comes back empty. It has forgotten what it voted for and
// acknowledged. It must not form a quorum with a member that needs it, and joins as a new one.
//
// (dapr#8305: a scheduler whose disk was lost was refused for ever and nobody said what to do;
// dragonboat#256: one voted.)
func TestMembers_AnEmptiedDirectoryNeverVotes(t *testing.T) {
	t.Parallel()
	for name, without := range map[string]func(*embed.Config){
		"with the name of the seeds": nil,
		"with Members alone":         func(c *embed.Config) { c.Join, c.Advertise = nil, "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ens := embedtest.New(t, 3, embedtest.Options{Config: without})
				embedkit.Founded(ens)
				embedkit.Write(t, ens.Node(1), "/a")
				ens.Kill(2)
				ens.Kill(3)
				ens.Wipe(3)
				wiped := ens.Start(3)
				embedkit.Complaint(t, wiped, "this node has yet to join", "knows of no leader")
				// Member 1 is alone now. With a vote of the wiped member it would lead within a few ticks.
				ctx, cancel := context.WithTimeout(t.Context(), 60*embedtest.DefaultTick)
				defer cancel()
				if _, err := ens.Node(1).NewSession(ctx, embed.SessionOptions{}); err == nil {
					t.Error("one member of three and a wiped one make a quorum")
				}
				if s := wiped.Status(); s.Member != 0 || s.Shards[0].Applied != 0 {
					t.Errorf("the wiped member takes part: %+v", s)
				}
				ens.Restart(2)
				ens.Ready(3)
				embedkit.Write(t, ens.Node(1), "/b")
				embedkit.Synced(t, wiped)
				embedkit.Has(t, wiped, "/a", "/b")
				if id := ens.ID(3); id != 4 {
					t.Errorf("the wiped member has come back as %d", id)
				}
				embedkit.Voting(ens, 1, 1, 2, 4)
			})
		})
	}
}

// A node that is alone is given an address later, and others join it. Then it cannot be alone again.
func TestMembers_OneThatWasAloneGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		alone := true
		e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			if alone {
				c.ID, c.Members, c.Join, c.Advertise = 0, nil, nil, ""
			}
		}})
		n := e.Node(1)
		embedkit.Write(t, n, "/a")
		if data, _, err := n.Peek().Get("/zookeeper/config"); err != nil || len(data) > 0 {
			t.Errorf("its config is %q, %v", data, err)
		}
		for _, err := range []error{n.RemoveMember(bounded(t), 1), n.Leave(bounded(t))} {
			if !errors.Is(err, embed.ErrUnsafe) {
				t.Errorf("it goes, and nobody stays: %v", err)
			}
		}
		e.Kill(1)
		alone = false
		e.Restart(1)
		embedkit.Joined(e, 2)
		embedkit.Has(t, e.Node(3), "/a")
		embedkit.Voting(e, 1, 1, 2, 3)
		e.Stop(1)
		alone = true
		if _, err := e.TryStart(1); err == nil || !strings.Contains(err.Error(), "is of an ensemble with other members") {
			t.Errorf("alone again: %v", err)
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
			var third embed.Config
			nodes := embedkit.StartTCP(t, "127.0.0.1", 3, func(cfg *embed.Config) {
				cfg.Dir = t.TempDir()
				switch cfg.ID {
				case 1:
					cfg.TLS, cfg.Logger = ours.Files(t, ours), inside.Logger()
				case 2:
					cfg.TLS, cfg.Logger = ours.Config(t), inside.Logger()
				default:
					cfg.TLS, cfg.Logger = ours.Config(t), outside.Logger()
					third = *cfg
				}
			})
			embedkit.Ready(t, nodes[1], nodes[2], nodes[3])
			must(t, nodes[3].Close())
			third.TLS = c.odd(t)
			var err error
			nodes[3], err = embed.Start(third)
			must(t, err)
			embedkit.Ready(t, nodes[1], nodes[2])
			embedkit.Write(t, nodes[1], "/a")
			embedkit.Synced(t, nodes[2])
			embedkit.Has(t, nodes[2], "/a")
			until(t, "both sides to have tried", func() bool {
				return outside.Says("no connection to member") && inside.Says("no connection to member") &&
					inside.Says("connection not secured") && inside.Says(c.why)
			})
			embedkit.Complaint(t, nodes[3], "no leader", "no connection to member 1: ", "no connection to member 2: ", c.says)
			if s := nodes[3].Status().Shards[0]; s.Leader != 0 {
				t.Errorf("the third member takes part: %+v", s)
			}
			embedkit.Write(t, nodes[2], "/b")
			embedkit.Has(t, nodes[2], "/a", "/b")
		})
	}
}
