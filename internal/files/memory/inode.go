package memory

import (
	"io"
	"maps"
	"os"
	"slices"
	"time"
)

// pageSize is the unit in which a file keeps old contents beside new ones.
const pageSize = 4096

// An inode is a file or a directory. Its System's lock guards it.
//
// What was synced is stored as a difference: the former value of everything that has changed since.
// So a value that was synced once and does not change costs nothing more.
type inode struct {
	mode     os.FileMode
	modified time.Time
	links    int              // names that lead here
	locks    map[*handle]bool // who has the file locked; true if shared

	// A file's contents: pages by number. A missing page and the missing end of a page are zeros. A
	// page that was synced is never changed, only replaced, so several Systems may share it.
	size, wasSize int64
	pages, was    map[int64][]byte

	// A directory's names. nil in had stands for a name that did not exist.
	names, had map[string]*inode
}

func newFile(perm os.FileMode) *inode {
	return &inode{mode: perm, modified: time.Now(), pages: make(map[int64][]byte)}
}

func newDir(perm os.FileMode) *inode {
	return &inode{mode: perm | os.ModeDir, modified: time.Now(), names: make(map[string]*inode)}
}

func (n *inode) isDir() bool { return n.mode.IsDir() }

// sync makes the contents or the names durable.
func (n *inode) sync() { n.wasSize, n.was, n.had = n.size, nil, nil }

// readAt is io.ReaderAt.
func (n *inode) readAt(p []byte, off int64) (int, error) {
	count := int(max(0, min(int64(len(p)), n.size-off)))
	for done := 0; done < count; {
		at, in := place(off + int64(done))
		part := p[done:min(count, done+pageSize-in)]
		page := n.pages[at]
		clear(part[copy(part, page[min(in, len(page)):]):])
		done += len(part)
	}
	if count < len(p) {
		return count, io.EOF
	}
	return count, nil
}

func (n *inode) writeAt(p []byte, off int64) {
	n.modified = time.Now()
	n.size = max(n.size, off+int64(len(p)))
	for len(p) > 0 {
		at, in := place(off)
		count := min(len(p), pageSize-in)
		page := extended(n.own(at), in+count)
		copy(page[in:], p[:count])
		n.pages[at] = page
		p, off = p[count:], off+int64(count)
	}
}

func (n *inode) truncate(size int64) {
	n.modified, n.size = time.Now(), size
	for at, page := range n.pages {
		left := size - at*pageSize
		if left >= int64(len(page)) {
			continue
		}
		page = n.own(at)
		if left > 0 {
			n.pages[at] = page[:left]
			continue
		}
		delete(n.pages, at)
		if n.was[at] == nil {
			delete(n.was, at)
		}
	}
}

// own returns a page that the caller may change, and keeps the synced one.
func (n *inode) own(at int64) []byte {
	page := n.pages[at]
	if _, owned := n.was[at]; owned {
		return page
	}
	if n.was == nil {
		n.was = make(map[int64][]byte)
	}
	n.was[at] = page
	return slices.Clone(page)
}

// place returns the page that holds an offset, and the offset in it.
func place(off int64) (page int64, in int) { return off / pageSize, int(off % pageSize) }

// extended returns the page with zeros up to a length of at least size.
func extended(page []byte, size int) []byte {
	if size <= len(page) {
		return page
	}
	return append(page, make([]byte, size-len(page))...)
}

// set changes what a name in a directory stands for; nil removes it.
func (n *inode) set(name string, to *inode) {
	n.modified = time.Now()
	from := n.names[name]
	if before, changed := n.had[name]; !changed {
		if n.had == nil {
			n.had = make(map[string]*inode)
		}
		n.had[name] = from
	} else if before == to {
		delete(n.had, name)
	}
	if from != nil {
		from.links--
	}
	if to == nil {
		delete(n.names, name)
		return
	}
	to.links++
	n.names[name] = to
}

// synced returns the durable names of a directory.
func (n *inode) synced() map[string]*inode {
	names := maps.Clone(n.names)
	for name, before := range n.had {
		if before == nil {
			delete(names, name)
		} else {
			names[name] = before
		}
	}
	return names
}
