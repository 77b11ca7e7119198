package queue

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
)

// A Kind is what a contender waits for. Word stands in its name right before the number, as Curator
// writes it. The contender waits for those before it whose name contains a word of After; if After
// is empty, for all of them.
type Kind struct {
	Word  string
	After []string
	is    engine.ClaimKind // what the metrics count it as
}

// The kinds that Curator's recipes know.
var (
	Lock = Kind{Word: "lock-", is: engine.ClaimMutex} // InterProcessMutex
	// InterProcessReadWriteLock.
	Read  = Kind{Word: "__READ__", After: notReaders, is: engine.ClaimRead}
	Write = Kind{Word: "__WRIT__", is: engine.ClaimWrite}
	// InterProcessSemaphoreV2: the queue for permits is a lock. A Lease waits for nobody, because no
	// name has a slash.
	Turn  = Kind{Word: "lock-", is: engine.ClaimSemaphore}
	Lease = Kind{Word: "lease-", After: []string{"/"}, is: engine.ClaimSemaphore}
	Latch = Kind{Word: "latch-", is: engine.ClaimElection} // LeaderLatch
)

// KazooLock is kazoo's Lock, which sees no other kind unless it is given patterns.
var KazooLock = Kind{Word: "__lock__"}

// notReaders are the words of contenders that share the lock with nobody. The last one comes from
// kazoo's Lock and WriteLock.
var notReaders = []string{Write.Word, "-" + Lock.Word, "__lock__"}

// Words stand between a contender's uuid and its kind, each followed by a hyphen. ZooKeeper's
// clients ignore them.
const (
	wordDelay    = 'd' // milliseconds that the contender lingers
	wordIdentity = 'i' // 16 hex digits of the identity that may take over its place meanwhile
	wordPlace    = 'z' // the zxid that a place counts from after it was taken over
	wordPriority = 'p' // of a candidate; above zero

	// Upgrading is the word of a reader that waits to become the writer.
	Upgrading = "up"
)

const (
	digits = 10
	prefix = "_c_" // as Curator's protected znodes
	// Comes behind all of its number: greater than what other names begin with, including kazoo's
	// uuids.
	prefixLast = "~u_"
	uuidLen    = 36
	keyLen     = 13 // the uuid's first two groups and the hyphen between them

	// grantUUID is the uuid of a place that a grant gives. It is the same for all, so two
	// contenders cannot be granted the same place.
	grantUUID = "00000000-0000-4000-8000-000000000000"

	// lastNumber is the number at which the create counter of a znode stops. From there on all
	// contenders get the same number, which no longer tells who came first. So nobody queues with
	// it.
	lastNumber = "2147483647"
)

// newName returns a name without its number. key replaces the first digits of its uuid.
func newName(prefix, key string, k Kind, words []string) string {
	var b strings.Builder
	b.WriteString(prefix)
	b.WriteString(key)
	b.WriteString(newUUID()[len(key):])
	b.WriteByte('-')
	for _, w := range words {
		b.WriteString(w)
		b.WriteByte('-')
	}
	b.WriteString(k.Word)
	return b.String()
}

// word returns what follows a letter among the words of a contender's name.
func word(name string, letter byte) (string, bool) {
	head, tail := len(prefix)+uuidLen+1, digits
	if key(name) != "" {
		// The key stands behind the kind again, and any group of it may look like a word.
		tail += keyLen + digits
	}
	if len(name) < head+tail {
		return "", false
	}
	for w := range strings.SplitSeq(name[head:len(name)-tail], "-") {
		if len(w) > 1 && w[0] == letter && strings.Trim(w[1:], "0123456789abcdef") == "" {
			return w[1:], true
		}
	}
	return "", false
}

