package replication

import (
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// withTransport puts an ensemble on the real transport, over a network in memory.
func withTransport(e *ensemble) {
	mesh := transporttest.NewMesh()
	targets := map[string]uint64{}
	for _, m := range e.members {
		targets[UUID(e.digest, m)] = uint64(m)
	}
	e.transport = func(n *node) Transport {
		network := mesh.Network(uint64(n.id))
		listener, err := network.Listen()
		if err != nil {
			e.t.Fatal(err)
		}
		t := transport.New(transport.Options{
			Self:   transport.Identity{Digest: e.digest, Member: uint64(n.id), Directory: [16]byte{byte(n.id)}, Start: 1},
			Shards: uint64(e.shards), Network: network, Listener: listener, Logger: testLogger(e.t),
			Target: func(uuid string) (uint64, bool) { m, ok := targets[uuid]; return m, ok },
		})
		return t
	}
}

func TestTransport_WritesStreamsAndFailures(t *testing.T) {
	t.Parallel()
	e, behind := lagOn(t, withTransport)
	for _, n := range slicesWithout(e.nodes, behind) {
		e.stop(n) // drops the messages that wait for the absent member
	}
	e.startAll()
	e.same(t)
	if behind.tapes[0].install == 0 {
		t.Error("the state was not streamed")
	}
	victim := e.node(awaitLeader(t, behind, 1).Member)
	failAt(victim, 5)
	others := slicesWithout(e.nodes, victim)
	for i := 0; !isClosed(victim.disk.Failed()); i++ {
		e.write(others[i%2], 1, fmt.Sprint("more ", i))
	}
	closes(t, victim)
	e.write(others[0], 1, "without")
	e.start(victim)
	e.same(t)
}
