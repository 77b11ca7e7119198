package storage

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// A Table is one of the key spaces of an image. Only the engine knows what its bytes mean.
type Table uint8

// The tables. Their numbers are part of the formats of image and stream.
const (
	Znodes   Table = 1
	Sessions Table = 2
	Origins  Table = 3
	Meta     Table = 4
	Members  Table = 5
)

// String returns the table's name.
func (t Table) String() string {
	if !t.known() {
		return fmt.Sprintf("table %d", uint8(t))
	}
	return [...]string{"znodes", "sessions", "origins", "meta", "members"}[t-Znodes]
}

func (t Table) known() bool { return t >= Znodes && t <= Members }

// Options say where an image is and how it is written. Disk and Dir are required.
type Options struct {
	Disk   *disk.Disk   // the node's directory
	Dir    string       // the shard's image directory, an absolute path below that of Disk
	Logger *slog.Logger // nil: nothing is logged

	// FlushBytes is how much is committed before a background flush begins. Zero means 2 MiB, which
	// even a slow disk writes within the time that a Sync may take.
	FlushBytes int
	// FlushInterval is how long a commit waits for a flush when few commits follow it. Zero means 5
	// s.
	FlushInterval time.Duration
	// UnflushedMax limits how much may be committed and not yet flushed. Beyond it, Commit waits.
	// Zero means 16 MiB.
	UnflushedMax int
	// CommitWait limits how long one Commit waits. Zero means 5 s. A disk that takes longer has
	// stopped answering, and the Raft log is on the same disk. So only entries that the log
	// accepted earlier can still be committed. Apply must not hang on them when the node is closed.
	CommitWait time.Duration

	// Flushes and Compactions, if not nil, learn when the database works in the background.
	Flushes, Compactions *meter.Work
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FlushBytes <= 0 {
		o.FlushBytes = 2 << 20
	}
	if o.FlushInterval <= 0 {
		o.FlushInterval = 5 * time.Second
	}
	if o.UnflushedMax <= 0 {
		o.UnflushedMax = 16 << 20
	}
	if o.CommitWait <= 0 {
		o.CommitWait = 5 * time.Second
	}
	o.Flushes = cmp.Or(o.Flushes, new(meter.Work))
	o.Compactions = cmp.Or(o.Compactions, new(meter.Work))
	o.Dir = filepath.Clean(o.Dir)
	return o
}

// An Image is the durable image of one shard.
//
// It is opened in two steps. Open looks at an existing image through a view of the disk and changes
// nothing. The first Load reads the whole image, which checks every block, and then opens it for
// writing. If another method is called first, it does the same.
type Image struct {
	// Immutable after Open.
	o       Options
	layout  layout
	closing chan struct{} // closed by Close
	dirty   chan struct{} // tells flushLoop that something was committed; buffer of one
	full    chan struct{} // tells flushLoop that enough was committed for a flush; buffer of one

	loop sync.WaitGroup // flushLoop
	once sync.Once      // of Close

	// Locks, in the order of the table in engine/doc.go.
	installing rank.Mutex[rank.Installing] // held by Install
	pointing   rank.Mutex[rank.Pointing]   // held to write the pointer file, by Load, and by swap
	mu         struct {
		rank.Mutex[rank.Image]
		live      *store // nil if no image exists yet
		writable  bool   // live is open for writing, and flushLoop runs
		closed    bool
		applied   uint64
		pointer   pointer
		flow      flow
		snapshots map[*Snapshot]struct{}
	}
}

// Open looks at the image in o.Dir. An absent or empty directory is a new image. Errors name a file
// and say what to do. They wrap ErrCorrupt, ErrForeign or ErrNewer, or come from reading the disk.
func Open(o Options) (*Image, error) {
	o = o.withDefaults()
	i := &Image{
		o:       o,
		layout:  layout{o.Disk, o.Dir},
		closing: make(chan struct{}),
		dirty:   make(chan struct{}, 1),
		full:    make(chan struct{}, 1),
	}
	i.mu.snapshots = make(map[*Snapshot]struct{})
	var err error
	i.mu.live, i.mu.pointer, i.mu.applied, err = look(o)
	if err != nil {
		return nil, err
	}
	return i, nil
}

// Peek reports what Open would find: whether an image exists, and its index. It changes nothing.
func Peek(o Options) (index uint64, exists bool, err error) {
	s, _, index, err := look(o.withDefaults())
	if err != nil || s == nil {
		return 0, false, err
	}
	return index, true, s.release()
}

// Check reads the whole image and changes nothing. It calls fn as Load does, and returns the
// image's index, or zero if there is no image. Its errors are those of Open and Load.
func Check(o Options, fn func(t Table, key, value []byte) error) (index uint64, err error) {
	s, _, index, err := look(o.withDefaults())
	if err != nil || s == nil {
		return 0, err
	}
	defer s.release() // opened read-only, so its error does not matter
	return index, s.load(fn)
}

