package disktest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine/offline"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// One byte of a member's directory changed while the member was down. The member does not start and
// says why, or fails, or works. It never shows anything else than the others do, and they go on in
// any case.
//
// It is in real time. A member may wait for its end while it holds a lock, because it cannot read
// its log.
func TestDisk_AFlippedByte(t *testing.T) {
	t.Parallel()
	base, baseDir := newDisk(t)
	testkit.Bubble(t, func(t *testing.T) { livedTogether(t, base, baseDir) })
	names := filesBelow(t, base, memberDir(baseDir, victim))
	flips := len(names)
	if *everyCall {
		flips *= 100
	}
	rng := seeded(t)
	var mu sync.Mutex
	became := make(map[string]int)
	t.Run("of", func(t *testing.T) {
		for i := range flips {
			name := names[i%len(names)]
			data := readFile(t, base, name)
			if len(data) == 0 {
				continue
			}
			at := rng.IntN(len(data))
			data[at] ^= 1 << rng.IntN(8)
			t.Run(filepath.Base(name), func(t *testing.T) {
				t.Parallel()
				disk, dir := newDisk(t)
				copyTree(t, disk, dir, base, baseDir)
				rel, err := filepath.Rel(baseDir, name)
				must(t, err)
				writeFile(t, disk, filepath.Join(dir, rel), data)
				// Check has no other file system than the machine's.
				real := filepath.Join(t.TempDir(), "member")
				copyTree(t, files.OS, real, disk, memberDir(dir, victim))
				report, err := offline.Check(real)
				must(t, err)
				how := damaged(t, disk, dir)
				if t.Failed() || how != "served" && !report.Damaged() {
					t.Errorf("%s, byte %d of %d: %s, and Check says %+v", rel, at, len(data), how, report)
				}
				if report.Damaged() {
					how += ", was found by Check"
				}
				mu.Lock()
				defer mu.Unlock()
				became[purpose(name)+" "+how]++
			})
		}
	})
	t.Log(became)
}

// livedTogether makes the directories of three members with an image and a log that goes on after
// it.
func livedTogether(t *testing.T, disk files.System, dir string) {
	ens := embedtest.New(t, 3, embedtest.Options{Dir: dir, Config: func(c *embed.Config) { c.Inside = &inside.Seams{Files: disk} }})
	image := func() string { return fmt.Sprint(filesBelow(t, disk, filepath.Join(ens.Dir(victim), "image"))) }
	embedkit.Write(t, ens.Node(1), "/a", "/b", "/c")
	embedkit.Ballast(t, ens.Node(1))
	before := image()
	must(t, ens.Snapshot(victim))
	until(t, "an image on disk", func() bool { return image() != before })
	embedkit.Write(t, ens.Node(1), "/d", "/e", "/f")
	for _, id := range ens.Members() {
		embedkit.Synced(t, ens.Node(id))
	}
	for _, id := range ens.Members() {
		ens.Kill(id)
	}
}

// damaged starts the victim on its damaged directory, beside the others on theirs, and returns what
// became of it.
func damaged(t *testing.T, disk files.System, dir string) string {
	mesh := transporttest.NewMesh()
	start := func(id embed.MemberID) (*embed.Node, error) {
		members := map[embed.MemberID]string{1: "member-1.test:1", 2: "member-2.test:1", 3: "member-3.test:1"}
		cfg := embed.Config{Dir: memberDir(dir, id), ID: id, Members: members, Shards: shardsflag.N, Tick: embedtest.DefaultTick, Logger: embedkit.Quiet,
			Inside: &inside.Seams{Files: disk, Network: on(mesh, id)}}
		embedkit.Patient(&cfg)
		return embed.Start(cfg)
	}
	bad, err := start(victim)
	if err != nil {
		if !strings.Contains(err.Error(), memberDir(dir, victim)) {
			t.Errorf("the error does not say where: %v", err)
		}
		return "refused"
	}
	defer func() {
		if err := bad.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	var good []*embed.Node
	for _, id := range []embed.MemberID{1, 3} {
		n, err := start(id)
		must(t, err)
		defer n.Close()
		good = append(good, n)
	}
	embedkit.Ready(t, good...)
	embedkit.Write(t, good[0], "/after")
	if err := bad.Ready(bounded(t)); err != nil {
		if !errors.Is(err, embed.ErrFailed) {
			t.Errorf("it neither serves nor fails: %v", err)
		}
		return "failed"
	}
	if got, want := view(t, bad), view(t, good[1]); got != want {
		t.Errorf("it shows\n%s, the others show\n%s", got, want)
	}
	return "served"
}

// view returns all that a member shows.
func view(t *testing.T, n *embed.Node) string {
	t.Helper()
	ctx := bounded(t)
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	must(t, err)
	defer s.Close()
	_, err = s.Sync(ctx, "/")
	must(t, err)
	var all strings.Builder
	var walk func(path string)
	walk = func(path string) {
		data, stat, err := s.Get(ctx, path)
		must(t, err)
		acl, _, err := s.ACL(ctx, path)
		must(t, err)
		fmt.Fprintf(&all, "%s %x %+v %+v\n", path, sha256.Sum256(data), stat, acl)
		names, _, err := s.Children(ctx, path)
		must(t, err)
		for _, name := range names {
			walk(strings.TrimSuffix(path, "/") + "/" + name)
		}
	}
	walk("/")
	return all.String()
}

func memberDir(base string, id embed.MemberID) string {
	return filepath.Join(base, fmt.Sprint("member-", id))
}
