package zkdir

import (
	"bytes"
	"encoding/binary"
	"hash/adler32"
	"os"
	"path/filepath"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// mendedLog returns a log with right checksums, as far as it has records.
func mendedLog(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 16; at+12 <= len(b); {
		n := int(int32(binary.BigEndian.Uint32(b[at+8:])))
		if n <= 0 || n > len(b)-at-12 {
			break
		}
		binary.BigEndian.PutUint64(b[at:], uint64(adler32.Checksum(b[at+12:at+12+n])))
		at += 12 + n + 1
	}
	return b
}

// mendedSnapshot returns a snapshot with the right checksum in front of everything that ends like a
// seal.
func mendedSnapshot(b []byte) []byte {
	b = bytes.Clone(b)
	end := []byte("\x00\x00\x00\x01/")
	for at := 8; at+len(end) <= len(b); at++ {
		if bytes.Equal(b[at:at+len(end)], end) {
			binary.BigEndian.PutUint64(b[at-8:], uint64(adler32.Checksum(b[:at-8])))
		}
	}
	return b
}

// FuzzRead reads any files as those of a server. It mends their checksums, so that it also reaches
// what they guard.
func FuzzRead(f *testing.F) {
	f.Add([]byte(*aTree()), someLog(), uint8(0))
	f.Add([]byte{}, someLog(), uint8(0))
	f.Add([]byte(snappyHead+"\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x02\x01\x00"), someLog(), uint8(1))
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}, someLog(), uint8(2))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, snapshot, log []byte, packed uint8) {
		snapshot, log = mendedSnapshot(snapshot), mendedLog(log)
		names := []string{"log.1"}
		if len(snapshot) > 0 {
			names = append(names, []string{"snapshot.1", "snapshot.1.snappy", "snapshot.1.gz"}[packed%3])
		}
		at := filepath.Join(dir, "version-2")
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if err := os.WriteFile(filepath.Join(at, name), [][]byte{log, snapshot}[i], 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(filepath.Join(at, name))
		}
		read, err := Read(dir, dir)
		if err != nil {
			return
		}
		for path := range read.Znodes() {
			_ = tree.Parent(path)
		}
	})
}
