package embed_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage/disk"
)

var quiet = slog.New(slog.DiscardHandler)

// addrs returns loopback addresses that were free a moment ago, for members 1 to n.
func addrs(t *testing.T, host string, n int) map[embed.MemberID]string {
	t.Helper()
	out := make(map[embed.MemberID]string)
	for id := range embed.MemberID(n) {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		must(t, err)
		defer l.Close() // all at the end, so that no port is returned twice
		out[id+1] = l.Addr().String()
	}
	return out
}

// If a Config lacks all Members, or some that the member has met, Start names the missing ones.
func TestStart_RefusesTheDirectoryOfAnEnsembleWithoutMembers(t *testing.T) {
	dirs := make(map[embed.MemberID]string)
	nodes := startTCP(t, "127.0.0.1", 3, func(c *embed.Config) { c.Dir = t.TempDir(); dirs[c.ID] = c.Dir })
	for _, n := range nodes {
		ready(t, n)
	}
	met := make(map[embed.MemberID]string) // the members that each has met
	// The leader has; followers need not talk.
	until(t, "a member to have met both others", func() bool {
		for id, others := range map[embed.MemberID][2]string{1: {"2", "3"}, 2: {"1", "3"}, 3: {"1", "2"}} {
			data, err := os.ReadFile(filepath.Join(dirs[id], "identity"))
			if err == nil && strings.Contains(string(data), `"`+others[0]+`"`) && strings.Contains(string(data), `"`+others[1]+`"`) {
				met[id] = others[0] + ", " + others[1]
			}
		}
		return len(met) > 0
	})
	closeAll(t, nodes)
	for id, others := range met {
		startsNot(t, embed.Config{Dir: dirs[id], ID: id}, "other members than the config names (none)", "it has met members "+others)
	}
}

// startsNot starts a node that must be refused with these words. Nothing may change on disk.
func startsNot(t *testing.T, cfg embed.Config, words ...string) error {
	t.Helper()
	if cfg.Logger = quiet; cfg.Shards == 0 {
		cfg.Shards = shardsflag.N
	}
	before := testkit.Contents(t, cfg.Dir, false)
	n, err := embed.Start(cfg)
	if err == nil {
		n.Close()
		t.Fatal("it started")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
	testkit.Unchanged(t, "a refused start", before, testkit.Contents(t, cfg.Dir, false))
	return err
}

// alone starts a node that is its own ensemble.
func alone(t *testing.T, dir string, seams inside.Seams) *embed.Node {
	t.Helper()
	n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Tick: 10 * time.Millisecond, Logger: quiet, Inside: &seams})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.Ready(bounded(t)); err != nil {
		t.Fatal(err)
	}
	return n
}

// engineOf returns the engine of a node.
func engineOf(n *embed.Node) *engine.Engine { return (*inside.Node)(n).Parts().Engine }

// write opens a session and creates znodes one after the other.
func write(t *testing.T, n *embed.Node, paths ...string) {
	t.Helper()
	ctx := bounded(t)
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if _, err := s.Create(ctx, p, []byte("data of "+p), embed.Persistent); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, n *embed.Node, paths ...string) {
	t.Helper()
	ctx := bounded(t)
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, p := range paths {
		if data, _, err := s.Get(ctx, p); err != nil || string(data) != "data of "+p {
			t.Errorf("%s holds %q, %v", p, data, err)
		}
	}
}

