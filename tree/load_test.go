package tree

import (
	"fmt"
	"runtime"
	"testing"
)

// Loaded znodes are garbage-collected like others, although a Loader allocates in blocks.
func TestLoadedMemoryIsLetGo(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
	large := Znode{Data: make([]byte, 100<<10)}
	for name, c := range map[string]struct {
		znodes int
		parent string
		znode  Znode
		stays  func(i int) bool
		op     func(path string) Op
	}{
		"data that was set again": {600, "", large, func(i int) bool { return i%versionBlock == 0 },
			func(path string) Op { return Op{Kind: KindSet, Path: path, Version: AnyVersion} }},
		"data that was deleted": {640, "", large, func(i int) bool { return i%entryBlock == 0 },
			func(path string) Op { return Op{Kind: KindDelete, Path: path, Version: AnyVersion} }},
		"children that were deleted": {50_000, "/queue", Znode{}, func(int) bool { return false },
			func(path string) Op { return Op{Kind: KindDelete, Path: path, Version: AnyVersion} }},
	} {
		t.Run(name, func(t *testing.T) {
			inUse := func() int {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int(m.HeapAlloc)
			}
			path := func(i int) string { return fmt.Sprintf("%s/a-znode-of-a-long-name-%010d", c.parent, i) }
			empty := inUse()
			l := NewLoader(nil)
			add := func(path string, z Znode) {
				if err := l.Add(path, z); err != nil {
					t.Fatal(err)
				}
			}
			root := initialZnode(rootPath)
			root.Created = int32(c.znodes) + 1
			add(rootPath, root)
			if c.parent != "" {
				add(c.parent, Znode{Created: int32(c.znodes)})
			}
			for i := range c.znodes {
				add(path(i), c.znode)
			}
			for _, p := range []string{zookeeperPath, ConfigPath, quotaPath} {
				add(p, initialZnode(p))
			}
			tree, err := l.Finish(0)
			if err != nil {
				t.Fatal(err)
			}
			full, stay := inUse()-empty, 0
			for i := range c.znodes {
				if c.stays(i) {
					stay++
					continue
				}
				if _, err := tree.Apply(Header{Zxid: Zxid(i + 1)}, []Op{c.op(path(i))}); err != nil {
					t.Fatal(err)
				}
				tree.Publish()
			}
			if err := tree.Drain(func(string, Znode, bool) error { return nil }); err != nil {
				t.Fatal(err)
			}
			need := full * stay / c.znodes
			if left := inUse() - empty; left > need+full/5 {
				t.Errorf("%d bytes were loaded, %d are still needed, %d are there", full, need, left)
			}
			runtime.KeepAlive(tree)
		})
	}
}
