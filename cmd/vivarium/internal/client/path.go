package client

import (
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// A PathError says why a path is invalid, in the words of ZooKeeper's client.
type PathError string

// Error returns the words.
func (e PathError) Error() string { return string(e) }

// CheckPath returns a PathError if a path is invalid. Servers have the same rules, but they do not
// check the paths of reads: for them, an invalid path just does not exist.
func CheckPath(path string) error {
	switch {
	case path == "":
		return PathError("Path length must be > 0")
	case path[0] != '/':
		return PathError("Path must start with / character")
	case path == "/":
		return nil
	case path[len(path)-1] == '/':
		return PathError("Path must not end with / character")
	}
	at := 0 // where the component begins, in UTF-16 units like all positions in these errors
	for i, part := range strings.Split(path, "/") {
		if i > 0 {
			if why, off := flaw(part); why != "" {
				return PathError(fmt.Sprintf("Invalid path string \"%s\" caused by %s @%d", path, why, at+off))
			}
		}
		at += len(utf16.Encode([]rune(part))) + 1
	}
	return nil
}

// flaw returns what is wrong with a component, and where. why is empty if nothing is wrong.
func flaw(part string) (why string, at int) {
	switch part {
	case "":
		return "empty node name specified", 0
	case ".", "..":
		return "relative paths not allowed", len(part) - 1
	}
	for i, c := range utf16.Encode([]rune(part)) {
		switch {
		case c == 0:
			return "null character not allowed", i
		case c <= 0x1f, 0x7f <= c && c <= 0x9f, 0xd800 <= c && c <= 0xf8ff, 0xfff0 <= c:
			return "invalid character", i
		}
	}
	return "", 0
}

// checkPaths checks all paths of a request.
func checkPaths(q *wire.Request) error {
	switch q.Op {
	case wire.OpMulti, wire.OpMultiRead:
		for i := range q.Ops {
			if err := checkOperation(&q.Ops[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return checkOperation(&q.Operation)
}

func checkOperation(o *wire.Operation) error {
	switch {
	case !hasPath(o.Op), o.Op == wire.OpGetEphemerals && o.Path == wire.Null:
		return nil
	case sequential(o):
		return CheckPath(o.Path + "1") // the server will append a number
	}
	return CheckPath(o.Path)
}

func sequential(o *wire.Operation) bool {
	switch o.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateTTL:
		return o.Flags == wire.FlagsSequential || o.Flags == wire.FlagsEphemeralSequential || o.Flags == wire.FlagsSequentialTTL
	}
	return false
}

// hasPath reports whether requests of an op use the path of their Operation.
func hasPath(op wire.Op) bool {
	switch op {
	case wire.OpPing, wire.OpWhoAmI, wire.OpCloseSession, wire.OpMulti, wire.OpMultiRead, wire.OpAuth, wire.OpSASL,
		wire.OpSetWatches, wire.OpSetWatches2, wire.OpReconfig:
		return false
	}
	return true
}
