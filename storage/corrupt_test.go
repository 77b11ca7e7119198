package storage

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A specimen is the directory of an image that a test will damage.
type specimen struct {
	files   map[string]string
	history *history
	durable uint64 // the image's index
}

// newSpecimen returns the directory of an image with several tables.
func newSpecimen(t *testing.T) specimen {
	s := specimen{history: newHistory(t)}
	n := nodeIn(t, restore(t, usedDirectory(t, s.history)))
	for len(s.tables()) < 2 {
		i := n.open(t)
		must(t, s.history.commit(i, i.Applied()+1))
		s.durable = i.Applied()
		must(t, i.Close())
		s.files = filesIn(t, n.root)
	}
	return s
}

func (s specimen) tables() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.files)), func(f string) bool { return !strings.HasSuffix(f, ".sst") })
}

// try opens and reads an image in a directory with the given files. The image must be whole, or be
// refused with an error that says enough. Either way, nothing may change before the image was read.
// try reports whether it was refused.
func (s specimen) try(t *testing.T, what, file string, all map[string]string) (refused bool) {
	t.Helper()
	h := s.history
	n := nodeIn(t, restore(t, all))
	index, exists, peeked := Peek(n.options())
	seen := 0
	checked, wrong := Check(n.options(), func(Table, []byte, []byte) error { seen++; return nil })
	i, err := Open(n.options())
	if (peeked == nil) != (err == nil) || err == nil && (!exists || index != i.Applied()) {
		t.Fatalf("%s: Peek found %d, %v, %v, Open found %v", what, index, exists, peeked, err)
	}
	var got contents
	if err == nil {
		defer i.Close()
		last := errors.New("the last record has been read")
		records := 0
		err = i.Load(func(Table, []byte, []byte) error {
			if records++; records == len(h.at(i.Applied())) {
				return last
			}
			return nil
		})
		if !sameFiles(all, filesIn(t, n.root)) {
			t.Fatalf("%s: the directory was changed before the image was read", what)
		}
		if err == last {
			got, err = load(i)
		}
	}
	if err == nil {
		if wrong != nil || checked != i.Applied() || seen != len(got) {
			t.Fatalf("%s: loaded at index %d with %d records, Check found %d with %d: %v", what, i.Applied(), len(got), checked, seen, wrong)
		}
		if !got.equal(h.at(i.Applied())) {
			t.Fatalf("%s: at index %d it was loaded with contents that were never there", what, i.Applied())
		}
		if i.Applied() < s.durable {
			t.Fatalf("%s: it was loaded at index %d, but %d was durable", what, i.Applied(), s.durable)
		}
		return false
	}
	if wrong == nil || wrong.Error() != err.Error() {
		t.Fatalf("%s: refused with %v, Check found %v", what, err, wrong)
	}
	if !sameFiles(all, filesIn(t, n.root)) {
		t.Fatalf("%s: the directory was changed", what)
	}
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrNewer) {
		t.Fatalf("%s: %v", what, err)
	}
	if !strings.Contains(err.Error(), n.dir()) || !strings.Contains(err.Error(), file[strings.LastIndex(file, "/")+1:]) || !strings.Contains(err.Error(), "; ") {
		t.Fatalf("%s: the error does not say enough: %v", what, err)
	}
	return true
}

