//go:build lockrank && (amd64 || arm64)

package rank

// goroutine returns what no other goroutine has that lives: the address of the runtime's record of this
// one. The number in a stack's first line takes fifteen times as long as all the rest of a check.
func goroutine() uintptr
