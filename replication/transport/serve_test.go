package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/config"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// A scarce listener fails until the test lets it work.
type scarce struct {
	net.Listener
	failures chan error
	mu       sync.Mutex
	asked    []time.Time
}

func (l *scarce) Accept() (net.Conn, error) {
	l.mu.Lock()
	l.asked = append(l.asked, time.Now())
	l.mu.Unlock()
	select {
	case err := <-l.failures:
		return nil, err
	default:
		return l.Listener.Accept()
	}
}

// C1.5, C4.4: When Accept fails, for example for lack of file descriptors, it is tried again at
// growing intervals. When it works again, connections do too.
func TestAcceptBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transporttest.NewMesh()
		o := meshOptions(t, m, identity(2))
		l := &scarce{Listener: o.Listener, failures: make(chan error, 100)}
		for range 12 {
			l.failures <- errors.New("too many open files")
		}
		o.Listener = l
		b, a := newPeer(t, o), onMesh(t, m, identity(1))
		begin := time.Now()
		synctest.Wait()
		pass(7 * time.Second)
		ab := &talker{t: t, from: 1, to: 2, link: a.link(t, 2)}
		talk(2*tick, ab)
		if len(heard(b)) == 0 {
			t.Fatal("nothing is accepted any more")
		}
		l.mu.Lock()
		pause := acceptPauseMin
		for i, at := range l.asked[1:13] {
			if got := at.Sub(begin); got != pause {
				t.Fatalf("attempt %d after %v, want %v", i+2, got, pause)
			}
			begin, pause = at, min(2*pause, acceptPauseMax)
		}
		l.mu.Unlock()
		if n := strings.Count(b.log.String(), "too many open files"); n != 1 {
			t.Fatalf("logged %d times:\n%s", n, b.log)
		}

		// A pause does not delay the end.
		for range 20 {
			l.failures <- errors.New("too many open files")
		}
		if conn, err := m.Network(1).Dial(t.Context(), Target{Member: 2}); err == nil {
			conn.Close()
		}
		pass(3 * time.Second)
		begin = time.Now()
		b.module.Close()
		if took := time.Since(begin); took != 0 {
			t.Fatalf("Close took %v", took)
		}
		a.module.Close()
	})
}

// Silent peers can be many. Their number is bounded, and they keep no member out.
func TestStrangersAreBounded(t *testing.T) {
	m := transporttest.NewMesh()
	a, b := onMesh(t, m, identity(1)), onMesh(t, m, identity(2))
	n := m.Network(9)
	crowded := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.mu.handshaking.conns) > handshakesMax {
			t.Fatalf("%d connections in handshake", len(b.mu.handshaking.conns))
		}
		return len(b.mu.handshaking.conns)
	}
	for range 5 * handshakesMax {
		until(t, "dial", func() bool {
			conn, err := n.Dial(t.Context(), Target{Member: 2})
			if err == nil {
				t.Cleanup(func() { conn.Close() })
			}
			crowded()
			return err == nil
		})
	}
	until(t, "a crowd of strangers", func() bool { return crowded() == handshakesMax })
	a.connected(t, 2).SendMessageBatch(beat(1, 2, 1))
	get(t, b.batches, "batch of a member among strangers")
	until(t, "strangers dropped", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.mu.conns) <= handshakesMax+2
	})
}

// Of the connections that a member leaves behind, only the newest stay.
func TestConnectionsOfAMemberAreBounded(t *testing.T) {
	m := transporttest.NewMesh()
	b := onMesh(t, m, identity(2))
	n := m.Network(1)
	var first, last net.Conn
	for i := range servedMax + 10 {
		conn, err := stranger(t, n, 2, helloOf(1, 2))
		if err != nil {
			t.Fatal(i, err)
		}
		conn.Write(frame(t, beat(1, 2, uint64(i))))
		get(t, b.batches, "batch")
		if first == nil {
			first = conn
		}
		last = conn
	}
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Fatalf("the oldest was not closed: %v", err)
	}
	last.Write(frame(t, beat(1, 2, 999)))
	if got := get(t, b.batches, "batch"); got.Requests[0].Commit != 999 {
		t.Fatal(got)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := len(b.mu.served[1].conns); got != servedMax {
		t.Fatalf("%d connections kept", got)
	}
}

