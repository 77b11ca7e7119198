package disktest

import (
	"bytes"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// docs/upgrades.md has the text that a member gets whose build is older than the directory or the
// ensemble, or whose config differs from the others'. Here each of them is caused. The errors of
// Start change nothing on disk.
func TestRefusals_AreThoseOfTheDoc(t *testing.T) {
	texts := refusalsOfDoc(t)
	base := t.TempDir()
	schemes := map[string]embed.Scheme{"token": embedkit.Tokens{}}
	n, err := embed.Start(embed.Config{Dir: base, Shards: 1, Logger: embedkit.Quiet, Schemes: schemes})
	must(t, err)
	until(t, "the newest level, and the lineage in the identity file", func() bool {
		text, err := os.ReadFile(filepath.Join(base, "identity"))
		return err == nil && strings.Contains(string(text), `"lineage"`) && n.Status().Level == embedkit.Newest
	})
	must(t, n.Close())

	// start returns a test of a start on a copy of the directory.
	start := func(cfg embed.Config, spoil func(dir string)) func(*testing.T, string) {
		return func(t *testing.T, text string) {
			cfg.Dir, cfg.Shards = filepath.Join(t.TempDir(), "data"), max(1, cfg.Shards)
			embedkit.CopyDir(t, base, cfg.Dir)
			if spoil != nil {
				spoil(cfg.Dir)
			}
			embedkit.StartsNot(t, cfg, text)
		}
	}
	of := func(name, now, then string, seal func([]byte, int)) func(dir string) {
		return func(dir string) {
			name := filepath.Join(dir, filepath.FromSlash(name))
			file, err := os.ReadFile(name)
			must(t, err)
			file = bytes.Replace(file, []byte(now), []byte(then), 1)
			seal(file, 0)
			must(t, os.WriteFile(name, file, 0o600))
		}
	}
	three := embedkit.Addrs(t, "127.0.0.1", 3)
	causes := map[string]func(t *testing.T, text string){
		"an image of a newer build":                                        start(embed.Config{Schemes: schemes}, of("image/shard-1/format", "format 1", "format 2", sealMarker)),
		"an identity file of a newer build":                                start(embed.Config{Schemes: schemes}, of("identity", `"format": 2`, `"format": 3`, sealIdentity)),
		"another `Shards` than the directory's":                            start(embed.Config{Schemes: schemes, Shards: 4}, nil),
		"another `Ensemble` than the directory's":                          start(embed.Config{Schemes: schemes, Ensemble: "orders"}, nil),
		"other `Members` than the directory's":                             start(embed.Config{Schemes: schemes, ID: 1, Members: three}, nil),
		"`Schemes` without one in force":                                   start(embed.Config{}, nil),
		"no common version of the protocol":                                refusedByANewerProtocol,
		"a `Tick` too far from the others'":                                refusedForItsTick,
		"an old build on a directory of its level":                         refusedForItsLevel,
		"an old build, or a `HoldLevel`, on a directory of a higher level": start(embed.Config{Schemes: schemes, HoldLevel: 1}, nil),
		"another `Shards`, `Ensemble` or `Members` than the others'":       refusedAsAnotherEnsemble,
		"a directory of another ensemble with the same config":             refusedForItsLineage,
	}
	for _, what := range slices.Sorted(maps.Keys(texts)) {
		if causes[what] == nil {
			t.Errorf("nothing causes the row %q of docs/upgrades.md", what)
		}
	}
	for what, cause := range causes {
		t.Run(what, func(t *testing.T) {
			if texts[what] == "" {
				t.Fatal("docs/upgrades.md has no row for it")
			}
			cause(t, texts[what])
		})
	}
}

// refusalsOfDoc returns the texts in docs/upgrades.md by what causes them.
func refusalsOfDoc(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "upgrades.md"))
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## What a refused member says\n")
	section, _, _ = strings.Cut(section, "\n## ")
	texts := make(map[string]string)
	for _, row := range regexp.MustCompile(`(?m)^\| (.+) \| .+ \| "(.+)" \|$`).FindAllStringSubmatch(section, -1) {
		texts[row[1]] = row[2]
	}
	return texts
}

// refusedForItsLevel starts member 3 anew, as a build of level 1, when the others have left it
// behind.
func refusedForItsLevel(t *testing.T, text string) {
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		if c.ID == 3 {
			c.HoldLevel = 1
		}
	}})
	ens.Kill(3)
	until(t, "member 3 to be all that holds the level", func() bool { return slices.Equal(ens.Node(1).Status().HeldDown, []embed.MemberID{3}) })
	must(t, ens.Node(1).RaiseLevel(bounded(t), 3))
	until(t, "the newest level", func() bool { return ens.Node(1).Status().Level == embedkit.Newest })
	embedkit.Complaint(t, ens.Start(3), text)
}

// refusedForItsLineage starts member 3 of another ensemble at member 3's address.
func refusedForItsLineage(t *testing.T, text string) {
	here := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()})
	there := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()})
	embedkit.WithLineage(t, here)
	embedkit.WithLineage(t, there)
	here.Stop(3)
	there.Stop(3)
	must(t, os.RemoveAll(here.Dir(3)))
	must(t, os.Rename(there.Dir(3), here.Dir(3)))
	embedkit.Complaint(t, here.Start(3), text)
}

func refusedForItsTick(t *testing.T, text string) {
	var far atomic.Bool
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		if c.Tick = 50 * time.Millisecond; far.Load() {
			c.Tick *= 5
		}
	}})
	ens.Kill(3)
	far.Store(true)
	embedkit.Complaint(t, ens.Start(3), text)
}

func refusedAsAnotherEnsemble(t *testing.T, text string) {
	var log embedkit.Journal
	members := embedkit.Addrs(t, "127.0.0.1", 2)
	for id := range members {
		cfg := embed.Config{Dir: t.TempDir(), ID: id, Members: members, Shards: 1, Logger: log.Logger()}
		if id == 2 {
			cfg.Ensemble = "orders"
		}
		n, err := embed.Start(cfg)
		must(t, err)
		t.Cleanup(func() { n.Close() })
	}
	until(t, "both values in a log", func() bool { return log.Says(embedkit.InLog(text)) })
}

// refusedByANewerProtocol has a peer that answers every hello in version 5 of the protocol.
func refusedByANewerProtocol(t *testing.T, text string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte("VvHi\x00\x05\x01\x00"))
			_ = conn.Close()
		}
	}()
	members := embedkit.Addrs(t, "127.0.0.1", 1)
	members[2] = l.Addr().String()
	n, err := embed.Start(embed.Config{Dir: t.TempDir(), ID: 1, Members: members, Shards: 1, Logger: embedkit.Quiet})
	must(t, err)
	defer n.Close()
	embedkit.Complaint(t, n, text)
}
