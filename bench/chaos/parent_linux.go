package main

import "syscall"

// dieWithParent has the kernel kill a member when this process is gone, also a stopped one.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
