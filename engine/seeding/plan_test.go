package seeding

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/engine/backupfile"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/internal/testkit/golden"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/tree"
)

// backupOf writes a backup, shard by shard.
func backupOf(t *testing.T, shards ...[]tree.Named) []byte {
	t.Helper()
	h := backupfile.Header{Time: 1, Member: 1}
	for i, list := range shards {
		h.Shards = append(h.Shards, backupfile.Shard{Shard: uint32(i + 1), Level: 1, Zxid: tree.Zxid(1000 * (i + 1)), Znodes: len(list)})
	}
	var out bytes.Buffer
	w, err := backupfile.NewWriter(&out, h)
	for i, list := range shards {
		for _, n := range list {
			if err == nil {
				_, err = w.Add(uint32(i+1), n.Path, command.EncodeZnode(n.Znode))
			}
		}
		err = errors.Join(err, w.Flush())
	}
	if err == nil {
		_, err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// born returns what every shard has from the start.
func born(created int32, z tree.Zxid) (root, zookeeper, config, quota tree.Named) {
	config = tree.Named{Path: tree.ConfigPath, Znode: tree.Znode{Version: -1}}
	return tree.Named{Path: "/", Znode: tree.Znode{Created: created, Pzxid: z}}, tree.Named{Path: "/zookeeper"}, config, tree.Named{Path: command.QuotaPath}
}

func sampleBackup(t *testing.T) []byte {
	named := func(path string, size int) tree.Named {
		return tree.Named{Path: path, Znode: tree.Znode{Czxid: 7, Data: make([]byte, size)}}
	}
	var shards [][]tree.Named
	for i, names := range [][]string{{"/jobs", "/users"}, {"/orders", "/stock"}} {
		root, zookeeper, config, quota := born(int32(10+i), tree.Zxid(500+i))
		list := []tree.Named{root}
		for _, name := range names {
			list = append(list, named(name, 10), named(name+"/a", 100), named(name+"/a/b", 10), named(name+"/large", 5000), named(name+"/z", 20))
		}
		list = append(list, tree.Named{Path: names[1] + "/zz", Znode: tree.Znode{Owner: 9}}, zookeeper, config, quota)
		slices.SortFunc(list, func(a, b tree.Named) int { return strings.Compare(a.Path, b.Path) })
		shards = append(shards, list)
	}
	return backupOf(t, shards...)
}

// cut returns the parts of a shard.
func cut(t *testing.T, file []byte, plan *plan, at replication.ShardID, most int) (parts [][]tree.Named) {
	t.Helper()
	c, err := newCutter(plan, bytes.NewReader(file), at, most)
	if err != nil {
		t.Fatal(err)
	}
	for {
		part, last, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if parts = append(parts, part); last {
			return parts
		}
	}
}

// Two builds must cut alike: one may go on where the other has stopped.
func TestParts(t *testing.T) {
	file := sampleBackup(t)
	var got strings.Builder
	for _, shards := range []int{1, 2, 4} {
		plan, err := newPlan(bytes.NewReader(file), shards, 300)
		if err != nil {
			t.Fatal(err)
		}
		for at := range replication.ShardID(shards) {
			fmt.Fprintf(&got, "shard %d of %d\n", at+1, shards)
			for _, part := range cut(t, file, plan, at+1, 300) {
				for _, n := range part {
					got.WriteString(" " + n.Path)
				}
				got.WriteString("\n")
			}
			root := plan.first(at + 1)[0]
			fmt.Fprintf(&got, " root: %d created, pzxid %d\n", root.Created, root.Pzxid)
		}
	}
	golden.Check(t, "testdata/parts.txt", got.String())
}

// However it is cut, each znode comes once, on its shard, after its parent. Ephemerals and the
// config stay behind.
func TestParts_HaveEverythingOnce(t *testing.T) {
	file := sampleBackup(t)
	for shards := 1; shards <= 5; shards++ {
		for _, most := range []int{1, 50, 300, 6000, 1 << 20} {
			plan, err := newPlan(bytes.NewReader(file), shards, most)
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]int)
			for at := range replication.ShardID(shards) {
				here := make(map[string]bool)
				for _, part := range cut(t, file, plan, at+1, most) {
					size := 0
					for _, n := range part {
						if here[n.Path] || n.Path != "/" && !here[tree.Parent(n.Path)] || isLeft(n) || !isBorn(n.Path) && command.ShardOf(n.Path, shards) != at+1 {
							t.Fatalf("%s on shard %d of %d", n.Path, at+1, shards)
						}
						here[n.Path] = true
						if !isBorn(n.Path) {
							seen[n.Path]++
							size += len(n.Path) + len(command.EncodeZnode(n.Znode))
						}
					}
					if size > most && len(part) > 1 && !isBorn(part[0].Path) {
						t.Errorf("a part of %d bytes, the limit is %d", size, most)
					}
				}
			}
			if len(seen) != 20 {
				t.Errorf("%d znodes", len(seen))
			}
			for path, n := range seen {
				if n != 1 {
					t.Errorf("%s comes %d times", path, n)
				}
			}
		}
	}
}

// A backup that is sound as a file may still have what no tree can take.
func TestNewPlan_Refuses(t *testing.T) {
	root, zookeeper, config, quota := born(1, 1)
	with := func(n tree.Named) []byte {
		list := []tree.Named{root, n, zookeeper, config, quota}
		slices.SortFunc(list, func(a, b tree.Named) int { return strings.Compare(a.Path, b.Path) })
		return backupOf(t, list)
	}
	if _, err := newPlan(bytes.NewReader(with(tree.Named{Path: "/a"})), 1, 300); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]tree.Named{
		"two modes":    {Path: "/a", Znode: tree.Znode{Container: true, TTL: 1}},
		"a negative":   {Path: "/a", Znode: tree.Znode{Created: -1}},
		"a TTL":        {Path: "/a", Znode: tree.Znode{TTL: tree.MaxTTL + 1}},
		"an empty ACL": {Path: "/a", Znode: tree.Znode{ACL: []tree.ACL{}}},
		"too large":    {Path: "/a", Znode: tree.Znode{Data: make([]byte, recordMax)}},
	} {
		if _, err := newPlan(bytes.NewReader(with(n)), 1, 300); !errors.Is(err, backupfile.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := with(tree.Named{Path: "/a"})
	for at := range file { // every byte, and every cut
		file[at] ^= 1
		if _, err := newPlan(bytes.NewReader(file), 1, 300); err == nil {
			t.Fatalf("byte %d may be another", at)
		}
		file[at] ^= 1
		if _, err := newPlan(io.LimitReader(bytes.NewReader(file), int64(at)), 1, 300); err == nil {
			t.Fatalf("it may end after %d bytes", at)
		}
	}
}
