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

	"github.com/cockroachdb/pebble"

	"github.com/vivarium-go/vivarium/storage/disk"
)

// The sizes of a database. The package doc adds them up.
const (
	memtableLen = 4 << 20
	cacheLen    = 1 << 20
	// tableFilesMax is the smallest value that Pebble accepts: 64 open tables and 10 other files.
	tableFilesMax = 74
	// At 4 MiB a table, a gigabyte is a few hundred files, and one step of a compaction stays
	// short.
	tableFileLen = 4 << 20
	// Load and snapshots read long runs of records, so blocks are larger than point reads would
	// need.
	blockLen = 32 << 10

	outOfReach = 1 << 20
)

// ownTable is the key space for this package's own records. No Table has its number.
const ownTable = 0

var appliedKey = []byte{ownTable, 'a'}

// A store is one Pebble database with a count of its readers.
type store struct {
	// Immutable after openStore.
	disk  *disk.Disk
	dir   string
	db    *pebble.DB
	cache *pebble.Cache

	refs       atomic.Int32 // one for the Image while this store is live, one for each Snapshot
	superseded atomic.Bool  // the last release removes the directory
}

type openMode int

const (
	checkOnly openMode = iota // writes nothing, whatever it finds
	createNew
	existing
)

// openStore opens the database in dir. Errors are Pebble's; diagnose explains them.
func openStore(o Options, dir string, mode openMode) (s *store, err error) {
	// Pebble panics on some contents that it never wrote. Recovering is safe: this is the goroutine
	// of Start, and checking these files is its job.
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("pebble: %v", r)
		}
	}()
	cache := pebble.NewCache(cacheLen)
	db, err := pebble.Open(dir, pebbleOptions(o, dir, cache, mode))
	if err != nil {
		cache.Unref()
		return nil, err
	}
	s = &store{disk: o.Disk, dir: dir, db: db, cache: cache}
	s.refs.Store(1)
	return s, nil
}

func pebbleOptions(image Options, dir string, cache *pebble.Cache, mode openMode) *pebble.Options {
	d, log := image.Disk, image.Logger.With("image", filepath.Base(dir))
	o := &pebble.Options{
		FS:     filesystem{d},
		Cache:  cache,
		Logger: pebbleLog{log: log, fail: d.Fail},
		// The version is fixed, so that a newer Pebble does not convert the files to one that this
		// Pebble cannot read. The oldest version has all that this package uses, and saves a dozen
		// synced marker files for each new database.
		FormatMajorVersion: pebble.FormatMostCompatible,
		ReadOnly:           mode == checkOnly,
		ErrorIfExists:      mode == createNew,
		ErrorIfNotExists:   mode != createNew,

		// The Raft log replaces it.
		DisableWAL:   true,
		MemTableSize: memtableLen,
		// Pebble must never stall a commit: it would wait under locks that Close needs, and for
		// ever if the disk does not answer. Commit has its own limit, so Pebble's limits are out of
		// reach.
		MemTableStopWritesThreshold: outOfReach,
		L0StopWritesThreshold:       outOfReach,
		// Keys arrive in no order, so a compaction from level 0 mostly rewrites everything below
		// it. Pebble begins a compaction at half this many runs. Beginning at 8 instead of 2, three
		// members created znodes 10 to 13 % faster. Only Load and snapshots have to merge the runs.
		L0CompactionThreshold: 16,

		MaxOpenFiles: tableFilesMax,
		// Our files have no descriptor, so Pebble would sync a whole table at each step instead of
		// a range of it.
		BytesPerSync: math.MaxInt32,
		Levels:       []pebble.LevelOptions{{BlockSize: blockLen, TargetFileSize: tableFileLen}},
	}
	o.Experimental.TableCacheShards = 1
	// Reads are full scans; compactions triggered by them would help nobody.
	o.Experimental.ReadSamplingMultiplier = -1
	o.EventListener.BackgroundError = func(err error) {
		d.Fail(fmt.Errorf("image, in the background: %w", err))
	}
	// Each Begin has its End, also after a failure. Pebble calls them with its lock held.
	o.EventListener.FlushBegin = func(pebble.FlushInfo) { image.Flushes.Begin() }
	o.EventListener.FlushEnd = func(pebble.FlushInfo) { image.Flushes.End() }
	o.EventListener.CompactionBegin = func(pebble.CompactionInfo) { image.Compactions.Begin() }
	o.EventListener.CompactionEnd = func(pebble.CompactionInfo) { image.Compactions.End() }
	// Pebble repeats a failed compaction at once and without end. It calls BackgroundError with its
	// lock held, so a pause there would hold up Close, and stop the time of a bubble of
	// testing/synctest. Instead no compaction begins after the failure. Flushes may go on: they
	// only write, which succeeds behind the switch.
	o.MaxConcurrentCompactions = func() int {
		if d.Err() != nil {
			return -1 // none; Pebble divides by this number, so it cannot be zero
		}
		return 1
	}
	return o
}

// pebbleLog passes on Pebble's messages. Pebble does not expect Fatalf to return, but copes: Fatalf
// reports a failed write to the MANIFEST, and Pebble then returns that error.
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

// applied returns the index stored in r, or zero if nothing was ever committed.
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
		return 0, fmt.Errorf("the applied index has %d bytes instead of 8", len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// each calls fn for every record of r in key order, and stops at the first error.
func each(r pebble.Reader, o *pebble.IterOptions, fn func(t Table, key, value []byte) error) error {
	it := r.NewIter(o)
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

var errUnknownTable = errors.New("it holds a record of an unknown table")

// load calls fn for every record, those of Meta first. An error that does not come from fn names
// the file.
func (s *store) load(fn func(t Table, key, value []byte) error) error {
	var refused error
	pass := func(t Table, key, value []byte) error {
		refused = fn(t, key, value)
		return refused
	}
	err := each(s.db, &pebble.IterOptions{LowerBound: []byte{byte(Meta)}, UpperBound: []byte{byte(Meta) + 1}}, pass)
	if err == nil {
		err = each(s.db, nil, func(t Table, key, value []byte) error {
			if t == Meta {
				return nil
			}
			return pass(t, key, value)
		})
	}
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

// release closes the database after its last reader has left, and removes it if it was superseded.
func (s *store) release() error {
	if s.refs.Add(-1) > 0 {
		return nil
	}
	err := s.db.Close()
	s.cache.Unref()
	if s.superseded.Load() {
		err = errors.Join(err, s.disk.Discard(s.dir))
	}
	return err
}

// isIO reports whether err is about reading the disk, rather than about the contents.
func isIO(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist)
}
