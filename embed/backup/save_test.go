package backup_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// SaveNew replaces nothing, neither a file nor a link to nowhere. Whatever happens, what is there
// stays as it was, and nothing else is left.
func TestSaveNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, _ := several(t, 1)
		file := take(t, ens)
		dir := t.TempDir()
		copied := func(w io.Writer) error { _, err := w.Write(file); return err }
		save := func(write func(io.Writer) error) (embed.BackupInfo, error) {
			return backup.SaveNew(filepath.Join(dir, "draft"), write, func(info embed.BackupInfo) string {
				return "of-" + info.Lineage
			})
		}
		_, err := save(func(w io.Writer) error { _, err := w.Write(file[:len(file)-1]); return err })
		if entries, _ := os.ReadDir(dir); !errors.Is(err, backup.ErrCorrupt) || len(entries) > 0 {
			t.Errorf("a cut one: %v, %v", err, entries)
		}
		info, err := save(copied)
		must(t, err)
		name := filepath.Join(dir, "of-"+info.Lineage)
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, file) || info.Size != int64(len(file)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		for _, there := range []func() error{
			func() error { return os.WriteFile(name, []byte("theirs"), 0o600) },
			func() error { return errors.Join(os.Remove(name), os.Symlink("nowhere", name)) },
		} {
			must(t, there())
			info, err := save(copied)
			if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), name) || info.Size != 0 {
				t.Errorf("%+v, %v", info, err)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("%v", entries)
			}
		}
		if to, err := os.Readlink(name); to != "nowhere" || err != nil {
			t.Errorf("%q, %v", to, err)
		}
	})
}

// Save replaces an older backup of the ensemble, sound or not, and a file without a byte. It replaces
// neither another ensemble's backup nor what is no backup, such as a config that was named by mistake.
func TestSave_Replaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, _ := several(t, 1)
		file := take(t, ens)
		other := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Ensemble = "other" }})
		name := filepath.Join(t.TempDir(), "file")
		for what, c := range map[string]struct {
			there []byte
			want  error
		}{
			"an older one":       {file, nil},
			"a damaged one":      {file[:len(file)-1], nil},
			"nothing":            {nil, nil},
			"another ensemble's": {take(t, other), backup.ErrOther},
			"a config":           {[]byte("dir: data\n"), backup.ErrOther},
		} {
			must(t, os.WriteFile(name, c.there, 0o600))
			_, err := backup.Save(name, func(w io.Writer) error { _, err := w.Write(file); return err })
			want := file
			if c.want != nil {
				want = c.there
			}
			if got, e := os.ReadFile(name); !errors.Is(err, c.want) || e != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v, %v", what, err, e)
			}
			if entries, _ := os.ReadDir(filepath.Dir(name)); len(entries) != 1 {
				t.Errorf("%s: %v", what, entries)
			}
		}
	})
}

// M169: Save replaces only what it knows for an older backup of the ensemble. Another ensemble's may be
// of a newer build, or damaged where it says whose it is. A FIFO or a link is somebody's too.
func TestSave_KeepsWhatItDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, _ := several(t, 1)
		file := take(t, ens)
		other := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Ensemble = "other" }})
		newer, damaged := take(t, other), take(t, other)
		newer[7]++    // the format
		damaged[12]++ // the header's checksum
		name := filepath.Join(t.TempDir(), "file")
		write := func(b []byte) func() error { return func() error { return os.WriteFile(name, b, 0o600) } }
		for what, there := range map[string]func() error{
			"of a newer build":    write(newer),
			"with a spoiled head": write(damaged),
			"cut in its head":     write(newer[:10]),
			"a FIFO":              func() error { return syscall.Mkfifo(name, 0o600) },
			"a link to nothing":   func() error { return os.Symlink("nowhere", name) },
			"a directory":         func() error { return os.Mkdir(name, 0o700) },
		} {
			must(t, there())
			before, err := os.Lstat(name)
			must(t, err)
			info, err := backup.Save(name, func(w io.Writer) error { _, err := w.Write(file); return err })
			if !errors.Is(err, backup.ErrOther) || !strings.Contains(err.Error(), name) || info.Size != 0 {
				t.Errorf("%s: %+v, %v", what, info, err)
			}
			if after, err := os.Lstat(name); err != nil || !os.SameFile(before, after) {
				t.Errorf("%s: it is gone: %v", what, err)
			}
			if entries, _ := os.ReadDir(filepath.Dir(name)); len(entries) != 1 {
				t.Errorf("%s: %v", what, entries)
			}
			must(t, os.Remove(name))
		}
	})
}
