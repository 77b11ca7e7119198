package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// formatVersion is the version of the whole image directory: its files, keys and database.
const formatVersion = 1

const (
	markerName  = "format"
	pointerName = "current"
	besideExt   = ".tmp"
	imagePrefix = "image-"

	markerTitle  = "vivarium image"
	pointerTitle = "vivarium current"

	// smallFileMax limits how much is read of the marker and the pointer, which have a few lines
	// each.
	smallFileMax = 4 << 10
)

// The states of the pointer.
const (
	stateNew  = "new"  // the image is being created and has never held anything
	stateLive = "live" // the image is complete
)

// A pointer is the contents of the file current.
type pointer struct {
	image  string // name of the image's directory
	state  string
	synced uint64 // the image's index when a Sync or an Install last made it durable
}

func (p pointer) encode() []byte {
	return seal(fmt.Sprintf("%s\nimage %s\nstate %s\nsynced %d\n", pointerTitle, p.image, p.state, p.synced))
}

func decodePointer(body string) (pointer, bool) {
	var p pointer
	n, _ := fmt.Sscanf(body, pointerTitle+"\nimage %s\nstate %s\nsynced %d\n", &p.image, &p.state, &p.synced)
	_, named := imageNumber(p.image)
	ok := n == 3 && named && (p.state == stateLive || p.state == stateNew)
	return p, ok
}

func encodeMarker(version int) []byte {
	return seal(fmt.Sprintf("%s\nformat %d\n", markerTitle, version))
}

// seal appends the checksum line.
func seal(body string) []byte {
	return fmt.Appendf([]byte(body), "sum %08x\n", crc32.Checksum([]byte(body), castagnoli))
}

// unseal returns what seal was given, and false for data that seal did not make.
func unseal(data []byte) (string, bool) {
	const sumLen = len("sum 00000000\n")
	if len(data) < sumLen {
		return "", false
	}
	body := string(data[:len(data)-sumLen])
	return body, string(seal(body)) == string(data)
}

func imageName(n int) string { return fmt.Sprintf("%s%06d", imagePrefix, n) }

// imageNumber returns the number in an image directory's name, and false for any other name.
func imageNumber(name string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, imagePrefix))
	return n, err == nil && n > 0 && imageName(n) == name
}

// A layout knows the names in one shard's image directory. It knows nothing of databases.
type layout struct {
	disk *disk.Disk
	dir  string
}

func (l layout) path(name string) string { return filepath.Join(l.dir, name) }

// inspect reports what the directory holds and changes nothing. If there is no error and exists is
// false, an image may be created: the directory is absent or empty, or a creation was interrupted.
func (l layout) inspect() (p pointer, exists bool, err error) {
	names, err := l.names()
	if err != nil {
		return p, false, err
	}
	ours := slices.IndexFunc(names, func(n string) bool { _, image := imageNumber(n); return image || n == pointerName })
	if !slices.Contains(names, markerName) {
		return p, false, l.unmarked(names, ours)
	}
	if err := l.checkMarker(); err != nil {
		return p, false, err
	}
	if !slices.Contains(names, pointerName) {
		if ours >= 0 {
			return p, false, corrupt(l.path(pointerName), "it is missing, though %s exists", names[ours])
		}
		return p, false, nil
	}
	if p, err = l.readPointer(); err != nil || p.state == stateNew {
		return pointer{}, false, err
	}
	if !slices.Contains(names, p.image) {
		return p, false, corrupt(l.path(p.image), "it is missing, though %s names it", pointerName)
	}
	return p, true, nil
}

// unmarked judges a directory without a marker. The marker is durable before anything else is
// written. So only an interrupted write of the marker may be there.
func (l layout) unmarked(names []string, ours int) error {
	if ours >= 0 {
		return corrupt(l.path(markerName), "it is missing, though %s exists", names[ours])
	}
	for _, name := range names {
		if name != markerName+besideExt {
			return foreign(l.dir, "it has no file %q but holds %q", markerName, name)
		}
	}
	return nil
}

func (l layout) checkMarker() error {
	file := l.path(markerName)
	data, err := l.readSmall(file)
	if err != nil {
		return err
	}
	var version int
	body, ok := unseal(data)
	if n, _ := fmt.Sscanf(body, markerTitle+"\nformat %d\n", &version); ok && n == 1 && version > formatVersion {
		return newer(file, version, formatVersion)
	}
	if string(encodeMarker(formatVersion)) != string(data) {
		return corrupt(file, "its contents are not what was written to it")
	}
	return nil
}

func (l layout) readPointer() (pointer, error) {
	file := l.path(pointerName)
	data, err := l.readSmall(file)
	if err != nil {
		return pointer{}, err
	}
	body, ok := unseal(data)
	p, parsed := decodePointer(body)
	if !ok || !parsed || string(p.encode()) != string(data) {
		return pointer{}, corrupt(file, "its contents are not what was written to it")
	}
	return p, nil
}

// create makes the directory, its marker, and a pointer in the state new. Each is durable before
// the next.
func (l layout) create() error {
	if err := l.disk.MkdirAll(l.dir); err != nil {
		return err
	}
	if err := l.syncParents(); err != nil {
		return err
	}
	if err := l.replace(markerName, encodeMarker(formatVersion)); err != nil {
		return err
	}
	return l.writePointer(pointer{image: imageName(1), state: stateNew})
}

// syncParents makes the directory's own name durable. It must not vanish in a power cut after
// images in it were promised to last. It is unknown which of the parents are new, so it syncs every
// parent that the disk covers.
func (l layout) syncParents() error {
	for dir := filepath.Dir(l.dir); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := l.disk.Stat(dir); err != nil {
			return nil // above the node's directory
		}
		if err := syncDir(l.disk, dir); err != nil {
			return err
		}
	}
	return nil
}

func (l layout) writePointer(p pointer) error { return l.replace(pointerName, p.encode()) }

// replace gives the file new contents, completely or not at all.
func (l layout) replace(name string, data []byte) error {
	beside := l.path(name + besideExt)
	f, err := l.disk.Create(beside)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := l.disk.Rename(beside, l.path(name)); err != nil {
		return err
	}
	return syncDir(l.disk, l.dir)
}

// sweep removes what no start can need: images other than live, and temporary files. It goes on after
// one that cannot be removed. It syncs the directory first. The pointer that names live may have been
// renamed by a process that was killed before its own sync.
func (l layout) sweep(live string) error {
	names, err := l.names()
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		_, image := imageNumber(n)
		leftover := image && n != live || n == markerName+besideExt || n == pointerName+besideExt
		return !leftover
	})
	if len(names) == 0 {
		return nil
	}
	if err := syncDir(l.disk, l.dir); err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, l.disk.Discard(l.path(name)))
	}
	return errors.Join(errs...)
}

// unused returns a name for the next image.
func (l layout) unused() (string, error) {
	names, err := l.names()
	if err != nil {
		return "", err
	}
	last := 0
	for _, name := range names {
		if n, ok := imageNumber(name); ok {
			last = max(last, n)
		}
	}
	return imageName(last + 1), nil
}

// names returns the names in the directory, sorted; none if it does not exist.
func (l layout) names() ([]string, error) {
	names, err := l.disk.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(names)
	return names, err
}

func (l layout) readSmall(file string) ([]byte, error) {
	f, err := l.disk.OpenForRead(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, smallFileMax))
}
