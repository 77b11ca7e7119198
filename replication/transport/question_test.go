package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// nobody returns the identity of a node that is no member yet.
func nobody() Identity {
	return Identity{Directory: [16]byte{77}, Start: 1, Levels: Levels{Min: 1, Max: 2}}
}

// answering starts a node that listens as a member of the mesh, and answers questions.
func answering(t *testing.T, m networks, place uint64, self Identity, answer func(context.Context, []byte) []byte) *Transport {
	t.Helper()
	o := meshOptions(t, m, identity(place))
	o.Self, o.Answer, o.Logger = self, answer, slog.New(&logbook{})
	tr := New(o)
	t.Cleanup(func() { tr.Close() })
	if err := tr.Open(); err != nil {
		t.Fatal(err)
	}
	return tr
}

// asker returns a transport of a node that is no member, which opens no port.
func asker(t *testing.T, n Network) *Transport {
	t.Helper()
	tr := New(Options{Self: nobody(), Network: n})
	t.Cleanup(func() { tr.Close() })
	return tr
}

func echo(_ context.Context, question []byte) []byte {
	return append([]byte("re: "), question...)
}

// M21: a node that is no member yet asks members and others that are none, at an address or by id.
// Nobody learns an identity from that.
func TestAsk(t *testing.T) {
	mesh := newWeb()
	o := meshOptions(t, mesh, identity(1))
	o.Answer = echo
	o.Met = func(uint64, string) { t.Error("a question is no meeting") }
	member := newPeer(t, o)
	other := answering(t, mesh, 2, nobody(), echo)
	stranger := asker(t, mesh.Network(3))
	for _, c := range []struct {
		from *Transport
		to   Target
	}{
		{stranger, Target{Address: "member-1.test:1"}},
		{stranger, Target{Address: "member-2.test:1"}},
		{stranger, Target{Member: 1}},
		{stranger, Target{Member: 2}},
		{member.Transport, Target{Address: "member-2.test:1"}},
		{other, Target{Address: "member-1.test:9"}},
		{other, Target{Address: "member-2.test:9"}}, // itself
	} {
		for _, size := range []int{0, 5, questionMax} {
			question := bytes.Repeat([]byte("?"), size)
			got, err := c.from.Ask(t.Context(), c.to, question)
			if err != nil || string(got) != "re: "+string(question) {
				t.Errorf("%+v answers %d bytes, %v", c.to, len(got), err)
			}
		}
	}
	if p := member.Peers(); p[0].Heard || p[0].Refused != nil || p[0].RefusedBy != nil {
		t.Errorf("the member knows %+v", p)
	}
	all, err := mesh.Network(3).Resolve(t.Context(), "members.test:7")
	if err != nil || len(all) != 2 {
		t.Fatalf("members.test is %v, %v", all, err)
	}
	for _, to := range all {
		if _, err := stranger.Ask(t.Context(), to, nil); err != nil {
			t.Errorf("%+v: %v", to, err)
		}
	}
	mesh.faults[3].Set(2, transporttest.Fault{Cut: true})
	if _, err := stranger.Ask(t.Context(), Target{Address: "member-2.test:1"}, nil); !errors.Is(err, transporttest.ErrCut) {
		t.Errorf("over a cut link: %v", err)
	}
}

