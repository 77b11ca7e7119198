package backupfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/internal/testkit/golden"
	"github.com/vivarium-go/vivarium/tree"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// written is one znode that a test writes.
type written struct {
	shard uint32
	path  string
	znode tree.Znode
}

var sampleHeader = Header{Time: 1700000000123, Ensemble: "orders", Lineage: "00112233445566778899aabbccddeeff", Member: 2, Members: []uint64{1, 2, 7}, Shards: []Shard{
	{Shard: 1, Level: 1, Index: 70, Zxid: 0x2b, Lead: 7, Znodes: 4, Schemes: []string{"digest", "ip"}},
	{Shard: 2, Level: 1, Index: 9, Zxid: 3, Znodes: 1},
}}

var sample = []written{
	{1, "/", tree.Znode{Created: 2}},
	{1, "/a", tree.Znode{Czxid: 1, Mzxid: 0x2b, Pzxid: 5, Ctime: 1700000000000, Mtime: 1700000000100, Version: 3, Aversion: 1, Created: 12, Data: []byte("data\x00\xff"),
		ACL: []tree.ACL{{Perms: tree.Read, Scheme: "world", ID: "anyone"}, {Perms: tree.PermsAll, Scheme: "digest", ID: "u:x"}}}},
	{1, "/a-b", tree.Znode{Czxid: 4, Mzxid: 4, Pzxid: 4, Container: true, Data: []byte{}}},
	{1, "/a/e", tree.Znode{Czxid: 5, Mzxid: 5, Pzxid: 5, Owner: 2, TTL: 60000}},
	{2, "/", tree.Znode{}},
}

func encode(t testing.TB, h Header, list []written) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, write(&b, h, list))
	return b.Bytes()
}

func write(to io.Writer, h Header, list []written) error {
	w, err := NewWriter(to, h)
	if err != nil {
		return err
	}
	for i, z := range list {
		full, err := w.Add(z.shard, z.path, command.EncodeZnode(z.znode))
		if err == nil && (full || i+1 < len(list) && list[i+1].shard != z.shard) {
			err = w.Flush()
		}
		if err != nil {
			return err
		}
	}
	_, err = w.Close()
	return err
}

func decode(r io.Reader) (h Header, list []written, err error) {
	in, err := NewReader(r)
	if err != nil {
		return h, nil, err
	}
	for {
		rec, err := in.Next()
		if err == io.EOF {
			return in.Header, list, nil
		}
		if err != nil {
			return in.Header, list, err
		}
		rec.Znode.Data = bytes.Clone(rec.Znode.Data)
		list = append(list, written{rec.Shard, rec.Path, rec.Znode})
	}
}

func text(h Header, list []written) string {
	return fmt.Sprintf("%+v\n%+v", h, list)
}

// Files are kept for years, so their bytes are pinned.
func TestBytes(t *testing.T) {
	file := encode(t, sampleHeader, sample)
	golden.Check(t, "testdata/sample.hex", hex.Dump(file))
	h, list, err := decode(iotest.OneByteReader(bytes.NewReader(file)))
	must(t, err)
	if got, want := text(h, list), text(sampleHeader, sample); got != want {
		t.Errorf("read %s\nwant %s", got, want)
	}
}

func refused(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewer) || errors.Is(err, ErrNotBackup)
}

// Every changed byte is refused, by every bit of it and as a whole.
func TestReader_RefusesEveryFlip(t *testing.T) {
	file := encode(t, sampleHeader, sample)
	for i := range file {
		for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
			bad := slices.Clone(file)
			bad[i] ^= mask
			if _, _, err := decode(bytes.NewReader(bad)); !refused(err) {
				t.Fatalf("byte %d with %#x: %v", i, mask, err)
			}
		}
	}
}

func TestReader_RefusesEveryCut(t *testing.T) {
	file := encode(t, sampleHeader, sample)
	for n := range file {
		if _, _, err := decode(bytes.NewReader(file[:n])); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d of %d bytes: %v", n, len(file), err)
		}
	}
	if _, _, err := decode(bytes.NewReader(append(file, 0))); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "follow") {
		t.Errorf("a byte more: %v", err)
	}
}

