package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
)

// streamOf returns the stream of an image that holds the history up to index n.
func streamOf(t testing.TB, h *history, n uint64) []byte {
	t.Helper()
	i := newNode(t).open(t)
	must(t, h.commit(i, n))
	var b bytes.Buffer
	must(t, writeSnapshot(i, &b))
	must(t, i.Close())
	return b.Bytes()
}

// filled returns an image at index n, closed and opened again.
func filled(t testing.TB, h *history, n uint64) (*node, *Image) {
	t.Helper()
	at := newNode(t)
	i := at.open(t)
	must(t, h.commit(i, n))
	must(t, i.Close())
	return at, at.open(t)
}

func TestSnapshotIsAPointInTime(t *testing.T) {
	h := newHistory(t)
	_, i := filled(t, h, 20)
	s, err := i.Snapshot()
	must(t, err)
	defer s.Close()
	must(t, h.commit(i, 40))
	must(t, i.Sync())
	if s.Applied() != 20 {
		t.Fatalf("index %d", s.Applied())
	}
	var b bytes.Buffer
	must(t, s.WriteTo(&b, nil))
	must(t, s.WriteTo(io.Discard, nil)) // may be called any number of times
	other := newNode(t).open(t)
	must(t, other.Install(&b, nil, nil))
	if h.expect(t, other); other.Applied() != 20 {
		t.Fatalf("index %d", other.Applied())
	}
}

func TestSnapshotHoldsWhatIsNotFlushed(t *testing.T) {
	h := newHistory(t)
	i := newNode(t).open(t)
	must(t, h.commit(i, 3))
	var b bytes.Buffer
	must(t, writeSnapshot(i, &b))
	other := newNode(t).open(t)
	must(t, other.Install(&b, nil, nil))
	if h.expect(t, other); other.Applied() != 3 {
		t.Fatalf("index %d", other.Applied())
	}
}

func TestSnapshotOfAnEmptyImageIsAStream(t *testing.T) {
	i := newNode(t).open(t)
	var b bytes.Buffer
	must(t, writeSnapshot(i, &b))
	if b.Len() != headerLen+13 {
		t.Fatalf("%d bytes", b.Len())
	}
	h := newHistory(t)
	at, other := filled(t, h, 9)
	must(t, other.Install(&b, nil, nil))
	must(t, other.Close())
	other = at.open(t)
	if got, err := load(other); err != nil || len(got) != 0 || other.Applied() != 0 {
		t.Fatal(len(got), other.Applied(), err)
	}
}

func TestInstallReplacesTheImage(t *testing.T) {
	h, mine := newHistory(t), newHistory(t)
	n, i := filled(t, mine, 30)
	mine.expect(t, i)
	stream := streamOf(t, h, 50)
	for round := range uint64(3) {
		must(t, i.Install(bytes.NewReader(stream), nil, nil))
		if h.expect(t, i); i.Applied() != 50 {
			t.Fatalf("index %d", i.Applied())
		}
		c := crashed(t, n)
		if h.expect(t, c); c.Applied() != 50 {
			t.Fatalf("index %d after a crash", c.Applied())
		}
		must(t, h.commit(i, 51+round))
		must(t, i.Close())
		i = n.open(t)
		if h.expect(t, i); i.Applied() != 51+round {
			t.Fatalf("index %d", i.Applied())
		}
		if got := images(t, n); len(got) != 1 {
			t.Fatalf("the directory holds %v", got)
		}
	}
}

// images returns the names of the image directories.
func images(t testing.TB, n *node) []string {
	all, err := n.disk.List(n.dir())
	must(t, err)
	return slices.DeleteFunc(all, func(name string) bool {
		info, err := n.disk.Stat(filepath.Join(n.dir(), name))
		must(t, err)
		return !info.IsDir()
	})
}

