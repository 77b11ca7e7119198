package child

import "syscall"

// dieWithParent has the kernel kill a child when this process is gone, also a stopped one.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
