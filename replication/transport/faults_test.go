package transport

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// A lost message is not reported, takes no other message with it, and leaves the connection as it
// was.
func TestLossTakesItsShare(t *testing.T) {
	for _, loss := range []float64{0, 0.3, 1} {
		inMesh(t, func(t *testing.T, m *web, a, b *peer) {
			m.faults[1].Set(2, transporttest.Fault{Loss: loss})
			ab := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}
			var all []uint64
			for range 100 {
				talk(time.Second, ab)
				all = append(all, heard(b)...)
			}
			// 2,000 messages were sent; 130 is more than six standard deviations of the lost ones.
			if n, want := float64(len(all)), 2000*(1-loss); n < want-130 || n > want+130 || (loss == 0 || loss == 1) && n != want {
				t.Errorf("%v of 2000 messages heard at a loss of %v", n, loss)
			}
			if !slices.IsSorted(all) {
				t.Error("the order was lost too")
			}
			if log := a.log.String() + b.log.String(); strings.Contains(log, "lost") || strings.Contains(log, "dropped") {
				t.Errorf("log:\n%s", log)
			}
			s := streamTo(t, t.Context(), a, b)
			defer s.Close()
			for i := range uint64(10) {
				if err := s.SendChunk(chunkOf(1, 2, i, i == 9)); err != nil {
					t.Errorf("a snapshot at a loss of %v: %v", loss, err)
				}
			}
		})
	}
}

// A message that is written in several steps is lost or kept as a whole.
func TestLossIsOfWholeMessages(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		m.faults[1].Set(2, transporttest.Fault{Loss: 0.5})
		link := a.link(t, 2)
		rounds := 0
		for i := 0; rounds < 20; i++ {
			size := writeStep + i%3*writeStep - i%5 // around the ends of steps, sometimes with an ask behind it
			link.SendMessageBatch(batchOf(pb.Message{Type: pb.Propose, From: 1, To: 2, ShardID: 1, Entries: []pb.Entry{{Cmd: make([]byte, size)}}}))
			pass(askEvery / 2)
			select {
			case got := <-b.batches:
				if n := len(got.Requests[0].Entries[0].Cmd); n != size {
					t.Fatalf("%d bytes of %d arrived", n, size)
				}
				rounds++
			default:
			}
		}
		if log := a.log.String() + b.log.String(); strings.Contains(log, "lost") || strings.Contains(log, "dropped") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// A delay does not slow down the sender. Messages arrive that much later and in order, including
// those that are sent after the delay has ended.
func TestDelay(t *testing.T) {
	const delay = 400 * time.Millisecond
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		ab := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}
		talk(time.Second, ab) // makes the connection
		heard(b)
		m.faults[1].Set(2, transporttest.Fault{Delay: delay})
		begin, first := time.Now(), ab.number+1
		for range 100 {
			ab.say()
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("100 messages held their sender for %v", took)
		}
		pass(delay - time.Nanosecond)
		synctest.Wait()
		if n := heard(b); len(n) != 0 {
			t.Fatalf("%v came early", n)
		}
		m.faults[1].Set(2, transporttest.Fault{})
		ab.say()
		pass(time.Nanosecond)
		synctest.Wait()
		n := heard(b)
		if len(n) != 101 || n[0] != first || !slices.IsSorted(n) {
			t.Fatalf("heard %v, want 101 from %d on", n, first)
		}
		begin = time.Now()
		ab.say()
		synctest.Wait()
		if len(heard(b)) != 1 || time.Since(begin) != 0 {
			t.Error("a link that is whole again delays")
		}
		m.faults[1].Set(2, transporttest.Fault{Delay: delay})
		talk(30*time.Second, ab)
		if len(heard(b)) < 590 || strings.Contains(a.log.String(), "lost") {
			t.Errorf("a slow link is no use:\n%s", a.log)
		}
	})
}

