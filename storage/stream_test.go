package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/vivarium-go/vivarium/internal/testkit/golden"
)

type streamed struct {
	table      Table
	key, value string
}

func encodeStream(t testing.TB, applied uint64, records ...streamed) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := newStreamWriter(&b, applied)
	must(t, err)
	for _, r := range records {
		must(t, w.record(r.table, []byte(r.key), []byte(r.value)))
	}
	must(t, w.finish())
	return b.Bytes()
}

func decodeStream(r io.Reader) (applied uint64, records []streamed, err error) {
	in, applied, err := newStreamReader(r)
	if err != nil {
		return 0, nil, err
	}
	for {
		switch err := in.next(); {
		case err == io.EOF:
			return applied, records, nil
		case err != nil:
			return applied, records, err
		}
		records = append(records, streamed{in.table, string(in.key), string(in.value)})
	}
}

var sample = []streamed{
	{Znodes, "", "the root"},
	{Znodes, "/a", ""},
	{Znodes, "/a/b", "\x00\xff"},
	{Sessions, "\x01", "session"},
	{Origins, "\x02", "origin"},
	{Meta, "level", "\x01"},
}

// Streams travel between versions, so their bytes are pinned.
func TestStreamFormatIsPinned(t *testing.T) {
	for name, stream := range map[string][]byte{
		"stream":       encodeStream(t, 0x0102030405060708, sample...),
		"stream-empty": encodeStream(t, 0),
	} {
		golden.Check(t, "testdata/"+name+".hex", hex.Dump(stream))
	}
}

func TestStreamReaderReturnsWhatWasWritten(t *testing.T) {
	for _, records := range [][]streamed{nil, sample, {{Meta, strings.Repeat("k", keyLenMax), strings.Repeat("v", 3*readStep+1)}}} {
		stream := encodeStream(t, 7, records...)
		for _, r := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream)), iotest.DataErrReader(bytes.NewReader(stream))} {
			applied, got, err := decodeStream(r)
			if err != nil || applied != 7 || fmt.Sprint(got) != fmt.Sprint(records) {
				t.Fatalf("%d records came back as %d at index %d: %v", len(records), len(got), applied, err)
			}
		}
	}
}

func TestStreamReaderRefusesEveryFlippedByte(t *testing.T) {
	stream := encodeStream(t, 7, sample...)
	for at := range stream {
		for _, bit := range []byte{1, 0x80} {
			bad := bytes.Clone(stream)
			bad[at] ^= bit
			if _, _, err := decodeStream(bytes.NewReader(bad)); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d flipped by %#x: %v", at, bit, err)
			}
		}
	}
}

func TestStreamReaderRefusesEveryTruncation(t *testing.T) {
	stream := encodeStream(t, 7, sample...)
	for n := range stream {
		if _, _, err := decodeStream(bytes.NewReader(stream[:n])); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestStreamReaderRefusesRecordsOutOfOrder(t *testing.T) {
	for _, records := range [][]streamed{
		{{Znodes, "b", ""}, {Znodes, "a", ""}},
		{{Znodes, "a", ""}, {Znodes, "a", ""}},
		{{Meta, "a", ""}, {Znodes, "b", ""}},
	} {
		_, _, err := decodeStream(bytes.NewReader(encodeStream(t, 1, records...)))
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v: %v", records, err)
		}
	}
}

func TestStreamReaderRefusesNewerVersion(t *testing.T) {
	stream := append(streamHeader(streamVersion+1, 7), "whatever a newer version writes"...)
	if _, _, err := decodeStream(bytes.NewReader(stream)); !errors.Is(err, ErrNewer) {
		t.Fatal(err)
	}
}

// A false length costs memory only for the bytes that are there, not for those it announces.
func TestStreamReaderTakesNoMemoryForALyingLength(t *testing.T) {
	stream := streamHeader(streamVersion, 7)
	stream = append(stream, byte(Znodes))
	stream = binary.BigEndian.AppendUint32(stream, 1)
	stream = binary.BigEndian.AppendUint32(stream, valueLenMax)
	stream = append(stream, "k and a short value"...)
	in, _, err := newStreamReader(bytes.NewReader(stream))
	must(t, err)
	if err := in.next(); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	if c := cap(in.value); c > readStep {
		t.Fatalf("%d bytes were allocated", c)
	}
}

func TestStreamReaderPassesOnTheReadersError(t *testing.T) {
	broken := errors.New("connection reset")
	stream := encodeStream(t, 7, sample...)
	for n := range stream {
		r := io.MultiReader(bytes.NewReader(stream[:n]), iotest.ErrReader(broken))
		if _, _, err := decodeStream(r); !errors.Is(err, broken) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

func TestStreamReaderDoesNotMindWhatFollows(t *testing.T) {
	stream := append(encodeStream(t, 7, sample...), "something else"...)
	if _, got, err := decodeStream(bytes.NewReader(stream)); err != nil || len(got) != len(sample) {
		t.Fatal(len(got), err)
	}
}

// For any input, the reader returns a whole stream or an error. A stream that it accepts is one
// that the writer could have written.
func FuzzStreamReader(f *testing.F) {
	f.Add(encodeStream(f, 0))
	f.Add(encodeStream(f, 1<<40, sample...))
	f.Add(streamHeader(streamVersion, 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		applied, records, err := decodeStream(bytes.NewReader(data))
		if err != nil {
			// Correct the checksum at the end, so that the fuzzer gets past it.
			if len(data) > 4 {
				body := data[:len(data)-4]
				data = binary.BigEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
				applied, records, err = decodeStream(bytes.NewReader(data))
			}
			if err != nil {
				return
			}
		}
		again := encodeStream(t, applied, records...)
		if !bytes.HasPrefix(data, again) {
			t.Fatalf("%x was read as %x", data, again)
		}
	})
}
