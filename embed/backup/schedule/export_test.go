package schedule

import (
	"context"
	"io"
	"time"
)

// What the tests of the package look into.
var (
	Superfluous = superfluous
	FileName    = fileName
)

// A Kept is a backup in the directory.
type Kept = kept

// NewKept returns a backup with a name and a time.
func NewKept(name string, at time.Time) Kept { return kept{name, at} }

// SetClock gives a schedule another clock.
func (s *Schedule) SetClock(clock func() time.Time) { s.clock = clock }

// Before has fn return the writer that backups of a schedule are written to.
func (s *Schedule) Before(fn func(ctx context.Context, w io.Writer) io.Writer) {
	write := s.write
	s.write = func(ctx context.Context, w io.Writer) error { return write(ctx, fn(ctx, w)) }
}