// A link holds a limited number of bytes. Beyond it the sender waits for room, but not longer than
// for a peer that accepts nothing.
func TestDelayIsBounded(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		s := streamTo(t, t.Context(), a, b)
		defer s.Close()
		m.faults[1].Set(2, transporttest.Fault{Delay: time.Second})
		begin := time.Now()
		for i := range uint64(transporttest.QueueMax / (2 << 20)) { // a chunk is a little more than 2 MiB, so the last one finds no room
			if took := time.Since(begin); took != 0 {
				t.Fatalf("chunk %d waited %v", i, took)
			}
			if err := s.SendChunk(chunkOf(1, 2, i, false)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("a full link held its sender for %v", took)
		}
		m.faults[1].Hold(2, true)
		begin = time.Now()
		var err error
		for i := uint64(8); err == nil; i++ {
			err = s.SendChunk(chunkOf(1, 2, i, false))
		}
		if took := time.Since(begin); took < writeTimeout-time.Second || took > writeTimeout {
			t.Errorf("held for %v: %v", took, err)
		}
	})
}

// Held messages arrive in order when the hold ends. The transport gives up a connection that is
// held for long.
func TestHold(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		ab := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}
		talk(time.Second, ab)
		heard(b)
		first := ab.number + 1
		m.faults[1].Hold(2, true)
		talk(time.Second, ab)
		if n := heard(b); len(n) != 0 {
			t.Fatalf("%v were not held", n)
		}
		m.faults[1].Hold(2, false)
		synctest.Wait()
		if n := heard(b); len(n) != 20 || n[0] != first || !slices.IsSorted(n) {
			t.Fatalf("heard %v, want 20 from %d on", n, first)
		}
		m.faults[1].Hold(2, true)
		talk(time.Minute, ab)
		if !strings.Contains(a.log.String(), errSilent.Error()) {
			t.Fatalf("log:\n%s", a.log)
		}
		m.faults[1].Hold(2, false)
		talk(time.Second, ab)
		heard(b)
		talk(time.Second, ab)
		if n := heard(b); len(n) != 20 {
			t.Errorf("%d of 20 messages heard", len(n))
		}
	})
}

// A cut link loses all messages, including delayed ones, and reports nothing until it heals. Then
// the connection breaks.
func TestCutIsSilentAndHealingBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWeb()
		near, far := pairOf(t, m)
		frame := appendEmpty(nil, kindAsk)
		if _, err := near.Write(halfHandshake()); err != nil {
			t.Fatal(err)
		}
		m.faults[1].Set(2, transporttest.Fault{Delay: time.Second})
		if _, err := near.Write(frame); err != nil {
			t.Fatal(err)
		}
		m.faults[1].Set(2, transporttest.Fault{Cut: true})
		m.faults[1].Set(2, transporttest.Fault{Cut: true, Delay: time.Second})
		for range 3 {
			if n, err := near.Write(frame); n != len(frame) || err != nil {
				t.Fatalf("write into a cut link: %d, %v", n, err)
			}
		}
		far.Write([]byte("back"))
		if _, err := m.Network(1).Dial(t.Context(), Target{Member: 2}); !errors.Is(err, transporttest.ErrCut) {
			t.Fatal(err)
		}
		if c, err := m.Network(2).Dial(t.Context(), Target{Member: 1}); !errors.Is(err, transporttest.ErrNoListener) {
			t.Fatalf("the other way: %v, %v", c, err)
		}
		ended := make(chan error)
		b := make([]byte, 4096)
		go func() {
			n, err := far.Read(b)
			if n != len(halfHandshake()) || err != nil {
				t.Errorf("%d bytes came: %v", n, err)
			}
			_, err = far.Read(b)
			ended <- err
		}()
		go func() {
			_, err := near.Read(make([]byte, 10))
			ended <- err
		}()
		pass(time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("an end was reported: %v", err)
		default:
		}
		m.faults[1].Set(2, transporttest.Fault{})
		if one, two := <-ended, <-ended; !errors.Is(one, transporttest.ErrHealed) && !errors.Is(two, transporttest.ErrHealed) || one == nil || two == nil {
			t.Fatalf("after healing: %v, %v", one, two)
		}
		if _, err := near.Write(frame); !errors.Is(err, transporttest.ErrHealed) {
			t.Fatalf("a connection with missing bytes goes on: %v", err)
		}
	})
}

