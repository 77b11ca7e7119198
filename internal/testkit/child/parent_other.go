//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing here. A child ends when its standard input does, but a stopped child
// stays.
func dieWithParent() *syscall.SysProcAttr { return nil }
