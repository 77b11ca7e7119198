package memory

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Luck decides what happens to contents and names that were not synced.
type Luck int

// The kinds of luck.
const (
	NothingLasts  Luck = iota
	ContentsLast       // but no names
	RenamesLast        // onto names that existed, but no new names
	AnythingLasts      // each name, page and size by chance; pages are torn
	Lucks              // number of kinds
)

// sectorSize is what a disk writes in one piece.
const sectorSize = 512

// PowerCut returns what may be left after a power cut at this moment. The System itself goes on.
// Nobody has a lock in what is left. One rng in one state makes the same choices for the same
// files. It is used for AnythingLasts only.
func (s *System) PowerCut(luck Luck, rng *rand.Rand) *System {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := cut{luck: luck, rng: rng, made: make(map[*inode]*inode), above: make(map[*inode]bool)}
	root := newRoot()
	c.fill(root, s.root)
	return &System{root: root}
}

// A cut makes what is left.
type cut struct {
	luck  Luck
	rng   *rand.Rand
	made  map[*inode]*inode // for a file with several names
	above map[*inode]bool   // directories that are being filled
}

func (c *cut) lucky() bool { return c.luck == AnythingLasts && c.rng.IntN(2) == 0 }

// fill fills an empty directory with what is left of another. All of it is durable. A directory
// that was renamed may last under both names, but not below itself.
func (c *cut) fill(dir, from *inode) {
	dir.mode, dir.modified = from.mode, from.modified
	names := c.lasting(from)
	c.above[from] = true
	defer delete(c.above, from)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		child := names[name]
		left := c.made[child]
		switch {
		case c.above[child]:
			continue
		case left != nil:
		case child.isDir():
			left = newDir(0)
			c.fill(left, child)
		default:
			left = c.file(child)
		}
		c.made[child] = left
		left.links++
		dir.names[name] = left
	}
}

// lasting returns the names in a directory: the synced ones, changed by luck to what is there now.
func (c *cut) lasting(dir *inode) map[string]*inode {
	names := dir.synced()
	for _, name := range slices.Sorted(maps.Keys(dir.had)) {
		now := dir.names[name]
		replaced := now != nil && dir.had[name] != nil
		switch {
		case !c.lucky() && !(c.luck == RenamesLast && replaced):
		case now == nil:
			delete(names, name)
		default:
			names[name] = now
		}
	}
	return names
}

// file returns what is left of a file: the synced contents, changed by luck to newer ones.
func (c *cut) file(n *inode) *inode {
	left := newFile(n.mode)
	size := c.size(n)
	maps.Copy(left.pages, n.pages)
	for _, at := range slices.Sorted(maps.Keys(n.was)) {
		if page := c.page(n.was[at], n.pages[at]); len(page) > 0 {
			left.pages[at] = page
		} else {
			delete(left.pages, at)
		}
	}
	left.truncate(size)
	left.sync()
	left.modified = n.modified
	return left
}

// size returns the size that a file has afterwards. The size of a file that grew may be that of any
// moment on the way.
func (c *cut) size(n *inode) int64 {
	switch {
	case c.luck == ContentsLast || c.lucky():
		return n.size
	case n.size > n.wasSize && c.lucky():
		return n.wasSize + c.rng.Int64N(n.size-n.wasSize)
	}
	return n.wasSize
}

// page returns what is left of a page. It may be torn between any two sectors, or the disk may have
// caught it in the middle of a write. A sector is written as a whole.
func (c *cut) page(was, now []byte) []byte {
	switch {
	case c.luck == ContentsLast:
		return slices.Clone(now)
	case !c.lucky():
		return was
	}
	was, now = extended(slices.Clone(was), pageSize), extended(slices.Clone(now), pageSize)
	switch c.rng.IntN(3) {
	case 0:
		return now
	case 1:
		copy(was, now[:c.rng.IntN(pageSize/sectorSize)*sectorSize])
		return was
	}
	for at := 0; at < pageSize; at += sectorSize {
		if c.lucky() {
			copy(was[at:], now[at:at+sectorSize])
		}
	}
	return was
}
