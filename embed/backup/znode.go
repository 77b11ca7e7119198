package backup

import (
	"bytes"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/tree"
)

// A Znode is a znode of a backup.
type Znode struct {
	Path string // of the whole tree
	Data []byte // the caller's; nil if it was set to nil
	ACL  []embed.ACL
	// Mode is Persistent, Ephemeral, Container or TTL. A backup does not know which names a
	// sequential create has made.
	Mode embed.CreateMode
	TTL  time.Duration // of an ephemeral too, if it lingers; see embed.CreateOptions

	// What the Stat had. Cversion and NumChildren follow from the children.
	Czxid, Mzxid, Pzxid embed.Zxid
	Ctime, Mtime        time.Time
	Version, Aversion   int32
	Created             int32 // children that were ever created: the number of the next sequential one
	Owner               embed.SessionID
	// Shard counts from 1. In a backup of several shards, each has the znodes that are on all of
	// them, such as the root. Znodes yields only those of the first.
	Shard int
}

// reserved reports whether a path of the whole tree belongs to the ensemble itself.
func reserved(path string) bool {
	return path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/")
}

// onAll reports whether each of several shards has a znode of its own at the path.
func onAll(path string) bool {
	return path == "/" || path == "/zookeeper" || path == "/zookeeper/quota" || path == tree.ConfigPath
}

func znodeOf(path string, shard int, z tree.Znode) Znode {
	o := Znode{Path: path, Data: bytes.Clone(z.Data), ACL: z.ACL, TTL: time.Duration(z.TTL) * time.Millisecond, Shard: shard, Owner: z.Owner,
		Czxid: z.Czxid, Mzxid: z.Mzxid, Pzxid: z.Pzxid, Ctime: time.UnixMilli(z.Ctime).UTC(), Mtime: time.UnixMilli(z.Mtime).UTC(),
		Version: z.Version, Aversion: z.Aversion, Created: z.Created}
	switch {
	case z.Owner != 0:
		o.Mode = embed.Ephemeral
	case z.Container:
		o.Mode = embed.Container
	case z.TTL != 0:
		o.Mode = embed.TTL
	}
	if o.ACL == nil {
		o.ACL = embed.OpenACL()
	}
	return o
}

// Below returns the znode at a path and those below it. If there are none, the sequence ends with
// ErrMissing.
func Below(znodes iter.Seq2[Znode, error], path string) iter.Seq2[Znode, error] {
	prefix := path + "/"
	if path == "/" {
		prefix = path
	}
	return func(yield func(Znode, error) bool) {
		found := path == "/"
		for z, err := range znodes {
			if err == nil && z.Path != path && !strings.HasPrefix(z.Path, prefix) {
				continue
			}
			found = found || err == nil
			if !yield(z, err) {
				return
			}
		}
		if !found {
			yield(Znode{}, fmt.Errorf("%s: %w", path, ErrMissing))
		}
	}
}
