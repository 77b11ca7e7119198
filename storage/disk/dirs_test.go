package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/files"
)

// C1.2: If somebody else removes or moves a directory, the first call that notices throws the
// switch. The cause names the uppermost missing directory. In memory, the caller goes on to a good
// end.
func TestRemovedDirectory(t *testing.T) {
	calls := map[string]func(t *testing.T, d *Disk, at func(string) string){
		"create":   func(t *testing.T, d *Disk, at func(string) string) { put(t, d, at("a/b/new"), "x") },
		"mkdir":    func(t *testing.T, d *Disk, at func(string) string) { ok(t, d.MkdirAll(at("a/b/c"))) },
		"again":    func(t *testing.T, d *Disk, at func(string) string) { ok(t, d.MkdirAll(at("a/b"))) },
		"open dir": func(t *testing.T, d *Disk, at func(string) string) { syncDir(t, d, at("a/b")) },
		"lock": func(t *testing.T, d *Disk, at func(string) string) {
			l, err := d.Lock(at("a/b/LOCK"))
			ok(t, err)
			ok(t, l.Close())
		},
		"rename": func(t *testing.T, d *Disk, at func(string) string) { ok(t, d.Rename(at("a/b/sub"), at("a/b/sub2"))) },
		"list":   func(t *testing.T, d *Disk, at func(string) string) { wantList(t, d, at("a/b")) },
		"stat": func(t *testing.T, d *Disk, at func(string) string) {
			_, err := d.Stat(at("a/b/f"))
			wantErr(t, err, os.ErrNotExist)
		},
		"read": func(t *testing.T, d *Disk, at func(string) string) {
			_, err := d.OpenForRead(at("a/b/f"))
			wantErr(t, err, os.ErrNotExist)
		},
		"append": func(t *testing.T, d *Disk, at func(string) string) {
			_, err := d.OpenForAppend(at("a/b/f"))
			wantErr(t, err, os.ErrNotExist)
		},
	}
	removals := map[string]func(t *testing.T, dir string){
		"removed": func(t *testing.T, dir string) { ok(t, os.RemoveAll(dir)) },
		"moved":   func(t *testing.T, dir string) { ok(t, os.Rename(dir, filepath.Join(t.TempDir(), "moved"))) },
	}
	for call, do := range calls {
		for how, remove := range removals {
			for _, gone := range []string{"", "a", "a/b"} {
				d := open(t)
				at := func(name string) string { return filepath.Join(d.Dir(), name) }
				ok(t, d.MkdirAll(at("a/b")))
				put(t, d, at("a/b/f"), "x")
				ok(t, d.MkdirAll(at("a/b/sub")))
				remove(t, at(gone))
				do(t, d, at)
				wantErr(t, d.Err(), ErrRemoved)
				if want := "directory " + at(gone) + " was removed"; !strings.HasPrefix(d.Err().Error(), want) {
					t.Errorf("%s, %q %s: %v", call, gone, how, d.Err())
				}
				if _, err := os.Stat(at(gone)); err == nil {
					t.Errorf("%s, %q %s: it was made again", call, gone, how)
				}
				put(t, d, at("a/b/after"), "y")
				syncDir(t, d, at("a/b"))
				wantFile(t, d, at("a/b/after"), "y")
			}
		}
	}
}

// syncDir opens and syncs a directory.
func syncDir(t *testing.T, d *Disk, name string) {
	t.Helper()
	f := must[File](t)(d.OpenDir(name))
	must[os.FileInfo](t)(f.Stat())
	ok(t, f.Sync())
	ok(t, f.Close())
}