func TestInstallLeavesOpenSnapshotsReadable(t *testing.T) {
	h, mine := newHistory(t), newHistory(t)
	n, i := filled(t, mine, 30)
	s, err := i.Snapshot()
	must(t, err)
	must(t, i.Install(bytes.NewReader(streamOf(t, h, 50)), nil, nil))
	var b bytes.Buffer
	must(t, s.WriteTo(&b, nil))
	other := newNode(t).open(t)
	must(t, other.Install(&b, nil, nil))
	mine.expect(t, other)
	if got := images(t, n); len(got) != 2 {
		t.Fatalf("the directory holds %v", got)
	}
	must(t, s.Close())
	if got := images(t, n); len(got) != 1 {
		t.Fatalf("the directory holds %v", got)
	}
	if err := s.WriteTo(io.Discard, nil); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestInstallRefusesABadStreamAndKeepsTheImage(t *testing.T) {
	h, mine := newHistory(t), newHistory(t)
	n, i := filled(t, mine, 30)
	mine.expect(t, i)
	stream := streamOf(t, h, 50)
	bad := map[string][]byte{
		"empty":   nil,
		"foreign": []byte(strings.Repeat("not a stream ", 100)),
	}
	for j := range 12 {
		cut := (len(stream) - 1) * j / 11
		bad[fmt.Sprintf("cut to %d bytes", cut)] = stream[:cut]
		flipped := bytes.Clone(stream)
		flipped[cut] ^= 0x10
		bad[fmt.Sprintf("byte %d flipped", cut)] = flipped
	}
	for name, data := range bad {
		if err := i.Install(bytes.NewReader(data), nil, nil); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s: %v", name, err)
		}
		if got := images(t, n); len(got) != 1 {
			t.Fatalf("%s: the directory holds %v", name, got)
		}
	}
	for bit := range 32 {
		another := uint32(streamVersion) ^ 1<<bit
		newer := append(streamHeader(another, 50), stream[headerLen:]...)
		if err := i.Install(bytes.NewReader(newer), nil, nil); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), adviceNewer) {
			t.Fatalf("version %d: %v", another, err)
		}
		damaged := bytes.Clone(stream)
		damaged[len(streamMagic)+3-bit/8] ^= 1 << (bit % 8)
		if err := i.Install(bytes.NewReader(damaged), nil, nil); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a damaged version: %v", err)
		}
		if got := images(t, n); len(got) != 1 {
			t.Fatalf("the directory holds %v", got)
		}
	}
	if mine.expect(t, i); i.Applied() != 30 {
		t.Fatalf("index %d", i.Applied())
	}
	must(t, mine.commit(i, 31))
	must(t, i.Close())
	i = n.open(t)
	if mine.expect(t, i); i.Applied() != 31 {
		t.Fatalf("index %d", i.Applied())
	}
}

// A hook calls do once, after n bytes have passed through it.
type hook struct {
	r  io.Reader
	w  io.Writer
	n  int
	do func()
}

func (h *hook) Read(p []byte) (int, error) {
	n, err := h.r.Read(p[:min(len(p), 512)])
	h.pass(n)
	return n, err
}

func (h *hook) Write(p []byte) (int, error) {
	h.pass(len(p))
	return h.w.Write(p)
}

func (h *hook) pass(n int) {
	if h.n -= n; h.n <= 0 && h.do != nil {
		h.do()
		h.do = nil
	}
}

// manyRecords returns an image with records for more than one batch of an install.
func manyRecords(t testing.TB) *Image {
	i := newNode(t).open(t)
	b := i.NewBatch()
	for k := range 2000 {
		b.Put(Znodes, fmt.Appendf(nil, "/%06d", k), bytes.Repeat([]byte{byte(k)}, 1000))
	}
	must(t, b.Commit(1))
	return i
}

// C13.3: An install ends when the shard is stopped, whatever it is doing.
func TestInstallStops(t *testing.T) {
	big := manyRecords(t)
	var stream bytes.Buffer
	must(t, writeSnapshot(big, &stream))
	mine := newHistory(t)
	n, i := filled(t, mine, 30)
	mine.expect(t, i)
	for _, after := range []int{0, headerLen, stream.Len() / 2, stream.Len()} {
		stop := make(chan struct{})
		r := &hook{r: bytes.NewReader(stream.Bytes()), n: after, do: func() { close(stop) }}
		if after == 0 {
			r.pass(0)
		}
		if err := i.Install(r, stop, nil); !errors.Is(err, ErrStopped) {
			t.Fatalf("after %d bytes: %v", after, err)
		}
		if got := images(t, n); len(got) != 1 {
			t.Fatalf("the directory holds %v", got)
		}
	}
	mine.expect(t, i)
}

