//go:build unix

package measure

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// CPU returns the CPU time that this process has used.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Resident returns the resident memory of a process in bytes, and zero except on Linux.
func Resident(pid int) float64 {
	return 1024 * float64(ProcNumber(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"))
}

// Anonymous returns the part of the resident memory that maps no file, neither the program itself
// nor another.
func Anonymous(pid int) float64 {
	return 1024 * float64(ProcNumber(fmt.Sprintf("/proc/%d/status", pid), "RssAnon"))
}

// CPUOf returns the CPU time that a process has used, in steps of a hundredth of a second. It
// returns zero except on Linux.
func CPUOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the program's name in parentheses, which may contain anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	var user, system int64
	if len(fields) > 12 {
		// a line of another form counts nothing
		_, _ = fmt.Sscan(string(fields[11])+" "+string(fields[12]), &user, &system)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// ProcNumber returns the number on a line of one of Linux's files, and zero if there is none.
func ProcNumber(file, name string) (n uint64) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			_, _ = fmt.Sscan(string(rest), &n) // a line of another form counts nothing
		}
	}
	return n
}

// DiskUse returns how many bytes of a disk the files below a directory take.
func DiskUse(dir string) (bytes float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the file was removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += float64(s.Blocks) * 512
			}
		}
		return nil
	})
	return bytes
}

// Until waits for a condition.
func Until(what string, done func() bool) error {
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited a minute for %s", what)
		}
	}
	return nil
}
