package replication

import (
	"errors"
	"fmt"
	"testing"
)

func TestSingleMember_WritesAndRestarts(t *testing.T) {
	e := found(t, 1, 1)
	n := e.nodes[0]
	for round := range 4 {
		e.start(n)
		for i := range 10 {
			e.write(n, 1, fmt.Sprintf("%d-%d", round, i))
		}
		e.barrier(n, 1)
		if got, want := n.tapes[0].state().count, uint64(10*(round+1)); got != want {
			t.Fatalf("round %d: %d commands applied, want %d", round, got, want)
		}
		e.stop(n)
		if !n.tapes[0].closed {
			t.Fatal("machine is not closed")
		}
	}
}

func TestThreeMembers_AgreeAfterWritesFromAll(t *testing.T) {
	e := found(t, 3, 2)
	e.startAll()
	for shard := ShardID(1); shard <= 2; shard++ {
		for i := range 30 {
			e.write(e.nodes[i%3], shard, fmt.Sprintf("%d/%d", shard, i))
		}
		for _, n := range e.nodes {
			e.barrier(n, shard)
		}
		want := e.nodes[0].tapes[shard-1].state()
		for _, n := range e.nodes[1:] {
			if got := n.tapes[shard-1].state(); got != want {
				t.Errorf("shard %d: member %d has %v, member 1 has %v", shard, n.id, got, want)
			}
		}
	}
}

func TestPropose_Refusals(t *testing.T) {
	e := found(t, 3, 1)
	n := e.nodes[0]
	e.start(n) // two of three are missing: no leader
	for name, c := range map[string]struct {
		cmd  []byte
		want error
	}{
		"no leader": {[]byte("x"), ErrNoLeader},
		"empty":     {nil, ErrTooLarge},
		"too large": {make([]byte, CommandMax+1), ErrTooLarge},
	} {
		if _, err := n.host.Propose(1, c.cmd); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := n.host.Propose(2, []byte("x")); err == nil {
		t.Error("a shard that does not exist takes proposals")
	}
	host := n.host
	e.stop(n)
	if _, err := host.Propose(1, []byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, ErrClosed)
	}
	if err := host.Close(0); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
