package processtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// stopped reports whether all threads of a process are stopped, or the process is gone.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range threads {
		stat, err := os.ReadFile(name)
		// The state follows the name, which is in parentheses and may contain any byte.
		if i := bytes.LastIndexByte(stat, ')'); err == nil && i+2 < len(stat) && stat[i+2] != 'T' && stat[i+2] != 'Z' {
			return false
		}
	}
	return true
}