// Blocks with right checksums that are lost, doubled or exchanged are refused too.
func TestReader_RefusesOtherBlocks(t *testing.T) {
	h := Header{Shards: []Shard{{Shard: 1, Level: 1, Znodes: 3}}}
	big := bytes.Repeat([]byte("x"), BlockSize) // one record a block
	file := encode(t, h, []written{{1, "/", tree.Znode{Data: big}}, {1, "/a", tree.Znode{Data: big}}, {1, "/b", tree.Znode{Data: big}}})
	blocks := [][]byte{file[:8]}
	for rest := file[8:]; len(rest) > 0; {
		n := headLen + int(rest[1])<<24 + int(rest[2])<<16 + int(rest[3])<<8 + int(rest[4]) + sumLen
		blocks, rest = append(blocks, rest[:n]), rest[n:]
	}
	if len(blocks) != 6 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, order := range [][]int{{0, 1, 2, 4, 5}, {0, 1, 2, 3, 3, 4, 5}, {0, 1, 2, 4, 3, 5}, {0, 2, 3, 4, 5}, {0, 1, 1, 2, 3, 4, 5}, {0, 1, 5}, {0, 5}, {0, 1, 2, 3, 4, 5, 5}, {0, 1, 2, 3, 4, 5, 2}} {
		var b []byte
		for _, i := range order {
			b = append(b, blocks[i]...)
		}
		if _, _, err := decode(bytes.NewReader(b)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("blocks %v: %v", order, err)
		}
	}
}

// An ephemeral has no children, and nothing is made of it when the backup is brought back.
func TestWriter_RefusesChildrenOfEphemerals(t *testing.T) {
	h := Header{Shards: []Shard{{Shard: 1, Level: 1, Zxid: 9, Znodes: 4}}}
	child := func(owner tree.SessionID) error {
		return write(io.Discard, h, []written{{1, "/", tree.Znode{}}, {1, "/a", tree.Znode{Owner: owner}}, {1, "/a!", tree.Znode{}}, {1, "/a/b", tree.Znode{}}})
	}
	must(t, child(0))
	if err := child(5); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// A writer refuses what no tree has, so whoever has written a file can read it.
func TestWriter_Refuses(t *testing.T) {
	h := Header{Shards: []Shard{{Shard: 1, Level: 1, Zxid: 9, Znodes: 2}, {Shard: 2, Level: 1, Znodes: 1}}}
	root, at := written{1, "/", tree.Znode{}}, func(path string) written { return written{1, path, tree.Znode{}} }
	last := written{2, "/", tree.Znode{}}
	must(t, write(io.Discard, h, []written{root, at("/a"), last}))
	for name, list := range map[string][]written{
		"no znodes":       {},
		"too few":         {root, last},
		"too many":        {root, at("/a"), at("/b"), last},
		"out of order":    {root, at("/b"), at("/a"), last},
		"twice":           {root, root, last},
		"no root":         {at("/a"), at("/b"), last},
		"no parent":       {root, at("/a/b"), last},
		"a prefix only":   {root, at("/a"), at("/ab/c"), last},
		"no path":         {root, at("a"), last},
		"zxid":            {root, {1, "/a", tree.Znode{Czxid: 1, Mzxid: 10}}, last},
		"shard 0":         {{0, "/", tree.Znode{}}},
		"shard 3":         {root, at("/a"), last, {3, "/", tree.Znode{}}},
		"the shard after": {last},
		"back":            {root, at("/a"), last, at("/b")},
	} {
		if err := write(io.Discard, h, list); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]Header{
		"no shard":  {},
		"numbers":   {Shards: []Shard{{Shard: 2, Level: 1}}},
		"lineage":   {Lineage: "00", Shards: []Shard{{Shard: 1, Level: 1}}},
		"level 0":   {Shards: []Shard{{Shard: 1}}},
		"level 99":  {Shards: []Shard{{Shard: 1, Level: 99}}},
		"too large": {Ensemble: strings.Repeat("e", headerMax), Shards: []Shard{{Shard: 1, Level: 1}}},
	} {
		if _, err := NewWriter(io.Discard, bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	w, err := NewWriter(io.Discard, h)
	must(t, err)
	_, err = w.Add(1, "/", []byte("no znode"))
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("a record that is none: %v", err)
	}
}

// A file of a later level or format says so, and is not called damaged.
func TestReader_Newer(t *testing.T) {
	file := encode(t, sampleHeader, sample)
	later := slices.Clone(file)
	later[7] = '2'
	if _, err := NewReader(bytes.NewReader(later)); !errors.Is(err, ErrNewer) {
		t.Errorf("format 2: %v", err)
	}
	if _, err := NewReader(strings.NewReader("PK\x03\x04 some other file")); !errors.Is(err, ErrNotBackup) {
		t.Errorf("another file: %v", err)
	}
	var b bytes.Buffer
	w := blockWriter{to: &b, whole: discardHash()}
	must(t, w.write([]byte("vivback1")))
	w.begin(kindHeader)
	w.block = append(w.block, `{"time":0,"ensemble":"","lineage":"","member":1,"members":null,"shards":[{"shard":1,"level":99,"index":0,"zxid":0,"znodes":0,"schemes":null}],"more":1}`...)
	must(t, w.end())
	if _, err := NewReader(&b); !errors.Is(err, command.ErrLevel) {
		t.Errorf("level 99: %v", err)
	}
}

// Errors of the files below come back as they are.
func TestErrorsOfTheFile(t *testing.T) {
	broken := errors.New("broken")
	file := encode(t, sampleHeader, sample)
	for n := range file {
		if _, _, err := decode(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(broken))); err != broken {
			t.Fatalf("reading breaks after %d bytes: %v", n, err)
		}
		if err := write(&limited{left: n, err: broken}, sampleHeader, sample); err != broken {
			t.Fatalf("writing breaks after %d bytes: %v", n, err)
		}
	}
	if _, _, err := decode(io.MultiReader(bytes.NewReader(file), iotest.ErrReader(broken))); err != broken {
		t.Fatalf("reading breaks after the end: %v", err)
	}
	if err := write(&limited{left: 20}, sampleHeader, sample); err != io.ErrShortWrite {
		t.Errorf("a write that says nothing: %v", err)
	}
}

// limited takes some bytes, and fails then.
type limited struct {
	left int
	err  error
}

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.left {
		return l.left, l.err
	}
	l.left -= len(b)
	return len(b), nil
}

