package disktest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// setsDir has a folder for each build whose formats differ from those before. Its README.md says
// what is in these sets, and how to add one.
const setsDir = "../testdata/dirs"

var writeSet = flag.String("write", "", "write the golden directories of this build, as a set of this name")

// What wrote the golden directories of an archive.
type directories struct {
	name    string
	members int
	shards  int
	make    func(w *directoryWriter)
}

var goldenDirectories = []directories{
	{"one", 1, 1, func(w *directoryWriter) { w.fill(1); w.stop() }},
	{"three", 3, 1, func(w *directoryWriter) { w.fill(1, 2, 3); w.stop() }},
	{"shards", 3, 4, func(w *directoryWriter) { w.fill(1, 2, 3); w.stop() }},
	{"killed", 3, 1, func(w *directoryWriter) { w.fill(1, 2, 3); w.kill() }},
	{"installed", 3, 1, func(w *directoryWriter) { w.install(); w.kill() }},
}

// Every build starts on the directories that builds before it wrote, finds what they hold, and goes
// on with it.
func TestGoldenDirectories(t *testing.T) {
	if *writeSet != "" {
		writeGoldenDirectories(t, filepath.Join(setsDir, *writeSet))
	}
	archives, err := filepath.Glob(filepath.Join(setsDir, "*", "*.tar.gz"))
	must(t, err)
	if len(archives) < len(goldenDirectories) {
		t.Fatalf("%s has %d archives only", setsDir, len(archives))
	}
	for _, archive := range archives {
		set := filepath.Base(filepath.Dir(archive))
		name := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
		t.Run(set+"/"+name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(goldenDirectories, func(d directories) bool { return d.name == name })
			if i < 0 {
				t.Fatalf("nobody says what ensemble %s is of", archive)
			}
			text, err := os.ReadFile(strings.TrimSuffix(archive, ".tar.gz") + ".txt")
			must(t, err)
			now := time.Now().Round(0)
			testkit.Bubble(t, func(t *testing.T) {
				<-time.After(time.Until(now)) // a bubble begins in the year 2000, before the directories
				disk, dir := newDisk(t)
				unpack(t, archive, disk, dir)
				startOnGolden(t, goldenDirectories[i], disk, dir, string(text))
			})
		})
	}
}

func newGolden(t *testing.T, d directories, disk files.System, dir string) *embedtest.Ensemble {
	return embedtest.New(t, d.members, embedtest.Options{Dir: dir, KeepEntries: 8, Config: func(c *embed.Config) {
		c.Shards, c.MaxSessionTimeout = d.shards, remoteTimeout
		c.Inside = &inside.Seams{Files: disk}
	}})
}

// startOnGolden starts an ensemble on golden directories and compares all it holds with the text
// beside them.
func startOnGolden(t *testing.T, d directories, disk files.System, dir, text string) {
	ens := newGolden(t, d, disk, dir)
	want := readPromise(t, text)
	same := func(want string) {
		t.Helper()
		for _, m := range ens.Members() {
			if got := listing(t, ens.Node(m)); got != want {
				t.Fatalf("member %d has\n%s\nwant\n%s", m, got, want)
			}
		}
	}
	for _, m := range ens.Members() {
		s := ens.Session(m, embed.SessionOptions{})
		for _, path := range want.gone {
			ens.Until(path+" to go with its session", func() bool {
				_, there, err := s.Exists(t.Context(), path)
				return err == nil && !there
			})
		}
	}
	same(want.listing)
	for _, m := range ens.Members() {
		if now := ens.Node(m).Status().Level; now < want.level {
			t.Errorf("member %d is at level %d, the directory was at %d", m, now, want.level)
		}
		ens.Until("the level of this build", func() bool { return ens.Node(m).Status().Level == engine.LevelMax })
	}
	useGolden(t, ens, want)
	after := listing(t, ens.Node(1))
	if after == want.listing {
		t.Fatal("no write has changed anything")
	}
	same(after)
	for _, m := range ens.Members() {
		ens.Kill(m)
	}
	for _, m := range ens.Members() {
		ens.Start(m)
	}
	for _, m := range ens.Members() {
		ens.Ready(m)
	}
	same(after)
}

