package replica

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// The cost of applying a batch of another member's small writes, with an image. Each write sets 64
// bytes of a znode of its own.
func BenchmarkApply(b *testing.B) {
	for _, sets := range []int{1, 64, 1024} {
		b.Run(fmt.Sprint("sets=", sets), func(b *testing.B) {
			r := newRig(b)
			m := r.Replica
			const id, seq = 1, 1 << 32
			m.mu.table.LoadOrigin(session.Origin{Member: 2, Start: 1, LastSeq: seq})
			if err := m.mu.table.LoadRecord(session.Record{ID: id, Timeout: 10 * time.Second, Origin: 2}); err != nil {
				b.Fatal(err)
			}
			var creates []tree.Op
			var batch [][]byte
			for i := range sets {
				path := fmt.Sprintf("/k%04d", i)
				creates = append(creates, tree.Op{Kind: tree.KindCreate, Path: path})
				q := command.Request{Kind: command.RequestTxn, Session: id, Ops: []tree.Op{tree.Op{Kind: tree.KindSet, Path: path, Data: make([]byte, 64), Version: tree.AnyVersion}}}
				batch = append(batch, command.EncodeRequest(&q))
			}
			if _, err := m.commit(tree.Header{Zxid: 1}, creates, nil); err != nil {
				b.Fatal(err)
			}
			entries := []replication.Entry{{Cmd: command.EncodeBatch(2, 1, seq, 1700000000123, 0, len(batch), slices.Values(batch))}}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				entries[0].Index = uint64(i + 1)
				binary.BigEndian.PutUint64(entries[0].Cmd[5:], seq+uint64(i+1)) // the seq
				m.Apply(entries)
			}
			b.StopTimer()
			if want := tree.Zxid(b.N*sets + 1); m.mu.Zxid != want || r.disk.Err() != nil {
				b.Fatalf("at zxid %d, want %d: %v", m.mu.Zxid, want, r.disk.Err())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sets), "ns/set")
		})
	}
}
