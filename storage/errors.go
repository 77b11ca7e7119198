package storage

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt is in every error about an image or a stream that is damaged or incomplete.
	ErrCorrupt = errors.New("corrupt")
	// ErrForeign is returned by Open and Peek for a directory that holds something that is no image.
	ErrForeign = errors.New("not an image directory")
	// ErrNewer is returned for an image or a stream in a format that only a newer version knows.
	ErrNewer = errors.New("written by a newer version")
	// ErrStopped is returned by WriteTo and Install when the stop channel closed before they were done.
	ErrStopped = errors.New("stopped")
	// ErrClosed is returned by every method after Close.
	ErrClosed = errors.New("image is closed")
	// ErrTooLarge is returned by Commit for a key or a value beyond the limits of the stream format.
	ErrTooLarge = errors.New("record is too large")
)

// What to do, once for every error of a kind: nothing here can be mended in place. The records are on the other
// members, and a member whose directory was emptied by hand would vote without remembering what it promised.
const (
	adviceCorrupt = "replace this member, or put back the whole directory of the node from a copy made while it was stopped"
	adviceForeign = "give the node an empty directory, or the one it had"
	adviceNewer   = "run the version that wrote it, or a later one"
)

func corrupt(file, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s; %s", file, ErrCorrupt, fmt.Sprintf(format, args...), adviceCorrupt)
}

func foreign(dir, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s; %s", dir, ErrForeign, fmt.Sprintf(format, args...), adviceForeign)
}

func newer(file string, has, reads int) error {
	return fmt.Errorf("%s: %w: format %d, this one reads up to %d; %s", file, ErrNewer, has, reads, adviceNewer)
}