// C1.6: A malformed frame ends its connection and no other. A forged message is dropped alone.
func TestMalformedAndForged(t *testing.T) {
	m := transporttest.NewMesh()
	a, b := onMesh(t, m, identity(1)), onMesh(t, m, identity(2))
	well := a.connected(t, 2)
	well.SendMessageBatch(beat(1, 2, 1))
	get(t, b.batches, "batch")

	huge := rawFrame(kindBatch, nil)
	huge[0] = 0xff
	damaged := frame(t, beat(3, 2, 1))
	damaged[20] ^= 1
	for name, c := range map[string]struct {
		bytes []byte
		text  string
	}{
		"oversized": {huge, "at most"},
		"damaged":   {damaged, "checksum"},
		"chunk":     {rawFrame(kindChunk, nil), "does not belong here"},
		"answer":    {rawFrame(kindAnswer, nil), "does not belong here"},
		"no batch":  {rawFrame(kindBatch, []byte("\xff\xff\xff\xff")), "malformed frame"},
		"short":     {frame(t, beat(3, 2, 1))[:30], "unexpected EOF"},
	} {
		mesh := transporttest.NewMesh()
		b := onMesh(t, mesh, identity(2))
		conn, err := stranger(t, mesh.Network(3), 2, helloOf(3, 2))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(c.bytes)
		conn.(interface{ CloseWrite() error }).CloseWrite()
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%s: the connection was not closed: %v", name, err)
		}
		until(t, name+" in the log", func() bool { return strings.Contains(b.log.String(), c.text) })
		if len(b.batches) != 0 {
			t.Errorf("%s: a message passed", name)
		}
	}

	forged := beat(1, 2, 2)
	forged.Requests = append(forged.Requests, pb.Message{Type: pb.Heartbeat, From: 3, To: 2, ShardID: 1, Term: 9})
	well.SendMessageBatch(forged)
	if got := get(t, b.batches, "batch"); len(got.Requests) != 1 || got.Requests[0].From != 1 {
		t.Fatalf("handed on: %+v", got)
	}
	until(t, "forgery in the log", func() bool { return strings.Contains(b.log.String(), errFrom.Error()) })
	well.SendMessageBatch(beat(1, 2, 3))
	get(t, b.batches, "batch after a forged one")
	if strings.Contains(a.log.String(), "lost") {
		t.Fatalf("log:\n%s", a.log)
	}
}

// A panic in a handler ends the connection, and the next connection works.
func TestHandlerPanics(t *testing.T) {
	m := transporttest.NewMesh()
	b := onMesh(t, m, identity(2))
	tr := New(meshOptions(t, m, identity(1)))
	tr.o.Logger = nil
	defer tr.Close()
	log := b.log
	b.Factory().Create(config.NodeHostConfig{DeploymentID: deployment}, func(got pb.MessageBatch) {
		if got.Requests[0].Commit == 1 {
			panic("to field not set")
		}
		b.batches <- got
	}, nil).Start()
	n := m.Network(1)
	conn, err := stranger(t, n, 2, helloOf(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	conn.Write(frame(t, beat(1, 2, 1)))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Fatal(err)
	}
	until(t, "panic in the log", func() bool { return strings.Contains(log.String(), "panic: to field not set") })
	conn, err = stranger(t, n, 2, helloOf(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	conn.Write(frame(t, beat(1, 2, 2)))
	get(t, b.batches, "batch")
}

// An ask is answered when all frames before it are handled.
func TestAskIsAnswered(t *testing.T) {
	m := transporttest.NewMesh()
	b := onMesh(t, m, identity(2))
	conn, err := stranger(t, m.Network(1), 2, helloOf(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	conn.Write(append(frame(t, beat(1, 2, 1)), appendEmpty(nil, kindAsk)...))
	got := make([]byte, headSize)
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, appendEmpty(nil, kindAnswer)) {
		t.Fatalf("% x, %v", got, err)
	}
	if len(b.batches) != 1 {
		t.Fatal("answered before the batch was handled")
	}
}

// M151: who opens more connections than others loses its own, the oldest first, however many these are.
func TestConnQueue_TheGreediestGives(t *testing.T) {
	q := connQueue{max: 4}
	for i, c := range []struct{ from, out string }{
		{"192.0.2.1:1", ""}, {"192.0.2.2:1", ""}, {"192.0.2.2:2", ""}, {"192.0.2.2:3", ""},
		{"192.0.2.2:4", "192.0.2.2:1"}, {"192.0.2.3:1", "192.0.2.2:2"}, {"192.0.2.2:5", "192.0.2.2:3"},
		{"[2001:db8::1]:1", "192.0.2.2:4"}, {"[2001:db8::2]:1", "[2001:db8::1]:1"}, {"[2001:db8::3]:1", "[2001:db8::2]:1"},
	} {
		out := q.add(addressed{address: c.from})
		if a, ok := out.(addressed); ok != (c.out != "") || a.address != c.out {
			t.Errorf("%d, from %s: %v gave its place, want %s", i, c.from, out, c.out)
		}
	}
}
