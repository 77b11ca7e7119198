package transport

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// M152: Peers says what is known about a peer in each of these cases: it does not listen, it is
// refused, it is accepted, its link is cut, it has stopped.
func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWeb()
		var open atomic.Bool
		a := onMesh(t, m, identity(1))
		link := a.link(t, 2)
		ab := &talker{t: t, from: 1, to: 2, link: link}
		of := func(p *peer) Peer {
			t.Helper()
			list := p.Peers()
			if len(list) != 2 { // of three members
				t.Fatalf("%+v", list)
			}
			return list[0]
		}
		if p := of(a); p != (Peer{Member: 2}) {
			t.Errorf("before the first try: %+v", p)
		}
		talk(time.Second, ab)
		if p := of(a); p.Reached || p.Heard || p.Err == nil || p.RefusedBy != nil || p.Refused != nil {
			t.Errorf("nobody listens: %+v", p)
		}
		o := meshOptions(t, m, identity(2))
		o.Accept = func(Identity) error {
			if open.Load() {
				return nil
			}
			return errors.New("not yet")
		}
		b := newPeer(t, o)
		talk(3*time.Second, ab)
		if p := of(a); p.Reached || !errors.Is(p.RefusedBy, ErrNotAccepted) || p.Refused != nil {
			t.Errorf("refused: %+v", p)
		}
		if p := of(b); p.Member != 1 || p.Heard || p.RefusedBy != nil || !errors.Is(p.Refused, ErrNotAccepted) {
			t.Errorf("refusing: %+v", p)
		}
		open.Store(true)
		<-time.After(3 * time.Second) // with nothing to say, as between two followers
		levels := Levels{Min: 1, Max: 1}
		if p := of(a); p != (Peer{Member: 2, Reached: true, Levels: levels}) {
			t.Errorf("let in: %+v", p)
		}
		if p := of(b); p != (Peer{Member: 1, Heard: true, Levels: levels}) {
			t.Errorf("letting in: %+v", p)
		}
		m.set(1, 2, transporttest.Fault{Cut: true})
		talk(10*time.Second, ab)
		if p := of(a); p.Reached || p.Err == nil {
			t.Errorf("cut: %+v", p)
		}
		m.set(1, 2, transporttest.Fault{})
		talk(10*time.Second, ab)
		link.Close()
		synctest.Wait()
		if p := of(a); p != (Peer{Member: 2, Levels: levels}) {
			t.Errorf("nothing to say: %+v", p)
		}
		a.module.Close()
		b.module.Close()
	})
}
