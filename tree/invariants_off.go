//go:build !invariants

package tree

// invariants says whether every transaction is followed by a check of the whole tree. Build with the tag to have that.
const invariants = false
