package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/tree"
)

// on returns a path of a shard, a different one for each i.
func (n *node) on(id ShardID, i int) string {
	for k := 0; ; k++ {
		path := fmt.Sprintf("/%d-%d", i, k)
		if shardOf(path, len(n.shards)) == int(id)-1 {
			return path
		}
	}
}

// hasOn reports whether a znode is there.
func (n *node) hasOn(path string) bool {
	_, ok := n.at(path).tree.Load().Exists(path)
	return ok
}

// own creates an ephemeral.
func (n *node) own(s *Session, path string) {
	n.t.Helper()
	p := n.submit(s, ephemeral(path))
	n.commit()
	if err := outcome(p.waiter); err != nil {
		n.t.Fatalf("create %s: %v", path, err)
	}
}

// submit submits on a goroutine of its own: the first request on a shard waits until the shard knows the session.
func (n *node) submit(s *Session, ops ...tree.Op) *Pending {
	n.t.Helper()
	got := make(chan *Pending, 1)
	go func() { got <- s.Submit(n.t.Context(), ops) }()
	for {
		select {
		case p := <-got:
			return p
		default:
			synctest.Wait()
			n.commit()
		}
	}
}

// told is the entry that tells a shard of a session's end at home.
func told(s *Session, z tree.Zxid) command {
	return command{kind: commandPurge, purge: []ending{{session: s.id, member: testMember, zxid: z}}}
}

// The end of a session is known from another shard before this node has applied it at home: what it has on its way at home may be
// before the end there, so nobody can say yet that it is not applied.
func TestRequestsThatAnotherShardEndsHaveNoOutcomeAtHome(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.own(s, n.on(2, 0))
		home := s.Submit(t.Context(), []tree.Op{create(n.on(1, 0))})
		there := s.Submit(t.Context(), []tree.Op{create(n.on(2, 1))})
		_, ps := n.requests()
		n.applyOn(2, told(s, n.shard.mu.zxid+2))
		if err := outcome(home.waiter); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("what may yet be applied was told %v", err)
		}
		if err := outcome(there.waiter); err != ErrSessionExpired {
			t.Errorf("what comes after the end was told %v", err)
		}
		n.apply(ps...)
		if !n.hasOn(n.on(1, 0)) || n.hasOn(n.on(2, 1)) {
			t.Error("it was applied where it came after the end, or not where it came before")
		}
	})
}
