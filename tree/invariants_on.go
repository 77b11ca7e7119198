//go:build invariants

package tree

const invariants = true
