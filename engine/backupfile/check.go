package backupfile

import (
	"fmt"
	"strings"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
)

// A checker sees all records in their order, and refuses those that are not of the trees that the
// header announces.
type checker struct {
	shards []Shard
	at     int // index of the shard of the last record
	found  int // its records so far
	all    uint64
	// above are the paths of this shard so far that the last one begins with, the last one too. As
	// paths come in byte order, a parent is among them when its child comes.
	above []ancestor
}

type ancestor struct {
	path      string
	ephemeral bool
}

// next checks a record and returns its znode. The data stays in record.
func (c *checker) next(shard uint32, path string, record []byte) (tree.Znode, error) {
	for uint32(c.at+1) < shard {
		if err := c.endShard(); err != nil {
			return tree.Znode{}, err
		}
	}
	if c.at == len(c.shards) {
		return tree.Znode{}, c.endShard()
	}
	if uint32(c.at+1) != shard {
		return tree.Znode{}, corrupt("a znode of shard %d after those of shard %d", shard, c.at+1)
	}
	if err := c.place(path); err != nil {
		return tree.Znode{}, corrupt("shard %d: %v", shard, err)
	}
	z, err := command.DecodeZnode(record)
	if err != nil {
		return z, corrupt("shard %d: znode %q: %v", shard, path, err)
	}
	c.above[len(c.above)-1].ephemeral = z.Owner != 0
	if newest := max(z.Czxid, z.Mzxid, z.Pzxid); newest > c.shards[c.at].Zxid {
		return z, corrupt("shard %d: znode %q has zxid %#x, the shard ends at %#x", shard, path, uint64(newest), uint64(c.shards[c.at].Zxid))
	}
	c.found++
	c.all++
	return z, nil
}

// place returns why a path cannot follow the last one, or nil.
func (c *checker) place(path string) error {
	if err := tree.ValidatePath(path); err != nil {
		return err
	}
	last := ""
	if n := len(c.above); n > 0 {
		last = c.above[n-1].path
	}
	if path <= last {
		return fmt.Errorf("znode %q comes after %q", path, last)
	}
	for len(c.above) > 0 && !strings.HasPrefix(path, c.above[len(c.above)-1].path) {
		c.above = c.above[:len(c.above)-1]
	}
	if !c.hasParent(path) {
		return fmt.Errorf("znode %q has no parent, or an ephemeral as parent", path)
	}
	c.above = append(c.above, ancestor{path: path})
	return nil
}

func (c *checker) hasParent(path string) bool {
	if path == "/" {
		return true
	}
	parent := tree.Parent(path)
	for i := len(c.above) - 1; i >= 0 && len(c.above[i].path) >= len(parent); i-- {
		if len(c.above[i].path) == len(parent) {
			return !c.above[i].ephemeral // its path is a prefix, and so the parent's
		}
	}
	return false
}

// endShard checks that the shard is complete, and goes on to the next one.
func (c *checker) endShard() error {
	if c.at == len(c.shards) {
		return corrupt("it has more than %d shards", len(c.shards))
	}
	if s := c.shards[c.at]; c.found != s.Znodes {
		return corrupt("shard %d has %d znodes, its header says %d", s.Shard, c.found, s.Znodes)
	}
	c.at, c.found, c.above = c.at+1, 0, c.above[:0]
	return nil
}

// end checks that all shards are complete.
func (c *checker) end() error {
	for c.at < len(c.shards) {
		if err := c.endShard(); err != nil {
			return err
		}
	}
	return nil
}
