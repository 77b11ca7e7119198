package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBootTime is CLOCK_BOOTTIME of clock_gettime(2). Go's monotonic clock is CLOCK_MONOTONIC,
// which stands still during suspend. A laptop that slept for a minute would believe in its sessions
// for a minute too long.
const clockBootTime = 7

func bootTime() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBootTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return monotonic()
	}
	return time.Duration(ts.Nano())
}
