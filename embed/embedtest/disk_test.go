package embedtest

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// For every kind of calls: which fail, which are slow, and which hang.
func TestFaults_CallsOfTheDisk(t *testing.T) {
	syncs := []disk.Op{disk.OpSync, disk.OpSyncDir}
	growth := []disk.Op{disk.OpCreate, disk.OpWrite, disk.OpLink, disk.OpMkdir, disk.OpLock}
	reads := []disk.Op{disk.OpOpen, disk.OpRead, disk.OpList, disk.OpStat}
	descriptors := []disk.Op{disk.OpCreate, disk.OpAppend, disk.OpLock, disk.OpOpen, disk.OpList}
	concerned := map[DiskCalls]func(disk.Op) bool{
		Changes:     func(op disk.Op) bool { return !slices.Contains(reads, op) },
		Reads:       func(op disk.Op) bool { return slices.Contains(reads, op) },
		Descriptors: func(op disk.Op) bool { return slices.Contains(descriptors, op) },
		Syncs:       func(op disk.Op) bool { return slices.Contains(syncs, op) },
		Growth:      func(op disk.Op) bool { return slices.Contains(growth, op) },
	}
	synctest.Test(t, func(t *testing.T) {
		for on, want := range concerned {
			for op := disk.OpCreate; op <= disk.OpStat; op++ {
				f := NewFaults()
				call := func() (time.Duration, error) {
					began := time.Now()
					err := f.call(op)
					return time.Since(began), err
				}
				f.SetDisk(Disk{Err: syscall.EIO, On: on, After: 2, Delay: time.Second})
				for i := range 4 {
					took, err := call()
					if slow := took == time.Second; slow != want(op) || !slow && took != 0 {
						t.Errorf("%d: %v took %v", on, op, took)
					}
					if failed := err == syscall.EIO; failed != (want(op) && i >= 2) {
						t.Errorf("%d: call %d, %v: %v", on, i, op, err)
					}
				}
				f.pause(true)
				f.SetDisk(Disk{})
				go func() {
					<-time.After(time.Hour)
					f.pause(false)
				}()
				stands := time.Hour
				if slices.Contains(reads, op) {
					stands = 0
				}
				if took, err := call(); err != nil || took != stands {
					t.Errorf("%v of a member that stood still took %v: %v", op, took, err)
				}
				<-time.After(time.Hour - stands)
				synctest.Wait()
				f.SetDisk(Disk{Err: syscall.EIO, On: on, Delay: time.Hour})
				go func() {
					<-time.After(time.Second)
					f.SetDisk(Disk{})
				}()
				if took, err := call(); err != nil || took > time.Second {
					t.Errorf("%v of a disk that was replaced took %v: %v", op, took, err)
				}
				synctest.Wait()
				<-time.After(2 * time.Second)
			}
		}
	})
}

// However long a bubble lasts, and whatever the machine's wall clock shows.
func TestInBubble(t *testing.T) {
	if inBubble() {
		t.Error("outside")
	}
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			if !inBubble() {
				t.Error("inside, in", time.Now().Year())
			}
			<-time.After(20 * 365 * 24 * time.Hour)
		}
	})
}

// A compaction of an image cannot read. Pebble used to repeat it at once, and to hold a lock while
// it paused in between. Close waited for that lock and stopped the time of the bubble, for ever.
// Package storage has no test in a bubble, because of Pebble's pool; see pool.go.
func TestBubble_AReadFailsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := disk.Open(memory.New(), "/")
		if err != nil {
			t.Fatal(err)
		}
		image, err := storage.Open(storage.Options{Disk: d, Dir: "/image"})
		if err != nil {
			t.Fatal(err)
		}
		d.SetReadFault(func(_ disk.Op, name string) error {
			if strings.HasSuffix(name, ".sst") {
				return syscall.EIO
			}
			return nil
		})
		// Each Sync writes a table, and tables are compacted after some.
		for k := uint64(1); k < 100 && d.Err() == nil; k++ {
			b := image.NewBatch()
			b.Put(storage.Znodes, []byte("first"), make([]byte, 1000))
			b.Put(storage.Znodes, []byte("last"), make([]byte, 1000))
			if err := errors.Join(b.Commit(k), image.Sync()); err != nil && d.Err() == nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := d.Err(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "in the background") {
			t.Errorf("the disk failed with %v", err)
		}
		if err := image.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("Close: %v", err)
		}
	})
}
