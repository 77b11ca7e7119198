package disktest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// Without Members and Join a node would wait for ever for others that it cannot reach.
func TestStart_RefusesTheDirectoryOfAnEnsembleWithoutMembers(t *testing.T) {
	t.Parallel()
	dirs := make(map[embed.MemberID]string)
	nodes := embedkit.StartTCP(t, "127.0.0.1", 3, func(c *embed.Config) { c.Dir = t.TempDir(); dirs[c.ID] = c.Dir })
	for _, n := range nodes {
		embedkit.Ready(t, n)
	}
	embedkit.CloseAll(t, nodes)
	for id, dir := range dirs {
		embedkit.StartsNot(t, embed.Config{Dir: dir, ID: id}, "is of an ensemble with other members, and the config names nobody: set Members, or Join and Advertise")
	}
}

// lived makes a directory in which a node ran, with an image on disk. later is a copy from a while
// later.
func lived(t *testing.T) (dir, later string) {
	t.Helper()
	base := t.TempDir()
	disk, at := newDisk(t)
	run := func(t *testing.T, dir string, paths ...string) {
		n := embedkit.Alone(t, dir, inside.Seams{Files: disk})
		embedkit.Write(t, n, paths...)
		embedkit.Ballast(t, n)
		image := func() string { return fmt.Sprint(filesBelow(t, disk, filepath.Join(dir, "image"))) }
		before := image()
		must(t, embedkit.EngineOf(n).RequestSnapshot())
		until(t, "an image on disk", func() bool { return image() != before })
		must(t, n.Close())
	}
	testkit.Bubble(t, func(t *testing.T) {
		now, later := filepath.Join(at, "now"), filepath.Join(at, "later")
		run(t, now, "/a", "/b")
		copyTree(t, disk, later, disk, now)
		run(t, later, "/c", "/d", "/e", "/f")
	})
	copyTree(t, files.OS, base, disk, at)
	return filepath.Join(base, "now"), filepath.Join(base, "later")
}

// only returns the only file below dir whose name ends with suffix.
func only(t *testing.T, dir, suffix string) string {
	t.Helper()
	var found []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, e := d.Info(); e == nil && info.Mode().IsRegular() && info.Size() > 0 && strings.HasSuffix(path, suffix) {
			found = append(found, path)
		}
		return err
	}))
	if len(found) == 0 {
		t.Fatalf("no %s in %s", suffix, dir)
	}
	return found[0]
}

// C6.3, C8.1, C8.2, C8.3: Start compares a directory with the Config, and its image with its log,
// before dragonboat sees any of it.
func TestStart_RefusesADirectoryThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	original, later := lived(t)
	for name, c := range map[string]struct {
		spoil func(dir string)
		cfg   embed.Config
		words []string
	}{
		"of another member":   {cfg: embed.Config{ID: 2}, words: []string{"belongs to member 1", "says 2"}},
		"of another ensemble": {cfg: embed.Config{Ensemble: "orders"}, words: []string{`the ensemble ""`, `"orders"`}},
		"of other shards": {
			cfg:   embed.Config{Shards: 3},
			words: []string{fmt.Sprint("founded with Shards ", max(1, shardsflag.N)), "says 3", fmt.Sprint("set it to ", max(1, shardsflag.N))},
		},
		"whose identity is damaged": {
			spoil: func(dir string) { embedkit.Flip(t, filepath.Join(dir, "identity"), func(n int) int { return n / 2 }) },
			words: []string{"identity", "checksum", replication.WayOut},
		},
		"whose identity is empty": {
			spoil: func(dir string) { must(t, os.Truncate(filepath.Join(dir, "identity"), 0)) },
			words: []string{"identity", "not an identity file"},
		},
		"with data but no identity": {
			spoil: func(dir string) { must(t, os.Remove(filepath.Join(dir, "identity"))) },
			words: []string{"identity file is missing", replication.WayOut},
		},
		"with an image from a later time": {
			spoil: func(dir string) {
				must(t, os.RemoveAll(filepath.Join(dir, "image")))
				embedkit.CopyDir(t, filepath.Join(later, "image"), filepath.Join(dir, "image"))
			},
			words: []string{"the image holds entries up to", "the raft log ends at", replication.WayOut},
		},
		"without its log": {
			spoil: func(dir string) { must(t, os.RemoveAll(filepath.Join(dir, "raft"))) },
			words: []string{"the raft log is missing", replication.WayOut},
		},
		"without image and log": { // like a member that has voted but not yet written an image
			spoil: func(dir string) {
				must(t, os.RemoveAll(filepath.Join(dir, "raft")))
				must(t, os.RemoveAll(filepath.Join(dir, "image")))
			},
			words: []string{"the raft log is missing", replication.WayOut},
		},
		"with a log of another type": {
			spoil: func(dir string) { embedkit.Identity(t, dir, func(id *replication.Identity) { id.Log = "granite" }) },
			words: []string{`"granite"`, `"tan"`},
		},
		"with a damaged image": {
			spoil: func(dir string) {
				embedkit.Flip(t, only(t, filepath.Join(dir, "image"), ".sst"), func(int) int { return 20 })
			},
			words: []string{".sst"},
		},
		"with an image that is damaged in the middle": {
			spoil: func(dir string) {
				embedkit.Flip(t, only(t, filepath.Join(dir, "image"), ".sst"), func(n int) int { return n / 2 })
			},
			words: []string{".sst"},
		},
		"with a log that was cut in the middle": {
			spoil: func(dir string) {
				// Everything in one file: what remains is shorter than the image.
				name := only(t, filepath.Join(dir, "raft"), ".log")
				must(t, os.Truncate(name, 0))
			},
			words: []string{"log"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			embedkit.CopyDir(t, original, dir)
			if c.spoil != nil {
				c.spoil(dir)
			}
			c.cfg.Dir = dir
			embedkit.StartsNot(t, c.cfg, append(c.words, dir)...)
		})
	}
	n := embedkit.Alone(t, original, inside.Seams{})
	embedkit.Has(t, n, "/a", "/b")
}

