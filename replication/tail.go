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

// findEnd returns where the last whole record of a log ends, and the size of what is torn behind it.
// It returns an error if something behind the end is damage.
//
// tan does not fsync a record that only moves the commit index. So several of those, and one other
// record behind them, may be torn together, and some of them may be whole.
func findEnd(f io.ReaderAt) (end, torn int64, err error) {
	block := make([]byte, blockSize)
	bad, behind, last := int64(-1), follower{}, int64(0) // where no chunk begins; behind the last byte that is not zero
	isTorn := false
	for start := int64(0); ; start += blockSize {
		n, err := f.ReadAt(block, start)
		if err != nil && err != io.EOF {
			return 0, 0, err
		}
		for at := 0; bad < 0 && at < n; {
			if at+headerSize > n && (n == blockSize || len(bytes.TrimLeft(block[at:n], "\x00")) == 0) {
				break // padding
			}
			payload, kind, whole := chunk(block[at:n])
			if !whole {
				bad = start + int64(at)
				isTorn, behind.alone = mayBeTorn(block[at:n], bad)
				if behind.from = bad + 1; int64(at)+size(block[at:n]) <= blockSize {
					behind.from = max(behind.from, bad+size(block[at:n]))
				}
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
			if behind.look(block[min(max(behind.from-start, 0), int64(n)):n]); behind.fsynced {
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

// A follower looks for whole records behind a bad chunk. Where they begin may be lost, so every byte
// is tried. What a client writes does not look like a record, because commands are masked.
type follower struct {
	from    int64 // behind what the bad chunk says that it has
	alone   bool  // the bad chunk is of a record that is fsynced before another is written
	one     bool  // there is such a record
	fsynced bool  // so the bad chunk was fsynced: another record was written behind it
}

// look looks in the rest of a block.
func (w *follower) look(block []byte) {
	for at := 0; at+headerSize <= len(block) && !w.fsynced; at++ {
		payload, kind, whole := chunk(block[at:])
		if !whole {
			continue
		}
		if kind == fullChunk || kind == firstChunk {
			w.fsynced = w.alone || w.one
			w.one = kind == firstChunk || !onlyCommits(block[at+headerSize:at+headerSize+payload])
		}
		at += headerSize + payload - 1
	}
}

// commitsMax is the largest size of a record that only moves the commit index.
const commitsMax = 96

// onlyCommits reports whether tan writes a record without an fsync: it has the ids of shard and
// replica, a state, no entries and no snapshot.
func onlyCommits(record []byte) bool {
	for range 2 {
		_, n := binary.Uvarint(record)
		if n <= 0 {
			return false
		}
		record = record[n:]
	}
	if len(record) < 5 || record[0] != 1 {
		return false
	}
	size := uint64(binary.LittleEndian.Uint32(record[1:]))
	if record = record[5:]; size > uint64(len(record)) {
		return false
	}
	return bytes.Equal(record[size:], make([]byte, 5)) // the number of entries, and whether there is a snapshot
}

// mayBeTorn reports whether a bad chunk at an offset of the file lacks a sector, as a power cut
// leaves it, and whether its record is one that is fsynced. The file had zeros there before. A sector
// whose data are zeros counts as lacking. B goes from the chunk to the end of its block, or of the
// file.
func mayBeTorn(b []byte, at int64) (torn, fsynced bool) {
	if len(b) < headerSize {
		return true, false // the file ends here
	}
	said := int(size(b))
	if said == 0 || at%blockSize+int64(said) > blockSize {
		toSector := (at+headerSize+sectorSize-1)/sectorSize*sectorSize - at
		return !landed(b[:min(len(b), int(toSector))], at), false // no header has been there
	}
	fsynced = chunkType(b[6]) != fullChunk || said > headerSize+commitsMax
	if hasOtherLength(b) {
		return false, fsynced
	}
	return said > len(b) || !landed(b[:said], at), fsynced
}

// size returns how long a chunk says that it is. Zero: b does not begin with the header of one.
func size(b []byte) int64 {
	if len(b) < headerSize || chunkType(b[6]) < fullChunk || chunkType(b[6]) > lastChunk {
		return 0
	}
	return headerSize + int64(binary.LittleEndian.Uint16(b[4:6]))
}

// hasOtherLength reports whether a bad chunk is whole with another length: up to the next record, the
// end of the block, or the last bytes that are not zeros.
func hasOtherLength(b []byte) bool {
	last := len(bytes.TrimRight(b, "\x00"))
	for end := headerSize; end <= len(b); end++ {
		ends := end == len(b) || end >= last && end < last+sectorSize
		if !ends && end+headerSize <= len(b) {
			_, kind, whole := chunk(b[end:])
			ends = whole && (kind == fullChunk || kind == firstChunk)
		}
		if ends && isWhole(b, end-headerSize) {
			return true
		}
	}
	return false
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

// chunk reads the chunk at the beginning of b. It returns the size of its payload, negative if
// there is none, its type, and whether its checksum matches.
func chunk(b []byte) (payload int, kind chunkType, whole bool) {
	if len(b) < headerSize {
		return -1, 0, false
	}
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
