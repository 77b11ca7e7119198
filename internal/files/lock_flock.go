//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package files

import "syscall"

func (f *file) Lock(shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if err == nil {
		f.locked.Store(true)
	}
	return err
}

func (f *file) unlock() {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = syscall.Flock(int(fd), syscall.LOCK_UN) })
	}
}