// pairOf connects member 1 to member 2.
func pairOf(t *testing.T, m networks) (near, far net.Conn) {
	t.Helper()
	l, err := m.Network(2).Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = m.Network(1).Dial(t.Context(), Target{Member: 2}); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// halfHandshake returns what the dialling end sends before its first frame.
func halfHandshake() []byte {
	h := helloOf(1, 2)
	return h.appendVerdict(h.marshal(nil), nil)
}

// After Shut no delayed message is sent, and no goroutine is left to send one.
func TestShutTakesWhatIsDelayed(t *testing.T) {
	m := transporttest.NewMesh()
	o := meshOptions(t, m, identity(1))
	s, f := &spy{Network: o.Network}, transporttest.NewFaults()
	o.Network = f.Network(s)
	a, b := newPeer(t, o), onMesh(t, m, identity(2))
	link := a.connected(t, 2)
	link.SendMessageBatch(beat(1, 2, 1))
	get(t, b.batches, "batch")
	f.Set(2, transporttest.Fault{Delay: 20 * time.Millisecond})
	for i := range uint64(100) {
		link.SendMessageBatch(beat(1, 2, i))
	}
	get(t, b.batches, "first delayed batch")
	f.Set(2, transporttest.Fault{Delay: time.Hour})
	for i := range uint64(100) {
		link.SendMessageBatch(beat(1, 2, i))
	}
	a.Shut()
	s.shut.Store(true)
	a.module.Close()
	b.module.Close()
	noGoroutines(t)
	if n := s.leaked.Load(); n != 0 {
		t.Errorf("%d bytes were written after Shut", n)
	}
}

// The same over real connections, plain and with TLS.
func TestFaultsOverTCP(t *testing.T) {
	authority := testkit.NewAuthority(t, "members")
	for _, secured := range []bool{false, true} {
		var at addresses
		f := transporttest.NewFaults()
		start := func(m uint64) *peer {
			n := TCP("127.0.0.1:0", nil, false)
			if secured {
				n = TCP("127.0.0.1:0", certs.Fixed(memberTLS(t, authority)), false)
			}
			l, err := n.Listen()
			if err != nil {
				t.Fatal(err)
			}
			at.m.Store(m, l.Addr().String())
			if m == 1 {
				n = f.Network(n)
			}
			return newPeer(t, Options{Self: identity(m), Address: at.of, Network: n, Listener: l})
		}
		a, b := start(1), start(2)
		exchange(t, a, b)
		f.Set(2, transporttest.Fault{Delay: 30 * time.Millisecond})
		exchange(t, a, b)
		f.Set(2, transporttest.Fault{Cut: true})
		ab, ba := a.link(t, 2), b.connected(t, 1)
		for i := range uint64(20) {
			ab.SendMessageBatch(beat(1, 2, i))
			ba.SendMessageBatch(beat(2, 1, i))
			get(t, a.batches, "batch against the cut")
		}
		if n := heard(b); len(n) != 0 {
			t.Errorf("%v passed a cut link", n)
		}
		if s, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2)); !errors.Is(err, transporttest.ErrCut) {
			t.Errorf("a dial into a cut link: %v, %v", s, err)
		}
		f.Set(2, transporttest.Fault{})
		until(t, "the link to be used again", func() bool {
			ab.SendMessageBatch(beat(1, 2, 1))
			return len(heard(b)) > 0
		})
		a.module.Close()
		b.module.Close()
		noGoroutines(t)
	}
}
