//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package files

import "syscall"

func (f file) Lock(shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	return syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
}