// Every file of an image is damaged in every way we could think of, one at a time.
func TestDamagedFilesAreRefusedOrHarmless(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine")
	}
	s := newSpecimen(t)
	all := s.files
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if strings.HasSuffix(file, "/") {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			refused, harmless := 0, 0
			try := func(what string, data string, exists bool) bool {
				damaged := maps.Clone(all)
				delete(damaged, file)
				if exists {
					damaged[file] = data
				}
				was := s.try(t, what, file, damaged)
				if was {
					refused++
				} else {
					harmless++
				}
				return was
			}
			data := all[file]
			vital := !strings.HasPrefix(filepath.Base(file), "OPTIONS") && !strings.HasSuffix(file, ".log") && !strings.HasSuffix(file, "LOCK")
			older := strings.Contains(file, "MANIFEST") && !strings.Contains(all[filepath.Join(filepath.Dir(file), "CURRENT")], filepath.Base(file))
			if was := try("deleted", "", false); was != (vital && !older) {
				t.Fatalf("deleted: refused %v", was)
			}
			if was := try("emptied", "", true); vital && !older && !was {
				t.Fatal("emptied: it was accepted")
			}
			try("grown", data+"\x00\x01something else", true)
			for _, n := range positions(len(data)) {
				try(fmt.Sprintf("cut to %d bytes", n), data[:n], true)
				try(fmt.Sprintf("byte %d flipped", n), flip(data, n, 0x01), true)
				try(fmt.Sprintf("byte %d flipped high", n), flip(data, n, 0x80), true)
				try(fmt.Sprintf("zeroes from %d", n), data[:n]+strings.Repeat("\x00", len(data)-n), true)
			}
			t.Logf("%d bytes: %d refused, %d harmless", len(data), refused, harmless)
		})
	}
}

func flip(data string, at int, bit byte) string {
	b := []byte(data)
	b[at] ^= bit
	return string(b)
}

// positions returns offsets in n bytes, denser at both ends.
func positions(n int) []int {
	most := 12
	switch {
	case testing.Short():
		most = 8
	case testkit.Night():
		most = 40
	}
	var list []int
	for at := 0; at < n; at += 1 + n/most {
		list = append(list, at)
	}
	for back := 1; back <= min(n, most/2); back++ {
		list = append(list, n-back)
	}
	return list
}

// A well-formed file in the wrong place: the result of a restore by hand, or of a repair that went
// wrong.
func TestMixedUpFilesAreRefusedOrHarmless(t *testing.T) {
	s := newSpecimen(t)
	all, other, tables := s.files, newSpecimen(t).files, s.tables()
	image := func(file string) bool { return strings.Contains(file, imageName(1)) && !strings.HasSuffix(file, "/") }
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if !image(file) || other[file] == all[file] {
			continue
		}
		if data, ok := other[file]; ok {
			mixed := maps.Clone(all)
			mixed[file] = data
			n := nodeIn(t, restore(t, mixed))
			// A table of another image may have the right size and correct checksums. Then nothing
			// can detect it.
			if i, err := Open(n.options()); err == nil {
				i.Close()
			} else if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s of another image: %v", file, err)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if name := filepath.Base(file); strings.HasPrefix(name, "MANIFEST") {
			mixed := maps.Clone(all)
			mixed[filepath.Join(filepath.Dir(file), "CURRENT")] = name + "\n"
			s.try(t, "CURRENT names "+name, "", mixed)
		}
	}
	for j, file := range tables {
		mixed := maps.Clone(all)
		mixed[file] = all[tables[(j+1)%len(tables)]]
		s.try(t, fmt.Sprintf("%s in the place of %s", tables[(j+1)%len(tables)], file), "", mixed)
	}
}

func TestRecordOfNoTableIsRefused(t *testing.T) {
	n := newNode(t)
	i := n.open(t)
	must(t, i.Sync())
	must(t, i.mu.live.db.Set([]byte{99, 'k'}, nil, pebble.NoSync))
	must(t, i.NewBatch().Commit(1))
	must(t, i.Close())
	i = n.open(t)
	if _, err := load(i); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestImageBelowWhatWasMadeDurableIsRefused(t *testing.T) {
	n, h := newNode(t), newHistory(t)
	i := n.open(t)
	must(t, h.commit(i, 5))
	must(t, i.Close())
	l := layout{n.disk, n.dir()}
	p, _, err := l.inspect()
	must(t, err)
	p.synced = 6
	must(t, l.writePointer(p))
	_, err = Open(n.options())
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "MANIFEST-") || !strings.Contains(err.Error(), "6") {
		t.Fatal(err)
	}
}
