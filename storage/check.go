package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble"
	"github.com/cockroachdb/pebble/record"
	"github.com/cockroachdb/pebble/sstable"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// diagnose turns an error from opening or reading the database in dir into one that names the
// damaged file. It checks each file separately, because Pebble's errors name a number, a table of
// contents, or nothing.
func diagnose(d *disk.Disk, dir string, err error) error {
	if isIO(err) {
		return fmt.Errorf("%s: reading the image: %w", dir, err)
	}
	if file, what := suspect(d, dir); file != "" {
		return corrupt(filepath.Join(dir, file), "%v", what)
	}
	return corrupt(dir, "%v", err)
}

// older returns the error for an image that lost what a Sync had promised. It blames the MANIFEST:
// Pebble reads a MANIFEST only up to its first unreadable record, so the rest was lost there.
func older(d *disk.Disk, dir string, index, synced uint64) error {
	file := dir
	if names, err := d.List(dir); err == nil {
		manifest, _ := currentManifest(d, dir, names)
		file = filepath.Join(dir, manifest)
	}
	return corrupt(file, "it ends at index %d, but index %d was durable", index, synced)
}

// suspect returns the first damaged file in dir and what is wrong with it. It returns "" if each
// file is sound by itself.
func suspect(d *disk.Disk, dir string) (file string, what error) {
	names, err := d.List(dir)
	if err != nil {
		return "", nil
	}
	slices.Sort(names)
	manifest := ""
	for _, name := range names {
		if name == "CURRENT" {
			manifest, what = currentManifest(d, dir, names)
		} else {
			what = checkFile(d, dir, name)
		}
		if what != nil {
			return name, what
		}
	}
	if !slices.Contains(names, "CURRENT") {
		return "CURRENT", errors.New("it is missing")
	}
	return checkManifest(d, dir, manifest)
}

// currentManifest returns the name of the MANIFEST that CURRENT names.
func currentManifest(d *disk.Disk, dir string, names []string) (string, error) {
	data, err := readAll(d, filepath.Join(dir, "CURRENT"))
	if err != nil {
		return "", err
	}
	name, ok := strings.CutSuffix(string(data), "\n")
	if !ok || !strings.HasPrefix(name, "MANIFEST-") {
		return "", errors.New("it does not name a MANIFEST")
	}
	if !slices.Contains(names, name) {
		return "", fmt.Errorf("it names %s, which is missing", name)
	}
	return name, nil
}

// checkManifest reads every record of the MANIFEST. If the node crashed during an append, the last
// record may be missing. Any other unreadable record is damage.
func checkManifest(d *disk.Disk, dir, name string) (file string, what error) {
	data, err := readAll(d, filepath.Join(dir, name))
	if err != nil {
		return name, err
	}
	in := record.NewReader(bytes.NewReader(data), 0)
	for {
		r, err := in.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err == io.EOF {
			return "", nil
		}
		if err != nil {
			return name, err
		}
	}
}

func checkFile(d *disk.Disk, dir, name string) error {
	path := filepath.Join(dir, name)
	switch {
	case strings.HasSuffix(name, ".sst"):
		return checkTable(d, path)
	case strings.HasPrefix(name, "OPTIONS-"):
		data, err := readAll(d, path)
		if err != nil {
			return err
		}
		return new(pebble.Options).EnsureDefaults().Check(string(data))
	}
	return nil
}

// checkTable verifies the checksum of every block in a table. Reading a damaged table can panic.
func checkTable(d *disk.Disk, path string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reading it: %v", r)
		}
	}()
	f, err := d.OpenForRead(path)
	if err != nil {
		return err
	}
	r, err := sstable.NewReader(f, sstable.ReaderOptions{}) // closes f even on an error
	if err != nil {
		return err
	}
	return errors.Join(r.ValidateBlockChecksums(), r.Close())
}

func readAll(d *disk.Disk, path string) ([]byte, error) {
	f, err := d.OpenForRead(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close())
}
