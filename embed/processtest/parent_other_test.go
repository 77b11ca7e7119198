//go:build unix && !linux

package processtest

import (
	"syscall"
	"time"
)

// dieWithParent leaves it to the members, which end with their standard input.
func dieWithParent() *syscall.SysProcAttr { return nil }

// stopped cannot be asked here; it gives a process the time that it mostly takes.
func stopped(int) bool {
	<-time.After(50 * time.Millisecond)
	return true
}
