//go:build lockrank && (amd64 || arm64)

package rank

// goroutine returns the address of the runtime's record of this goroutine. No other living
// goroutine has the same. The number in a stack's first line would take fifteen times as long as
// all the rest of a check.
func goroutine() uintptr
