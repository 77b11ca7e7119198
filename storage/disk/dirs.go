package disk

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// dirs are the directories that must exist: this Disk has made or opened them, and has not removed
// or renamed them since. If one is missing, somebody else removed it.
type dirs struct {
	mu    rank.Mutex[rank.Dirs]
	known map[string]struct{}

	// open lists the handles of directories. The slice is replaced, never changed.
	open   atomic.Pointer[[]*dirFile]
	looked atomic.Int64 // when the names of open directories were last checked, in Unix nanoseconds
}

// learn records that a directory exists.
func (s *dirs) learn(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[filepath.Clean(name)] = struct{}{}
}

// forget must be called before the Disk itself removes or renames a name. It returns the
// directories at and below the name, relative to it.
func (s *dirs) forget(name string) (below []string) {
	name = filepath.Clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir := range s.known {
		if rest, ok := strings.CutPrefix(dir, name); ok && (rest == "" || rest[0] == filepath.Separator) {
			below = append(below, rest)
			delete(s.known, dir)
		}
	}
	return below
}

// restore records that the forgotten directories exist, below the same name or a new one.
func (s *dirs) restore(name string, below []string) {
	for _, rest := range below {
		s.learn(filepath.Clean(name) + rest)
	}
}

func (s *dirs) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[name]
	return ok
}

// opened and closed maintain the list of handles.
func (s *dirs) opened(f *dirFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append(slices.Clone(s.handles()), f)
	s.open.Store(&list)
}

func (s *dirs) closed(f *dirFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(s.handles()), func(o *dirFile) bool { return o == f })
	s.open.Store(&list)
}

func (s *dirs) handles() []*dirFile {
	if list := s.open.Load(); list != nil {
		return *list
	}
	return nil
}

// missing returns the uppermost directory on the path to name that must exist and does not, or "".
func (d *Disk) missing(name string) string {
	name = filepath.Clean(name)
	var way []string
	for ; strings.HasPrefix(name, d.dir); name = filepath.Dir(name) {
		way = append(way, name)
		if name == filepath.Dir(name) {
			break
		}
	}
	for _, dir := range slices.Backward(way) {
		if d.vanished(dir) {
			return dir
		}
	}
	return ""
}

// vanished reports whether a directory that must exist is missing. It looks twice, because this
// Disk may have removed and made the directory again meanwhile.
func (d *Disk) vanished(dir string) bool {
	for range 2 {
		if !d.dirs.has(dir) {
			return false
		}
		_, err := d.sys.Stat(dir)
		if !errors.Is(err, os.ErrNotExist) || !d.dirs.has(dir) { // or this Disk is removing it right now
			return false
		}
	}
	return true
}

// blame turns "no such file" into a failure if a directory that must exist is missing.
func (d *Disk) blame(err error, names ...string) error {
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if dir := d.missing(name); dir != "" {
			return errRemoved("directory", dir)
		}
	}
	return err
}

// removed returns errRemoved for the uppermost directory that is missing, or for the given name if
// none is.
func (d *Disk) removed(what, name string) error {
	if dir := d.missing(name); dir != "" {
		return errRemoved("directory", dir)
	}
	return errRemoved(what, name)
}

// errRemoved does not wrap ErrNotExist, because that would count as an answer.
func errRemoved(what, name string) error {
	return fmt.Errorf("%s %s was %w: if it was moved, move it back and start the node again; "+
		"if it was removed, this member has lost its contents", what, name, ErrRemoved)
}

// lookEvery is the least time between two checks of the open directories. A log without a name is
// noticed at its next fsync, so this matters only for directories that hold no log.
const lookEvery = 100 * time.Millisecond

// inPlace returns an error if somebody else has removed the name of the log f or of an open
// directory. It is called after an fsync, because an fsync succeeds even on a file without a name.
// The check takes a microsecond and looks up no path.
func (d *Disk) inPlace(f *file, real files.File) error {
	if f.log && f.linked && nameless(real) {
		return d.removed("file", f.name)
	}
	last, now := d.dirs.looked.Load(), time.Now().UnixNano()
	if now-last < int64(lookEvery) || !d.dirs.looked.CompareAndSwap(last, now) {
		return nil
	}
	for _, dir := range d.dirs.handles() {
		if dir.linked && nameless(dir.real) && d.dirs.has(filepath.Clean(dir.name)) {
			return d.removed("directory", dir.name)
		}
	}
	return nil
}

// nameless reports whether an open file or directory is known to have no name left.
func nameless(real files.File) bool {
	info, err := real.Stat()
	return err == nil && files.Links(info) == 0
}

// made records a directory that was made or opened, and the directories above it.
func (d *Disk) made(name string) {
	for name = filepath.Clean(name); name != d.dir && strings.HasPrefix(name, d.dir); name = filepath.Dir(name) {
		d.dirs.learn(name)
	}
}

// list returns the directories that must exist, for tests.
func (s *dirs) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.known))
}
