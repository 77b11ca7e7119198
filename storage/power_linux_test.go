package storage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// C13.4: what a power cut leaves is worse than what a crash leaves: of what was not synced, names and contents, each may be
// there or not, whatever became of the others.
func TestPowerCutAtAnyChangeLeavesAWholeImage(t *testing.T) {
	for name, l := range lives(t) {
		t.Run(name, func(t *testing.T) {
			for at, more := 1+rand.IntN(stride(4)), true; more; at += stride(4) {
				more = t.Run(fmt.Sprint(at), func(t *testing.T) {
					c, root := &cutter{at: at}, restore(t, l.before)
					p := newPlatter(t, root)
					promised := l.run(t, root, func(op disk.Op, name string) error {
						if err := c.cut(op, name); err != nil {
							return err
						}
						p.watch(op, name)
						return nil
					})
					for luck := range powerCuts {
						l.survives(t, p.cut(t, luck), promised)
					}
					more = c.at <= 0
				}) && more
			}
		})
	}
}

// A process that is killed between renaming the pointer and syncing the directory leaves a pointer that its
// successor sees and a power cut does not. The successor must not remove the old image on its word.
func TestPowerCutAfterAKilledInstallLeavesAWholeImage(t *testing.T) {
	l := lives(t)["install"]
	for at, more := 1+rand.IntN(stride(4)), true; more; at += stride(4) {
		more = t.Run(fmt.Sprint(at), func(t *testing.T) {
			c, root := &cutter{at: at}, restore(t, l.before)
			p := newPlatter(t, root)
			killed := l.run(t, root, func(op disk.Op, name string) error {
				pointer, _ := os.ReadFile(filepath.Join(name, pointerName))
				if op == disk.OpSyncDir && strings.Contains(string(pointer), imageName(2)) {
					return errFault
				}
				p.watch(op, name)
				return nil
			})
			promised := l.run(t, root, func(op disk.Op, name string) error {
				if err := c.cut(op, name); err != nil {
					return err
				}
				p.watch(op, name)
				return nil
			})
			for luck := range powerCuts {
				l.survives(t, p.cut(t, luck), max(killed, promised))
			}
			more = c.at <= 0
		}) && more
	}
}

// A platter is what is durable below a directory. It watches what is synced.
type platter struct {
	root string
	seed uint64

	mu    sync.Mutex
	held  map[inode]*os.File // keeps the file system from using an inode again
	data  map[inode][]byte
	names map[inode]map[string]inode
}

type inode uint64

func newPlatter(t *testing.T, root string) *platter {
	p := &platter{
		root:  root,
		seed:  rand.Uint64(),
		held:  make(map[inode]*os.File),
		data:  make(map[inode][]byte),
		names: make(map[inode]map[string]inode),
	}
	t.Cleanup(func() {
		for _, f := range p.held {
			f.Close()
		}
		if t.Failed() {
			t.Logf("power cut seed %d", p.seed)
		}
	})
	filepath.WalkDir(root, func(path string, e os.DirEntry, _ error) error {
		if e.IsDir() {
			p.watch(disk.OpSyncDir, path)
		} else {
			p.watch(disk.OpSync, path)
		}
		return nil
	})
	return p
}

// hold returns the inode behind the path.
func (p *platter) hold(path string) (inode, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	info, err := f.Stat()
	if err != nil {
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

// watch is told of every change before it happens.
func (p *platter) watch(op disk.Op, path string) {
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

func (p *platter) list(dir string) map[string]inode {
	names := make(map[string]inode)
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if n, ok := p.hold(filepath.Join(dir, e.Name())); ok {
			names[e.Name()] = n
		}
	}
	return names
}

// The kinds of luck that what was not synced may have.
const (
	nothingLasted  = iota
	contentsLasted // but no names
	renamesLasted  // onto names that were there, but no new names
	anythingLasted
	anythingElseLasted
	powerCuts
)

// cut returns a copy of the directory as it may be after a power cut.
func (p *platter) cut(t *testing.T, luck int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &copier{
		platter: p,
		luck:    luck,
		rand:    rand.New(rand.NewPCG(p.seed, uint64(luck))),
		now:     make(map[inode]string),
	}
	filepath.WalkDir(p.root, func(path string, _ os.DirEntry, _ error) error {
		if n, ok := p.hold(path); ok {
			c.now[n] = path
		}
		return nil
	})
	root, _ := p.hold(p.root)
	to := scratch(t)
	must(t, c.dir(root, to))
	return to
}

type copier struct {
	*platter
	luck int
	rand *rand.Rand
	now  map[inode]string // where everything is that was not cut off
}

func (c *copier) lucky() bool { return c.luck >= anythingLasted && c.rand.IntN(2) == 0 }

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

// lasting returns the names in a directory: those that were synced, and by luck what became of each since.
func (c *copier) lasting(n inode) map[string]inode {
	names := make(map[string]inode)
	for name, child := range c.names[n] {
		names[name] = child
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
		if c.lucky() || c.luck == renamesLasted && replaced {
			names[name] = child
		}
	}
	return names
}

// contents returns what was synced of a file, and by luck more.
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
	case c.luck == contentsLasted || c.lucky():
		return now
	case c.lucky() && len(now) > len(synced):
		return now[:len(synced)+c.rand.IntN(len(now)-len(synced))]
	}
	return synced
}
