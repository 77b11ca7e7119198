package replication

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// appendRecord appends a record as tan frames it.
func appendRecord(log, data []byte) []byte {
	for first := true; ; first = false {
		room := blockSize - len(log)%blockSize
		if room < headerSize {
			log = append(log, make([]byte, room)...)
			room = blockSize
		}
		part := data[:min(len(data), room-headerSize)]
		data = data[len(part):]
		kind := middleChunk
		switch last := len(data) == 0; {
		case first && last:
			kind = fullChunk
		case first:
			kind = firstChunk
		case last:
			kind = lastChunk
		}
		begin := len(log)
		log = append(log, 0, 0, 0, 0, 0, 0, byte(kind))
		log = append(log, part...)
		binary.LittleEndian.PutUint16(log[begin+4:], uint16(len(part)))
		binary.LittleEndian.PutUint32(log[begin:], uint32(xxhash.Sum64(log[begin+6:])))
		if len(data) == 0 {
			return log
		}
	}
}

// C8.4: a power cut leaves any sectors of the last record, in a file that had zeros there. A bit that
// turns, in the last record as in any other, or a sector that is gone with records behind it, is
// damage to what was acknowledged.
func TestFindEnd(t *testing.T) {
	rng := testkit.Rand(t)
	text := func(n int) []byte { // without zeros, as no sector of them is landed or not
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(1 + rng.IntN(255))
		}
		return b
	}
	for _, sizes := range [][2]int{{100, 40}, {505, 3}, {500, 600}, {blockSize - headerSize - 3, 2000}, {20_000, 14_000}, {700, blockSize + 5_000}} {
		before := appendRecord(nil, text(sizes[0]))
		begin := len(before)
		if room := blockSize - begin%blockSize; room < headerSize {
			begin += room // padding
		}
		whole := appendRecord(bytes.Clone(before), text(sizes[1]))
		more := appendRecord(bytes.Clone(whole), text(30))
		ahead := make([]byte, 3*sectorSize)
		check := func(what string, log []byte, at int, want int) {
			t.Helper()
			end, torn, err := findEnd(bytes.NewReader(append(bytes.Clone(log), ahead...)))
			switch {
			case want < 0 && err == nil:
				t.Errorf("%v: %s %d: no damage, and the log ends at %d of %d", sizes, what, at, end, len(log))
			case want >= 0 && (err != nil || end != int64(want) || (torn > 0) != (want < len(bytes.TrimRight(log, "\x00")))):
				t.Errorf("%v: %s %d: the log ends at %d, want %d, and %d are torn: %v", sizes, what, at, end, want, torn, err)
			}
		}
		check("whole", whole, 0, len(whole))
		for at := 0; at < len(whole); at += 1 + rng.IntN(1+len(whole)/100) {
			turned := bytes.Clone(whole)
			turned[at] ^= 1 << rng.IntN(8)
			if at < len(before) || at >= begin {
				check("a bit of byte", turned, at, -1)
			}
		}
		for sector := begin / sectorSize * sectorSize; sector < len(whole); sector += sectorSize {
			from, to := max(sector, begin), min(sector+sectorSize, len(whole))
			one, rest, inside := bytes.Clone(whole), bytes.Clone(whole[:from]), bytes.Clone(more)
			clear(one[from:to])
			clear(inside[from:to])
			check("without sector", one, from, len(before))
			check("up to sector", rest, from, len(before))
			if to-from > headerSize {
				check("in the middle without sector", inside, from, -1)
			}
		}
	}
}
