//go:build unix

package powercut

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// Luck decides what happens to data and names that were not fsynced.
type Luck int

// The kinds of luck.
const (
	NothingLasts  Luck = iota
	ContentsLast       // but no names
	RenamesLast        // onto names that existed, but no new names
	AnythingLasts      // each name and each content by chance
	Lucks              // number of kinds
)

// A Platter knows what is durable below a directory.
type Platter struct {
	root string

	mu    sync.Mutex
	rand  *rand.Rand
	held  map[inode]*os.File // open files, so that the file system does not reuse their inodes
	data  map[inode][]byte
	names map[inode]map[string]inode
}

type inode uint64

// New returns the Platter of a directory. It counts everything in the directory as durable now. The
// same seed repeats the same luck.
func New(root string, seed uint64) (*Platter, error) {
	p := &Platter{
		root:  root,
		rand:  rand.New(rand.NewPCG(seed, 0)),
		held:  make(map[inode]*os.File),
		data:  make(map[inode][]byte),
		names: make(map[inode]map[string]inode),
	}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			p.Watch(disk.OpSyncDir, path)
		} else {
			p.Watch(disk.OpSync, path)
		}
		return nil
	})
	return p, err
}

// Close closes the files that the Platter holds open.
func (p *Platter) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, f := range p.held {
		errs = append(errs, f.Close())
	}
	clear(p.held)
	return errors.Join(errs...)
}

// Watch must be called before every mutating call.
func (p *Platter) Watch(op disk.Op, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch op {
	case disk.OpSync:
		if n, ok := p.hold(path); ok {
			p.data[n], _ = os.ReadFile(path)
		}
	case disk.OpSyncDir:
		if n, ok := p.hold(path); ok {
			p.names[n] = p.list(path)
		}
	}
}

// hold returns the inode at the path, and keeps it open.
func (p *Platter) hold(path string) (inode, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return 0, false
	}
	n := inode(info.Sys().(*syscall.Stat_t).Ino)
	if p.held[n] != nil {
		f.Close()
	} else {
		p.held[n] = f
	}
	return n, true
}

func (p *Platter) list(dir string) map[string]inode {
	names := make(map[string]inode)
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if n, ok := p.hold(filepath.Join(dir, e.Name())); ok {
			names[e.Name()] = n
		}
	}
	return names
}

// Cut makes the directory to, and writes into it what may be left after a power cut at this moment.
// Meanwhile Watch blocks, and so do the calls that it watches.
func (p *Platter) Cut(to string, luck Luck) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &copier{Platter: p, luck: luck, now: make(map[inode]string)}
	err := filepath.WalkDir(p.root, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while we looked
		}
		if n, ok := p.hold(path); ok {
			c.now[n] = path
		}
		return err
	})
	root, _ := p.hold(p.root)
	return errors.Join(err, c.dir(root, to))
}

// A copier makes one copy.
type copier struct {
	*Platter
	luck Luck
	now  map[inode]string // present path of every inode that still has a name
}

func (c *copier) lucky() bool { return c.luck == AnythingLasts && c.rand.IntN(2) == 0 }

func (c *copier) dir(n inode, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for name, child := range c.lasting(n) {
		path := filepath.Join(to, name)
		info, err := c.held[child].Stat()
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = c.dir(child, path)
		} else {
			err = os.WriteFile(path, c.contents(child), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lasting returns the names in a directory: the synced ones, changed by luck to what is there now.
func (c *copier) lasting(n inode) map[string]inode {
	names := maps.Clone(c.names[n])
	if names == nil {
		names = make(map[string]inode)
	}
	path, exists := c.now[n]
	if !exists {
		return names
	}
	now := c.list(path)
	for name := range names {
		if _, still := now[name]; !still && c.lucky() {
			delete(names, name)
		}
	}
	for name, child := range now {
		_, replaced := names[name]
		if c.lucky() || c.luck == RenamesLast && replaced {
			names[name] = child
		}
	}
	return names
}

// contents returns the synced contents of a file, or by luck newer ones.
func (c *copier) contents(n inode) []byte {
	synced := c.data[n]
	path, exists := c.now[n]
	if !exists {
		return synced
	}
	now, err := os.ReadFile(path)
	switch {
	case err != nil:
		return synced
	case c.luck == ContentsLast || c.lucky():
		return now
	case c.lucky() && len(now) > len(synced):
		return now[:len(synced)+c.rand.IntN(len(now)-len(synced))]
	}
	return synced
}
