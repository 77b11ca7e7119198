package transport

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// tick is how often the members of these tests send something to each other.
const tick = 50 * time.Millisecond

// pass lets time pass. It is for bubbles, where time passes when all goroutines wait.
func pass(d time.Duration) { <-time.After(d) }

// A talker sends numbered heartbeats, one per tick.
type talker struct {
	t        *testing.T
	from, to uint64
	link     interface{ SendMessageBatch(pb.MessageBatch) error }
	number   uint64
}

func (k *talker) say() {
	k.number++
	if err := k.link.SendMessageBatch(beat(k.from, k.to, k.number)); err != nil {
		k.t.Fatalf("a link returned an error: %v", err)
	}
}

// talk lets talkers send for a while.
func talk(d time.Duration, talkers ...*talker) {
	var all sync.WaitGroup
	for _, k := range talkers {
		all.Go(func() {
			for end := time.Now().Add(d); time.Now().Before(end); pass(tick) {
				k.say()
			}
		})
	}
	all.Wait()
	synctest.Wait()
}

// heard empties a peer's channel and returns the numbers.
func heard(p *peer) (numbers []uint64) {
	for {
		select {
		case b := <-p.batches:
			for _, m := range b.Requests {
				numbers = append(numbers, m.Commit)
			}
		default:
			return numbers
		}
	}
}

// inMesh runs a test with members 1 and 2 in a bubble. Time passes there only while all goroutines
// wait.
func inMesh(t *testing.T, f func(t *testing.T, m *web, a, b *peer)) {
	synctest.Test(t, func(t *testing.T) {
		m := newWeb()
		a, b := onMesh(t, m, identity(1)), onMesh(t, m, identity(2))
		f(t, m, a, b)
		a.module.Close()
		b.module.Close()
	})
}

func TestCutAndHeal(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		ab, ba := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}, &talker{t: t, from: 2, to: 1, link: b.link(t, 1)}
		talk(time.Second, ab, ba)
		if n := len(heard(b)); n != 20 {
			t.Fatalf("%d of 20 messages heard before the cut", n)
		}
		for _, silence := range []time.Duration{3 * time.Second, tick, 300 * time.Millisecond, 5 * time.Minute} {
			m.set(1, 2, transporttest.Fault{Cut: true})
			heard(a)
			heard(b)
			talk(silence, ab, ba)
			if n := len(heard(a)) + len(heard(b)); n != 0 {
				t.Fatalf("%d messages passed a cut link", n)
			}
			m.set(1, 2, transporttest.Fault{})
			talk(redialMax+2*tick, ab, ba)
			if len(heard(a)) == 0 || len(heard(b)) == 0 {
				t.Fatalf("after a silence of %v the link was not used again within %v", silence, redialMax+2*tick)
			}
			before := ab.number
			talk(time.Second, ab, ba)
			if n := heard(b); len(n) != 20 || n[0] != before+1 || n[19] != before+20 {
				t.Fatalf("after healing %v was heard", n)
			}
		}
		if !strings.Contains(a.log.String(), errSilent.Error()) {
			t.Fatalf("the silent peer was not noticed:\n%s", a.log)
		}
		if n := strings.Count(a.log.String(), "\n"); n > 30 {
			t.Fatalf("%d lines were logged", n)
		}
	})
}

// All that is on its way when a link is cut is lost, including bytes that were written and not read
// yet.
func TestCutOneWay(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		ab, ba := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}, &talker{t: t, from: 2, to: 1, link: b.link(t, 1)}
		talk(time.Second, ab, ba)
		heard(a)
		heard(b)
		m.faults[1].Set(2, transporttest.Fault{Cut: true})
		talk(10*time.Second, ab, ba)
		if n := len(heard(b)); n != 0 {
			t.Fatalf("%d messages passed a cut direction", n)
		}
		if n := len(heard(a)); n != 200 {
			t.Fatalf("%d of 200 messages passed in the other direction", n)
		}
		m.faults[1].Set(2, transporttest.Fault{})
		talk(time.Second, ab, ba)
		if len(heard(b)) == 0 {
			t.Fatal("the healed direction is not used")
		}
	})
}

