package embed_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// killAll ends all members as crashes would.
func killAll(e *embedtest.Ensemble) {
	for _, place := range e.Members() {
		e.Kill(place)
	}
}

// zxids returns the newest zxids of a node, by shard.
func zxids(n *embed.Node) (list []embed.Zxid) {
	for _, s := range n.Status().Shards {
		list = append(list, s.Zxid)
	}
	return list
}

// M28, M29: two of three voters are lost, and one goes on alone, with all that it has. Zxids, and
// with them the ids of sessions and fencing tokens, begin anew above all that the lost ones may have
// given, and so do the ids of members. The lost ones come back, are told, and join as new members.
func TestRecover(t *testing.T) {
	growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ctx := bounded(t)
		founded(e)
		joined(e, 1)
		s := e.Session(1, embed.SessionOptions{})
		for i := range 20 {
			_, err := s.Create(ctx, fmt.Sprintf("/n-%d", i), nil, embed.Persistent)
			must(t, err)
		}
		synced(t, e.Node(3))
		<-time.After(2 * time.Second) // the lineage is in the identity files
		killAll(e)
		must(t, e.Recover(3, 1, 2))
		n := e.Start(3)
		for i, z := range zxids(n) {
			if z < 1<<32 {
				t.Errorf("shard %d goes on at zxid %#x", i+1, z)
			}
		}
		e.Ready(3)
		voting(e, 3, 3)
		s = e.Session(3, embed.SessionOptions{})
		if s.ID() < 1<<32 {
			t.Errorf("session %#x may have been there before", s.ID())
		}
		for i := range 20 {
			if _, found, err := s.Exists(ctx, fmt.Sprintf("/n-%d", i)); err != nil || !found {
				t.Errorf("/n-%d is lost: %v", i, err)
			}
		}
		for _, m := range n.Members() {
			if m.ID != 3 && (m.Leaving != "lost" || m.Role != embed.Out) {
				t.Errorf("member %d is %+v", m.ID, m)
			}
		}

		for _, place := range []embed.MemberID{1, 2, 4} {
			old := e.Start(place)
			<-old.Done()
			if err := old.Err(); !errors.Is(err, embed.ErrSuperseded) || !strings.Contains(err.Error(), "lineage") {
				t.Errorf("member %d is told %v", place, err)
			}
			e.Kill(place)
		}
		var places []embed.MemberID
		for _, place := range []embed.MemberID{1, 2} {
			e.Restart(place)
			if id := e.ID(place); id < 1004 {
				t.Errorf("member %d has come back as %d", place, id)
			}
			places = append(places, place)
		}
		voting(e, 3, 3, e.ID(1), e.ID(2))
		for _, place := range places {
			_, err := e.Session(place, embed.SessionOptions{}).Create(ctx, fmt.Sprintf("/of-%d", place), nil, embed.Persistent)
			must(t, err)
			if _, found, err := e.Session(place, embed.SessionOptions{}).Exists(ctx, "/n-19"); err != nil || !found {
				t.Errorf("member in place %d lacks what was there before: %v", place, err)
			}
		}
	})
}