// useGolden writes where a golden ensemble left off.
func useGolden(t *testing.T, ens *embedtest.Ensemble, p promise) {
	ctx := bounded(t)
	s := goldenSession(t, ens.Node(1))
	path, err := s.Create(ctx, "/queue/item-", nil, embed.Sequential)
	must(t, err)
	if path != "/queue/item-0000000005" {
		t.Errorf("the next sequential znode is %s", path)
	}
	_, err = s.Set(ctx, "/plain", []byte("again"), 2)
	must(t, err)
	_, err = s.Create(ctx, "/limited/c", []byte("123456789"), embed.Persistent)
	embedkit.Wants(t, "beyond a hard limit", err, embed.ErrQuotaExceeded)
	_, err = ens.Session(1, embed.SessionOptions{}).Set(ctx, "/secret", nil, embed.AnyVersion)
	embedkit.Wants(t, "without the credential", err, embed.ErrNoAuth)

	// The remote session still exists, for who knows its password.
	remote, err := embedkit.EngineOf(ens.Node(1)).Reattach(ctx, p.session, p.password, remoteTimeout, owner())
	must(t, err)
	_, err = remote.Submit(ctx, []tree.Op{{Kind: tree.KindSet, Path: "/members/remote", Data: []byte("back"), Version: 0}}).Wait(ctx)
	must(t, err)
}

// credential is what sessions show that read all of a golden ensemble. remoteTimeout is the timeout
// of the remote session in it.
const (
	credential    = "owner:secret"
	remoteTimeout = 20 * time.Hour
)

func owner() tree.Identity { return tree.Identity{Scheme: "digest", ID: embed.Digest(credential)} }

func goldenSession(t *testing.T, n *embed.Node) *embed.Session {
	t.Helper()
	s, err := n.NewSession(bounded(t), embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte(credential)}}})
	must(t, err)
	return s
}

// listing returns all that a member knows, as text, except of sessions that end with their process.
//
// The ephemerals of those are below /members. So that the text is the same before and after their
// end, it has for this znode how often its children will have changed by then.
func listing(t *testing.T, n *embed.Node) string {
	t.Helper()
	ctx := bounded(t)
	s := goldenSession(t, n)
	defer s.Close()
	_, err := s.Sync(ctx, "/")
	must(t, err)
	census, err := embedkit.EngineOf(n).Tables.Census(ctx)
	must(t, err)
	var sessions strings.Builder
	lasting := make(map[embed.SessionID]bool)
	for _, s := range census.Sessions {
		if s.Timeout == remoteTimeout {
			lasting[s.ID] = true
			fmt.Fprintf(&sessions, "session %d owns %s\n", s.ID, s.Ephemerals)
		}
	}
	var list func(path string) string
	list = func(path string) string {
		data, stat, err := s.Get(ctx, path)
		must(t, err)
		acl, _, err := s.ACL(ctx, path)
		must(t, err)
		names, _, err := s.Children(ctx, path)
		must(t, err)
		if stat.EphemeralOwner != 0 && !lasting[stat.EphemeralOwner] {
			return ""
		}
		var below strings.Builder
		for _, name := range slices.Sorted(slices.Values(names)) {
			text := list(filepath.Join(path, name))
			if text == "" {
				stat.NumChildren--
				stat.Cversion++
			}
			below.WriteString(text)
		}
		if path == "/members" {
			stat.Pzxid = 0 // of a transaction to come
		}
		return fmt.Sprintf("%s %+v %+v %q\n%s", path, stat, acl, data, below.String())
	}
	return sessions.String() + list("/")
}

// A promise is the text beside golden directories: what who starts on them finds.
type promise struct {
	level    int
	gone     []string // ephemerals that go, because the process of their session is over
	session  embed.SessionID
	password [16]byte
	listing  string
}

func (p promise) String() string {
	return fmt.Sprintf("level %d\ngone %s\nsession %d\npassword %x\n\n%s", p.level, strings.Join(p.gone, ","), p.session, p.password, p.listing)
}