// A restarted member receives messages again, and no message is lost that was sent while it
// started.
func TestPeerRestarts(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		ab := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}
		talk(time.Second, ab)
		b.module.Close()
		synctest.Wait()
		said := make(chan struct{})
		go func() { // holds its first message while member 2 starts
			talk(tick, ab)
			close(said)
		}()
		pass(holdMax / 2)
		b2 := onMesh(t, m, identity(2))
		<-said
		if n := heard(b2); len(n) != 1 || n[0] != ab.number {
			t.Fatalf("heard %v of %d", n, ab.number)
		}
		b2.module.Close()
	})
}

// While a member cannot be reached, its messages are dropped without delay, except in the first
// moment.
func TestUnreachableDoesNotDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := onMesh(t, transporttest.NewMesh(), identity(1))
		link := a.link(t, 2)
		begin := time.Now()
		link.SendMessageBatch(beat(1, 2, 1))
		if held := time.Since(begin); held != holdMax {
			t.Fatalf("the first message was held for %v", held)
		}
		begin = time.Now()
		for i := range uint64(1000) {
			link.SendMessageBatch(beat(1, 2, i))
		}
		if held := time.Since(begin); held != 0 {
			t.Fatalf("the next 1000 messages were held for %v", held)
		}
		a.module.Close()
	})
}

// A blackHole swallows dials until it is opened, like a path on which packets vanish.
type blackHole struct {
	Network
	open  atomic.Bool
	dials atomic.Int32
}

func (h *blackHole) Dial(ctx context.Context, m Target) (net.Conn, error) {
	h.dials.Add(1)
	if !h.open.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Network.Dial(ctx, m)
}

// Dials without an answer are given up and tried again. They do not delay the sender.
func TestDialsVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transporttest.NewMesh()
		o := meshOptions(t, m, identity(1))
		hole := &blackHole{Network: o.Network}
		o.Network = hole
		a, b := newPeer(t, o), onMesh(t, m, identity(2))
		ab := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}
		talk(time.Minute, ab)
		if n := hole.dials.Load(); n < 30 || n > 40 {
			t.Fatalf("%d dials in a minute", n)
		}
		if ab.number < 1190 {
			t.Fatalf("%d of 1200 messages in a minute", ab.number)
		}
		hole.open.Store(true)
		talk(dialTimeout+redialMax+2*tick, ab)
		if len(heard(b)) == 0 {
			t.Fatal("the way is open and not used")
		}
		// The end does not wait for a dial.
		hole.open.Store(false)
		b.module.Close()
		talk(time.Second, ab)
		begin := time.Now()
		a.module.Close()
		if took := time.Since(begin); took != 0 {
			t.Fatalf("Close took %v", took)
		}
	})
}

// An idle link does not count as dead, however long it is idle.
func TestIdleLinkStays(t *testing.T) {
	inMesh(t, func(t *testing.T, m *web, a, b *peer) {
		ab := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}
		for range 20 {
			talk(2*tick, ab)
			pass(time.Minute)
		}
		if n := len(heard(b)); n != 40 {
			t.Fatalf("%d of 40 messages heard", n)
		}
		if n := strings.Count(a.log.String(), "lost"); n != 0 {
			t.Fatalf("log:\n%s", a.log)
		}
	})
}

// A refused member tries again, not often. It is accepted when the reason is gone.
func TestRefusedMemberTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transporttest.NewMesh()
		var open atomic.Bool
		var asked atomic.Int32
		o := meshOptions(t, m, identity(2))
		o.Accept = func(Identity) error {
			asked.Add(1)
			if !open.Load() {
				return errors.New("not yet")
			}
			return nil
		}
		b, a := newPeer(t, o), onMesh(t, m, identity(1))
		ab := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}
		talk(10*time.Second, ab)
		if n := asked.Load(); n < 9 || n > 11 {
			t.Fatalf("asked %d times in 10 s", n)
		}
		open.Store(true)
		talk(redialRefused+2*tick, ab)
		if len(heard(b)) == 0 {
			t.Fatal("not let in")
		}
		a.module.Close()
		b.module.Close()
	})
}

