package audit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/meter"
)

// Defaults of Config.
const (
	DefaultSize = 64 << 20
	DefaultKeep = 16
)

// Config says where records are kept, and how many. Zero fields mean the documented defaults.
type Config struct {
	// Dir has the files. It is created if missing, and belongs to this File while it is open. Do not
	// put it into the directory of a node.
	Dir string `yaml:"dir"`
	// Size is how many bytes a file may have. A record that does not fit begins the next file. Zero
	// means DefaultSize, 64 MiB.
	Size int64 `yaml:"size"`
	// Keep is how many files are kept. The oldest ones beyond are deleted. Zero means DefaultKeep,
	// which is 16. So there is never more than Size times Keep, and what cannot be deleted: such a
	// file stops no record. The log warns of it, and it is tried again each minute.
	Keep int `yaml:"keep"`
	// Age is how long records are kept at least, unless Keep deletes them sooner. A file ends when it
	// has been written for so long. It is deleted that long after its last record, at the next
	// record. So no record stays for more than twice the Age. Zero means that only Keep counts.
	Age time.Duration `yaml:"age"`
	// Logger is told when records cannot be written; nil means slog.Default.
	Logger *slog.Logger `yaml:"-"`
}

// Validate reports every problem of the Config at once.
func (c Config) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Dir == "" {
		refuse("Dir is empty: name a directory for the records")
	}
	if c.Size < 0 {
		refuse("Size is %d: want bytes", c.Size)
	}
	if c.Keep < 0 {
		refuse("Keep is %d: want a number of files", c.Keep)
	}
	if c.Age < 0 {
		refuse("Age is %v: want a duration", c.Age)
	}
	return errors.Join(errs...)
}

// lockName is the file in Dir that is locked while a File is open.
const lockName = "lock"

// failPause is the least time between two log lines about records that cannot be written.
const failPause = time.Minute

// outKeep is how much memory for one call is kept for the next one.
const outKeep = 1 << 20

// waitMax and waitBytes bound the records that may wait to be written. Record waits while there are
// more. So a disk that hangs holds up the records of its node, and nothing else.
const (
	waitMax   = 256
	waitBytes = 16 << 20
)

// A File writes records to files. Its methods may be called by any number of goroutines.
type File struct {
	// Immutable.
	cfg   Config
	sys   files.System
	lock  files.File
	lines chan []byte   // to the loop; closed by Close
	room  chan struct{} // the loop has written lines; capacity 1
	ended chan struct{} // closed when the loop has ended

	dropped meter.Counter
	waiting atomic.Int64 // bytes of lines that are not written

	// turn is full while somebody uses closed, or sends to lines. It is a channel and no lock,
	// because it is held while lines is full.
	turn   chan struct{} // capacity 1
	closed bool

	// Owned by the loop.
	out    []byte     // memory for what one call writes
	now    files.File // nil: the next record opens it
	number int        // of the newest file
	size   int64      // of that file
	began  time.Time  // when the first record came that is still in it; zero: it is empty
	older  []older    // the files before it, the oldest first
	stuck  []int      // the numbers of files that were to be deleted, and could not be
	tried  time.Time  // when that was last tried
	lost   uint64     // how many records no line tells of
	told   time.Time  // when the last failure was logged
	failed bool       // since then, no record was written
	end    error      // of the last Sync and Close
}

// An older file gets no more records.
type older struct {
	number int
	last   time.Time // when its last record came
}

// Open opens a directory for records. It goes on with the newest file there. It fails if the Config
// is invalid, or if the directory cannot be made or is open already.
func Open(c Config) (*File, error) { return open(c, files.OS) }

