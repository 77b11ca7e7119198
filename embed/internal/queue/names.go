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
)

// A Kind is what a contender is: the word in its name right before the number, as Curator writes it, and the words of those
// before it whom it waits for; none: everybody.
type Kind struct {
	Word  string
	After []string
}

// The kinds that Curator's recipes know.
var (
	Lock  = Kind{Word: "lock-"}                       // InterProcessMutex
	Read  = Kind{Word: "__READ__", After: notReaders} // InterProcessReadWriteLock
	Write = Kind{Word: "__WRIT__"}
	Lease = Kind{Word: "lease-", After: []string{"/"}} // InterProcessSemaphoreV2; waits for nobody, and no name has a slash
	Latch = Kind{Word: "latch-"}                       // LeaderLatch
)

// notReaders are words of those who share with nobody; the last is that of kazoo's Lock and WriteLock.
var notReaders = []string{Write.Word, "-" + Lock.Word, "__lock__"}

// The words that stand between a contender's uuid and its kind, each with a hyphen behind it; nobody else's clients look at them.
const (
	wordDelay    = 'd' // milliseconds that it lingers
	wordIdentity = 'i' // 16 hex digits of whoever may take its place while it does
	wordPlace    = 'z' // the zxid that a place counts from that was taken over
	wordPriority = 'p' // of a candidate, above zero

	// Upgrading is the word of a reader who waits to become the writer.
	Upgrading = "up"
)

const (
	digits     = 10
	prefix     = "_c_" // Curator's protection
	prefixLast = "~u_" // of who stands behind all of its number: greater than what names begin with, kazoo's uuids too
	uuidLen    = 36
	keyLen     = 13 // of the uuid's first two groups, with the hyphen between

	// grantUUID is that of a place that is taken by a grant: the same for all, so that two cannot be granted one place.
	grantUUID = "00000000-0000-4000-8000-000000000000"

	// lastNumber is where the create counter of a znode stands still. From there on all contenders get the same number, which no
	// longer tells who came first, so nobody stands in a queue with it.
	lastNumber = "2147483647"
)

// newName returns a name without its number. key takes the place of the first digits of its uuid.
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

// word returns what a contender's name says after a letter, between its uuid and its kind.
func word(name string, letter byte) (string, bool) {
	head, tail := len(prefix)+uuidLen+1, digits
	if key(name) != "" {
		tail += keyLen + digits // it is behind the kind again, and any group of it may look like a word
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

// number is a word that is decimal; zero if there is none.
func number(name string, letter byte) int64 {
	text, ok := word(name, letter)
	if !ok {
		return 0 // and no error is made
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

// KindOf is what a contender's name says it is, as far as matters for whom it waits for.
func KindOf(name string) Kind {
	if strings.Contains(name, Read.Word) || strings.Contains(name, "__rlock__") { // kazoo's
		return Read
	}
	return Lock
}

// IsUpgrading reports whether a name is that of a reader who waits to become the writer.
func IsUpgrading(name string) bool { return strings.Contains(name, "-"+Upgrading+"-") }

// Priority is what a candidate's name says of it.
func Priority(name string) int { return int(number(name, wordPriority)) }

// PriorityWord is what a candidate's name says of a priority above zero.
func PriorityWord(n int) string { return string(wordPriority) + strconv.Itoa(n) }

// Offer is the name of what is offered to a contender. Without its kind and with no number at its end nobody, Curator either, takes it for one in
// the queue.
func Offer(name string) string { return "transfer-" + strings.ReplaceAll(name, Latch.Word, "") + "-" }

func delayWord(d time.Duration) string {
	return string(wordDelay) + strconv.FormatInt(d.Milliseconds(), 10)
}

func placeWord(z embed.Zxid) string { return string(wordPlace) + strconv.FormatUint(uint64(z), 10) }

func identityWord(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return fmt.Sprintf("%c%016x", wordIdentity, binary.BigEndian.Uint64(sum[:]))
}

// key is what orders those who stand behind others of the same number.
func key(name string) string {
	if !strings.HasPrefix(name, prefixLast) || len(name) < len(prefixLast)+keyLen {
		return ""
	}
	return name[len(prefixLast) : len(prefixLast)+keyLen]
}

// IsVacant reports whether a contender, if it is the first, has its turn only when it has taken its place by a grant.
func IsVacant(name string) bool { return key(name) != "" && !IsUpgrading(name) }

// Order returns the two numbers of a contender's token: where its place counts from, and if the place was taken over, the
// transaction that did.
func Order(name string, czxid embed.Zxid) (zxid embed.Zxid, local uint64) {
	if z := number(name, wordPlace); z > 0 {
		return embed.Zxid(z), uint64(czxid)
	}
	return czxid, 0
}

// sequence returns the ten digits a contender's name ends in.
func sequence(name string) (string, bool) {
	if len(name) < digits {
		return "", false
	}
	suffix := name[len(name)-digits:]
	return suffix, strings.Trim(suffix, "0123456789") == ""
}

// before compares names of contenders as Session.Before does: by number, then by the whole name.
func before(a, b string) int {
	x, _ := sequence(a)
	y, _ := sequence(b)
	if c := strings.Compare(x, y); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// Child returns the path of a child.
func Child(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}

// Below returns the ensemble's path for one of a session with a root.
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
