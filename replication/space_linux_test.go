package replication

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// C10.1: Where it can, tan reserves 64 MiB for each file of its log, and it begins a file at every
// start. Our disk writes zeros ahead as the file grows.
func TestOpen_TakesLittleOfTheDisk(t *testing.T) {
	e := found(t, 1, 1)
	e.newDisk = realDisk(t)
	n := e.nodes[0]
	for i := range 10 {
		e.start(n)
		e.write(n, 1, fmt.Sprint(i))
		if got := spaceOf(t, n.dir); got > 4<<20 {
			t.Fatalf("after %d starts %d MiB of the disk are used", i+1, got>>20)
		}
		e.stop(n)
	}
}

// spaceOf returns how much of the disk the files below dir occupy.
func spaceOf(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the node runs, and has just removed it
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
