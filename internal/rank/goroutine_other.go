//go:build lockrank && !amd64 && !arm64

package rank

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutine returns the number of this goroutine.
func goroutine() uintptr {
	var buf [64]byte
	line := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	n, _ := strconv.Atoi(string(line[:bytes.IndexByte(line, ' ')]))
	return uintptr(n)
}