// A batch that is too large for a frame arrives in parts. A message that is too large is dropped
// and logged.
func TestLargeBatches(t *testing.T) {
	m := transporttest.NewMesh()
	o := meshOptions(t, m, identity(1))
	o.FrameMax = 10_000
	a, b := newPeer(t, o), onMesh(t, m, identity(2))
	link := a.connected(t, 2)
	proposal := func(n int) pb.Message {
		return pb.Message{Type: pb.Propose, From: 1, To: 2, ShardID: 1, Entries: []pb.Entry{{Cmd: make([]byte, n)}}}
	}
	var messages []pb.Message
	for i := range 100 {
		messages = append(messages, proposal(1000+i))
	}
	messages[40] = proposal(20_000)
	if err := link.SendMessageBatch(batchOf(messages...)); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for len(sizes) < 99 {
		for _, r := range get(t, b.batches, "batch").Requests {
			sizes = append(sizes, len(r.Entries[0].Cmd))
		}
	}
	for i, n := range sizes {
		if want := 1000 + i + i/40 - i/80; i < 40 && n != 1000+i || i >= 40 && n != 1001+i {
			t.Fatalf("message %d has %d bytes, want %d", i, n, want)
		}
	}
	until(t, "the large message in the log", func() bool {
		return strings.Contains(a.log.String(), "larger than a frame")
	})
}

// spy counts the bytes that are written to the connections of a network.
type spy struct {
	Network
	shut    atomic.Bool
	written atomic.Int64
	leaked  atomic.Int64 // those written after shut was set
}

func (s *spy) Dial(ctx context.Context, m Target) (net.Conn, error) {
	c, err := s.Network.Dial(ctx, m)
	if err != nil {
		return nil, err
	}
	return &spyConn{Conn: c, spy: s}, nil
}

type spyConn struct {
	net.Conn
	spy *spy
}

func (c *spyConn) Write(b []byte) (int, error) {
	after := c.spy.shut.Load()
	n, err := c.Conn.Write(b)
	c.spy.written.Add(int64(n))
	if after {
		c.spy.leaked.Add(int64(n))
	}
	return n, err
}

// After Shut has returned, nothing is sent, received, dialled or accepted. Shut itself does not
// wait.
func TestShut(t *testing.T) {
	for round := range 10 {
		m := transporttest.NewMesh()
		o := meshOptions(t, m, identity(1))
		s := &spy{Network: o.Network}
		o.Network = s
		a, b := newPeer(t, o), onMesh(t, m, identity(2))
		to, from := a.link(t, 2), b.link(t, 1)
		var busy sync.WaitGroup
		stop := make(chan struct{})
		for _, k := range []*talker{{t: t, from: 1, to: 2, link: to}, {t: t, from: 2, to: 1, link: from}} {
			busy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						k.say()
					}
				}
			})
		}
		for range 10 * (round + 1) {
			get(t, a.batches, "batch")
			get(t, b.batches, "batch")
		}
		a.Shut()
		s.shut.Store(true)
		if _, err := m.Network(2).Dial(t.Context(), Target{Member: 1}); err == nil {
			t.Fatal("the port is still open")
		}
		if _, err := a.module.GetConnection(t.Context(), uuidOf(2)); err != ErrShut {
			t.Fatal(err)
		}
		if _, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2)); err != ErrShut {
			t.Fatal(err)
		}
		if err := a.module.Start(); err != ErrShut {
			t.Fatal(err)
		}
		heard(b)
		close(stop)
		busy.Wait()
		a.Shut()
		a.module.Close()
		b.module.Close()
		if n := s.leaked.Load(); n != 0 {
			t.Fatalf("%d bytes were written after Shut", n)
		}
	}
	noGoroutines(t)
}

// C4.1: Shut does not wait for a peer that accepts nothing, and it ends a blocked sender.
func TestShutWhileSending(t *testing.T) {
	m := transporttest.NewMesh()
	l, err := m.Network(2).Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan net.Conn, 1)
	go func() { // does the handshake and then reads nothing
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if _, err := identityServer(conn, identity(2)); err == nil {
			served <- conn
		}
	}()
	o := meshOptions(t, m, identity(1))
	watched := &spy{Network: o.Network}
	o.Network = watched
	a := newPeer(t, o)
	link := a.link(t, 2)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		big := batchOf(pb.Message{Type: pb.Propose, From: 1, To: 2, ShardID: 1, Entries: []pb.Entry{{Cmd: make([]byte, 3*transporttest.MeshBuffer)}}})
		for !a.shut.Load() {
			link.SendMessageBatch(big)
		}
	}()
	get(t, served, "connection")
	until(t, "full buffer", func() bool { return watched.written.Load() >= transporttest.MeshBuffer })
	a.Shut()
	get(t, sent, "end of the sender")
	a.module.Close()
}