// look opens an existing image through a view. The store is nil if there is no image.
func look(o Options) (*store, pointer, uint64, error) {
	l := layout{o.Disk.View(), o.Dir}
	p, exists, err := l.inspect()
	if err != nil || !exists {
		return nil, p, 0, err
	}
	dir := l.path(p.image)
	o.Disk = l.disk // a view
	s, err := openStore(o, dir, checkOnly)
	if err != nil {
		return nil, p, 0, diagnose(l.disk, dir, err)
	}
	index, err := applied(s.db)
	if err != nil {
		s.release()
		return nil, p, 0, diagnose(l.disk, dir, err)
	}
	if index < p.synced {
		s.release()
		return nil, p, 0, older(l.disk, dir, index, p.synced)
	}
	return s, p, index, nil
}

// Applied returns the index of the last committed batch.
func (i *Image) Applied() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.mu.applied
}

// Load calls fn for every record: first those of Meta, because they tell how to read the others,
// then the rest in order of (table, key). The slices are valid until fn returns.
// If fn returns an error, Load stops and returns that error unchanged. Any other error means a
// corrupt file or a failed read, and nothing has been changed. fn must not use the image.
func (i *Image) Load(fn func(t Table, key, value []byte) error) error {
	i.pointing.Lock()
	defer i.pointing.Unlock()
	return i.load(fn)
}

// load is Load for a caller that holds pointing.
func (i *Image) load(fn func(t Table, key, value []byte) error) error {
	s, err := i.acquire()
	if err != nil {
		return err
	}
	if s != nil {
		err = s.load(fn)
		s.release()
	}
	if err != nil || i.writable() {
		return err
	}
	return i.openForWriting()
}

// ready opens the image for writing if Load has not done so.
func (i *Image) ready() error {
	if i.writable() {
		return nil
	}
	i.pointing.Lock()
	defer i.pointing.Unlock()
	if i.writable() {
		return nil
	}
	return i.load(func(Table, []byte, []byte) error { return nil })
}

func (i *Image) writable() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.mu.writable
}

// acquire returns the live store with a new reference, or nil if no image exists yet.
func (i *Image) acquire() (*store, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mu.closed {
		return nil, ErrClosed
	}
	if i.mu.live == nil {
		return nil, nil
	}
	return i.mu.live.acquire(), nil
}

// openForWriting replaces the view's store by one on the disk itself. The image was verified
// before, or is created now. The caller holds pointing.
func (i *Image) openForWriting() error {
	i.mu.Lock()
	viewed, p := i.mu.live, i.mu.pointer
	i.mu.Unlock()
	s, p, err := i.openLive(p, viewed != nil)
	if err == nil {
		err = i.o.Disk.Err()
	}
	if err != nil {
		if s != nil {
			s.release()
		}
		return fmt.Errorf("%s: opening for writing: %w", i.o.Dir, err)
	}

	i.mu.Lock()
	if i.mu.closed {
		i.mu.Unlock()
		return errors.Join(ErrClosed, s.release())
	}
	i.mu.live, i.mu.pointer, i.mu.writable = s, p, true
	i.mu.flow = newFlow(i.mu.applied)
	i.loop.Go(i.flushLoop)
	i.mu.Unlock()
	if viewed == nil {
		return nil
	}
	// The view is read-only, so its error does not matter. Pebble would report leaked iterators
	// here.
	return viewed.release()
}

func (i *Image) openLive(p pointer, exists bool) (*store, pointer, error) {
	if exists {
		if err := i.layout.sweep(p.image); err != nil {
			i.o.Logger.Warn("an image that is no longer needed could not be removed", "dir", i.o.Dir, "cause", err)
		}
		s, err := openStore(i.o, i.layout.path(p.image), existing)
		return s, p, err
	}
	if err := i.layout.create(); err != nil {
		return nil, p, err
	}
	if err := i.layout.sweep(""); err != nil {
		return nil, p, err
	}
	p = pointer{image: imageName(1), state: stateLive}
	s, err := openStore(i.o, i.layout.path(p.image), createNew)
	if err != nil {
		return nil, p, err
	}
	// The name of the image must be durable before the pointer that calls it complete.
	if err := syncDir(i.o.Disk, i.o.Dir); err != nil {
		return s, p, err
	}
	return s, p, i.layout.writePointer(p)
}

// Close makes everything committed durable, unless the disk has failed, and stops the goroutines of
// the image. It waits only for the disk, and for a WriteTo in progress, which stops at one of its
// next records. It returns the disk's cause if something committed may not be durable. Further
// calls wait for the first and return nil.
func (i *Image) Close() error {
	var err error
	i.once.Do(func() { err = i.close() })
	return err
}

func (i *Image) close() error {
	i.mu.Lock()
	i.mu.closed = true
	close(i.closing)
	i.mu.Unlock()

	i.loop.Wait()
	// An Install or a Load in progress ends before the store is closed.
	i.installing.Lock()
	defer i.installing.Unlock()
	i.pointing.Lock()
	defer i.pointing.Unlock()
	var err error
	if i.writable() {
		err = i.sync()
	}
	i.mu.Lock()
	live, open := i.mu.live, i.mu.snapshots
	i.mu.live, i.mu.snapshots = nil, nil
	i.mu.Unlock()
	for s := range open {
		err = errors.Join(err, s.Close())
	}
	if live != nil {
		err = errors.Join(err, live.release())
	}
	return err
}
