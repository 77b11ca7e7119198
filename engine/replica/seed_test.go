package replica

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// seedRig is a rig of a new ensemble.
func seedRig(t *testing.T) *rig {
	r := newRig(t)
	r.apply(command.EncodeRegister(enginetest.Origin(), 1, command.Rules{Schemes: []string{"digest", "ip", "super"}}))
	return r
}

var (
	source = command.Source{1, 2, 3}
	other  = command.Source{4, 5, 6}
)

const loadZxid = 7 << 32

func begins(s command.Source) []byte {
	return command.EncodeLoad(command.Load{Source: s, Zxid: loadZxid}, 100)
}

func part(s command.Source, n uint64, last bool, paths ...string) []byte {
	l := command.Load{Part: n, Source: s, Last: last}
	for _, path := range paths {
		l.Znodes = append(l.Znodes, tree.Named{Path: path, Znode: tree.Znode{Czxid: 5, Mzxid: 6, Pzxid: 7, Ctime: 8, Mtime: 9, Version: 3, Created: 40, Data: []byte(path)}})
	}
	return command.EncodeLoad(l, 100)
}

// requests makes the replica apply a batch of this member.
func (r *rig) requests(seq uint64, q command.Request) {
	encoded := command.EncodeRequest(&q)
	r.apply(command.EncodeBatch(enginetest.Member, enginetest.Origin().Start, seq, 1, 0, 1, slices.Values([][]byte{encoded})))
}

// opens makes the replica apply a batch of this member that opens a session.
func (r *rig) opens(t *testing.T, seq uint64) error {
	t.Helper()
	before := r.mu.table.Len()
	r.requests(seq, command.Request{Kind: command.RequestOpen, Timeout: time.Minute})
	if r.mu.table.Len() == before {
		return ErrLoading
	}
	return nil
}

func (r *rig) wantSeed(t *testing.T, want command.Seed) {
	t.Helper()
	if got := r.Seed(); got != want || r.mu.Seed != want || r.disk.Err() != nil {
		t.Fatalf("%+v (%+v), want %+v, disk %v", got, r.mu.Seed, want, r.disk.Err())
	}
}

// Parts count once, in their order, of one source. What is loaded is as it was there, all zxids of
// later transactions are above, and no session opens before the last part.
func TestLoad(t *testing.T) {
	r := seedRig(t)
	if !r.Untouched() {
		t.Fatal("a new shard is said to be in use")
	}
	r.apply(part(source, 1, true, "/a"), command.EncodeLoad(command.Load{Source: source}, 1))
	r.wantSeed(t, command.Seed{})
	r.apply(begins(source), begins(other), command.EncodeLoad(command.Load{Source: other, Zxid: 2 * loadZxid}, 1))
	r.wantSeed(t, command.Seed{Source: source, Next: 1})
	r.apply(part(source, 2, true, "/z"), part(other, 1, true, "/z"), part(source, 1, false, "/", "/a", "/a/b"),
		part(source, 1, true, "/z"), part(source, 2, false, "/x/y"))
	r.wantSeed(t, command.Seed{Source: source, Next: 2})
	if err := r.opens(t, 1); err == nil {
		t.Error("a session was opened before the last part")
	}
	r.apply(part(source, 2, true, "/b"))
	r.wantSeed(t, command.Seed{Source: source, Next: 3, Done: true})
	r.apply(part(source, 3, true, "/z"), command.EncodeLoad(command.Load{Source: other, Zxid: 2 * loadZxid}, 1))
	r.wantSeed(t, command.Seed{Source: source, Next: 3, Done: true})
	for _, path := range []string{"/a", "/a/b", "/b"} {
		data, stat, err := r.Tree().Get(path)
		if err != nil || string(data) != path || stat.Czxid != 5 || stat.Mzxid != 6 || stat.Pzxid != 7 || stat.Ctime.UnixMilli() != 8 || stat.Mtime.UnixMilli() != 9 || stat.Version != 3 {
			t.Errorf("%s: %q, %+v, %v", path, data, stat, err)
		}
	}
	if r.Tree().Len() != bornZnodes+3 {
		t.Errorf("%d znodes", r.Tree().Len())
	}
	if err := r.opens(t, 2); err != nil || r.mu.Zxid <= loadZxid {
		t.Errorf("%v, zxid %#x", err, r.mu.Zxid)
	}
}

