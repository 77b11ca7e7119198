//go:build darwin || linux

package crowd

import (
	"math"
	"syscall"
)

// openMax returns how many files the process may have open; zero if that is not known. Go has raised
// the soft limit to the hard one by now.
func openMax() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(r.Cur, math.MaxInt32))
}