// B1.1: with an identity file from an earlier time, a start would get the number of an earlier
// start. Its Register would be a repeat, and what it sends would belong to a stream that has ended.
// The start is refused before Raft runs, and the right file lets the node start.
func TestStart_RefusesAnIdentityFromAnEarlierTime(t *testing.T) {
	t.Parallel()
	earlier, dir := lived(t)
	right := filepath.Join(t.TempDir(), "identity")
	must(t, os.Rename(filepath.Join(dir, "identity"), right))
	old, err := os.ReadFile(filepath.Join(earlier, "identity"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "identity"), old, 0o600))
	n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Logger: embedkit.Quiet})
	if err == nil {
		n.Close()
		t.Fatal("it started")
	}
	for _, word := range []string{dir, "counts start 2, start 2 has registered", replication.WayOut} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
	must(t, os.Rename(right, filepath.Join(dir, "identity")))
	embedkit.Has(t, embedkit.Alone(t, dir, inside.Seams{}), "/a", "/c", "/f")
}

func TestStart_RefusesADirectoryThatIsAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	must(t, os.WriteFile(dir, []byte("x"), 0o600))
	embedkit.StartsNot(t, embed.Config{Dir: dir}, "not a directory", dir)
	if n, err := embed.Start(embed.Config{Dir: filepath.Join(dir, "below"), Logger: embedkit.Quiet}); err == nil || n != nil {
		t.Error("it started below a file")
	}
}

// C7: a lock of the operating system alone would allow this.
func TestStart_RefusesADirectoryThatANodeOfThisProcessHasOpen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	n := embedkit.Alone(t, dir, inside.Seams{})
	link := dir + "-link"
	must(t, os.Symlink(dir, link))
	for _, name := range []string{dir, link, dir + "/../data/"} {
		other, err := embed.Start(embed.Config{Dir: name, Shards: shardsflag.N, Logger: embedkit.Quiet})
		if err == nil {
			other.Close()
			t.Fatalf("a second node started on %s", name)
		}
		if !errors.Is(err, replication.ErrLocked) || !strings.Contains(err.Error(), "another node of this process") {
			t.Errorf("%s: %v", name, err)
		}
	}
	embedkit.Write(t, n, "/a")
	must(t, n.Close())
	embedkit.Has(t, embedkit.Alone(t, dir, inside.Seams{}), "/a") // the refused starts did not release the lock
}

// C4.5: the port is bound before anything is made on disk.
func TestStart_RefusesAPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	addr := l.Addr().String()
	members := map[embed.MemberID]string{1: addr, 2: "127.0.0.1:1"}
	dir := filepath.Join(t.TempDir(), "missing", "data")
	err = embedkit.StartsNot(t, embed.Config{Dir: dir, ID: 1, Members: members}, addr, "address already in use")
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v is no EADDRINUSE", err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("a directory was made: %v", err)
	}

	used, _ := lived(t)
	embedkit.StartsNot(t, embed.Config{Dir: used, ID: 1, Members: members}, "address already in use")
}

