package embedkit

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
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

// Quiet discards what is logged.
var Quiet = slog.New(slog.DiscardHandler)

// Patient lets the requests and sessions of a member outlive stalls of a busy machine, in real time.
func Patient(c *embed.Config) { c.RequestTimeout, c.SessionTimeout = time.Minute, time.Minute }

// Addrs returns loopback addresses that were free a moment ago, for members 1 to n.
func Addrs(t *testing.T, host string, n int) map[embed.MemberID]string {
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

// StartsNot starts a node that must be refused with these words. Nothing may change on disk.
func StartsNot(t *testing.T, cfg embed.Config, words ...string) error {
	t.Helper()
	if cfg.Logger = Quiet; cfg.Shards == 0 {
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

// Alone starts a node that is its own ensemble.
func Alone(t *testing.T, dir string, seams inside.Seams) *embed.Node {
	t.Helper()
	seams.Close = cmp.Or(seams.Close, 10*time.Second) // what hangs need not hang for as long as requests wait
	cfg := embed.Config{Dir: dir, Shards: shardsflag.N, Tick: 10 * time.Millisecond, Logger: Quiet, Inside: &seams}
	Patient(&cfg)
	n, err := embed.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.Ready(bounded(t)); err != nil {
		t.Fatal(err)
	}
	return n
}

// EngineOf returns the engine of a node.
func EngineOf(n *embed.Node) *engine.Engine { return (*inside.Node)(n).Parts().Engine }

// Write opens a session and creates znodes one after the other.
func Write(t *testing.T, n *embed.Node, paths ...string) {
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

// Has checks that a node has the znodes that Write made.
func Has(t *testing.T, n *embed.Node, paths ...string) {
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

// Ballast makes the image larger than the part that is read first.
func Ballast(t *testing.T, n *embed.Node) {
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

// CopyDir copies a directory in which no node runs.
func CopyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// Flip changes a bit of a file, in the byte at a place that depends on its size.
func Flip(t *testing.T, name string, at func(size int) int) {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	data[at(len(data))] ^= 0x20
	must(t, os.WriteFile(name, data, 0o640))
}

// Identity edits the identity file of a directory.
func Identity(t *testing.T, dir string, edit func(*replication.Identity)) {
	t.Helper()
	d, err := disk.Open(files.OS, dir)
	must(t, err)
	id, _, err := replication.ReadIdentity(d, dir)
	must(t, err)
	edit(&id)
	must(t, replication.WriteIdentity(d, dir, id))
}
