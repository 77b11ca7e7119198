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

// CPU is what this process has used of all cores.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Resident is the resident memory of a process in bytes; zero where there is no Linux.
func Resident(pid int) float64 {
	return 1024 * float64(ProcNumber(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"))
}

// Anonymous is the part of it that is no file's: neither the program itself nor a mapped one.
func Anonymous(pid int) float64 {
	return 1024 * float64(ProcNumber(fmt.Sprintf("/proc/%d/status", pid), "RssAnon"))
}

// CPUOf is what a process has used of all cores, counted in hundredths of a second; zero where there is no Linux.
func CPUOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the program's name in parentheses, which may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	var user, system int64
	if len(fields) > 12 {
		_, _ = fmt.Sscan(string(fields[11])+" "+string(fields[12]), &user, &system) // a line of another form counts nothing
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// ProcNumber returns the number of a line of one of Linux's files, zero if there is none.
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

// DiskUse is how many bytes of a disk the files below a directory take.
func DiskUse(dir string) (bytes float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went meanwhile
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