// A member's own name may not resolve before the member is up, like the name of a pod. So it is
// never looked up. The refusals say which address was to be bound, because each of these ports is
// in use.
func TestStart_BindsWhatItsAddressSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ inUse, address, listen, want string }{
		{"127.0.0.1:0", "member-0.service.invalid", "", ""},
		{"127.0.0.1:0", "127.0.0.1", "", "127.0.0.1"},
		{"127.0.0.1:0", "localhost", "", "127.0.0.1"}, // a name that only this machine uses
		{"127.0.0.1:0", "LocalHost", "", "127.0.0.1"},
		{"[::1]:0", "::1", "", "::1"},
		{"127.0.0.1:0", "member-0.service.invalid", "127.0.0.1", "127.0.0.1"},
		{"127.0.0.1:0", "127.0.0.9", "0.0.0.0", "0.0.0.0"},
	} {
		everywhere := c.want == "" || c.want == "0.0.0.0"
		if everywhere && runtime.GOOS != "linux" {
			continue // other systems let a process bind all addresses although one is in use
		}
		l, err := net.Listen("tcp", c.inUse)
		must(t, err)
		_, port, err := net.SplitHostPort(l.Addr().String())
		must(t, err)
		cfg := embed.Config{Dir: filepath.Join(t.TempDir(), "data"), ID: 1, Members: map[embed.MemberID]string{
			1: net.JoinHostPort(c.address, port), 2: "127.0.0.1:1",
		}}
		if c.listen != "" {
			cfg.Listen = net.JoinHostPort(c.listen, port)
		}
		embedkit.StartsNot(t, cfg, "listen tcp "+net.JoinHostPort(c.want, port)+": bind: address already in use")
		l.Close()
	}
}

// A refused Start gives back all that it acquired. The same Config starts once the reason is gone.
func TestStart_CanBeRepeatedAfterARefusal(t *testing.T) {
	t.Parallel()
	dir, _ := lived(t)
	name := filepath.Join(dir, "identity")
	must(t, os.Rename(name, name+".away"))
	mesh := transporttest.NewMesh() // a port of the machine may be taken meanwhile
	for range 20 {
		embedkit.StartsNot(t, embed.Config{Dir: dir}, "identity file is missing")
	}
	must(t, os.Rename(name+".away", name))
	for range 20 {
		embedkit.StartsNot(t, embed.Config{Dir: dir, ID: 1, Ensemble: "orders", Members: map[embed.MemberID]string{1: "member-1.test:1", 2: "member-2.test:1"},
			Inside: &inside.Seams{Network: on(mesh, 1)}}, "belongs to the ensemble")
	}
	embedkit.Has(t, embedkit.Alone(t, dir, inside.Seams{}), "/a", "/b")
	again, err := mesh.Network(1).Listen()
	must(t, err) // its address was given back
	again.Close()
}

// C10.3: every start begins a new file of the log, and only a snapshot removes files. A snapshot
// that waits for its number of entries never comes if little is written. So a start asks for one.
func TestStart_AgainAndAgainKeepsFewLogs(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		disk, dir := newDisk(t)
		seams := inside.Seams{Files: disk}
		logs := func() (names []string) {
			for _, name := range filesBelow(t, disk, filepath.Join(dir, "raft")) {
				if strings.Contains(name, "/tandb/node-") && strings.HasSuffix(name, ".log") {
					names = append(names, name)
				}
			}
			return names
		}
		for i := range 10 {
			n := embedkit.Alone(t, dir, seams)
			embedkit.Write(t, n, fmt.Sprint("/", i))
			must(t, n.Close())
		}
		embedkit.Alone(t, dir, seams)
		until(t, "the old logs to go", func() bool { return len(logs()) <= 4*max(1, shardsflag.N) })
	})
}

// What a node makes is for its owner alone: an image has the passwords of sessions, and data that
// ACLs protect. A node whose files others may read says so.
func TestStart_ADirectoryForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	const others = 0o077
	dir := filepath.Join(t.TempDir(), "of/the/node")
	start := func() (lines []map[string]any) {
		var log embedkit.Record
		n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
		must(t, err)
		embedkit.Ready(t, n)
		must(t, n.Close())
		return log.Of(1, "everybody on the machine may read the node's data")
	}
	if lines := start(); len(lines) > 0 {
		t.Errorf("a new directory: %v", lines)
	}
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		must(t, err)
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&others != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
	image := filepath.Join(dir, "image")
	must(t, os.Chmod(image, 0o755))
	if lines := start(); len(lines) > 0 {
		t.Errorf("others cannot reach it: %v", lines)
	}
	must(t, os.Chmod(dir, 0o755))
	if lines := start(); len(lines) != 1 || lines[0]["file"] != image {
		t.Errorf("others may read the image: %v", lines)
	}
}

// A node is closed again and again, at any moment after its start.
func TestStart_CloseAtOnce(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		disk, dir := newDisk(t)
		seams := inside.Seams{Files: disk}
		for i := range 30 {
			n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Tick: 10 * time.Millisecond, Logger: embedkit.Quiet, Inside: &seams})
			must(t, err)
			if i%3 == 1 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
				_ = n.Ready(ctx)
				cancel()
			}
			must(t, n.Close())
		}
		embedkit.Has(t, embedkit.Alone(t, dir, seams))
	})
}
