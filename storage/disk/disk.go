package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// File is an open file of a [Disk]. It is an alias, so that its users can name the same type without importing
// this package.
//
// Write goes to the file's position, or to its end if it was opened for appending. The methods may be called
// by several goroutines; those that use the position take their turns.
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
	// ErrOutside is returned for a name that is not an absolute path at or below the Disk's directory.
	ErrOutside = errors.New("path is not below the node's directory")
	// ErrLocked is returned by Lock for a file that is locked already.
	ErrLocked = errors.New("file is locked")
	// ErrRemoved is in the cause of a switch that was thrown because somebody else removed or moved something of ours.
	ErrRemoved = errors.New("removed or moved while the node ran")
)

// A Disk is a directory behind a switch. See the package comment for what the switch does.
type Disk struct {
	// Immutable after Open and View.
	dir    string
	view   bool          // frozen from the start, and not because anything failed
	thrown chan struct{} // closed when the switch is thrown
	failed chan struct{} // closed once the switch was thrown and everybody has been told

	frozen   atomic.Bool  // mutating calls take effect in memory only; never goes back
	busy     atomic.Int64 // mutating calls that are at the real directory
	syncs    atomic.Uint64
	dirSyncs atomic.Uint64
	fault    atomic.Pointer[func(Op, string) error]
	bad      atomic.Pointer[func(Op, string) error] // fault, for calls that read
	logs     atomic.Pointer[func(string) bool]

	nodes nodes
	dirs  dirs
	over  overlay
	lack  lack

	mu struct {
		rank.Mutex[rank.Disk]
		cause  error               // why the switch was thrown; nil until then
		onFail []func()            // not yet called
		locks  map[string]struct{} // names locked through this Disk
	}
}

// Open returns the Disk of directory dir, which is made if it is missing. A relative dir is taken from the
// working directory of this moment; [Disk.Dir] tells what became of it.
func Open(dir string) (*Disk, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDurably(abs); err != nil {
		return nil, err
	}
	d := newDisk(abs)
	d.dirs.learn(abs)
	return d, nil
}

// makeDurably makes a directory and those above it that are missing, so that a power cut does not take it
// away with everything that was synced inside.
func makeDurably(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return named("open", dir, syscall.ENOTDIR)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDurably(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	f, err := os.Open(parent)
	if errors.Is(err, os.ErrPermission) {
		return nil // we may add a name to it but not read it, so its owner has to look after it
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func newDisk(dir string) *Disk {
	d := &Disk{dir: dir, thrown: make(chan struct{}), failed: make(chan struct{})}
	d.dirs.known = make(map[string]struct{})
	d.over.root = &directory{base: dir}
	d.over.dirs = &d.dirs
	d.lack.mu.changed = make(chan struct{})
	d.mu.locks = make(map[string]struct{})
	return d
}

// View returns a second Disk over the same directory whose mutating calls take effect in its own memory only,
// for looking at what others would make of the directory before anything in it is changed. A View is not
// failed. While a View is in use nobody may change the directory through another Disk: it would see a mixture.
func (d *Disk) View() *Disk {
	v := newDisk(d.dir)
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

// Logs says which files are written bit by bit at their end and fsynced each time. Zeros are written behind the end of one that is opened
// for writing, 256 KiB at a time, for that makes the fsync faster. While it is open they do not show. They are part of it when all have
// closed it, or after a crash: then its reader has to know its end, and may cut them off with Truncate.
func (d *Disk) Logs(match func(name string) bool) { d.logs.Store(&match) }

// rel returns name as a path relative to the directory ("." for the directory itself) or the reason
// why it is none of ours.
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

// below is rel for calls that the directory itself is no argument of.
func (d *Disk) below(op, name string) (string, error) {
	rel, err := d.rel(op, name)
	if err == nil && rel == "." {
		return "", &os.PathError{Op: op, Path: name, Err: os.ErrInvalid}
	}
	return rel, err
}