// identityServer does the accepting half of a handshake.
func identityServer(conn net.Conn, id Identity) (hello, error) {
	tr := New(Options{Self: id})
	tr.handlers.Store(&handlers{})
	return tr.acceptHandshake(conn, bufio.NewReader(conn))
}

// The end of a link or of dragonboat's context ends a sender that waits for a connection.
func TestCloseEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := onMesh(t, transporttest.NewMesh(), identity(1))
		for _, end := range []func(c interface{ Close() }, cancel func()){
			func(c interface{ Close() }, _ func()) { c.Close() },
			func(_ interface{ Close() }, cancel func()) { cancel() },
		} {
			ctx, cancel := context.WithCancel(context.Background())
			link, err := a.module.GetConnection(ctx, uuidOf(2))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan time.Time)
			begin := time.Now()
			go func() {
				link.SendMessageBatch(beat(1, 2, 1))
				done <- time.Now()
			}()
			pass(10 * time.Millisecond)
			end(link, cancel)
			if took := (<-done).Sub(begin); took != 10*time.Millisecond {
				t.Fatalf("ended after %v", took)
			}
			cancel()
			link.Close()
		}
		a.module.Close()
	})
}

func BenchmarkSend(b *testing.B) {
	for _, network := range []string{"mesh", "tcp"} {
		b.Run("carrier="+network, func(b *testing.B) {
			var n [3]Network
			mesh := transporttest.NewMesh()
			addrs := map[uint64]string{}
			for m := uint64(1); m <= 2; m++ {
				n[m] = mesh.Network(m)
				if network == "tcp" {
					n[m] = TCP("127.0.0.1:0", nil, false)
				}
			}
			got := make(chan struct{}, 1<<16)
			var tr [3]*Transport
			for m := uint64(1); m <= 2; m++ {
				l, err := n[m].Listen()
				if err != nil {
					b.Fatal(err)
				}
				addrs[m] = l.Addr().String()
				tr[m] = New(Options{Self: identity(m), Address: func(m uint64) string { return addrs[m] }, Network: n[m], Listener: l, Target: targetOf})
				tr[m].role.Load().gate.deployment = deployment
				tr[m].handlers.Store(&handlers{batch: func(pb.MessageBatch) { got <- struct{}{} }})
				tr[m].Open()
				defer tr[m].Close()
			}
			link := newLink(context.Background(), tr[1], 2)
			defer link.Close()
			batch := batchOf(pb.Message{Type: pb.Replicate, From: 1, To: 2, ShardID: 1, Term: 1, LogTerm: 1, LogIndex: 1,
				Entries: []pb.Entry{{Index: 2, Term: 1, Cmd: make([]byte, 256)}}})
			b.ReportAllocs()
			for b.Loop() {
				link.SendMessageBatch(batch)
				<-got
			}
		})
	}
}

func init() { onDefect = func(what string) { panic(what) } }

// An impossible change of a link's state is a defect, but does not panic in the service's process.
// The link gives up its connection and dials again.
func TestImpossibleChangeEndsTheConnection(t *testing.T) {
	defects := 0
	usual := onDefect
	onDefect = func(string) { defects++ }
	t.Cleanup(func() { onDefect = usual })
	mesh := transporttest.NewMesh()
	a, b := onMesh(t, mesh, identity(1)), onMesh(t, mesh, identity(2))
	l := a.connected(t, 2).(*link)
	l.mu.Lock()
	was := l.mu.wire
	l.changeLocked(linkDialling, nil)
	state, now := l.mu.state, l.mu.wire
	l.mu.Unlock()
	if defects != 1 || state != linkIdle || now != nil {
		t.Errorf("%d defects, state %d, wire %v", defects, state, now)
	}
	if _, err := was.conn.Write([]byte{0}); err == nil {
		t.Error("the former connection is open")
	}
	until(t, "another connection", func() bool {
		w, _, _ := l.look(time.Now())
		return w != nil && w != was
	})
	l.SendMessageBatch(beat(1, 2, 7))
	if got := get(t, b.batches, "batch").Requests[0]; got.Commit != 7 {
		t.Errorf("got %v", got)
	}
	l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changeLocked(linkConnected, was); l.mu.state != linkClosed || l.mu.wire != nil || defects != 2 {
		t.Errorf("after Close: state %d, wire %v, %d defects", l.mu.state, l.mu.wire, defects)
	}
}
