package command

import (
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/vivarium-go/vivarium/replication"
)

// What one command of the log holds at most, in bytes.
const (
	DataMax  = 8 << 20 // of a znode's data: an entry still fits a transaction with a few of these
	Overhead = 3 << 20 // of a transaction, beside the data of its largest znode
)

// Paths that every shard has.
const (
	RootPath      = "/"
	ZooKeeperName = "zookeeper"
	QuotaPath     = "/zookeeper/quota"
)

// ShardOf returns the shard of a path in an ensemble of n shards. The first component of the
// path decides, by a hash that can never change: which shard has a znode is not written anywhere. It is XXH64: unlike those of FNV,
// its low bits depend on the whole name. A
// sequence number does not count, so that the requested name and the created name are on the same
// shard. ZooKeeper's own znodes are on the first shard, but a quota is on the shard of its subtree.
// The root is on every shard; ShardOf returns the first.
func ShardOf(path string, n int) replication.ShardID {
	if n == 1 || path == RootPath {
		return HomeShard
	}
	name := firstComponent(path)
	if name == ZooKeeperName {
		if name = firstComponent(strings.TrimPrefix(path, QuotaPath)); IsRootQuota(path) || !strings.HasPrefix(path, QuotaPath+"/") {
			return HomeShard
		}
	}
	return HomeShard + replication.ShardID(xxhash.Sum64String(withoutNumber(name))%uint64(n))
}

// IsRootQuota reports whether a path has the limits or the use of the whole tree.
func IsRootQuota(path string) bool {
	return path == QuotaPath+"/zookeeper_limits" || path == QuotaPath+"/zookeeper_stats"
}

// firstComponent returns "a" for "/a/b".
func firstComponent(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return name
}

// NumberLen is the number of digits of a sequence number.
const NumberLen = 10

// withoutNumber removes the number from a name that a sequential create may have made.
func withoutNumber(name string) string {
	at := len(name) - NumberLen
	if at < 0 || strings.Trim(name[at:], "0123456789") != "" {
		return name
	}
	return name[:at]
}
