package tree

import (
	"strings"
	"unicode/utf8"
)

// Paths of the initial znodes, which cannot be deleted.
const (
	rootPath      = "/"
	zookeeperPath = "/zookeeper"
	quotaPath     = "/zookeeper/quota"
)

// steeringPath is the path above what the members write for one another: see Steers.
const steeringPath = "/zookeeper/vivarium"

// ConfigPath is the path of the znode that says who the members of the ensemble are.
const ConfigPath = "/zookeeper/config"

// configVersion is the version of that znode, which does not count.
const configVersion = -1

func isReserved(path string) bool {
	return path == rootPath || path == zookeeperPath || path == quotaPath || path == ConfigPath
}

// Steers reports whether the znode at a path steers the ensemble: the members trust what is there,
// whoever wrote it. These are "/zookeeper/vivarium" and all below it, the quotas upon it, and
// "/zookeeper" itself, whose ACL decides who adds to it.
func Steers(path string) bool {
	return path == zookeeperPath || within(path, steeringPath) || within(path, quotaPath+zookeeperPath)
}

// within reports whether a path is that of a subtree's root, or below it.
func within(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

// ValidatePath returns nil if a znode can have the path. Otherwise the error wraps ErrInvalidPath
// and says why not.
//
// A path starts with a slash and does not end with one, except for the root, "/". No component is
// empty, "." or "..". The path is valid UTF-8. It has none of the characters U+0000 to U+001F,
// U+007F to U+009F, U+D800 to U+F8FF, and U+FFF0 and above.
func ValidatePath(path string) error {
	if reason := pathFault(path); reason != "" {
		return invalidPath(path, reason)
	}
	return nil
}

// ValidateCreatePath returns nil if a create in mode m may request the path. In a sequential mode
// the name is still incomplete, so the path may end in a slash ("/a/" becomes "/a/0000000000"), and
// its last component may be "." or "..". Errors wrap ErrInvalidMode or ErrInvalidPath.
func ValidateCreatePath(path string, m CreateMode) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if !m.IsSequential() {
		return ValidatePath(path)
	}
	if reason := pathFault(path + "0"); reason != "" {
		return invalidPath(path, reason)
	}
	return nil
}

// pathFault returns what is wrong with a path, or "".
func pathFault(path string) string {
	if path == rootPath {
		return ""
	}
	if path == "" {
		return "is empty"
	}
	if path[0] != '/' {
		return "does not start with a slash"
	}
	if reason := runeFault(path); reason != "" {
		return reason
	}
	for rest := path[1:]; ; {
		name, more, cut := strings.Cut(rest, "/")
		switch {
		case name == "" && !cut:
			return "ends with a slash"
		case name == "":
			return "has an empty component"
		case name == "." || name == "..":
			return "has a relative component"
		case !cut:
			return ""
		}
		rest = more
	}
}

// runeFault returns what is wrong with the characters of a path, or "". ZooKeeper refuses ranges of
// UTF-16 code units. So it refuses every character above U+FFFF for its surrogates, and invalid
// UTF-8 for its replacement character U+FFFD.
func runeFault(path string) string {
	for i := 0; i < len(path); i++ {
		if c := path[i]; c >= utf8.RuneSelf {
			return wideRuneFault(path[i:])
		} else if c < ' ' || c == 0x7f {
			return "has a control character"
		}
	}
	return ""
}

func wideRuneFault(path string) string {
	for _, r := range path {
		switch {
		case r < ' ' || r >= 0x7f && r <= 0x9f:
			return "has a control character"
		case r == utf8.RuneError:
			return "is not valid UTF-8 or has the character U+FFFD"
		case r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0:
			return "has a character outside the allowed ranges"
		}
	}
	return ""
}

// Parent returns the parent's path. The root is its own parent. The path must be valid.
func Parent(path string) string {
	return parentOf(path, strings.LastIndexByte(path, '/'))
}

// Base returns the last component of a valid path, the name among its siblings. The root's is
// empty.
func Base(path string) string {
	return path[strings.LastIndexByte(path, '/')+1:]
}

// parentOf is Parent for a caller that knows the index of the last slash.
func parentOf(path string, slash int) string {
	if slash <= 0 {
		return rootPath
	}
	return path[:slash]
}

const (
	// suffixLen is the length of a sequence suffix: the digits of the largest counter.
	suffixLen = 10
	// lastSuffix is the suffix at which a create counter stops.
	lastSuffix = "2147483647"
)

// sequentialPath returns the path of a sequential create for a counter, which is never negative.
func sequentialPath(path string, counter int32) string {
	var digits [suffixLen]byte
	for i := range digits {
		digits[suffixLen-1-i] = '0' + byte(counter%10)
		counter /= 10
	}
	return path + string(digits[:])
}

// hasSuffix reports whether a name ends in ten digits, as sequential names do.
func hasSuffix(name string) bool {
	if len(name) < suffixLen {
		return false
	}
	for i := len(name) - suffixLen; i < len(name); i++ {
		if name[i] < '0' || name[i] > '9' {
			return false
		}
	}
	return true
}
