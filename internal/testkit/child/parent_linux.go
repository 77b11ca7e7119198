package child

import "syscall"

// dieWithParent makes the kernel kill a child, even a stopped one, when this process is gone.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
