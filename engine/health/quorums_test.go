package health

import (
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/replication"
)

// After the patience, a shard counts as lost once. When it has a leader again, it counts as back
// once. A short gap is ignored.
func TestQuorums(t *testing.T) {
	const patience = time.Second
	start := time.Now()
	led := map[replication.ShardID]bool{1: true, 2: true}
	q := NewQuorums(2, patience)
	look := func(at time.Duration, wantLost, wantBack []replication.ShardID, wantNext time.Duration) {
		t.Helper()
		lost, back, next := q.Look(start.Add(at), func(id replication.ShardID) bool { return led[id] })
		if !slices.Equal(lost, wantLost) || !slices.Equal(back, wantBack) || next != wantNext {
			t.Fatalf("at %v: lost %v, back %v, next in %v; want %v, %v, %v", at, lost, back, next, wantLost, wantBack, wantNext)
		}
		for _, id := range back {
			q.Returned(id, start.Add(at))
		}
	}
	ms := time.Millisecond
	look(0, nil, nil, 0)
	led[1] = false
	look(100*ms, nil, nil, patience)
	led[1] = true
	look(900*ms, nil, nil, 0) // a short gap
	led[1] = false
	look(1000*ms, nil, nil, patience)
	led[2] = false
	look(1500*ms, nil, nil, 500*ms)
	look(2000*ms, []replication.ShardID{1}, nil, 500*ms)
	look(2200*ms, nil, nil, 300*ms)
	look(2500*ms, []replication.ShardID{2}, nil, 0)
	look(9000*ms, nil, nil, 0) // reported once
	led[1] = true
	look(9100*ms, nil, []replication.ShardID{1}, 0)
	look(9200*ms, nil, nil, 0)
	led[1] = false
	look(9300*ms, nil, nil, patience)
}