// number returns a decimal word, or zero if there is none.
func number(name string, letter byte) int64 {
	text, ok := word(name, letter)
	if !ok {
		return 0 // without the cost of making an error
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func delayOf(name string) time.Duration {
	return time.Duration(number(name, wordDelay)) * time.Millisecond
}

// KindOf returns Read for a reader's name and Lock for any other. That decides for whom it waits.
func KindOf(name string) Kind {
	if strings.Contains(name, Read.Word) || strings.Contains(name, kazooRead) {
		return Read
	}
	return Lock
}

// IsUpgrading reports whether a name belongs to a reader that waits to become the writer.
func IsUpgrading(name string) bool { return strings.Contains(name, "-"+Upgrading+"-") }

// Priority returns the priority in a candidate's name, or zero.
func Priority(name string) int { return int(number(name, wordPriority)) }

// PriorityWord returns the word for a priority above zero.
func PriorityWord(n int) string { return string(wordPriority) + strconv.Itoa(n) }

// Offer returns the name of the znode that offers a place to a contender. It has no kind, and no
// number at its end, so nobody mistakes it for a contender; neither does Curator.
func Offer(name string) string { return "transfer-" + strings.ReplaceAll(name, Latch.Word, "") + "-" }

func delayWord(d time.Duration) string {
	return string(wordDelay) + strconv.FormatInt(d.Milliseconds(), 10)
}

func placeWord(z embed.Zxid) string { return string(wordPlace) + strconv.FormatUint(uint64(z), 10) }

func identityWord(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return fmt.Sprintf("%c%016x", wordIdentity, binary.BigEndian.Uint64(sum[:]))
}

// key returns the key that orders those of the same number, or nothing if the name has none.
func key(name string) string {
	if !strings.HasPrefix(name, prefixLast) || len(name) < len(prefixLast)+keyLen {
		return ""
	}
	return name[len(prefixLast) : len(prefixLast)+keyLen]
}

// NeedsGrant reports whether a contender, once it is first, still needs a grant of its place: it
// went ahead of others.
func NeedsGrant(name string) bool { return key(name) != "" && !IsUpgrading(name) }

// Order returns the two numbers of a contender's token: the zxid from which its place counts, and
// if the place was taken over, the zxid of that transaction.
func Order(name string, czxid embed.Zxid) (zxid embed.Zxid, local uint64) {
	if z := number(name, wordPlace); z > 0 {
		return embed.Zxid(z), uint64(czxid)
	}
	return czxid, 0
}

// sequence returns the ten digits at the end of a contender's name.
func sequence(name string) (string, bool) {
	if len(name) < digits {
		return "", false
	}
	suffix := name[len(name)-digits:]
	return suffix, strings.Trim(suffix, "0123456789") == ""
}

// before compares contenders' names as claim.Before does: by number, then by the whole name.
func before(a, b string) int {
	x, _ := sequence(a)
	y, _ := sequence(b)
	if c := strings.Compare(x, y); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// The words of kazoo's ReadLock. Its WriteLock and its Lock have the same.
const kazooRead = "__rlock__"

// Word returns the word of a contender's kind, or nothing for any other name. The contender may be
// of Curator, of kazoo or of another client.
func Word(name string) string {
	if _, ok := sequence(name); !ok {
		return ""
	}
	head := name[:len(name)-digits]
	if key(name) != "" && len(head) > keyLen+digits {
		head = head[:len(head)-keyLen-digits]
	}
	for _, word := range []string{Read.Word, Write.Word, KazooLock.Word, kazooRead} {
		if strings.HasSuffix(head, word) {
			return word
		}
	}
	for _, word := range []string{Lock.Word, Lease.Word, Latch.Word} {
		if rest, ok := strings.CutSuffix(head, word); ok && (rest == "" || isProtected(rest)) {
			return word // not "block-"
		}
	}
	return ""
}

// isProtected reports whether a name begins with a uuid behind a prefix of ours and of Curator, and
// ends with a hyphen. Some clients write the uuid without hyphens.
func isProtected(name string) bool {
	return (strings.HasPrefix(name, prefix) || strings.HasPrefix(name, prefixLast)) &&
		strings.HasSuffix(name, "-") && len(name) > len(prefix)+uuidLen-strings.Count(grantUUID, "-")
}

// Child returns the path of a child.
func Child(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}

// Below returns the ensemble's path for a path of a session with a root.
func Below(root, path string) string {
	switch {
	case root == "/":
		return path
	case path == "/":
		return root
	}
	return root + path
}

// Split returns a path's parent and name.
func Split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 1)], path[i+1:]
}

// newUUID returns a random UUID (version 4) in its usual form.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := make([]byte, 0, uuidLen)
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return string(text)
}
