package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// File is an open file of a [Disk]. It is an alias, so that its users can name the same type
// without importing this package.
//
// Write goes to the file's position, or to its end if it was opened for appending. Any number of
// goroutines may call the methods. Reads that use the position run one at a time.
type File = interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	Stat() (os.FileInfo, error)
	Sync() error
}

var (
	// ErrOutside is returned for a name that is not an absolute path at or below the Disk's
	// directory.
	ErrOutside = errors.New("path is not below the node's directory")
	// ErrLocked is returned by Lock for a file that is already locked.
	ErrLocked = errors.New("file is locked")
	// ErrRemoved is wrapped by the switch's cause if somebody else removed or moved a file or
	// directory of this Disk.
	ErrRemoved = errors.New("removed or moved while the node ran")
)

// A Disk is a directory behind a switch. The package comment says what the switch does.
type Disk struct {
	// Immutable after Open and View.
	sys    files.System
	dir    string
	view   bool          // frozen from the start, without a failure
	thrown chan struct{} // closed when the switch is thrown
	failed chan struct{} // closed after the switch was thrown and all OnFail functions have returned

	frozen    atomic.Bool  // mutating calls take effect in memory only; never reset
	busy      atomic.Int64 // mutating calls in progress on the real directory
	syncs     atomic.Uint64
	meters    Meters
	dirSyncs  atomic.Uint64
	fault     atomic.Pointer[func(Op, string) error]
	readFault atomic.Pointer[func(Op, string) error] // as fault, for calls that only read
	logs      atomic.Pointer[func(string) bool]

	nodes nodes
	dirs  dirs
	over  overlay
	lack  lack

	mu struct {
		rank.Mutex[rank.Disk]
		cause  error               // why the switch was thrown; nil before
		onFail []func()            // functions still to be called
		locks  map[string]struct{} // names locked through this Disk
	}
}

// Open returns the Disk of directory dir of a file system. It makes the directory if it is missing.
// A relative dir is resolved against the present working directory; [Disk.Dir] returns the result.
func Open(sys files.System, dir string) (*Disk, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDurably(sys, abs); err != nil {
		return nil, err
	}
	d := newDisk(sys, abs)
	d.dirs.learn(abs)
	return d, nil
}

// What a Disk makes is for its owner alone: an image has the passwords of sessions, and data that
// ACLs protect.
const (
	fileMode os.FileMode = 0o600
	dirMode  os.FileMode = 0o700
)

// makeDurably makes a directory and any missing directories above it. It syncs each parent, so that
// a power cut cannot remove the directory together with everything that was synced inside.
func makeDurably(sys files.System, dir string) error {
	info, err := sys.Stat(dir)
	if err == nil && !info.IsDir() {
		return named("open", dir, syscall.ENOTDIR)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDurably(sys, parent); err != nil {
		return err
	}
	if err := sys.Mkdir(dir, dirMode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	f, err := sys.OpenFile(parent, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrPermission) {
		// The parent lets us add a name but not read it, so its owner must sync it.
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func newDisk(sys files.System, dir string) *Disk {
	d := &Disk{sys: sys, dir: dir, thrown: make(chan struct{}), failed: make(chan struct{})}
	d.dirs.known = make(map[string]struct{})
	d.over.root = &directory{base: dir}
	d.over.sys, d.over.dirs = sys, &d.dirs
	d.lack.mu.changed = make(chan struct{})
	d.mu.locks = make(map[string]struct{})
	return d
}

// View returns a second Disk over the same directory, whose mutating calls take effect only in its
// own memory. It serves to see what other code would make of the directory, before anything in it
// is changed. A View has not failed. While a View is in use, nobody may change the directory
// through another Disk: the View would see a mixture.
func (d *Disk) View() *Disk {
	v := newDisk(d.sys, d.dir)
	v.view = true
	v.frozen.Store(true)
	return v
}

// Dir returns the absolute path of the directory.
func (d *Disk) Dir() string { return d.dir }

// Syncs returns how many fsyncs of real files have been done.
func (d *Disk) Syncs() uint64 { return d.syncs.Load() }

// AllSyncs returns how many fsyncs of real files and real directories have been done.
func (d *Disk) AllSyncs() uint64 { return d.syncs.Load() + d.dirSyncs.Load() }

// Logs registers which files are logs: files that grow in small writes, each followed by an fsync.
// When a log is open for writing, the Disk writes zeros behind its end, 256 KiB at a time, because
// that makes the fsync faster. While the log is open, the zeros are hidden. They become part of the
// file when all handles are closed, or in a crash. So a log's reader must recognize its end, and
// may remove the zeros with Truncate.
func (d *Disk) Logs(match func(name string) bool) { d.logs.Store(&match) }

// rel returns name as a path relative to the directory, with "." for the directory itself. It
// returns an error if name is outside.
func (d *Disk) rel(op, name string) (string, error) {
	clean := filepath.Clean(name)
	if clean == d.dir {
		return ".", nil
	}
	prefix := d.dir
	if !strings.HasSuffix(prefix, string(filepath.Separator)) {
		prefix += string(filepath.Separator)
	}
	if !strings.HasPrefix(clean, prefix) {
		return "", &os.PathError{Op: op, Path: name, Err: ErrOutside}
	}
	return clean[len(prefix):], nil
}

// below is rel for calls that do not accept the directory itself.
func (d *Disk) below(op, name string) (string, error) {
	rel, err := d.rel(op, name)
	if err == nil && rel == "." {
		return "", &os.PathError{Op: op, Path: name, Err: os.ErrInvalid}
	}
	return rel, err
}
