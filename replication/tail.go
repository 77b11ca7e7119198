package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// The framing of tan's log files. A file is a sequence of blocks. A block holds chunks, and one or
// more chunks are a record. A chunk begins with a checksum of all that follows its length, the
// length of its payload, and its type.
const (
	blockSize  = 32 << 10
	headerSize = 7
)

type chunkType byte

const (
	fullChunk chunkType = 1 + iota
	firstChunk
	middleChunk
	lastChunk
)

// sectorSize is how much a disk writes as a whole or not at all.
const sectorSize = 512

// cutTails removes all bytes behind the last whole record of the log in dir: zeros, which the disk
// writes ahead, and a record that was written in part. It calls cut with the names of files that
// had such a record, and the size of that. A power cut in the middle of a write leaves any of its
// sectors on the disk. tan accepts a tail that is missing, copies all records before a tail of
// zeros, and refuses a tail whose checksum does not match. A last record that is not whole was never
// fsynced, so it was never acknowledged.
//
// Everything else is damage to what was acknowledged, and an error: a bad record with others behind
// it, and a last one of which every sector is there. tan mistakes some of this damage for the end
// of the log and would lose all that follows.
func cutTails(d Disk, dir string, cut func(name string, size int64)) error {
	dir = filepath.Join(dir, "tandb")
	if _, err := d.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	shards, err := subfolders(d, dir)
	for _, folder := range shards {
		err = errors.Join(err, cutTailsIn(d, filepath.Join(dir, folder), cut))
	}
	return err
}

// cutTailsIn does cutTails for the folder of one shard.
func cutTailsIn(d Disk, dir string, cut func(name string, size int64)) error {
	names, err := d.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	indexed := make(map[string]bool) // an index is written when its file is complete and fsynced
	for _, name := range names {
		if log, ok := strings.CutSuffix(name, ".index"); ok {
			indexed[log+".log"] = true
		}
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") && !indexed[name] {
			name = filepath.Join(dir, name)
			torn, err := cutTail(d, name)
			if err != nil {
				return fmt.Errorf("the end of %s: %w", name, err)
			}
			if torn > 0 {
				cut(name, torn)
			}
		}
	}
	return nil
}

// cutTail returns how many bytes it has removed, up to the last that was not zero.
func cutTail(d Disk, name string) (torn int64, err error) {
	f, err := d.OpenForRead(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	end, torn, err := findEnd(f)
	if err != nil {
		return 0, err
	}
	return torn, d.Truncate(name, end)
}

// findEnd returns where the last whole record of a log ends, and the size of a torn one behind it.
// It returns an error if something behind the end is damage.
func findEnd(f io.ReaderAt) (end, torn int64, err error) {
	block := make([]byte, blockSize)
	bad, isTorn, last := int64(-1), false, int64(0) // where no chunk begins; behind the last byte that is not zero
	for start := int64(0); ; start += blockSize {
		n, err := f.ReadAt(block, start)
		if err != nil && err != io.EOF {
			return 0, 0, err
		}
		for at := 0; bad < 0 && at+headerSize <= n; {
			payload, kind, whole := chunk(block[at:n])
			if !whole {
				bad, isTorn = start+int64(at), mayBeTorn(block[at:n], start+int64(at))
				break
			}
			at += headerSize + payload
			if last = start + int64(at); kind == fullChunk || kind == lastChunk {
				end = last
			}
		}
		if bad >= 0 {
			from := max(bad-start, 0)
			if rest := bytes.TrimRight(block[from:n], "\x00"); len(rest) > 0 {
				last = start + from + int64(len(rest))
			}
			if recordIn(block[max(bad+1-start, 0):n]) {
				return 0, 0, fmt.Errorf("damaged at byte %d, and records follow", bad)
			}
		}
		if n < blockSize {
			break
		}
	}
	if bad >= 0 && last > bad && !isTorn {
		return 0, 0, fmt.Errorf("damaged at byte %d: every sector of the record is there, so no power cut has torn it", bad)
	}
	return end, last - end, nil
}

// mayBeTorn reports whether a bad chunk at an offset of the file lacks a sector, as a power cut
// leaves it. The file had zeros there before. B goes from the chunk to the end of its block, or of
// the file.
func mayBeTorn(b []byte, at int64) bool {
	kind, payload := chunkType(b[6]), int(binary.LittleEndian.Uint16(b[4:6]))
	if kind < fullChunk || kind > lastChunk || at%blockSize+int64(headerSize+payload) > blockSize {
		toSector := (at+headerSize+sectorSize-1)/sectorSize*sectorSize - at
		return !landed(b[:min(len(b), int(toSector))], at) // no header has been there
	}
	end := len(bytes.TrimRight(b, "\x00"))
	for other := max(end-headerSize, 0); headerSize+other <= len(b) && headerSize+other < end+sectorSize; other++ {
		if isWhole(b, other) {
			return false // its length is damaged
		}
	}
	return headerSize+payload > len(b) || !landed(b[:headerSize+payload], at)
}

// landed reports whether no sector of b, which is at an offset of a file, has only zeros.
func landed(b []byte, at int64) bool {
	for len(b) > 0 {
		n := min(len(b), int(sectorSize-at%sectorSize))
		if len(bytes.TrimLeft(b[:n], "\x00")) == 0 {
			return false
		}
		b, at = b[n:], at+int64(n)
	}
	return true
}

// recordIn reports whether a record begins anywhere in the rest of a block. The damage may be in
// the length that leads to the next record, so every byte is tried.
func recordIn(block []byte) bool {
	for at := range block[:max(0, len(block)-headerSize+1)] {
		if _, kind, whole := chunk(block[at:]); whole && (kind == fullChunk || kind == firstChunk) {
			return true
		}
	}
	return false
}

// chunk reads the chunk at the beginning of b. It returns the size of its payload, negative if
// there is none, its type, and whether its checksum matches.
func chunk(b []byte) (payload int, kind chunkType, whole bool) {
	kind = chunkType(b[6])
	payload = int(binary.LittleEndian.Uint16(b[4:6]))
	if kind < fullChunk || kind > lastChunk || headerSize+payload > len(b) {
		return -1, 0, false
	}
	return payload, kind, isWhole(b, payload)
}

// isWhole reports whether the checksum of the chunk at the beginning of b matches a payload of a size.
func isWhole(b []byte, payload int) bool {
	return uint32(xxhash.Sum64(b[6:headerSize+payload])) == binary.LittleEndian.Uint32(b)
}
