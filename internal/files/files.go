package files

import (
	"io"
	"os"
)

// A System is a file system. Except for Space and Resolve, its methods are the functions of package os that
// have their names. Any number of goroutines may call them.
type System interface {
	OpenFile(name string, flag int, perm os.FileMode) (File, error)
	Mkdir(name string, perm os.FileMode) error
	Remove(name string) error
	Rename(oldname, newname string) error
	Link(oldname, newname string) error
	Stat(name string) (os.FileInfo, error)
	Lstat(name string) (os.FileInfo, error)

	// Space returns how many bytes of a directory's file system are free for this process, and how
	// many it has. The error is ErrUnsupported on a system that cannot tell.
	Space(dir string) (free, size uint64, err error)

	// Resolve returns the absolute name without symbolic links of a file that exists.
	Resolve(name string) (string, error)
}

// A File is an open file or directory. Any number of goroutines may call its methods.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
	Readdirnames(n int) ([]string, error)

	// Sync makes everything about the file durable, or the names in a directory.
	Sync() error
	// SyncData makes the contents durable, with only the metadata needed to find them.
	SyncData() error
	// Lock locks the file without waiting, alone or together with others who share it. The lock
	// ends with Close, and with the process. The error is EWOULDBLOCK if the file is locked, and
	// errors.ErrUnsupported on a system without such locks.
	Lock(shared bool) error
}

// An Inode is what Sys returns for a file that is not the operating system's.
type Inode struct {
	ID    any // the same for all descriptions of one file
	Links uint64
}

// Same is os.SameFile for the files of every System.
func Same(a, b os.FileInfo) bool {
	if i, ok := a.Sys().(Inode); ok {
		j, ok := b.Sys().(Inode)
		return ok && i.ID == j.ID
	}
	return os.SameFile(a, b)
}

// Links returns how many names a file has. On a file system that does not count names it returns 0
// for every file.
func Links(info os.FileInfo) uint64 {
	if i, ok := info.Sys().(Inode); ok {
		return i.Links
	}
	return links(info)
}
