package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// The sizes of a database. Package doc adds them up.
const (
	memtableLen = 4 << 20
	cacheLen    = 1 << 20
	// tableFilesMax is the least Pebble takes, 64 open tables and 10 other files.
	tableFilesMax = 74
	// A table holds 4 MiB: a few hundred files for a gigabyte, and a compaction step stays short.
	tableFileLen = 4 << 20
	// Records are read in long runs only, by Load and by snapshots, so blocks are larger than for point reads.
	blockLen = 32 << 10

	outOfReach = 1 << 20

	// backgroundPause slows down Pebble's retries. It repeats failed background work at once and without end, and
	// only the node's Close, which the thrown switch brings about, ends that.
	backgroundPause = 10 * time.Millisecond
)

// ownTable is the key space that no Table has.
const ownTable = 0

var appliedKey = []byte{ownTable, 'a'}

// A store is one Pebble database, with a count of who reads it.
type store struct {
	// Immutable after openStore.
	disk  *disk.Disk
	dir   string
	db    *pebble.DB
	cache *pebble.Cache

	refs       atomic.Int32 // one for the Image while it is the live one, one for each Snapshot
	superseded atomic.Bool  // the directory goes when the last reference does
}

type openMode int

const (
	checkOnly openMode = iota // writes nothing, whatever it finds
	createNew
	existing
)

// openStore opens the database in dir. Errors are Pebble's; check.go makes sense of them.
func openStore(d *disk.Disk, dir string, mode openMode, log *slog.Logger) (s *store, err error) {
	// Pebble panics on some contents that it never wrote. This is the goroutine of Start, and the files were ours
	// to check.
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("pebble: %v", r)
		}
	}()
	cache := pebble.NewCache(cacheLen)
	db, err := pebble.Open(dir, pebbleOptions(d, cache, mode, log.With("image", filepath.Base(dir))))
	if err != nil {
		cache.Unref()
		return nil, err
	}
	s = &store{disk: d, dir: dir, db: db, cache: cache}
	s.refs.Store(1)
	return s, nil
}

func pebbleOptions(d *disk.Disk, cache *pebble.Cache, mode openMode, log *slog.Logger) *pebble.Options {
	o := &pebble.Options{
		FS:     filesystem{d},
		Cache:  cache,
		Logger: pebbleLog{log: log, fail: d.Fail},
		// The format is named, so that a newer Pebble does not move files to one that this Pebble cannot read. The
		// lowest has all that is used here, and it spares each creation a dozen synced marker files.
		FormatMajorVersion: pebble.FormatMostCompatible,
		ReadOnly:           mode == checkOnly,
		ErrorIfExists:      mode == createNew,
		ErrorIfNotExists:   mode != createNew,

		// The Raft log is the log.
		DisableWAL:   true,
		MemTableSize: memtableLen,
		// A commit that Pebble stalls waits under locks that Close needs, and behind a disk that does not answer it
		// waits for ever. Commit has a bound of its own, so Pebble's are out of reach.
		MemTableStopWritesThreshold: outOfReach,
		L0StopWritesThreshold:       outOfReach,
		// Keys come in no order, so that a compaction from level 0 mostly rewrites all below it. Pebble begins one at half as many runs as
		// this says: with 8 in place of 2, three members that create znodes did so 10 to 13 % faster; only Load and snapshots have
		// to merge them.
		L0CompactionThreshold: 16,

		MaxOpenFiles: tableFilesMax,
		// Without a descriptor Pebble would sync a whole table at each step instead of a range of it.
		BytesPerSync: math.MaxInt32,
		Levels:       []pebble.LevelOptions{{BlockSize: blockLen, TargetFileSize: tableFileLen}},
	}
	o.Experimental.TableCacheShards = 1
	// Reads are whole scans; compactions that they would trigger help nobody.
	o.Experimental.ReadSamplingMultiplier = -1
	o.EventListener.BackgroundError = func(err error) {
		d.Fail(fmt.Errorf("image, in the background: %w", err))
		time.Sleep(backgroundPause)
	}
	return o
}

// pebbleLog hands Pebble's messages on. Fatalf returns, which Pebble does not expect but copes with: what it
// reports is a failed write to the MANIFEST, and it goes on to return that error.
type pebbleLog struct {
	log  *slog.Logger
	fail func(error)
}

func (l pebbleLog) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(fmt.Sprintf(format, args...), "library", "pebble")
	}
}

func (l pebbleLog) Fatalf(format string, args ...any) {
	l.fail(fmt.Errorf("pebble: "+format, args...))
}

// applied returns the index in r, zero for an image nothing was committed to.
func applied(r pebble.Reader) (uint64, error) {
	v, closer, err := r.Get(appliedKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	if len(v) != 8 {
		return 0, fmt.Errorf("the applied index has %d bytes", len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// each calls fn for every record of r in key order, and stops at the first error.
func each(r pebble.Reader, fn func(t Table, key, value []byte) error) error {
	it := r.NewIter(nil)
	err := walk(it, fn)
	return errors.Join(err, it.Close())
}

func walk(it *pebble.Iterator, fn func(t Table, key, value []byte) error) error {
	for it.First(); it.Valid(); it.Next() {
		key := it.Key()
		if len(key) > 0 && key[0] == ownTable {
			continue
		}
		if len(key) == 0 || !Table(key[0]).known() {
			return errUnknownTable
		}
		if err := fn(Table(key[0]), key[1:], it.Value()); err != nil {
			return err
		}
	}
	return nil
}

var errUnknownTable = errors.New("it holds a record of no table")

// load calls fn for every record. An error that is not fn's names the file.
func (s *store) load(fn func(t Table, key, value []byte) error) error {
	var refused error
	err := each(s.db, func(t Table, key, value []byte) error {
		refused = fn(t, key, value)
		return refused
	})
	if refused != nil {
		return refused
	}
	if err != nil {
		return diagnose(s.disk, s.dir, err)
	}
	return nil
}

func (s *store) acquire() *store {
	s.refs.Add(1)
	return s
}

// release closes the database when nobody is left who reads it, and removes it if another has taken its place.
func (s *store) release() error {
	if s.refs.Add(-1) > 0 {
		return nil
	}
	err := s.db.Close()
	s.cache.Unref()
	if s.superseded.Load() {
		err = errors.Join(err, s.disk.RemoveAll(s.dir))
	}
	return err
}

// isIO tells an error of reading the disk from an error of what was read.
func isIO(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist)
}