func TestInstallReturnsTheReadersError(t *testing.T) {
	h, mine := newHistory(t), newHistory(t)
	_, i := filled(t, mine, 30)
	stream := streamOf(t, h, 50)
	broken := errors.New("connection reset")
	r, w := io.Pipe()
	go func() {
		w.Write(stream[:len(stream)/2])
		w.CloseWithError(broken)
	}()
	if err := i.Install(r, nil, nil); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	mine.expect(t, i)
}

func TestWriteToStops(t *testing.T) {
	i := manyRecords(t)
	s, err := i.Snapshot()
	must(t, err)
	defer s.Close()
	for _, after := range []int{0, 1, 1 << 20} {
		stop := make(chan struct{})
		w := &hook{w: io.Discard, n: after, do: func() { close(stop) }}
		if after == 0 {
			w.pass(0)
		}
		if err := s.WriteTo(w, stop); !errors.Is(err, ErrStopped) {
			t.Fatalf("after %d bytes: %v", after, err)
		}
	}
	broken := errors.New("connection reset")
	r, w := io.Pipe()
	r.CloseWithError(broken)
	if err := s.WriteTo(w, nil); !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

func TestCloseEndsAnInstallAndASnapshotUnderWay(t *testing.T) {
	big := manyRecords(t)
	var stream bytes.Buffer
	must(t, writeSnapshot(big, &stream))

	n := newNode(t)
	i := n.open(t)
	closed := make(chan error, 1)
	shut := func() {
		go func() { closed <- i.Close() }()
		<-i.closing
	}
	if err := i.Install(&hook{r: &stream, n: 1 << 20, do: shut}, nil, nil); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	must(t, <-closed)
	if got := images(t, n); len(got) != 1 {
		t.Fatalf("the directory holds %v", got)
	}

	i = big
	s, err := i.Snapshot()
	must(t, err)
	if err := s.WriteTo(&hook{w: io.Discard, n: 1 << 20, do: shut}, nil); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	must(t, <-closed)
	if err := s.WriteTo(io.Discard, nil); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	must(t, s.Close())
}

// The next start removes the leftovers of an interrupted install, and keeps files that are not
// ours.
func TestOpenForWritingRemovesLeftoversAndNothingElse(t *testing.T) {
	h := newHistory(t)
	n, i := filled(t, h, 5)
	must(t, i.Close())
	must(t, os.MkdirAll(filepath.Join(n.dir(), "image-000009", "deeper"), 0o755))
	for _, name := range []string{"image-000009/000001.sst", "current.tmp", "format.tmp", "notes.txt", "image-9"} {
		must(t, os.WriteFile(filepath.Join(n.dir(), name), []byte("x"), 0o644))
	}
	i = n.open(t)
	h.expect(t, i)
	all, err := os.ReadDir(n.dir())
	must(t, err)
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	if want := []string{"current", "format", "image-000001", "image-9", "notes.txt"}; !slices.Equal(names, want) {
		t.Fatalf("the directory holds %v", names)
	}
	must(t, i.Install(bytes.NewReader(streamOf(t, h, 7)), nil, nil))
	h.expect(t, i)
}

// Leftovers that cannot be removed stop no start and no install. An install takes another name.
func TestOpenForWriting_LeftoversThatStay(t *testing.T) {
	h := newHistory(t)
	n, i := filled(t, h, 5)
	must(t, i.Close())
	must(t, os.Mkdir(filepath.Join(n.dir(), "image-000002"), 0o755))
	must(t, os.WriteFile(filepath.Join(n.dir(), "image-000002", "sticky"), nil, 0o644))
	stuck := nodeOn(t, sticky{files.OS}, n.root)
	var log bytes.Buffer
	o := stuck.options()
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	i = openWith(t, o)
	h.expect(t, i)
	must(t, i.Install(bytes.NewReader(streamOf(t, h, 7)), nil, nil))
	h.expect(t, i)
	must(t, i.Close())
	must(t, stuck.disk.Err())
	if !strings.Contains(log.String(), "an image that is no longer needed could not be removed") {
		t.Error(&log)
	}
}

// A sticky system cannot remove files of that name.
type sticky struct{ files.System }

func (s sticky) Remove(name string) error {
	if filepath.Base(name) == "sticky" {
		return &os.PathError{Op: "remove", Path: name, Err: syscall.EPERM}
	}
	return s.System.Remove(name)
}

// digest is a writer that keeps only a hash, for streams too large to hold in a test.
type digest struct {
	hash.Hash
	n int
}

func (d *digest) Write(p []byte) (int, error) {
	d.n += len(p)
	return d.Hash.Write(p)
}

func TestInstallOfAStreamLargerThanWhatMayBeUnflushed(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 60 MB")
	}
	from, to := newNode(t).open(t), newNode(t).open(t)
	b := from.NewBatch()
	value := make([]byte, 1000)
	for k := range 30_000 {
		for j := range value {
			value[j] = byte(k*j + k>>8)
		}
		b.Put(Znodes, fmt.Appendf(nil, "/%d", (k*7919)%30_000), value)
		if k%100 == 99 {
			must(t, b.Commit(uint64(k)))
		}
	}
	s, err := from.Snapshot()
	must(t, err)
	defer s.Close()
	want := &digest{Hash: sha256.New()}
	must(t, s.WriteTo(want, nil))
	r, w := io.Pipe()
	go func() { w.CloseWithError(s.WriteTo(w, nil)) }()
	must(t, to.Install(r, nil, nil))
	s, err = to.Snapshot()
	must(t, err)
	defer s.Close()
	got := &digest{Hash: sha256.New()}
	must(t, s.WriteTo(got, nil))
	if got.n != want.n || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Fatalf("%d bytes came back as %d others", want.n, got.n)
	}
}

