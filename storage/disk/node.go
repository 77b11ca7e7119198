package disk

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// A node is one file, independent of the number of its names and open handles. While the disk
// works, the node counts the file's size, so that a failed write knows its place in memory. After
// the switch the node holds what was written since.
//
// Invariants:
//
//  1. size is what readers see. It covers every write through this Disk since the last truncation:
//     in a log, the writes that have landed; in any other file, the writes that have begun. end
//     covers every append that has begun.
//  2. dirty is set if data holds anything. While a name leads to the node, it is never dropped if
//     it is dirty or has no real file.
type node struct {
	// Immutable after newNode.
	info os.FileInfo // of the real file; nil if memory alone has the file

	// Guarded by nodes.mu.
	refs int

	writer rank.Mutex[rank.Writer] // held to write to a log or to truncate a file

	mu struct {
		rank.RWMutex[rank.Node]
		size     int64
		end      int64 // end of the space reserved by appends; counts if beyond size
		zeroed   int64 // the disk holds zeros, hidden from readers, up to here; 0 if there are none
		dirty    bool
		modified time.Time // time of the newest write to memory
		data     extents   // what was written to memory
		cut      bool      // memory has truncated the file: only the first kept bytes on disk count
		kept     int64
	}
}

// newNode returns the node of a real file, or of a new file in memory if info is nil.
func newNode(info os.FileInfo) *node {
	n := &node{info: info}
	if info == nil {
		n.mu.modified = time.Now()
		return n
	}
	n.mu.size = info.Size()
	return n
}

// reserve reserves the next length bytes at the end of the file and returns their offset.
func (n *node) reserve(length int) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	off := max(n.mu.size, n.mu.end)
	n.mu.end = off + int64(length)
	return off
}

// grow makes the file at least size bytes long.
func (n *node) grow(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.size = max(n.mu.size, size)
}

// observe records the size of the real file. It ignores the zeros behind a log's end, and bytes
// that memory has cut off.
func (n *node) observe(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if size > n.mu.zeroed && !n.mu.cut {
		n.mu.size = max(n.mu.size, size)
	}
}

// ahead reports whether a log needs new zeros, and at which offset the caller must write them. It
// counts them as written.
func (n *node) ahead() (end int64, wanted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.size <= n.mu.zeroed {
		return 0, false
	}
	end = max(n.mu.size, n.mu.end)
	n.mu.zeroed = end + aheadStep
	return end, true
}

// truncated records that the real file was cut off at size.
func (n *node) truncated(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.size = min(n.mu.size, size)
	n.mu.end, n.mu.zeroed = 0, 0
}

// truncate cuts the file off at size in memory. It marks the node dirty even if only the zeros
// behind a log's end go: if the node were dropped, the zeros would show.
func (n *node) truncate(size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if size >= n.mu.size && n.mu.zeroed == 0 {
		return
	}
	size = min(size, n.mu.size)
	if !n.mu.cut || size < n.mu.kept {
		n.mu.cut, n.mu.kept = true, size
	}
	n.mu.data.truncate(size)
	n.mu.size, n.mu.end, n.mu.zeroed = size, 0, 0
	n.mu.dirty = true
	n.mu.modified = time.Now()
}

// trim returns info without the zeros behind a log's end.
func (n *node) trim(info os.FileInfo) os.FileInfo {
	if size := n.size(); info.Size() > size {
		return fileInfo{name: info.Name(), size: size, mode: info.Mode(), modified: info.ModTime(), sys: info.Sys()}
	}
	return info
}

func (n *node) size() int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.mu.size
}

// write copies p into memory.
func (n *node) write(p []byte, off int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.dirty = true
	n.mu.modified = time.Now()
	if len(p) == 0 {
		return
	}
	n.mu.data.write(p, off)
	n.mu.size = max(n.mu.size, off+int64(len(p)))
}

// read copies the bytes that memory has of [off, off+len(p)) into p.
func (n *node) read(p []byte, off int64) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.mu.cut {
		clear(p[min(max(n.mu.kept-off, 0), int64(len(p))):])
	}
	n.mu.data.read(p, off)
}

// covers reports whether memory has all of [off, end).
func (n *node) covers(off, end int64) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.mu.data.covers(off, end)
}

// stat describes the file as memory sees it.
func (n *node) stat(name string) os.FileInfo {
	n.mu.RLock()
	defer n.mu.RUnlock()
	i := fileInfo{name: name, size: n.mu.size, mode: fileMode, modified: n.mu.modified}
	if n.info == nil {
		return i
	}
	i.mode, i.sys = n.info.Mode(), n.info.Sys()
	if !n.mu.dirty {
		i.modified = n.info.ModTime()
	}
	return i
}

// check returns an error if an invariant does not hold, as far as one node can tell.
func (n *node) check() error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if len(n.mu.data) > 0 && !n.mu.dirty {
		return errors.New("node has bytes in memory but is not dirty")
	}
	if last := len(n.mu.data) - 1; last >= 0 && n.mu.data[last].end() > n.mu.size {
		return errors.New("node has bytes in memory beyond its size")
	}
	return n.mu.data.check()
}

// nodes are the nodes of the real files that are open or dirty. The list has one entry for each
// open file, and only opening and closing search it. So a linear search is enough.
type nodes struct {
	mu   rank.Mutex[rank.Nodes]
	list []*node
}

// acquire returns the node of a real file. The caller must release it.
func (ns *nodes) acquire(info os.FileInfo) *node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	i := ns.indexLocked(info)
	if i < 0 {
		i = len(ns.list)
		ns.list = append(ns.list, newNode(info))
	}
	ns.list[i].refs++
	return ns.list[i]
}

// release releases a node from acquire. Nodes that memory alone has are not in the list.
func (ns *nodes) release(n *node) {
	if n.info == nil {
		return
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n.refs--
	n.mu.RLock()
	keep := n.refs > 0 || n.mu.dirty
	n.mu.RUnlock()
	if keep {
		return
	}
	if i := slices.Index(ns.list, n); i >= 0 {
		ns.list = slices.Delete(ns.list, i, i+1)
	}
}

// find returns the node of a real file, or nil if it has none.
func (ns *nodes) find(info os.FileInfo) *node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if i := ns.indexLocked(info); i >= 0 {
		return ns.list[i]
	}
	return nil
}

func (ns *nodes) indexLocked(info os.FileInfo) int {
	for i, n := range ns.list {
		if files.Same(n.info, info) {
			return i
		}
	}
	return -1
}

// fileInfo describes a file or directory that differs from the one on disk.
type fileInfo struct {
	name     string
	size     int64
	mode     os.FileMode
	modified time.Time
	sys      any
}

func renamed(info os.FileInfo, name string) os.FileInfo {
	if info.Name() == name {
		return info
	}
	return fileInfo{name: name, size: info.Size(), mode: info.Mode(), modified: info.ModTime(), sys: info.Sys()}
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() os.FileMode  { return i.mode }
func (i fileInfo) ModTime() time.Time { return i.modified }
func (i fileInfo) IsDir() bool        { return i.mode.IsDir() }
func (i fileInfo) Sys() any           { return i.sys }
