package storage

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// fill commits n records of 128 bytes.
func fill(b *testing.B, i *Image, n int) {
	batch, value := i.NewBatch(), make([]byte, 128)
	for k := range n {
		batch.Put(Znodes, fmt.Appendf(nil, "/bench/%03d/%07d", k%100, k), value)
		if k%256 == 255 {
			must(b, batch.Commit(uint64(k)))
		}
	}
	must(b, batch.Commit(uint64(n)))
	must(b, i.Sync())
}

// BenchmarkCommit measures a commit by the size of the batch. Its flushes run beside it.
func BenchmarkCommit(b *testing.B) {
	for _, records := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			i := newNode(b).open(b)
			must(b, i.Sync())
			batch, value := i.NewBatch(), make([]byte, 128)
			key := []byte("/bench/0000000")
			b.ReportAllocs()
			for index := uint64(1); b.Loop(); index++ {
				for k := range records {
					key = fmt.Appendf(key[:7], "%07d", (int(index)*records+k)%100_000)
					batch.Put(Znodes, key, value)
				}
				must(b, batch.Commit(index))
			}
		})
	}
}

// BenchmarkSync measures a Sync after one commit: the cost when background flushing has kept up.
func BenchmarkSync(b *testing.B) {
	i := newNode(b).open(b)
	batch := i.NewBatch()
	for index := uint64(1); b.Loop(); index++ {
		batch.Put(Znodes, []byte("/bench"), make([]byte, 128))
		must(b, batch.Commit(index))
		must(b, i.Sync())
	}
}

func BenchmarkLoad(b *testing.B) {
	const records = 100_000
	n := newNode(b)
	i := n.open(b)
	fill(b, i, records)
	b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
		for b.Loop() {
			must(b, i.Load(func(Table, []byte, []byte) error { return nil }))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
	})
}

func BenchmarkInstall(b *testing.B) {
	const records = 100_000
	i := newNode(b).open(b)
	fill(b, i, records)
	var stream bytes.Buffer
	must(b, writeSnapshot(i, &stream))
	b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
		b.SetBytes(int64(stream.Len()))
		for b.Loop() {
			must(b, i.Install(bytes.NewReader(stream.Bytes()), nil, nil))
		}
	})
	b.Run(fmt.Sprintf("write/records=%d", records), func(b *testing.B) {
		b.SetBytes(int64(stream.Len()))
		s, err := i.Snapshot()
		must(b, err)
		defer s.Close()
		for b.Loop() {
			must(b, s.WriteTo(io.Discard, nil))
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	n := newNode(b)
	i := n.open(b)
	must(b, i.NewBatch().Commit(1))
	must(b, i.Close())
	for b.Loop() {
		i, err := Open(n.options())
		must(b, err)
		must(b, i.Sync())
		must(b, i.Close())
	}
}