// Questions that have no answer say why.
func TestAsk_Refused(t *testing.T) {
	mesh := transporttest.NewMesh()
	from := asker(t, mesh.Network(9))
	ask := func(to Target, question []byte) error {
		_, err := from.Ask(t.Context(), to, question)
		return err
	}
	onMesh(t, mesh, identity(1))
	answering(t, mesh, 2, identity(2), echo)
	large := answering(t, mesh, 3, identity(3), func(context.Context, []byte) []byte { return make([]byte, replyMax+1) })
	answering(t, mesh, 4, identity(4), func(context.Context, []byte) []byte { return make([]byte, replyMax) })
	book := &logbook{}
	large.notices = newNotices(slog.New(book))
	for _, c := range []struct {
		to       Target
		question int
		err      error
		text     string
	}{
		{Target{Member: 1}, 1, ErrNotMember, "ask member 1: the node at this address answers no questions"},
		{Target{Member: 7, Address: "member-2.test:1"}, 1, ErrWrongMember, "ask member-2.test:1: found member 2 where member 7 was expected"},
		{Target{Member: 2}, questionMax + 1, errQuestionSize, ""},
		{Target{Member: 3}, 1, errNoReply, ""},
		{Target{Address: "nowhere.test:1"}, 1, transporttest.ErrNoListener, ""},
	} {
		if err := ask(c.to, make([]byte, c.question)); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.to, err)
		}
	}
	until(t, "the size in the log", func() bool { return strings.Contains(book.String(), errReplySize.Error()) })
	if got, err := from.Ask(t.Context(), Target{Member: 4}, nil); err != nil || len(got) != replyMax {
		t.Errorf("the largest answer: %d bytes, %v", len(got), err)
	}
	alone := New(Options{Self: identity(1)})
	if _, err := alone.Ask(t.Context(), Target{Member: 2}, nil); !errors.Is(err, ErrAlone) {
		t.Errorf("alone: %v", err)
	}
	from.Shut()
	if err := ask(Target{Member: 2}, nil); !errors.Is(err, ErrShut) {
		t.Errorf("after Shut: %v", err)
	}
}

// A node is asked in the newest version that both builds speak.
func TestAsk_Versions(t *testing.T) {
	for _, version := range []uint16{protocolMax, VersionNext} {
		mesh := transporttest.NewMesh()
		o := meshOptions(t, mesh, identity(1))
		o.Highest, o.Answer = version, echo
		newPeer(t, o)
		for _, own := range []uint16{protocolMax, VersionNext} {
			from := New(Options{Self: nobody(), Network: mesh.Network(2), Highest: own})
			got, err := from.Ask(t.Context(), Target{Member: 1}, []byte("x"))
			if err != nil || string(got) != "re: x" {
				t.Errorf("version %d asks version %d: %q, %v", own, version, got, err)
			}
			from.Close()
		}
	}
}

// The number of questions that are answered at once is bounded. An answer ends with its question:
// when whoever asked has gone, when the time is over, and with Shut.
func TestAsk_Bounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		var answering64 atomic.Int32
		tr := answering(t, mesh, 1, identity(1), func(ctx context.Context, _ []byte) []byte {
			answering64.Add(1)
			defer answering64.Add(-1)
			<-ctx.Done()
			return nil
		})
		from := asker(t, mesh.Network(2))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2*questionsMax)
		ask := func(ctx context.Context) {
			_, err := from.Ask(ctx, Target{Member: 1}, []byte("slow"))
			ended <- err
		}
		for range questionsMax {
			go ask(ctx)
		}
		synctest.Wait()
		if n := answering64.Load(); n != questionsMax {
			t.Fatalf("%d questions are being answered", n)
		}
		ask(t.Context())
		if err := <-ended; !errors.Is(err, ErrNotMember) || !strings.Contains(err.Error(), "busy") {
			t.Errorf("one more: %v", err)
		}
		cancel()
		for range questionsMax {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := answering64.Load(); n != 0 {
			t.Errorf("%d questions are being answered for nobody", n)
		}

		begin := time.Now()
		ask(t.Context())
		// Both sides give up at the same moment.
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errNoReply) || time.Since(begin) != replyTimeout {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		go ask(t.Context())
		synctest.Wait()
		begin = time.Now()
		tr.Close()
		if err := <-ended; err == nil || time.Since(begin) != 0 {
			t.Errorf("Shut of the one that is asked, after %v: %v", time.Since(begin), err)
		}
		from.Close()
	})
}

// Somebody who begins a question and says nothing more takes no place, and keeps nobody out.
func TestAsk_Silent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		tr := answering(t, mesh, 1, identity(1), echo)
		from := asker(t, mesh.Network(3))
		for range 3 * questionsMax {
			conn, err := mesh.Network(2).Dial(t.Context(), Target{Member: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := shake(conn, hello{version: protocolMax, purpose: forQuestion}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			begin := time.Now()
			if _, err := from.Ask(t.Context(), Target{Member: 1}, nil); err != nil || time.Since(begin) != 0 {
				t.Fatalf("another asks, after %v: %v", time.Since(begin), err)
			}
		}
		pass(handshakeTimeout)
		synctest.Wait()
		tr.mu.Lock()
		if n := len(tr.mu.conns); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		tr.mu.Unlock()
		from.Close()
		tr.Close()
	})
}