// All calls that may run at once do so, for the race detector and for deadlocks.
func TestCommitsSyncsSnapshotsAndLoadsRunSideBySide(t *testing.T) {
	h := newHistory(t)
	n := newNode(t)
	o := n.options()
	o.FlushBytes, o.UnflushedMax, o.FlushInterval = 4<<10, 32<<10, 1
	i := openWith(t, o)
	last := uint64(300)
	h.at(last)
	states := maps.Clone(h.states)
	errs := make(chan error, 4)
	done := make(chan struct{})
	go func() {
		defer close(done)
		errs <- h.commit(i, last)
	}()
	repeat := func(f func() error) {
		for {
			select {
			case <-done:
				errs <- nil
				return
			default:
			}
			if err := f(); err != nil {
				errs <- err
				return
			}
		}
	}
	go repeat(i.Sync)
	go repeat(func() error {
		var b bytes.Buffer
		if err := writeSnapshot(i, &b); err != nil {
			return err
		}
		applied, records, err := decodeStream(&b)
		got := contents{}
		for _, r := range records {
			got[string(byte(r.table))+r.key] = r.value
		}
		if err == nil && !got.equal(states[applied]) {
			err = fmt.Errorf("the snapshot at index %d is not what was committed", applied)
		}
		return err
	})
	go repeat(func() error { _, err := load(i); return err })
	for range cap(errs) {
		must(t, <-errs)
	}
	must(t, i.Close())
	h.expect(t, n.open(t))
}

// A Scan goes on where the last one ended, whatever is committed or installed meanwhile.
func TestScanIsAPointInTime(t *testing.T) {
	i := manyRecords(t)
	s, err := i.Snapshot()
	must(t, err)
	defer s.Close()
	var stream bytes.Buffer
	must(t, writeSnapshot(newNode(t).open(t), &stream))
	var next []byte
	found := 0
	for more := true; more; {
		more = false
		must(t, s.Scan(Znodes, next, func(key, value []byte) bool {
			if want := fmt.Sprintf("/%06d", found); string(key) != want || value[0] != byte(found) {
				t.Fatalf("%s, want %s", key, want)
			}
			found++
			next = append(append(next[:0], key...), 0)
			more = true
			return found%300 != 0
		}))
		if found == 600 {
			b := i.NewBatch()
			b.Delete(Znodes, []byte("/000900"))
			b.Put(Znodes, []byte("/000901"), make([]byte, 1<<20))
			must(t, b.Commit(2))
			if behind := s.Behind(); behind < 1<<20 || behind > 2<<20 {
				t.Errorf("behind by %d bytes", behind)
			}
		}
		if found == 1200 {
			must(t, i.Install(bytes.NewReader(stream.Bytes()), nil, nil))
		}
	}
	if found != 2000 || s.Behind() > 1<<20 {
		t.Errorf("%d records, behind by %d bytes", found, s.Behind())
	}
	must(t, s.Scan(Sessions, nil, func(_, _ []byte) bool { t.Error("a session"); return false }))
	must(t, s.Close())
	if err := s.Scan(Znodes, nil, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
