//go:build !invariants

package tree

// invariants says whether every transaction is followed by a check of the whole tree. The build tag
// invariants turns that on.
const invariants = false
