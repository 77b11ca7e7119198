package disktest

import (
	"bytes"
	"maps"
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
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// docs/upgrades.md has the text that a member gets whose build is older than the directory or the
// ensemble, or whose config differs from the others'. Here each of them is caused. The errors of
// Start change nothing on disk.
func TestRefusals_AreThoseOfTheDoc(t *testing.T) {
	texts := refusalsOfDoc(t)
	base, baseDir := newDisk(t)
	schemes := map[string]embed.Scheme{"token": embedkit.Tokens{}}
	testkit.Bubble(t, func(t *testing.T) {
		n, err := embed.Start(embed.Config{Dir: memberDir(baseDir, 1), Shards: 1, Logger: embedkit.Quiet, Schemes: schemes, Inside: &inside.Seams{Files: base, Next: true}})
		must(t, err)
		until(t, "the newest level", func() bool { return n.Status().Level == embedkit.Next })
		hasLineage(t, base, memberDir(baseDir, 1))
		must(t, n.Close())
	})

	// startOf returns a test of a start on a copy of the directory, by an old build or its own.
	startOf := func(old bool, cfg embed.Config, spoil func(t *testing.T, on files.System, dir string)) func(*testing.T, string) {
		return func(t *testing.T, text string) {
			disk, dir := newDisk(t)
			copyTree(t, disk, dir, base, baseDir)
			cfg.Dir, cfg.Shards = memberDir(dir, 1), max(1, cfg.Shards)
			cfg.Logger, cfg.Inside = embedkit.Quiet, &inside.Seams{Files: disk, Network: on(transporttest.NewMesh(), 1), Next: !old}
			if spoil != nil {
				spoil(t, disk, cfg.Dir)
			}
			before := contents(t, disk, dir)
			n, err := embed.Start(cfg)
			if err == nil {
				n.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), text) {
				t.Errorf("the error does not say %q: %v", text, err)
			}
			testkit.Unchanged(t, "a refused start", before, contents(t, disk, dir))
		}
	}
	start := func(cfg embed.Config, spoil func(*testing.T, files.System, string)) func(*testing.T, string) {
		return startOf(false, cfg, spoil)
	}
	of := func(name, now, then string, seal func([]byte, int)) func(*testing.T, files.System, string) {
		return func(t *testing.T, on files.System, dir string) {
			name := filepath.Join(dir, filepath.FromSlash(name))
			file := bytes.Replace(readFile(t, on, name), []byte(now), []byte(then), 1)
			seal(file, 0)
			writeFile(t, on, name, file)
		}
	}
	causes := map[string]func(t *testing.T, text string){
		"an image of a newer build":                                        start(embed.Config{Schemes: schemes}, of("image/shard-1/format", "format 1", "format 2", sealMarker)),
		"an identity file of a newer build":                                start(embed.Config{Schemes: schemes}, of("identity", `"format": 1`, `"format": 2`, sealIdentity)),
		"another `Shards` than the directory's":                            start(embed.Config{Schemes: schemes, Shards: 4}, nil),
		"another `Ensemble` than the directory's":                          start(embed.Config{Schemes: schemes, Ensemble: "orders"}, nil),
		"neither `Members` nor `Join`, and others in the directory":        start(embed.Config{Schemes: schemes}, of("identity", `"founders": [`, `"founders": [2,`, sealIdentity)),
		"`Schemes` without one in force":                                   start(embed.Config{}, nil),
		"no common version of the protocol":                                refusedByANewerProtocol,
		"a `Tick` too far from the others'":                                refusedForItsTick,
		"an old build on a directory of its level":                         refusedForItsLevel,
		"an old build, or a `HoldLevel`, on a directory of a higher level": startOf(true, embed.Config{Schemes: schemes}, nil),
		"founders with another `Shards`, `Ensemble` or `Members`":          refusedAsOtherFounders,
		"a directory of another ensemble":                                  refusedAsAStranger("orders"),
		"a directory of another ensemble with the same config":             refusedAsAStranger(""),
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
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) { cause(t, texts[what]) })
		})
	}
}

// hasLineage waits until a member has the lineage on its disk.
func hasLineage(t *testing.T, disk files.System, member string) {
	t.Helper()
	until(t, "the lineage in the identity file", func() bool {
		return embedkit.HasLineage(readFile(t, disk, filepath.Join(member, "identity")))
	})
}

// on returns a seam that connects a member by a mesh.
func on(mesh *transporttest.Mesh, id embed.MemberID) func(transport.Network) transport.Network {
	return func(transport.Network) transport.Network { return mesh.Network(uint64(id)) }
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

// refusedForItsLevel starts member 3 anew, as an old build, when the others have left it behind.
func refusedForItsLevel(t *testing.T, text string) {
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Inside = &inside.Seams{Next: c.ID != 3} }})
	ens.Kill(3)
	until(t, "member 3 to be all that holds the level", func() bool { return slices.Equal(ens.Node(1).Status().HeldDown, []embed.MemberID{3}) })
	must(t, ens.Node(1).RaiseLevel(bounded(t), 3))
	until(t, "the newest level", func() bool { return ens.Node(1).Status().Level == embedkit.Next })
	embedkit.Complaint(t, ens.Start(3), text)
}

// refusedAsAStranger starts member 3 of another ensemble at member 3's address.
func refusedAsAStranger(ensemble string) func(*testing.T, string) {
	return func(t *testing.T, text string) {
		var moved atomic.Bool
		there, thereDir := newDisk(t)
		newEnsemble := func(disk files.System, dir, name string) *embedtest.Ensemble {
			ens := embedtest.New(t, 3, embedtest.Options{Dir: dir, Config: func(c *embed.Config) {
				c.Inside, c.Ensemble = &inside.Seams{Files: disk}, name
				if moved.Load() {
					c.Dir, c.Inside.Files, c.Ensemble = memberDir(thereDir, 3), there, ensemble
				}
			}})
			for _, id := range ens.Members() {
				hasLineage(t, disk, ens.Dir(id))
			}
			ens.Stop(3)
			return ens
		}
		newEnsemble(there, thereDir, ensemble)
		disk, dir := newDisk(t)
		here := newEnsemble(disk, dir, "")
		moved.Store(true)
		embedkit.Complaint(t, here.Start(3), text)
	}
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

func refusedAsOtherFounders(t *testing.T, text string) {
	ens := embedtest.New(t, 2, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
		if c.ID == 2 {
			c.Ensemble = "orders"
		}
	}})
	ens.Start(2)
	embedkit.Complaint(t, ens.Start(1), text)
}

// refusedByANewerProtocol puts somebody at a member's address who answers every hello in version 2 of
// the protocol.
func refusedByANewerProtocol(t *testing.T, text string) {
	mesh := transporttest.NewMesh()
	disk, dir := newDisk(t)
	nodes := make(map[embed.MemberID]*embed.Node)
	for id := range embed.MemberID(2) {
		n, err := embed.Start(embed.Config{Dir: memberDir(dir, id+1), ID: id + 1, Members: map[embed.MemberID]string{1: "member-1.test:1", 2: "member-2.test:1"},
			Shards: 1, Logger: embedkit.Quiet, Inside: &inside.Seams{Files: disk, Network: on(mesh, id+1)}})
		must(t, err)
		defer n.Close()
		nodes[id+1] = n
	}
	embedkit.Ready(t, nodes[1])
	must(t, nodes[2].Close())
	l, err := mesh.Network(2).Listen()
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte("VvHi\x00\x02\x01\x00"))
			_ = conn.Close()
		}
	}()
	embedkit.Complaint(t, nodes[1], text)
}