// A directory that this Disk itself removes or renames is not missing.
func TestRemovedByOurselves(t *testing.T) {
	d := open(t)
	at := func(name string) string { return filepath.Join(d.Dir(), name) }
	missing := func(name string) {
		t.Helper()
		_, err := d.OpenDir(at(name))
		wantErr(t, err, os.ErrNotExist)
		_, err = d.Create(at(name + "/f"))
		wantErr(t, err, os.ErrNotExist)
		_, err = d.Stat(at(name + "/f"))
		wantErr(t, err, os.ErrNotExist)
	}
	ok(t, d.MkdirAll(at("a/b/c")))
	ok(t, d.MkdirAll(at("ab")))
	ok(t, d.Remove(at("a/b/c")))
	missing("a/b/c")
	ok(t, d.Rename(at("a"), at("z")))
	missing("a")
	missing("a/b")
	if err := d.Rename(at("z"), at("ab")); err == nil {
		t.Fatal("a directory was replaced")
	}
	if err := d.Remove(at("z")); err == nil {
		t.Fatal("a full directory was removed")
	}
	if got, want := strings.Join(d.dirs.list(), " "), strings.Join([]string{d.Dir(), at("ab"), at("z"), at("z/b")}, " "); got != want {
		t.Errorf("known are %s, want %s", got, want)
	}
	ok(t, d.RemoveAll(at("z")))
	missing("z")
	missing("z/b")
	missing("never/was")
	ok(t, d.Err())
}

// If somebody else has removed a log, an fsync of it succeeds, because the kernel keeps the file
// while it is open. Nobody may count such an fsync as done.
func TestRemovedLog(t *testing.T) {
	for what, want := range map[string]string{"raft/1.log": "file", "raft": "directory", "": "directory"} {
		d, log := openLog(t)
		must[int](t)(log.Write([]byte("one")))
		ok(t, log.Sync())
		ok(t, d.Err())
		ok(t, os.RemoveAll(filepath.Join(d.Dir(), what)))
		must[int](t)(log.Write([]byte("two")))
		ok(t, log.Sync())
		wantErr(t, d.Err(), ErrRemoved)
		if err := d.Err().Error(); !strings.HasPrefix(err, want+" "+filepath.Join(d.Dir(), what)+" was removed") {
			t.Errorf("%q was removed: %v", what, err)
		}
		got := make([]byte, 6)
		must[int](t)(log.ReadAt(got, 0))
		if string(got) != "onetwo" {
			t.Errorf("the log reads %q", got)
		}
		ok(t, log.Close())
	}
}

// openLog returns a Disk and a log in its directory raft.
func openLog(t *testing.T) (*Disk, File) {
	t.Helper()
	d := open(t)
	d.Logs(func(name string) bool { return strings.HasSuffix(name, ".log") })
	ok(t, d.MkdirAll(filepath.Join(d.Dir(), "raft")))
	return d, must[File](t)(d.Create(filepath.Join(d.Dir(), "raft/1.log")))
}

// If an open directory is missing, the fsync of a log elsewhere notices it.
func TestRemovedDirectoryBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := openLog(t)
		image := filepath.Join(d.Dir(), "image")
		ok(t, d.MkdirAll(image))
		dir := must[File](t)(d.OpenDir(image))
		closed := must[File](t)(d.OpenDir(image))
		ok(t, closed.Close())
		ours := must[File](t)(d.OpenDir(filepath.Join(d.Dir(), "raft")))
		ok(t, d.MkdirAll(filepath.Join(d.Dir(), "tmp")))
		removed := must[File](t)(d.OpenDir(filepath.Join(d.Dir(), "tmp")))
		ok(t, d.RemoveAll(filepath.Join(d.Dir(), "tmp")))
		<-time.After(lookEvery)
		ok(t, log.Sync())
		ok(t, d.Err())

		ok(t, os.RemoveAll(image))
		<-time.After(lookEvery)
		ok(t, log.Sync())
		wantErr(t, d.Err(), ErrRemoved)
		for _, f := range []File{dir, ours, removed, log} {
			ok(t, f.Close())
		}
	})
}

// BenchmarkInPlace measures what an fsync pays to check that its log still has a name.
func BenchmarkInPlace(b *testing.B) {
	d, err := Open(files.OS, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	d.Logs(func(string) bool { return true })
	opened, err := d.Create(filepath.Join(d.Dir(), "1.log"))
	if err != nil {
		b.Fatal(err)
	}
	defer opened.Close()
	f := opened.(*file)
	b.ReportAllocs()
	for b.Loop() {
		if err := d.inPlace(f, f.mu.real); err != nil {
			b.Fatal(err)
		}
	}
}
