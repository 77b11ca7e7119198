package replication

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/lni/dragonboat/v4/raftpb"

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
		more := appendRecord(appendRecord(bytes.Clone(whole), text(30)), text(30))
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

// commits is a record that only moves the commit index, which tan does not fsync.
func commits(t *testing.T, index uint64) []byte {
	u := raftpb.Update{ShardID: 3, ReplicaID: 300, State: raftpb.State{Term: 7, Vote: 2, Commit: index}}
	buf := make([]byte, u.SizeUpperLimit())
	n, err := u.MarshalTo(buf)
	if err != nil || !onlyCommits(buf[:n]) || n > commitsMax {
		t.Fatalf("%x: %v", buf[:n], err)
	}
	return buf[:n]
}

// C8.4: some records before the last were not fsynced either, and a power cut leaves any sectors of
// all of them. Two that were fsynced one after the other are never torn together.
func TestFindEnd_SeveralRecordsBeforeOneFsync(t *testing.T) {
	entries := bytes.Repeat([]byte{9}, 700)
	if onlyCommits(entries) {
		t.Fatal("entries are no commit index")
	}
	for size := 440; size < sectorSize-headerSize; size++ {
		before := appendRecord(nil, bytes.Repeat([]byte{7}, size))
		log := bytes.Clone(before)
		for i := range uint64(20) {
			log = appendRecord(log, commits(t, 1<<40+i))
		}
		log = appendRecord(log, entries)
		for sectors := range 1 << 4 { // that did not land
			cut := append(bytes.Clone(log), make([]byte, blockSize)...)
			for i := range 4 {
				if sectors&(1<<i) != 0 {
					clear(cut[max(i*sectorSize, len(before)):min((i+1)*sectorSize, len(log))])
				}
			}
			if end, _, err := findEnd(bytes.NewReader(cut)); err != nil || end < int64(len(before)) {
				t.Fatalf("size %d, without sectors %b: %d of %d, %v", size, sectors, end, len(before), err)
			}
		}
		gone := append(appendRecord(appendRecord(bytes.Clone(log), entries), entries), make([]byte, blockSize)...)
		clear(gone[max(sectorSize, len(before)) : 2*sectorSize])
		if end, _, err := findEnd(bytes.NewReader(gone)); err == nil {
			t.Errorf("size %d: a sector before two fsyncs is gone, and the log ends at %d", size, end)
		}
	}
}

// C8.4: a client may write what looks like any number of records. Masked, it does not, whichever
// sectors of it a power cut loses.
func TestFindEnd_AClientsRecords(t *testing.T) {
	rng := testkit.Rand(t)
	for _, size := range []int{0, 1, 121, 700} {
		data := bytes.Repeat(appendRecord(nil, bytes.Repeat([]byte("x"), size)), 1+80_000/(headerSize+size))
		before := appendRecord(nil, bytes.Repeat([]byte{7}, 100+rng.IntN(400)))
		log := append(appendRecord(bytes.Clone(before), mask(data)), make([]byte, blockSize)...)
		for range 20 {
			cut := bytes.Clone(log)
			for sector := 0; sector < len(cut); sector += sectorSize {
				if rng.IntN(4) == 0 {
					clear(cut[max(sector, len(before)):max(sector+sectorSize, len(before))])
				}
			}
			clear(cut[len(before):sectorSize]) // the record's first header
			if end, torn, err := findEnd(bytes.NewReader(cut)); err != nil || end != int64(len(before)) || torn == 0 {
				t.Errorf("%d bytes each: %d of %d, %d, %v", size, end, len(before), torn, err)
			}
		}
	}
}

// C8.4: what a client writes may look like a record. A file may end within a header.
func TestFindEnd_ForgedAndShort(t *testing.T) {
	data := bytes.Repeat([]byte{7}, 9000)
	copy(data[100:], appendRecord(nil, commits(t, 1)))
	log := appendRecord(nil, data)
	clear(log[4096:])
	if end, torn, err := findEnd(bytes.NewReader(log)); err != nil || end != 0 || torn == 0 {
		t.Errorf("a torn record with a forged one in it: %d, %d, %v", end, torn, err)
	}
	whole := appendRecord(nil, []byte("whole"))
	if end, torn, err := findEnd(bytes.NewReader(append(bytes.Clone(whole), 1, 2, 3))); err != nil || end != int64(len(whole)) || torn != 3 {
		t.Errorf("half a header: %d, %d, %v", end, torn, err)
	}
}
