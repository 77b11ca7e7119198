package disktest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// One byte of a member's directory changed while the member was down. The member does not start and
// says why, or fails, or works. It never shows anything else than the others do, and they go on in
// any case.
func TestDisk_AFlippedByte(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	base := filepath.Join(t.TempDir(), "base")
	var files []string
	livedTogether(t, base)
	must(t, filepath.WalkDir(memberDir(base, victim), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			rel, err := filepath.Rel(base, path)
			files = append(files, rel)
			return err
		}
		return err
	}))
	flips := len(files)
	if *everyCall {
		flips *= 100
	}
	became := make(map[string]int)
	for i := range flips {
		file := files[i%len(files)]
		data, err := os.ReadFile(filepath.Join(base, file))
		must(t, err)
		if len(data) == 0 {
			continue
		}
		dir := filepath.Join(t.TempDir(), "damaged")
		embedkit.CopyDir(t, base, dir)
		at := rng.IntN(len(data))
		data[at] ^= 1 << rng.IntN(8)
		must(t, os.WriteFile(filepath.Join(dir, file), data, 0o644))
		what := fmt.Sprintf("%s, byte %d of %d", file, at, len(data))
		report, err := engine.Check(memberDir(dir, victim))
		must(t, err)
		how := damaged(t, dir, what)
		if how != "served" && !report.Damaged() {
			t.Errorf("%s: %s, but Check calls it sound", what, how)
		}
		if report.Damaged() {
			how += ", was found by Check"
		}
		became[purpose(file)+" "+how]++
		must(t, os.RemoveAll(dir))
		if t.Failed() {
			break
		}
	}
	t.Log(became)
}

// livedTogether makes the directories of three members with an image and a log that goes on after
// it.
func livedTogether(t *testing.T, base string) {
	ens := embedtest.New(t, 3, embedtest.Options{Dir: base})
	image := func() string { return fmt.Sprint(testkit.Contents(t, filepath.Join(ens.Dir(victim), "image"), false)) }
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
func damaged(t *testing.T, dir, what string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	mesh := transporttest.NewMesh()
	start := func(id embed.MemberID) (*embed.Node, error) {
		members := map[embed.MemberID]string{1: "member-1.test:1", 2: "member-2.test:1", 3: "member-3.test:1"}
		return embed.Start(embed.Config{Dir: memberDir(dir, id), ID: id, Members: members, Shards: shardsflag.N, Tick: embedtest.DefaultTick, Logger: embedkit.Quiet,
			Inside: &inside.Seams{Network: func(transport.Network) transport.Network { return mesh.Network(uint64(id)) }}})
	}
	bad, err := start(victim)
	if err != nil {
		if !strings.Contains(err.Error(), memberDir(dir, victim)) {
			t.Errorf("%s: the error does not say where: %v", what, err)
		}
		return "refused"
	}
	defer func() {
		if err := bad.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
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
	if err := bad.Ready(ctx); err != nil {
		if !errors.Is(err, embed.ErrFailed) {
			t.Errorf("%s: it neither serves nor fails: %v", what, err)
		}
		return "failed"
	}
	if got, want := view(t, bad), view(t, good[1]); got != want {
		t.Errorf("%s: it shows\n%s, the others show\n%s", what, got, want)
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
