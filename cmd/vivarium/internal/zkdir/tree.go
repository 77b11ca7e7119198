package zkdir

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// A Tree is what a server had.
type Tree struct {
	Zxid   tree.Zxid // of the newest transaction
	millis int64     // Unix time of the newest transaction

	// Keyed by path. The root is "/".
	znodes map[string]*tree.Znode
	owned  map[tree.SessionID]map[string]bool // paths of ephemerals
	digest uint64                             // as ZooKeeper calculates it

	// Digested says that the digest of a transaction was compared, and was right.
	Digested bool
	// Cut says that the log ends with a record that was cut while it was written. It is left out.
	Cut bool
	// Paths of a snapshot's znodes whose ACLs are newer than its table of ACLs. The log has them.
	unlisted map[string]bool
	// Paths of a snapshot's znodes whose owner looks like a TTL, by that owner. If it is a session, it
	// is newer than the snapshot's table of sessions, and the log has it.
	doubtful map[tree.SessionID][]string
}

func newTree() *Tree {
	return &Tree{
		znodes: make(map[string]*tree.Znode), owned: make(map[tree.SessionID]map[string]bool),
		unlisted: make(map[string]bool), doubtful: make(map[tree.SessionID][]string),
	}
}

// begin gives a tree what it has before the first transaction.
func (t *Tree) begin() {
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/quota", configPath} {
		t.put(path, &tree.Znode{})
	}
}

// Time returns when the newest transaction was made that the log has. Without one it is the newest
// time in the snapshot.
func (t *Tree) Time() time.Time { return time.UnixMilli(t.millis).UTC() }

// configPath is where ZooKeeper keeps who its servers are.
const configPath = "/zookeeper/config"

// Znodes returns the znodes in byte order of their paths, so that parents come first. It leaves out
// /zookeeper/config, which says who ZooKeeper's own servers are.
func (t *Tree) Znodes() iter.Seq2[string, tree.Znode] {
	return func(yield func(string, tree.Znode) bool) {
		for _, path := range slices.Sorted(maps.Keys(t.znodes)) {
			if path == configPath || strings.HasPrefix(path, configPath+"/") {
				continue
			}
			if !yield(path, *t.znodes[path]) {
				return
			}
		}
	}
}

// Values of ephemeralOwner that name no session. ZooKeeper's EphemeralType.
const (
	containerOwner = -1 << 63
	ttlMask        = 0xffff << 40
	ttlBits        = 1<<40 - 1
)

// ttlOf returns the TTL that a snapshot stores as an owner, or 0. Sessions of the servers 128 and
// 255 may look the same: ask first whether there is such a session.
func ttlOf(owner int64) int64 {
	top := uint64(owner) >> 56
	if (top == 0xff || top == 0x80) && owner&ttlMask == 0 { // 0x80: 3.5.3
		return owner & ttlBits
	}
	return 0
}

// adopt makes ephemerals of znodes that looked like TTL znodes, because their owner is a session.
func (t *Tree) adopt(session tree.SessionID) {
	for _, path := range t.doubtful[session] {
		z := t.znodes[path]
		if z == nil || z.TTL != ttlOf(int64(session)) { // another one took its place
			continue
		}
		t.digest -= digestOf(path, z)
		z.Owner, z.TTL = session, 0
		t.put(path, z)
	}
	delete(t.doubtful, session)
}

// ownerOf returns what ZooKeeper stores as the owner.
func ownerOf(z *tree.Znode) int64 {
	switch {
	case z.Container:
		return containerOwner
	case z.TTL != 0:
		return -1<<56 | z.TTL
	}
	return int64(z.Owner)
}

// put adds a znode. There is none at the path.
func (t *Tree) put(path string, z *tree.Znode) {
	t.znodes[path] = z
	t.digest += digestOf(path, z)
	if z.Owner == 0 {
		return
	}
	if t.owned[z.Owner] == nil {
		t.owned[z.Owner] = make(map[string]bool)
	}
	t.owned[z.Owner][path] = true
}

// change changes a znode, if there is one.
func (t *Tree) change(path string, f func(z *tree.Znode)) {
	z := t.znodes[path]
	if z == nil {
		return
	}
	t.digest -= digestOf(path, z)
	f(z)
	t.digest += digestOf(path, z)
}

// A change is the part of a transaction that changes one znode.
type change struct {
	kind int32
	path string
	data []byte
	acl  []tree.ACL
	// Of a create: what kind of znode it makes.
	owner     tree.SessionID
	container bool
	ttl       int64
	// Of a create: the parent's counter of creates afterwards, or -1.
	created int32
	version int32
}

// What transactions do. The numbers are ZooKeeper's ZooDefs.OpCode.
const (
	opCreate          = 1
	opDelete          = 2
	opSetData         = 5
	opSetACL          = 7
	opCheck           = 13
	opMulti           = 14
	opCreate2         = 15
	opReconfig        = 16
	opCreateContainer = 19
	opDeleteContainer = 20
	opCreateTTL       = 21
	opCreateSession   = -10
	opCloseSession    = -11
	opError           = -1
)

// apply applies a transaction as ZooKeeper does to a snapshot that may have some of it already. What
// is missing or there already is no error.
func (t *Tree) apply(x *txn) {
	for i := range x.changes {
		c := &x.changes[i]
		switch c.kind {
		case opCreate:
			t.create(c, x)
		case opDelete:
			t.delete(c.path, x.zxid)
		case opSetData:
			t.change(c.path, func(z *tree.Znode) { z.Data, z.Version, z.Mzxid, z.Mtime = c.data, c.version, x.zxid, x.time })
		case opSetACL:
			t.change(c.path, func(z *tree.Znode) { z.ACL, z.Aversion = c.acl, c.version })
			delete(t.unlisted, c.path)
		}
	}
	if x.kind == opCreateSession {
		t.adopt(x.session)
	}
	if x.kind == opCloseSession {
		for path := range t.owned[x.session] {
			t.delete(path, x.zxid)
		}
		delete(t.owned, x.session)
	}
	t.Zxid, t.millis = x.zxid, x.time
}

func (t *Tree) create(c *change, x *txn) {
	parent := tree.Parent(c.path)
	if t.znodes[parent] == nil {
		return // it was deleted later, in what the snapshot has already
	}
	t.change(parent, func(z *tree.Znode) {
		created := c.created
		if created == -1 {
			created = z.Created + 1
		}
		if created > z.Created { // otherwise the snapshot has later creates
			z.Created, z.Pzxid = created, x.zxid
		}
	})
	if z := t.znodes[c.path]; z != nil {
		if t.unlisted[c.path] {
			z.ACL = c.acl
			delete(t.unlisted, c.path)
		}
		return
	}
	t.put(c.path, &tree.Znode{
		Data: c.data, ACL: c.acl, Owner: c.owner, Container: c.container, TTL: c.ttl,
		Czxid: x.zxid, Mzxid: x.zxid, Pzxid: x.zxid, Ctime: x.time, Mtime: x.time,
	})
}

func (t *Tree) delete(path string, zxid tree.Zxid) {
	t.change(tree.Parent(path), func(z *tree.Znode) { z.Pzxid = max(z.Pzxid, zxid) })
	if z := t.znodes[path]; z != nil {
		t.digest -= digestOf(path, z)
		delete(t.owned[z.Owner], path)
		delete(t.znodes, path)
		delete(t.unlisted, path)
	}
}
