package zkdir

import (
	"encoding/binary"
	"hash/crc32"
	"strings"

	"github.com/vivarium-go/vivarium/tree"
)

// digestOf returns what a znode adds to the digest of its tree. It is version 2 of ZooKeeper's
// DigestCalculator. ZooKeeper leaves out what is below
// /zookeeper, which its servers change by themselves.
func digestOf(path string, z *tree.Znode) uint64 {
	if strings.HasPrefix(path, "/zookeeper/") {
		return 0
	}
	if path == "/" {
		path = ""
	}
	sum := crc32.NewIEEE()
	sum.Write([]byte(path))
	sum.Write(z.Data)
	b := make([]byte, 0, 60)
	for _, n := range []int64{int64(z.Czxid), int64(z.Mzxid), int64(z.Pzxid), z.Ctime, z.Mtime} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	for _, n := range []int32{z.Version, z.Created, z.Aversion} {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	sum.Write(binary.BigEndian.AppendUint64(b, uint64(ownerOf(z))))
	return uint64(sum.Sum32())
}
