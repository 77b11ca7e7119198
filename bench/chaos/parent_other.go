//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing here: a member ends when its standard input does, but a stopped one stays.
func dieWithParent() *syscall.SysProcAttr { return nil }