// M113: the loading goes on much later, so zxids go on after a later time. It loses no part, and on the
// home shard it is over with the last one.
func TestLoad_BeginsAgain(t *testing.T) {
	again := func(s command.Source, z tree.Zxid) []byte {
		return command.EncodeLoad(command.Load{Source: s, Zxid: z}, 100)
	}
	for _, shard := range []replication.ShardID{command.HomeShard, 2} {
		r := seedRig(t)
		r.Shard = shard
		wantZxid := func(want tree.Zxid) {
			t.Helper()
			if r.mu.Zxid != want || r.Visible() != want {
				t.Errorf("shard %d: zxid %#x, of which readers see %#x, want %#x", shard, r.mu.Zxid, r.Visible(), want)
			}
		}
		r.apply(begins(source), part(source, 1, false, "/a"), again(other, 2*loadZxid), again(source, loadZxid))
		wantZxid(loadZxid + 1)
		r.apply(again(source, 2*loadZxid))
		wantZxid(2 * loadZxid)
		r.wantSeed(t, command.Seed{Source: source, Next: 2})
		r.apply(part(source, 2, true, "/b"))
		wantZxid(2*loadZxid + 1)
		r.apply(again(source, 3*loadZxid))
		if shard == command.HomeShard {
			wantZxid(2*loadZxid + 1)
		} else {
			wantZxid(3 * loadZxid)
		}
		r.wantSeed(t, command.Seed{Source: source, Next: 3, Done: true})
	}
}

// Nothing is loaded where somebody may have been before, not even when the shard is empty again.
func TestLoadOnlyIntoANewShard(t *testing.T) {
	close := func(r *rig, seq uint64) {
		id := r.mu.table.Sessions(enginetest.Member)[0].ID
		r.requests(seq, command.Request{Kind: command.RequestClose, Session: id})
		if !r.Untouched() {
			t.Fatal("something is left of the session")
		}
	}
	for name, use := range map[string]func(r *rig){
		"now":    func(r *rig) { r.opens(t, 1) },
		"before": func(r *rig) { r.opens(t, 1); close(r, 2) },
	} {
		r := newRig(t)
		r.apply(command.EncodeRegister(enginetest.Origin(), 1, command.Rules{}))
		use(r)
		r.apply(begins(source), part(source, 1, true, "/a"))
		if r.wantSeed(t, command.Seed{Done: true}); r.Tree().Len() != bornZnodes {
			t.Errorf("%s: %d znodes", name, r.Tree().Len())
		}
	}
}

// A container may be reaped only when the parts with its children are there.
func TestLoadReapsNothing(t *testing.T) {
	r := seedRig(t)
	box := tree.Znode{Czxid: 5, Mzxid: 5, Pzxid: 5, Created: 1, Container: true}
	r.apply(begins(source), command.EncodeLoad(command.Load{Part: 1, Source: source, Znodes: []tree.Named{{Path: "/c", Znode: box}}}, 1))
	reap := command.EncodeReap(1, []command.Mortal{{Path: "/c", Seen: tree.Seen{Czxid: 5, Mzxid: 5, Pzxid: 5}}})
	r.apply(reap)
	if _, ok := r.Tree().Exists("/c"); !ok {
		t.Fatal("a container was reaped while its children were still to come")
	}
	r.apply(part(source, 2, true), reap)
	if _, ok := r.Tree().Exists("/c"); ok {
		t.Error("an empty container stays for ever")
	}
}

// How far the loading is, is in the image and in a snapshot: whoever gets one goes on from there.
func TestLoadGoesOnFromASnapshot(t *testing.T) {
	r := seedRig(t)
	r.apply(begins(source), part(source, 1, false, "/a", "/a/b"))
	snapshot, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	if err := errors.Join(snapshot.WriteTo(&sent, nil), snapshot.Close()); err != nil {
		t.Fatal(err)
	}
	late := newRig(t)
	if err := late.Install(io.Reader(&sent), nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*rig{r, late} {
		r.wantSeed(t, command.Seed{Source: source, Next: 2})
		r.apply(part(source, 1, true, "/z"), part(source, 2, true, "/b"))
		r.wantSeed(t, command.Seed{Source: source, Next: 3, Done: true})
	}
	if a, b := everything(t, r), everything(t, late); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func everything(t *testing.T, r *rig) map[string]tree.Znode {
	t.Helper()
	all := make(map[string]tree.Znode)
	_ = r.Tree().Walk(func(path string, z tree.Znode) error {
		all[path] = z
		return nil
	})
	return all
}

// After a crash in the middle the image has the parts so far, and the log the others.
func TestLoadGoesOnFromTheImage(t *testing.T) {
	r := seedRig(t)
	r.apply(begins(source), part(source, 1, false, "/a"))
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	d, err := disk.Open(files.OS, r.disk.Dir())
	if err != nil {
		t.Fatal(err)
	}
	past, err := LoadPast(storage.Options{Disk: d, Dir: filepath.Join(r.disk.Dir(), "image")}, command.HomeShard)
	if err != nil {
		t.Fatal(err)
	}
	if state, n := past.State(); state.Seed != (command.Seed{Source: source, Next: 2}) || n != bornZnodes+1 {
		t.Errorf("%+v, %d znodes", state, n)
	}
	if err := errors.Join(past.Apply(r.Index()+1, part(source, 1, false, "/a")), past.Apply(r.Index()+2, part(source, 2, true, "/b"))); err != nil {
		t.Fatal(err)
	}
	if state, n := past.State(); !state.Seed.Done || n != bornZnodes+2 {
		t.Errorf("%+v, %d znodes", state, n)
	}
	if !errors.Is(ErrLoading, outbox.ErrUnavailable) {
		t.Error("ErrLoading is not ErrUnavailable")
	}
}