// If all places are taken, an address that holds fewer than another one gets one of its places. So
// one address keeps nobody else out. Its own next question is refused.
func TestAsk_Fair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		var answered atomic.Int32
		tr := answering(t, mesh, 1, identity(1), func(ctx context.Context, q []byte) []byte {
			answered.Add(1)
			defer answered.Add(-1)
			<-ctx.Done()
			return nil
		})
		ask := func(from uint64, n int) chan error {
			ended := make(chan error, n)
			by := asker(t, mesh.Network(from))
			for range n {
				go func() {
					_, err := by.Ask(t.Context(), Target{Member: 1}, []byte("slow"))
					ended <- err
				}()
			}
			synctest.Wait()
			return ended
		}
		greedy := ask(2, questionsMax)
		if n := answered.Load(); n != questionsMax {
			t.Fatalf("%d are being answered", n)
		}
		if err := <-ask(2, 1); !errors.Is(err, ErrNotMember) || !strings.Contains(err.Error(), "busy") {
			t.Errorf("one more: %v", err)
		}
		third, fourth := ask(3, 1), ask(4, questionsMax)
		if len(third) != 0 {
			t.Errorf("who asked for little: %v", <-third)
		}
		if len(greedy) != 32 || len(fourth) != questionsMax-31 { // 32, 1 and 31 are being answered
			t.Errorf("%d of the first and %d of the last have ended", len(greedy), len(fourth))
		}
		if n := answered.Load(); n != questionsMax {
			t.Errorf("%d are being answered", n)
		}
		for range len(greedy) {
			if err := <-greedy; !errors.Is(err, errNoReply) {
				t.Errorf("it ended with %v", err)
			}
		}
		tr.Close()
	})
}

// addressed is a connection of which only the address is asked.
type addressed struct {
	net.Conn
	address string
}

func (a addressed) RemoteAddr() net.Addr { return a }
func (addressed) Network() string        { return "test" }
func (a addressed) String() string       { return a.address }