// lived makes a directory in which a node ran, with an image on disk. later is a copy from a while
// later.
func lived(t *testing.T) (dir, later string) {
	t.Helper()
	base := t.TempDir()
	dir, later = filepath.Join(base, "now"), filepath.Join(base, "later")
	run := func(dir string, paths ...string) {
		n := alone(t, dir, inside.Seams{})
		write(t, n, paths...)
		ballast(t, n)
		image := filepath.Join(dir, "image")
		before := fmt.Sprint(testkit.Contents(t, image, false))
		if err := engineOf(n).RequestSnapshot(); err != nil {
			t.Fatal(err)
		}
		until(t, "an image on disk", func() bool { return fmt.Sprint(testkit.Contents(t, image, false)) != before })
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	run(dir, "/a", "/b")
	copyDir(t, dir, later)
	run(later, "/c", "/d", "/e", "/f")
	return dir, later
}

// ballast makes the image larger than the part that is read first.
func ballast(t *testing.T, n *embed.Node) {
	t.Helper()
	ctx := bounded(t)
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	must(t, err)
	rng := rand.NewChaCha8([32]byte{})
	for range 8 {
		data := make([]byte, 64<<10)
		rng.Read(data)
		_, err := s.Create(ctx, "/ballast-", data, embed.Sequential)
		must(t, err)
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
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

func flip(t *testing.T, name string, at func(size int) int) {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	data[at(len(data))] ^= 0x20
	must(t, os.WriteFile(name, data, 0o640))
}

// identity edits the identity file of a directory.
func identity(t *testing.T, dir string, edit func(*replication.Identity)) {
	t.Helper()
	d, err := disk.Open(files.OS, dir)
	must(t, err)
	id, _, err := replication.ReadIdentity(d, dir)
	must(t, err)
	edit(&id)
	must(t, replication.WriteIdentity(d, dir, id))
}

// C6.3, C8.1, C8.2, C8.3: Start compares a directory with the Config, and its image with its log,
// before dragonboat sees any of it.
func TestStart_RefusesADirectoryThatIsNotItsOwn(t *testing.T) {
	original, later := lived(t)
	three := addrs(t, "127.0.0.1", 3)
	for name, c := range map[string]struct {
		spoil func(dir string)
		cfg   embed.Config
		words []string
	}{
		"of another member":   {cfg: embed.Config{ID: 2}, words: []string{"belongs to member 1", "says 2"}},
		"of another ensemble": {cfg: embed.Config{Ensemble: "orders"}, words: []string{`the ensemble ""`, `"orders"`}},
		"of other members": {
			cfg:   embed.Config{ID: 1, Members: three},
			words: []string{"other members than the config names (1, 2, 3)", "ids of Members are fixed", "addresses are not"},
		},
		"of other shards": {
			cfg:   embed.Config{Shards: 3},
			words: []string{fmt.Sprint("founded with Shards ", max(1, shardsflag.N)), "says 3", fmt.Sprint("set it to ", max(1, shardsflag.N))},
		},
		"whose identity is damaged": {
			spoil: func(dir string) { flip(t, filepath.Join(dir, "identity"), func(n int) int { return n / 2 }) },
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
				copyDir(t, filepath.Join(later, "image"), filepath.Join(dir, "image"))
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
			spoil: func(dir string) { identity(t, dir, func(id *replication.Identity) { id.Log = "granite" }) },
			words: []string{`"granite"`, `"tan"`},
		},
		"with a damaged image": {
			spoil: func(dir string) { flip(t, only(t, filepath.Join(dir, "image"), ".sst"), func(int) int { return 20 }) },
			words: []string{".sst"},
		},
		"with an image that is damaged in the middle": {
			spoil: func(dir string) {
				flip(t, only(t, filepath.Join(dir, "image"), ".sst"), func(n int) int { return n / 2 })
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
			copyDir(t, original, dir)
			if c.spoil != nil {
				c.spoil(dir)
			}
			c.cfg.Dir = dir
			startsNot(t, c.cfg, append(c.words, dir)...)
		})
	}
	n := alone(t, original, inside.Seams{})
	has(t, n, "/a", "/b")
}

// B1.1: with an identity file from an earlier time, a start would get the number of an earlier
// start. Its Register would be a repeat, and what it sends would belong to a stream that has ended.
// The start is refused before Raft runs, and the right file lets the node start.
func TestStart_RefusesAnIdentityFromAnEarlierTime(t *testing.T) {
	earlier, dir := lived(t)
	right := filepath.Join(t.TempDir(), "identity")
	must(t, os.Rename(filepath.Join(dir, "identity"), right))
	old, err := os.ReadFile(filepath.Join(earlier, "identity"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "identity"), old, 0o600))
	n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Logger: quiet})
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
	has(t, alone(t, dir, inside.Seams{}), "/a", "/c", "/f")
}

func TestStart_RefusesADirectoryThatIsAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	must(t, os.WriteFile(dir, []byte("x"), 0o600))
	startsNot(t, embed.Config{Dir: dir}, "not a directory", dir)
	if n, err := embed.Start(embed.Config{Dir: filepath.Join(dir, "below"), Logger: quiet}); err == nil || n != nil {
		t.Error("it started below a file")
	}
}

// C7: a lock of the operating system alone would allow this.
func TestStart_RefusesADirectoryThatANodeOfThisProcessHasOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n := alone(t, dir, inside.Seams{})
	link := dir + "-link"
	must(t, os.Symlink(dir, link))
	for _, name := range []string{dir, link, dir + "/../data/"} {
		other, err := embed.Start(embed.Config{Dir: name, Shards: shardsflag.N, Logger: quiet})
		if err == nil {
			other.Close()
			t.Fatalf("a second node started on %s", name)
		}
		if !errors.Is(err, replication.ErrLocked) || !strings.Contains(err.Error(), "another node of this process") {
			t.Errorf("%s: %v", name, err)
		}
	}
	write(t, n, "/a")
	must(t, n.Close())
	has(t, alone(t, dir, inside.Seams{}), "/a") // the refused starts did not release the lock
}

// C4.5: the port is bound before anything is made on disk.
func TestStart_RefusesAPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	addr := l.Addr().String()
	members := map[embed.MemberID]string{1: addr, 2: "127.0.0.1:1"}
	dir := filepath.Join(t.TempDir(), "missing", "data")
	err = startsNot(t, embed.Config{Dir: dir, ID: 1, Members: members}, addr, "address already in use")
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v is no EADDRINUSE", err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("a directory was made: %v", err)
	}

	used, _ := lived(t)
	startsNot(t, embed.Config{Dir: used, ID: 1, Members: members}, "address already in use")
}

// A member's own name may not resolve before the member is up, like the name of a pod. So it is
// never looked up. The refusals say which address was to be bound, because each of these ports is
// in use.
func TestStart_BindsWhatItsAddressSays(t *testing.T) {
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
		startsNot(t, cfg, "listen tcp "+net.JoinHostPort(c.want, port)+": bind: address already in use")
		l.Close()
	}
}

// A refused Start gives back all that it acquired. The same Config starts once the reason is gone.
func TestStart_CanBeRepeatedAfterARefusal(t *testing.T) {
	dir, _ := lived(t)
	name := filepath.Join(dir, "identity")
	must(t, os.Rename(name, name+".away"))
	addr := addrs(t, "127.0.0.1", 1)[1]
	for range 20 {
		startsNot(t, embed.Config{Dir: dir}, "identity file is missing")
	}
	must(t, os.Rename(name+".away", name))
	for range 20 {
		startsNot(t, embed.Config{Dir: dir, ID: 1, Members: map[embed.MemberID]string{1: addr, 2: "127.0.0.1:1"}}, "other members")
	}
	has(t, alone(t, dir, inside.Seams{}), "/a", "/b")
	again, err := net.Listen("tcp", addr)
	must(t, err) // the port was given back
	again.Close()
}

// C10.3: every start begins a new file of the log, and only a snapshot removes files. A snapshot
// that waits for its number of entries never comes if little is written. So a start asks for one.
func TestStart_AgainAndAgainKeepsFewLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logs := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "raft/*/*/tandb/node-*/*.log"))
		must(t, err)
		return names
	}
	for i := range 10 {
		n := alone(t, dir, inside.Seams{})
		write(t, n, fmt.Sprint("/", i))
		must(t, n.Close())
	}
	alone(t, dir, inside.Seams{})
	until(t, "the old logs to go", func() bool { return len(logs()) <= 4*max(1, shardsflag.N) })
}

// A node is closed again and again, at any moment after its start.
func TestStart_CloseAtOnce(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		n, err := embed.Start(embed.Config{Dir: dir, Shards: shardsflag.N, Tick: 10 * time.Millisecond, Logger: quiet})
		must(t, err)
		if i%3 == 1 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
			_ = n.Ready(ctx)
			cancel()
		}
		must(t, n.Close())
	}
	has(t, alone(t, dir, inside.Seams{}))
}
