package zkdir

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/golang/snappy"

	"github.com/vivarium-go/vivarium/tree"
)

// Read reads the tree of a stopped server. data is the dataDir of its configuration and log its
// dataLogDir, which may be the same. It changes nothing there. Errors name the file.
func Read(data, log string) (*Tree, error) {
	snapshots, err := list(data, "snapshot")
	if err != nil {
		return nil, err
	}
	logs, err := list(log, "log")
	if err != nil {
		return nil, err
	}
	if len(snapshots)+len(logs) == 0 {
		return nil, fmt.Errorf("%s has neither a snapshot nor a log of ZooKeeper: name the dataDir and the dataLogDir of its configuration", data)
	}
	s, err := newest(snapshots, logs)
	if err != nil {
		return nil, err
	}
	t := s.tree
	from := t.Zxid
	seen, err := t.replay(logs, snapshots, s.fuzzy)
	if err != nil {
		return nil, err
	}
	if seen < from {
		return nil, fmt.Errorf("%s has no log that goes as far as the snapshot, which is of transaction %#x: name the dataLogDir of the server's configuration (-logs), or take the files of another server", log, uint64(from))
	}
	reached := func(zxid tree.Zxid, what string) error {
		if t.Zxid >= zxid {
			return nil
		}
		return fmt.Errorf("%s ends at transaction %#x, and %s has %#x: stop the server, and take its whole dataDir and dataLogDir", log, uint64(t.Zxid), what, uint64(zxid))
	}
	errs := []error{reached(s.fuzzy, "the snapshot")}
	for _, f := range snapshots {
		errs = append(errs, reached(f.zxid, f.name))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if s.digested && s.digestAt == t.Zxid {
		if err := t.compare(s.digest); err != nil {
			return nil, err
		}
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return t, nil
}

// A file is one of a server, with the zxid in its name.
type file struct {
	name string
	zxid tree.Zxid
}

// list returns the files of a kind, the oldest first.
func list(dir, kind string) (files []file, err error) {
	if inner := filepath.Join(dir, "version-2"); isDir(inner) {
		dir = inner
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		zxid, ok := strings.CutPrefix(e.Name(), kind+".")
		if !ok {
			continue
		}
		if kind == "snapshot" {
			zxid = strings.TrimSuffix(strings.TrimSuffix(zxid, ".gz"), ".snappy")
		}
		if n, err := strconv.ParseInt(zxid, 16, 64); err == nil && e.Type().IsRegular() {
			files = append(files, file{filepath.Join(dir, e.Name()), tree.Zxid(n)})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.zxid, b.zxid) })
	return files, nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// newest returns the newest snapshot that is sound. The server may have been stopped while it wrote a
// newer one. Without a snapshot the tree is what a new server has, if the log is there from the
// beginning.
func newest(snapshots, logs []file) (*snapshot, error) {
	var errs []error
	for _, f := range slices.Backward(snapshots) {
		content, err := contentOf(f.name)
		if err == nil {
			var s *snapshot
			if s, err = parseSnapshot(content, f.zxid); err == nil {
				return s, nil
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
	}
	if len(logs) == 0 || !isFirst(logs[0].zxid) {
		return nil, errors.Join(append(errs, errors.New("there is no sound snapshot, and the log does not go back to the first transaction"))...)
	}
	s := &snapshot{tree: newTree()}
	s.tree.begin()
	return s, nil
}

// isFirst reports whether a zxid is that of the first transaction of a server or of an ensemble.
func isFirst(zxid tree.Zxid) bool { return zxid == 1 || zxid == 1<<32|1 }

// contentOf reads a snapshot, which may be compressed.
func contentOf(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(name) {
	case ".gz":
		return unzip(b, max(unzipLeast, len(b)*unzipRatio))
	case ".snappy":
		return unsnap(b)
	}
	return b, nil
}

// A snapshot of unzipLeast bytes may be compressed as well as gzip can. A larger one may be
// unzipRatio times as large as its file. Snappy cannot compress more than that.
const (
	unzipLeast = 64 << 20
	unzipRatio = 100
)

// unzip returns the contents of a gzip file, of at most most bytes.
func unzip(b []byte, most int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(out) > most {
		err = fmt.Errorf("its %d bytes unpack to more than %d: if it is a snapshot nevertheless, unpack it with gunzip first", len(b), most)
	}
	return out, err
}

// snappyHead begins a stream of Java's SnappyOutputStream. Two versions follow, and then blocks with
// their lengths.
const snappyHead = "\x82SNAPPY\x00"

func unsnap(b []byte) (out []byte, err error) {
	d := decoder{left: b}
	if string(d.take(len(snappyHead))) != snappyHead {
		return nil, errors.New("it does not begin as a stream of snappy-java does")
	}
	d.int32()
	d.int32()
	for len(d.left) > 0 && d.err == nil {
		n := d.int32()
		block := d.take(int(n))
		if d.err != nil {
			return nil, d.err
		}
		// A block tells its length at its beginning, which may be damaged.
		size, _ := binary.Uvarint(block)
		if size > 32<<20 {
			return nil, snappy.ErrCorrupt
		}
		block, err := snappy.Decode(nil, block)
		if err != nil {
			return nil, err
		}
		out = append(out, block...)
	}
	return out, d.err
}

// replay applies the transactions of the log that are newer than the snapshot. fuzzy is the newest
// that the snapshot may have. It returns the newest transaction that the log has.
func (t *Tree) replay(logs, snapshots []file, fuzzy tree.Zxid) (newest tree.Zxid, err error) {
	from := 0
	for i, f := range logs {
		if f.zxid <= t.Zxid {
			from = i
		}
	}
	for _, f := range logs[from:] {
		content, err := os.ReadFile(f.name)
		if err != nil {
			return 0, err
		}
		if len(content) < logHead {
			continue // the server was stopped when it began the file
		}
		first := true
		t.Cut, err = eachTxn(content, func(x *txn) error {
			if first && x.zxid != f.zxid {
				return fmt.Errorf("its first transaction is %#x", uint64(x.zxid))
			}
			first = false
			newest = max(newest, x.zxid)
			for _, s := range snapshots {
				if t.Zxid < s.zxid && s.zxid < x.zxid && uint32(s.zxid) != 0 && x.zxid>>32 > t.Zxid>>32 {
					return fmt.Errorf("transaction %#x comes after %#x, and %s lies between: a file of the log is missing", uint64(x.zxid), uint64(t.Zxid), s.name)
				}
			}
			return t.next(x, fuzzy)
		})
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return newest, nil
}

// next applies a transaction, unless it is older than the tree.
func (t *Tree) next(x *txn, fuzzy tree.Zxid) error {
	if x.zxid <= t.Zxid {
		return nil
	}
	if !follows(x.zxid, t.Zxid) {
		return fmt.Errorf("transaction %#x comes after %#x: a file of the log is missing", uint64(x.zxid), uint64(t.Zxid))
	}
	t.apply(x)
	if x.digested && x.zxid >= fuzzy {
		return t.compare(x.digest)
	}
	return nil
}

// compare checks that the tree has the digest that the server had after the same transaction.
func (t *Tree) compare(digest uint64) error {
	if digest == t.digest {
		t.Digested = true
		return nil
	}
	return fmt.Errorf("after transaction %#x the tree has the digest %#x, and the server had %#x: these files do not belong together, or one is damaged",
		uint64(t.Zxid), t.digest, digest)
}

// follows reports whether no transaction is between two. The upper half of a zxid counts leaders,
// and each begins at 1.
func follows(next, last tree.Zxid) bool {
	return next == last+1 || next>>32 > last>>32 && uint32(next) == 1
}

// check checks that all znodes have parents.
func (t *Tree) check() error {
	for path := range t.unlisted {
		return fmt.Errorf("znode %q has an ACL that neither the snapshot nor the log has", path)
	}
	for path := range t.znodes {
		if err := tree.ValidatePath(path); err != nil {
			return err
		}
		if path != "/" && t.znodes[tree.Parent(path)] == nil {
			return fmt.Errorf("znode %q has no parent", path)
		}
	}
	if t.znodes["/"] == nil {
		return errors.New("there is no root")
	}
	return nil
}
