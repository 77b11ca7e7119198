//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing here: a child ends when its standard input does, but a stopped one stays.
func dieWithParent() *syscall.SysProcAttr { return nil }
