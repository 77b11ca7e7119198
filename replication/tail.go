package replication

import (
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

// cutTails removes all bytes behind the last whole record of the log in dir: zeros, and a record
// that was written in part. A power cut in the middle of a write leaves any of its pages on the
// disk. tan accepts a tail that is missing, copies all records before a tail of zeros, and refuses
// a tail whose checksum does not match. A last record that is not whole was never fsynced, so it
// was never acknowledged. A bad record with others behind it is damage, and an error. tan mistakes
// some of this damage for the end of the log and would lose all that follows.
func cutTails(d Disk, dir string) error {
	dir = filepath.Join(dir, "tandb")
	if _, err := d.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	shards, err := subfolders(d, dir)
	for _, folder := range shards {
		err = errors.Join(err, cutTailsIn(d, filepath.Join(dir, folder)))
	}
	return err
}

// cutTailsIn does cutTails for the folder of one shard.
func cutTailsIn(d Disk, dir string) error {
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
			if err := cutTail(d, filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("the end of %s: %w", filepath.Join(dir, name), err)
			}
		}
	}
	return nil
}

func cutTail(d Disk, name string) error {
	f, err := d.OpenForRead(name)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := findEnd(f)
	if err != nil {
		return err
	}
	return d.Truncate(name, end)
}

// findEnd returns where the last whole record of a log ends. It returns an error if a record
// follows a damaged one. A crash leaves nothing behind the record that it tore, so that is damage
// to whole records, and tan may mistake it for the end.
func findEnd(f io.ReaderAt) (end int64, err error) {
	block := make([]byte, blockSize)
	damage := int64(-1)
	for start := int64(0); ; start += blockSize {
		n, err := f.ReadAt(block, start)
		if err != nil && err != io.EOF {
			return 0, err
		}
		for at := 0; damage < 0 && at+headerSize <= n; {
			payload, kind, whole := chunk(block[at:n])
			if payload < 0 && [headerSize]byte(block[at:]) == [headerSize]byte{} {
				return end, nil
			}
			if !whole {
				damage = start + int64(at)
				break
			}
			at += headerSize + payload
			if kind == fullChunk || kind == lastChunk {
				end = start + int64(at)
			}
		}
		if damage >= 0 && recordIn(block[max(damage+1-start, 0):n]) {
			return 0, fmt.Errorf("damaged at byte %d, and records follow", damage)
		}
		if n < blockSize {
			return end, nil
		}
	}
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
	sum := uint32(xxhash.Sum64(b[6 : headerSize+payload]))
	return payload, kind, sum == binary.LittleEndian.Uint32(b)
}