// Any tree comes back as it was, in blocks of any size.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		paths := []string{"/"}
		for range rng.IntN(100) {
			at := strings.TrimSuffix(paths[rng.IntN(len(paths))], "/")
			paths = append(paths, at+"/"+string("a-.0~é"[rng.IntN(4)])+fmt.Sprint(rng.IntN(30)))
		}
		slices.Sort(paths)
		h := Header{Shards: []Shard{{Shard: 1, Level: 1, Zxid: 99}}}
		var list []written
		for _, path := range slices.Compact(paths) {
			z := tree.Znode{Czxid: tree.Zxid(rng.IntN(99)), Version: rng.Int32(), Data: bytes.Repeat([]byte("d"), rng.IntN(2*BlockSize/(1+rng.IntN(1000))))}
			list = append(list, written{1, path, z})
		}
		h.Shards[0].Znodes = len(list)
		got, back, err := decode(iotest.HalfReader(bytes.NewReader(encode(t, h, list))))
		must(t, err)
		if text(got, back) != text(h, list) {
			t.Fatalf("%d znodes do not come back as they were", len(list))
		}
	}
}

// The memory of a reader does not grow with what a false length promises.
func TestReader_FalseLength(t *testing.T) {
	file := encode(t, sampleHeader, sample)
	bad := append(slices.Clone(file[:8]), kindRecords, 4, 0, 0, 0)
	if n := testing.AllocsPerRun(1, func() {
		r := &Reader{in: blockReader{from: bytes.NewReader(bad[8:]), whole: discardHash()}}
		if err := r.nextBlock(); !errors.Is(err, ErrCorrupt) || cap(r.in.block) > 2*readStep {
			t.Errorf("%v, %d bytes of memory", err, cap(r.in.block))
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzReader changes files. It mends the checksums, so that it also reaches what they guard.
func FuzzReader(f *testing.F) {
	file := encode(f, sampleHeader, sample)
	f.Add(file)
	f.Add(file[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, file := range [][]byte{b, mended(b)} {
			h, list, err := decode(bytes.NewReader(file))
			if err == nil && !bytes.Equal(encode(t, h, list), file) && len(file) < BlockSize && oneBlockEach(file, h) {
				t.Errorf("accepted what no writer writes: %x", file)
			}
		}
	})
}

// mended returns a file with right checksums, as far as it has blocks.
func mended(b []byte) []byte {
	b = slices.Clone(b)
	for at := 8; at+headLen+sumLen <= len(b); {
		n := int(binary.BigEndian.Uint32(b[at+1:]))
		end := at + headLen + n
		if n < 0 || end+sumLen > len(b) || end < at {
			break
		}
		if b[at] == kindEnd && n == endLen {
			sum := sha256.Sum256(b[:at])
			copy(b[at+headLen+8:], sum[:])
		}
		binary.BigEndian.PutUint32(b[end:], crc32.Checksum(b[at:end], castagnoli))
		at = end + sumLen
	}
	return b
}

// oneBlockEach reports whether a file has as few blocks as a writer makes.
func oneBlockEach(file []byte, h Header) bool {
	blocks := 0
	for at := 8; at < len(file); blocks++ {
		at += headLen + int(binary.BigEndian.Uint32(file[at+1:])) + sumLen
	}
	shards := 0
	for _, s := range h.Shards {
		if s.Znodes > 0 {
			shards++
		}
	}
	return blocks == shards+2
}

func discardHash() hash.Hash { return sha256.New() }