func readPromise(t *testing.T, text string) (p promise) {
	head, listing, _ := strings.Cut(text, "\n\n")
	p.listing = listing
	var gone, password string
	_, err := fmt.Sscanf(strings.Replace(head, "gone \n", "gone -\n", 1), "level %d\ngone %s\nsession %d\npassword %s", &p.level, &gone, &p.session, &password)
	must(t, err)
	if gone != "-" {
		p.gone = strings.Split(gone, ",")
	}
	_, err = hex.Decode(p.password[:], []byte(password))
	must(t, err)
	return p
}

// A directoryWriter makes golden directories.
type directoryWriter struct {
	*embedtest.Ensemble
	t       *testing.T
	locals  []*embed.Session // their ephemerals are the promise's gone
	promise promise
}

// writeGoldenDirectories writes a set. It never changes one.
func writeGoldenDirectories(t *testing.T, set string) {
	must(t, os.MkdirAll(setsDir, 0o755))
	must(t, os.Mkdir(set, 0o755))
	must(t, os.WriteFile(filepath.Join(set, formatsName), []byte(formats(t)), 0o644))
	for _, d := range goldenDirectories {
		t.Run(d.name, func(t *testing.T) { // an ensemble of its own, which ends with the subtest
			dir := t.TempDir()
			w := &directoryWriter{t: t, Ensemble: newGolden(t, d, files.OS, dir)}
			for _, m := range w.Members() {
				w.Until("the level of this build", func() bool { return w.Node(m).Status().Level == engine.LevelMax })
			}
			embedkit.WithLineage(t, w.Ensemble)
			d.make(w)
			pack(t, dir, filepath.Join(set, d.name+".tar.gz"))
			must(t, os.WriteFile(filepath.Join(set, d.name+".txt"), []byte(w.promise.String()), 0o644))
		})
	}
}

// fill writes something of everything, and notes what there is then. The given members run.
func (w *directoryWriter) fill(members ...embed.MemberID) {
	t, ctx := w.t, bounded(w.t)
	s := goldenSession(t, w.Node(1))
	create := func(path string, data []byte, o embed.CreateOptions) {
		t.Helper()
		_, _, err := s.CreateWith(ctx, path, data, o)
		must(t, err)
	}
	plain := embed.CreateOptions{}
	create("/plain", nil, plain)
	for i := range 2 {
		_, err := s.Set(ctx, "/plain", []byte{0, 0xff, byte(i)}, int32(i))
		must(t, err)
	}
	create("/empty", []byte{}, plain)
	create("/Grüße", bytes.Repeat([]byte("0123456789abcdef"), 256), plain)
	create("/queue", nil, plain)
	for range 5 {
		create("/queue/item-", nil, embed.CreateOptions{Mode: embed.Sequential})
	}
	must(t, s.Delete(ctx, "/queue/item-0000000004", 0))
	create("/a", nil, plain)
	create("/a/b", nil, plain)
	_, err := s.Multi(ctx, embed.OpCheck("/a", 0), embed.OpCreate("/a/b/c", []byte("deep"), embed.Persistent), embed.OpSet("/a/b", []byte("multi"), 0))
	must(t, err)

	// Not for ever: neither has to go while somebody looks.
	years := embed.CreateOptions{Mode: embed.TTL, TTL: tree.MaxTTL * time.Millisecond}
	create("/years", nil, years)
	years.Mode = embed.SequentialTTL
	create("/years/of-", nil, years)
	create("/container", nil, embed.CreateOptions{Mode: embed.Container})
	create("/container/child", nil, plain)

	create("/secret", []byte("hidden"), embed.CreateOptions{ACL: embed.CreatorACL()})
	create("/mixed", nil, plain)
	_, err = s.SetACL(ctx, "/mixed", []embed.ACL{
		{Perms: embed.PermRead, Scheme: "world", ID: "anyone"}, {Perms: embed.PermWrite, Scheme: "ip", ID: "10.0.0.0/8"},
		{Perms: embed.PermAll, Scheme: "digest", ID: owner().ID},
	}, 0)
	must(t, err)

	for _, path := range []string{"/limited", "/limited/a", "/zookeeper/quota/limited"} {
		create(path, nil, plain)
	}
	create("/zookeeper/quota/limited/zookeeper_limits", []byte("count=9,bytes=-1=;byteHardLimit=8;countHardLimit=-1"), plain)
	create("/zookeeper/quota/limited/zookeeper_stats", nil, plain)
	_, err = s.Set(ctx, "/limited/a", []byte("1234"), 0)
	must(t, err)

	create("/members", nil, plain)
	for _, m := range members {
		path := fmt.Sprintf("/members/local-%d", m)
		local := w.Session(m, embed.SessionOptions{})
		_, err := local.Create(ctx, path, []byte("here"), embed.Ephemeral)
		must(t, err)
		w.locals = append(w.locals, local)
		w.promise.gone = append(w.promise.gone, path)
	}
	remote, err := embedkit.EngineOf(w.Node(1)).OpenRemote(ctx, remoteTimeout, owner())
	must(t, err)
	_, err = remote.Submit(ctx, []tree.Op{
		{Kind: tree.KindCreate, Path: "/members/remote", Data: []byte("away"), Mode: tree.Ephemeral},
		{Kind: tree.KindCreate, Path: "/members/lingers", Mode: tree.Ephemeral, TTL: 1000},
	}).Wait(ctx)
	must(t, err)
	w.promise.session, w.promise.password = remote.ID(), remote.Password()
	must(t, s.Close())
	w.promise.level = w.Node(1).Status().Level
	w.promise.listing = listing(t, w.Node(1))
}

