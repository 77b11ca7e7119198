package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"runtime"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// frame returns a batch as it travels.
func frame(t testing.TB, b pb.MessageBatch) []byte {
	t.Helper()
	f := frameOf(nil, b.Size())
	if _, err := b.MarshalTo(f[headSize:]); err != nil {
		t.Fatal(err)
	}
	finishFrame(f, kindBatch)
	return f
}

// rawFrame returns a frame with any payload.
func rawFrame(k kind, payload []byte) []byte {
	f := append(make([]byte, headSize), payload...)
	finishFrame(f, k)
	return f
}

func readerOf(b []byte, limit int) *frameReader {
	return &frameReader{r: bufio.NewReader(bytes.NewReader(b)), max: func(kind) int { return limit }, keep: bufferKeep}
}

func TestFrameLayout(t *testing.T) {
	got := hex.EncodeToString(rawFrame(kindChunk, []byte("abc")))
	if want := "00000003" + "02" + "000000"; got[:16] != want || got[24:] != "616263" {
		t.Fatalf("frame is %s", got)
	}
	k, payload, err := readerOf(rawFrame(kindChunk, []byte("abc")), 3).next()
	if k != kindChunk || string(payload) != "abc" || err != nil {
		t.Fatal(k, payload, err)
	}
}

func TestFrameRefused(t *testing.T) {
	good := rawFrame(kindBatch, []byte("hello"))
	for name, change := range map[string]func([]byte){
		"payload":  func(b []byte) { b[headSize]++ },
		"length":   func(b []byte) { b[3]-- },
		"kind":     func(b []byte) { b[4] = 9 },
		"reserved": func(b []byte) { b[6] = 1 },
		"checksum": func(b []byte) { b[9]++ },
	} {
		bad := bytes.Clone(good)
		change(bad)
		if _, _, err := readerOf(bad, 100).next(); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range good {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if _, _, err := readerOf(good[:n], 100).next(); err != want {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// C4.3: A length beyond the limit is refused before anything is allocated. A length within it costs
// only the bytes that arrive.
func TestFrameAllocatesOnlyWhatComes(t *testing.T) {
	head := rawFrame(kindBatch, nil)
	lying := func(n uint32) []byte {
		binary.BigEndian.PutUint32(head, n)
		binary.BigEndian.PutUint32(head[8:], crc32.Checksum(head[:8], castagnoli))
		return head
	}
	allocated := func(b []byte) (uint64, error) {
		r := readerOf(b, frameMaxDefault)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := r.next()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, err
	}
	if n, err := allocated(lying(frameMaxDefault + 1)); !errors.Is(err, errFrame) || n > 64<<10 {
		t.Fatalf("%d bytes allocated: %v", n, err)
	}
	if n, err := allocated(lying(1<<32 - 1)); !errors.Is(err, errFrame) || n > 64<<10 {
		t.Fatalf("%d bytes allocated: %v", n, err)
	}
	if n, err := allocated(lying(frameMaxDefault)); err != io.ErrUnexpectedEOF || n > 3*readStep { // others allocate too, in the same process
		t.Fatalf("%d bytes allocated: %v", n, err)
	}
}

func TestLargeFrame(t *testing.T) {
	payload := make([]byte, 5<<20+17)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	r := readerOf(append(rawFrame(kindBatch, payload), rawFrame(kindAsk, nil)...), len(payload))
	_, got, err := r.next()
	if err != nil || !bytes.Equal(got, payload) {
		t.Fatalf("%d bytes came back, %v", len(got), err)
	}
	if k, _, err := r.next(); k != kindAsk || err != nil {
		t.Fatal(k, err)
	}
	if cap(r.buf) > bufferKeep {
		t.Fatalf("%d bytes are held on to", cap(r.buf))
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frame(f, beat(1, 2, 3)))
	f.Add(append(rawFrame(kindAsk, nil), rawFrame(kindChunk, []byte("x"))...))
	c := chunkOf(1, 2, 0, true)
	data, _ := c.Marshal()
	f.Add(rawFrame(kindChunk, data))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := readerOf(b, 1<<16)
		for {
			k, payload, err := r.next()
			if err != nil {
				return
			}
			if len(payload) > 1<<16 || k == 0 && len(b) == 0 {
				t.Fatal(k, len(payload))
			}
		}
	})
}

// FuzzPayload sends frames with a correct checksum, as a hostile member could, through decoding and
// gate.
func FuzzPayload(f *testing.F) {
	for _, m := range []pb.Message{
		{Type: pb.Heartbeat, From: 1, To: 2, ShardID: 1, Term: 1},
		{Type: pb.Replicate, From: 1, To: 2, ShardID: 1, Term: 3, LogIndex: 4, LogTerm: 2,
			Entries: []pb.Entry{{Index: 5, Term: 3, Type: pb.EncodedEntry, Cmd: []byte("\x00abc")}, {Index: 6, Term: 3}}},
		{Type: pb.Propose, From: 1, To: 2, ShardID: 1, Entries: []pb.Entry{{Cmd: []byte("x"), Key: 1 << 60}}},
	} {
		b := batchOf(m)
		data, _ := b.Marshal()
		f.Add(data)
	}
	c := chunkOf(1, 2, 0, true)
	c.Membership.Addresses = map[uint64]string{1: "a", 2: "b"}
	data, _ := c.Marshal()
	f.Add(data)
	f.Fuzz(func(t *testing.T, payload []byte) {
		handed := 0
		tr := New(Options{Self: identity(2)})
		tr.role.Load().gate.deployment = deployment
		var h handlers
		h.batch = func(b pb.MessageBatch) {
			for i := range b.Requests {
				if err := tr.role.Load().gate.message(1, &b.Requests[i]); err != nil {
					t.Fatalf("%v passed: %+v", err, b.Requests[i])
				}
			}
			handed++
		}
		h.chunk = func(c pb.Chunk) bool { handed++; return true }
		tr.handlers.Store(&h)
		tr.role.Load().gate.noteRunning(beat(2, 1, 1).Requests)
		for _, h := range []hello{helloOf(1, 2), {Identity: identity(1), version: protocolMax, purpose: forSnapshot}} {
			k := kindBatch
			if h.purpose == forSnapshot {
				k = kindChunk
			}
			tr.serveFrames(nil, bufio.NewReader(bytes.NewReader(rawFrame(k, payload))), h)
		}
	})
}
