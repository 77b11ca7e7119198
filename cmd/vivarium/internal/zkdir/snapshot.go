package zkdir

import (
	"errors"
	"fmt"
	"hash/adler32"

	"github.com/vivarium-go/vivarium/tree"
)

const (
	snapshotMagic = "ZKSN"
	// Lengths of what may follow the znodes.
	sealLen       = 8 + 4 + 1 // a checksum, the string "/"
	lastZxidLen   = 8 + sealLen
	openACLNumber = -1
)

// A snapshot is a tree as a server wrote it while it went on.
type snapshot struct {
	tree *Tree
	// The newest transaction of which it may have a part.
	fuzzy tree.Zxid

	digested bool // by 3.6 and later
	digest   uint64
	digestAt tree.Zxid // after which transaction
}

// parseSnapshot reads a snapshot, whose name has a zxid.
func parseSnapshot(file []byte, zxid tree.Zxid) (*snapshot, error) {
	p := &snapshotParser{decoder: decoder{left: file}, whole: file, sessions: make(map[int64]bool), tree: newTree()}
	p.tree.Zxid = zxid
	s := &snapshot{tree: p.tree, fuzzy: zxid}
	if magic, version := string(p.take(4)), p.int32(); p.err != nil || magic != snapshotMagic || version != formatVersion {
		return nil, fmt.Errorf("it does not begin as a snapshot of version %d does", formatVersion)
	}
	p.int64() // the database, which nobody sets
	for range p.count(12) {
		p.sessions[p.int64()] = true
		p.int32() // its timeout
	}
	p.acls()
	if err := p.znodes(s); err != nil {
		return nil, err
	}
	p.seal()
	if p.err == nil && len(p.left) != 0 && len(p.left) != lastZxidLen {
		p.digest(s)
	}
	if p.err == nil && len(p.left) == lastZxidLen {
		p.int64() // the zxid of the file's name
		p.seal()
	}
	if p.err == nil && len(p.left) > 0 {
		p.err = fmt.Errorf("%d bytes too many", len(p.left))
	}
	return s, p.err
}

type snapshotParser struct {
	decoder
	whole    []byte
	sessions map[int64]bool
	lists    map[int64][]tree.ACL
	tree     *Tree
}

func (p *snapshotParser) acls() {
	p.lists = map[int64][]tree.ACL{openACLNumber: nil}
	for range p.count(12) {
		number := p.int64()
		p.lists[number] = p.acl()
	}
}

// znodes reads the znodes up to their end.
func (p *snapshotParser) znodes(s *snapshot) error {
	for {
		path := p.string()
		switch {
		case p.err != nil:
			return p.err
		case path == "/":
			return nil
		case path == "":
			path = "/"
		}
		z := &tree.Znode{Data: p.buffer()}
		list := p.int64()
		z.Czxid, z.Mzxid, z.Ctime, z.Mtime = tree.Zxid(p.int64()), tree.Zxid(p.int64()), p.int64(), p.int64()
		z.Version, z.Created, z.Aversion = p.int32(), p.int32(), p.int32()
		p.owner(path, z)
		z.Pzxid = tree.Zxid(p.int64())
		if p.err != nil {
			return p.err
		}
		var known bool
		if z.ACL, known = p.lists[list]; !known {
			p.tree.unlisted[path] = true
		}
		if p.tree.znodes[path] != nil {
			return fmt.Errorf("znode %q is twice in it", path)
		}
		p.tree.put(path, z)
		s.fuzzy = max(s.fuzzy, z.Czxid, z.Mzxid, z.Pzxid)
		if millis := max(z.Ctime, z.Mtime); millis > p.tree.millis {
			p.tree.millis = millis
		}
	}
}

// owner reads what ZooKeeper stores as the owner of a znode: a session, or what else it is.
func (p *snapshotParser) owner(path string, z *tree.Znode) {
	owner := p.int64()
	ttl := ttlOf(owner)
	switch {
	case owner == containerOwner:
		z.Container = true
	case p.sessions[owner] || ttl == 0:
		z.Owner = tree.SessionID(owner)
	default:
		z.TTL = ttl
		session := tree.SessionID(owner)
		p.tree.doubtful[session] = append(p.tree.doubtful[session], path)
	}
}

// seal reads a checksum of all that came before.
func (p *snapshotParser) seal() {
	sum := adler32.Checksum(p.whole[:len(p.whole)-len(p.left)])
	if found := p.int64(); p.err == nil && found != int64(sum) {
		p.err = errors.New("a wrong checksum")
	}
	if end := p.string(); p.err == nil && end != "/" {
		p.err = fmt.Errorf("a checksum is followed by %q", end)
	}
}

// digest reads the digest of the tree as it was when the snapshot was done.
func (p *snapshotParser) digest(s *snapshot) {
	s.digestAt = tree.Zxid(p.int64())
	s.fuzzy = max(s.fuzzy, s.digestAt)
	if version := p.int32(); version < digestVersion {
		_ = p.string()
	} else {
		s.digest = uint64(p.int64())
		s.digested = version == digestVersion
	}
	p.seal()
}