// stop stops all members in good order. The last one finds no quorum to close a session.
func (w *directoryWriter) stop() {
	for _, s := range w.locals {
		must(w.t, s.Close())
	}
	for _, m := range w.Members() {
		w.Stop(m)
	}
}

// kill ends all members. What they have not flushed stays in their logs only.
func (w *directoryWriter) kill() {
	for _, m := range w.Members() {
		w.Kill(m)
	}
}

// install fills the ensemble while member 3 is away, so that the others must send it their state.
func (w *directoryWriter) install() {
	w.Kill(3)
	w.fill(1, 2)
	s := w.Session(1, embed.SessionOptions{})
	for range 20 { // if member 3 is back before the logs are cut, it needs no state
		for range 30 {
			_, err := s.Set(bounded(w.t), "/empty", nil, embed.AnyVersion)
			must(w.t, err)
		}
		for _, m := range []embed.MemberID{1, 2} {
			must(w.t, w.Snapshot(m))
		}
		w.Start(3)
		w.Until("member 3 to catch up", func() bool { return w.Node(3).Status().Shards[0].Zxid == w.Node(1).Status().Shards[0].Zxid })
		if w.installed(3) {
			w.promise.listing = listing(w.t, w.Node(3))
			return
		}
		w.Kill(3)
	}
	w.t.Fatal("member 3 has always found the log it needed")
}

// installed reports whether a member has a second image. The first one is that of its founding.
func (w *directoryWriter) installed(m embed.MemberID) bool {
	files, err := w.Files(m)
	must(w.t, err)
	for name := range files {
		if strings.Contains(name, "image-000002") {
			return true
		}
	}
	return false
}

// pack writes all files below dir to an archive, whose bytes depend on theirs alone.
func pack(t *testing.T, dir, archive string) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	must(t, err)
	out := tar.NewWriter(z)
	must(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		must(t, err)
		inside, err := filepath.Rel(dir, name)
		must(t, err)
		must(t, out.WriteHeader(&tar.Header{Name: filepath.ToSlash(inside), Mode: 0o640, Size: int64(len(data))}))
		_, err = out.Write(data)
		return err
	}))
	must(t, out.Close())
	must(t, z.Close())
	must(t, os.WriteFile(archive, b.Bytes(), 0o644))
}

// unpack writes the files of an archive below dir.
func unpack(t *testing.T, archive string, disk files.System, dir string) {
	f, err := os.Open(archive)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	in := tar.NewReader(z)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return
		}
		must(t, err)
		data, err := io.ReadAll(in)
		must(t, err)
		writeFile(t, disk, filepath.Join(dir, filepath.FromSlash(h.Name)), data)
	}
}
