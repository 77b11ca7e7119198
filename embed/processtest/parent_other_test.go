//go:build unix && !linux

package processtest

import "syscall"

// dieWithParent leaves it to the members, which end with their standard input.
func dieWithParent() *syscall.SysProcAttr { return nil }