func open(c Config, sys files.System) (*File, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("audit: config: %w", err)
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	c.Dir, c.Size, c.Keep = dir, cmp.Or(c.Size, DefaultSize), cmp.Or(c.Keep, DefaultKeep)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	f := &File{
		cfg: c, sys: sys, turn: make(chan struct{}, 1),
		lines: make(chan []byte, waitMax), room: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if err := f.start(); err != nil {
		if f.lock != nil {
			err = errors.Join(err, f.lock.Close())
		}
		return nil, fmt.Errorf("audit: %w", err)
	}
	go f.writeLoop()
	return f, nil
}

// start locks the directory, and looks at what is there.
func (f *File) start() (err error) {
	if err := makeDir(f.sys, f.cfg.Dir); err != nil {
		return err
	}
	name := filepath.Join(f.cfg.Dir, lockName)
	if f.lock, err = f.sys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := f.lock.Lock(false); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%s is open already: %w", f.cfg.Dir, err)
	}
	dir, err := f.sys.OpenFile(f.cfg.Dir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	for _, n := range numbers(names) {
		info, err := f.sys.Stat(f.name(n))
		if err != nil {
			return err
		}
		f.older = append(f.older, older{n, info.ModTime()})
	}
	if last := len(f.older) - 1; last >= 0 {
		f.number, f.older = f.older[last].number, f.older[:last]
		return f.open()
	}
	return nil
}

// makeDir makes a directory with those above it.
func makeDir(sys files.System, dir string) error {
	info, err := sys.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	case err == nil || !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := makeDir(sys, filepath.Dir(dir)); err != nil {
		return err
	}
	if err := sys.Mkdir(dir, 0o700); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

func (f *File) name(number int) string { return filepath.Join(f.cfg.Dir, nameOf(number)) }

// open opens the newest file, and creates it if it is missing. A line that a crash has torn ends
// there, so that the next one begins anew.
func (f *File) open() error {
	now, err := f.sys.OpenFile(f.name(f.number), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := now.Stat()
	if err != nil {
		return errors.Join(err, now.Close())
	}
	f.size, f.began = info.Size(), time.Time{}
	if f.size > 0 {
		f.began = f.firstTime(now, info)
		end := make([]byte, 1)
		if _, err := now.ReadAt(end, f.size-1); err == nil && end[0] != '\n' {
			if _, err := now.WriteAt([]byte{'\n'}, f.size); err != nil {
				return errors.Join(err, now.Close())
			}
			f.size++
		}
	}
	f.now = now
	return nil
}

// firstTime returns about when a file began. That is the time of its first record. If the clock of
// the member that was asked was far from this one's, it is the time of the file's last change.
func (f *File) firstTime(file files.File, info os.FileInfo) time.Time {
	line := make([]byte, min(info.Size(), lineMax))
	n, _ := file.ReadAt(line, 0)
	changed := info.ModTime()
	r, ok := decode(firstLine(line[:n]))
	if ok && r.Time.Before(changed) && changed.Sub(r.Time) < 2*f.cfg.Age {
		return r.Time
	}
	return changed
}

// Record has a record written. It is what embed.Config.Audit wants. It waits for the disk only
// while hundreds of records do. If a record cannot be written, because the disk is full for example,
// Dropped counts it. The next record that can be written comes after one that says how many are
// missing.
func (f *File) Record(r embed.AuditRecord) {
	line := encode(r)
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if f.closed {
		f.dropped.Inc()
		return
	}
	f.waitForRoom(int64(len(line)))
	f.lines <- line
}

// waitForRoom waits until a line of n bytes has room beside those that wait, or none waits.
func (f *File) waitForRoom(n int64) {
	for w := f.waiting.Load(); w > 0 && w+n > waitBytes; w = f.waiting.Load() {
		<-f.room
	}
	f.waiting.Add(n)
}

// wrote makes room for other lines.
func (f *File) wrote(lines [][]byte) {
	for _, line := range lines {
		f.waiting.Add(-int64(len(line)))
	}
	clear(lines)
	select {
	case f.room <- struct{}{}:
	default:
	}
}

// writeLoop writes what Record sends, until Close.
func (f *File) writeLoop() {
	defer close(f.ended)
	batch := make([][]byte, 0, waitMax)
	for line := range f.lines {
		batch = append(batch[:0], line)
		for more := true; more && len(batch) < waitMax; {
			select {
			case line, more = <-f.lines:
				if more {
					batch = append(batch, line)
				}
			default:
				more = false
			}
		}
		f.write(batch)
		f.wrote(batch)
	}
	if f.now != nil {
		f.end = errors.Join(f.now.Sync(), f.now.Close())
	}
	if f.lost > 0 { // no record after them says so
		f.end = errors.Join(fmt.Errorf("%d records were not written", f.lost), f.end)
	}
}

// write writes lines, as many as it can with one call. If that fails, it tries each alone: there
// may be room for some.
func (f *File) write(lines [][]byte) {
	most := len(lines)
	for len(lines) > 0 {
		n, err := f.append(lines[:min(most, len(lines))])
		switch {
		case err != nil && n > 1:
			most = 1
			continue
		case err != nil:
			f.dropped.Inc()
			f.lost++
			f.tell(err)
		case f.failed:
			f.failed = false
			f.cfg.Logger.Info("audit records are written again", "dir", f.cfg.Dir)
		}
		lines = lines[n:]
	}
}

// append writes the first of the lines, and those after it that fit in the same file. It returns
// how many that are. After an error, none is written.
func (f *File) append(lines [][]byte) (n int, err error) {
	now, out := time.Now(), f.out[:0]
	if f.lost > 0 {
		gap := embed.AuditRecord{
			Time: now.UTC(), Op: gapOp, Why: "not written", Result: "ok", Lost: f.lost,
		}
		out = append(out, encode(gap)...)
	}
	out = append(out, lines[0]...)
	if err := f.rotate(now, int64(len(out))); err != nil {
		return 1, err
	}
	for n = 1; n < len(lines) && f.size+int64(len(out)+len(lines[n])) <= f.cfg.Size; n++ {
		out = append(out, lines[n]...)
	}
	if f.out = out; cap(out) > outKeep {
		f.out = nil
	}
	if _, err := f.now.WriteAt(out, f.size); err != nil {
		// What was written of it is overwritten by the next record, or skipped by Search.
		return n, errors.Join(err, f.now.Truncate(f.size))
	}
	f.size += int64(len(out))
	f.lost = 0
	if f.began.IsZero() {
		f.began = now // not the record's time, which is by another member's clock
	}
	return n, nil
}

// rotate makes room for a line: it opens the next file if this one is full or old, and deletes
// files that need not be kept.
func (f *File) rotate(now time.Time, room int64) error {
	if f.now != nil && f.size > 0 && (f.size+room > f.cfg.Size || f.isOld(now, f.began)) {
		if err := errors.Join(f.now.Sync(), f.now.Close()); err != nil { // the next file works without
			f.cfg.Logger.Warn("an audit file was not closed: its newest records may be missing",
				"file", f.name(f.number), "cause", err)
		}
		f.now = nil
		f.older = append(f.older, older{f.number, now})
		f.number++
	}
	if f.now == nil {
		f.number = max(f.number, 1)
		if err := f.open(); err != nil {
			return err
		}
	}
	f.retain(now)
	return nil
}

func (f *File) isOld(now, t time.Time) bool { return f.cfg.Age > 0 && now.Sub(t) > f.cfg.Age }

// retain deletes the files that need not be kept. One that cannot be deleted stays, and stops
// neither a record nor the deletion of others. It is tried again once per failPause.
func (f *File) retain(now time.Time) {
	for len(f.older) > 0 && (len(f.older) >= f.cfg.Keep || f.isOld(now, f.older[0].last)) {
		if f.remove(f.older[0].number) != nil {
			f.stuck = append(f.stuck, f.older[0].number)
		}
		f.older = f.older[1:]
	}
	if len(f.stuck) == 0 || now.Sub(f.tried) < failPause {
		return
	}
	f.tried = now
	var cause error
	f.stuck = slices.DeleteFunc(f.stuck, func(n int) bool {
		err := f.remove(n)
		cause = cmp.Or(cause, err)
		return err == nil
	})
	if cause != nil {
		f.cfg.Logger.Warn("old audit files cannot be deleted", "dir", f.cfg.Dir, "count", len(f.stuck), "cause", cause)
	}
}

func (f *File) remove(number int) error {
	err := f.sys.Remove(f.name(number))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// tell logs that a record could not be written, at most once per failPause.
func (f *File) tell(err error) {
	now := time.Now()
	if f.failed && now.Sub(f.told) < failPause {
		return
	}
	f.failed, f.told = true, now
	f.cfg.Logger.Error("audit records cannot be written",
		"dir", f.cfg.Dir, "count", f.lost, "cause", err)
}

// Dropped returns how many records could not be written since Open.
func (f *File) Dropped() uint64 { return f.dropped.Read() }

// Close writes what waits, and closes the File. Call it after Node.Close: records that come later
// are lost.
func (f *File) Close() error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if f.closed {
		return nil
	}
	f.closed = true
	close(f.lines)
	<-f.ended
	if err := errors.Join(f.end, f.lock.Close()); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
