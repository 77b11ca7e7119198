package storage

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt is wrapped by every error about a damaged or incomplete image or stream.
	ErrCorrupt = errors.New("corrupt")
	// ErrForeign is returned by Open and Peek if the directory holds something other than an image.
	ErrForeign = errors.New("not an image directory")
	// ErrNewer is returned for an image or a stream in a format that only a newer version can read.
	ErrNewer = errors.New("written by a newer version")
	// ErrStopped is returned by WriteTo and Install if the stop channel was closed before they
	// finished.
	ErrStopped = errors.New("stopped")
	// ErrClosed is returned by every method after Close.
	ErrClosed = errors.New("image is closed")
	// ErrTooLarge is returned by Commit for a key or a value beyond the limits of the stream
	// format.
	ErrTooLarge = errors.New("record is too large")
)

// The advice that ends every error of a kind. No error here can be repaired in place. The records
// are on the other members. A member whose directory was emptied by hand would vote without
// remembering its promises.
const (
	adviceCorrupt = "replace this member, or restore the whole directory of the node from a copy made while the node was stopped"
	adviceForeign = "give the node an empty directory, or the one it had before"
	adviceNewer   = "run the version that wrote it, or a later version"
)

func corrupt(file, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s; %s", file, ErrCorrupt, fmt.Sprintf(format, args...), adviceCorrupt)
}

func foreign(dir, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s; %s", dir, ErrForeign, fmt.Sprintf(format, args...), adviceForeign)
}

func newer(file string, has, reads int) error {
	return fmt.Errorf("%s: %w: format %d, this version reads up to %d; %s", file, ErrNewer, has, reads, adviceNewer)
}