// A question's connection carries nothing else. A panic over a question ends only its connection.
func TestAsk_BadFrames(t *testing.T) {
	mesh := transporttest.NewMesh()
	o := meshOptions(t, mesh, identity(2))
	o.Answer = func(_ context.Context, q []byte) []byte {
		if string(q) == "panic" {
			panic("over a question")
		}
		return nil
	}
	b := newPeer(t, o)
	huge := rawFrame(kindQuestion, nil)
	huge[1] = 0xff
	for name, c := range map[string]struct {
		bytes []byte
		text  string
	}{
		"batch":     {frame(t, beat(1, 2, 1)), "kind 1 does not belong here"},
		"reply":     {rawFrame(kindReply, nil), "kind 6 does not belong here"},
		"oversized": {huge, "at most 65536"},
		"panic":     {rawFrame(kindQuestion, []byte("panic")), "panic: over a question"},
	} {
		b.notices.mu.Lock()
		clear(b.notices.mu.given)
		b.notices.mu.Unlock()
		conn, err := stranger(t, mesh.Network(1), 2, hello{version: protocolMax, purpose: forQuestion})
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(c.bytes)
		if got, err := io.Copy(io.Discard, conn); err != nil || got != 0 {
			t.Errorf("%s: %d bytes, %v", name, got, err)
		}
		until(t, name+" in the log", func() bool { return strings.Contains(b.log.String(), c.text) })
	}
	if len(b.batches) != 0 {
		t.Error("a message passed")
	}
	for _, k := range []kind{kindQuestion, kindReply} {
		conn, err := stranger(t, mesh.Network(1), 2, helloOf(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(rawFrame(k, nil))
		io.Copy(io.Discard, conn)
		until(t, "it in the log", func() bool {
			return strings.Contains(b.log.String(), fmt.Sprintf("kind %d does not belong here", k))
		})
	}
}

// What comes for an answer is checked as all else is.
func TestAsk_BadAnswers(t *testing.T) {
	good := rawFrame(kindReply, []byte("fine"))
	damaged := bytes.Clone(good)
	damaged[headSize] ^= 1
	huge := bytes.Clone(good)
	huge[0] = 1
	for name, c := range map[string]struct {
		bytes []byte
		err   error
	}{
		"good": {good, nil}, "damaged": {damaged, errFrame}, "oversized": {huge, errFrame},
		"batch": {rawFrame(kindBatch, nil), errFrame}, "nothing": {nil, errNoReply}, "short": {good[:14], io.ErrUnexpectedEOF},
	} {
		mesh := transporttest.NewMesh()
		l, err := mesh.Network(1).Listen()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer l.Close()
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			h, _ := readHello(r, protocolMin, protocolMax)
			own := hello{version: protocolMax, purpose: forQuestion}
			conn.Write(h.appendVerdict(own.marshal(nil), nil))
			readVerdict(r, own.nonce)
			(&frameReader{r: r, max: only(kindQuestion, questionMax)}).next()
			conn.Write(c.bytes)
		}()
		if _, err := asker(t, mesh.Network(2)).Ask(t.Context(), Target{Member: 1}, nil); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Questions travel over TCP, with TLS and without. With TLS whoever asks needs a certificate.
func TestAsk_TCP(t *testing.T) {
	a := testkit.NewAuthority(t, "authority")
	for _, secured := range []bool{false, true} {
		config := memberTLS(t, a)
		if !secured {
			config = nil
		}
		n := TCP("127.0.0.1:0", certs.Fixed(config), false)
		l, err := n.Listen()
		if err != nil {
			t.Fatal(err)
		}
		tr := New(Options{Self: nobody(), Network: n, Listener: l, Answer: echo, Logger: slog.New(&logbook{})})
		tr.Open()
		from := asker(t, TCP("127.0.0.1:0", certs.Fixed(config), false))
		for range 20 {
			got, err := from.Ask(t.Context(), Target{Address: l.Addr().String()}, bytes.Repeat([]byte("?"), questionMax))
			if err != nil || len(got) != questionMax+4 {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		}
		if secured {
			foreign := asker(t, TCP("127.0.0.1:0", certs.Fixed(memberTLS(t, testkit.NewAuthority(t, "another"))), false))
			if _, err := foreign.Ask(t.Context(), Target{Address: l.Addr().String()}, nil); err == nil {
				t.Error("a foreign certificate may ask")
			}
			// The certificate must name Host, whatever the address is.
			_, err := from.Ask(t.Context(), Target{Address: l.Addr().String(), Host: "elsewhere.test"}, nil)
			if err == nil || !strings.Contains(err.Error(), "elsewhere.test") {
				t.Errorf("another host: %v", err)
			}
		}
		tr.Close()
	}
}

// A name stands for all its addresses, each with the name that its certificate must carry.
func TestTCP_Resolve(t *testing.T) {
	var dns names
	n := TCP("127.0.0.1:0", nil, false).(*tcpNetwork)
	n.resolver = dns.resolver()
	if list, err := n.Resolve(t.Context(), "members.invalid:7"); err == nil {
		t.Errorf("an unknown name is %v", list)
	}
	dns.known.Store(true)
	for address, want := range map[string]Target{
		"members.invalid:7": {Address: "127.0.0.1:7", Host: "members.invalid"},
		"192.0.2.1:7":       {Address: "192.0.2.1:7", Host: "192.0.2.1"},
		"[2001:db8::1]:7":   {Address: "[2001:db8::1]:7", Host: "2001:db8::1"},
	} {
		if list, err := n.Resolve(t.Context(), address); err != nil || len(list) != 1 || list[0] != want {
			t.Errorf("%s is %+v, %v", address, list, err)
		}
	}
	if list, err := n.Resolve(t.Context(), "without-a-port"); err == nil {
		t.Errorf("without a port: %v", list)
	}
	secure := Over(TCP("127.0.0.1:0", certs.Fixed(memberTLS(t, testkit.NewAuthority(t, "authority"))), false), n)
	if list, err := secure.Resolve(t.Context(), "192.0.2.1:7"); err != nil || len(list) != 1 {
		t.Errorf("over TLS: %v, %v", list, err)
	}
}
