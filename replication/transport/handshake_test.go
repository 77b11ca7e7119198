package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// shake does the dialler's half of a handshake and accepts any peer.
func shake(conn net.Conn, h hello) error {
	if _, err := conn.Write(h.marshal(nil)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	there, err := readHello(r, protocolMin, protocolMax)
	if err != nil {
		return err
	}
	if err := readVerdict(r, h.nonce); err != nil {
		return err
	}
	_, err = conn.Write(there.appendVerdict(nil, nil))
	return err
}

// helloOf returns the hello of a correct member.
func helloOf(from, to uint64) hello {
	return hello{Identity: identity(from), version: protocolMax, purpose: forMessages, wanted: to, nonce: [16]byte{9, 9}}
}

// C4.7, M19: the peer's identity is known before the first message, whoever answers at an address.
func TestHandshakeMatrix(t *testing.T) {
	other := identity(1)
	other.Digest[0]++
	stranger := identity(4)
	unwelcome := identity(3)
	for _, c := range []struct {
		name string
		self Identity
		dial uint64 // the member that is dialled; member 2 answers at every address
		kind error
		text string
	}{
		{name: "welcome", self: identity(1), dial: 2},
		{name: "other ensemble", self: other, dial: 2, kind: ErrOtherEnsemble, text: "01020300"},
		{name: "not a member", self: stranger, dial: 2, kind: ErrNotMember, text: "member 4 is not among"},
		{name: "the same member", self: identity(2), dial: 1, kind: ErrWrongMember, text: "both sides say they are member 2"},
		{name: "another member", self: identity(1), dial: 3, kind: ErrWrongMember, text: "looked for member 3 and found member 2"},
		{name: "not accepted", self: unwelcome, dial: 2, kind: ErrNotAccepted, text: "directory 03"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				mesh := transporttest.NewMesh()
				o := meshOptions(t, mesh, identity(2))
				o.Accept = func(p Identity) error {
					if p.Member == 3 {
						return fmt.Errorf("directory %x is not the one recorded\x00\n", p.Directory[:1])
					}
					return nil
				}
				b := newPeer(t, o)
				a := newPeer(t, among(Options{Self: c.self, Network: everywhere{mesh.Network(c.self.Member), 2}}, 1, 2, 3, 4))
				if c.kind == nil {
					a.connected(t, c.dial).SendMessageBatch(beat(c.self.Member, 2, 1))
					get(t, b.batches, "batch")
					return
				}
				a.link(t, c.dial).SendMessageBatch(beat(c.self.Member, 2, 1))
				reason := get(t, a.refused, "refusal")
				if !errors.Is(reason, c.kind) || !strings.Contains(reason.Error(), c.text) {
					t.Fatalf("refused because %v: %q", errors.Unwrap(reason), reason)
				}
				if strings.ContainsAny(reason.Error(), "\x00\n") {
					t.Fatalf("unprintable %q", reason)
				}
				until(t, "refusal in both logs", func() bool {
					return strings.Contains(a.log.String(), c.text) && strings.Contains(b.log.String(), c.text)
				})
				if len(b.batches) != 0 {
					t.Fatal("a message passed")
				}
				_, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(c.dial))
				if !errors.Is(err, c.kind) {
					t.Fatalf("snapshot: %v", err)
				}
			})
		})
	}
}

// everywhere finds the same member at every address.
type everywhere struct {
	Network
	member uint64
}

func (e everywhere) Dial(ctx context.Context, _ Target) (net.Conn, error) {
	return e.Network.Dial(ctx, Target{Member: e.member})
}

// The side that dialled refuses too. The side that accepted logs the refusal and does not believe
// it, because anyone could have dialled. It asks at the address that it knows.
func TestDiallerRefuses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		b := onMesh(t, mesh, identity(2))
		o := meshOptions(t, mesh, identity(1))
		o.Accept = func(p Identity) error { return errors.New("wrong directory") }
		a := newPeer(t, o)
		a.link(t, 2).SendMessageBatch(beat(1, 2, 1))
		until(t, "the reason in the log", func() bool { return strings.Contains(b.log.String(), "wrong directory") })
		if len(b.batches) != 0 {
			t.Error("a message passed")
		}
		if reason := get(t, b.refused, "what it is told when it asks back"); !errors.Is(reason, ErrNotAccepted) {
			t.Errorf("the reason is %v", reason)
		}
	})
}

// A process that is not member 1, but knows member 1's hello, refuses member 2 again and again. The
// real member 1 does not refuse it.
func TestImpostorRefuses(t *testing.T) {
	for _, highest := range []uint16{protocolMax, VersionNext} {
		t.Run(fmt.Sprint("member 1 speaks ", highest), func(t *testing.T) { impostorRefuses(t, highest) })
	}
}

func impostorRefuses(t *testing.T, highest uint16) {
	mesh := transporttest.NewMesh()
	b := onMesh(t, mesh, identity(2))
	o := meshOptions(t, mesh, identity(1))
	o.Highest = highest
	a := newPeer(t, o)
	for range 3 {
		conn, err := mesh.Network(3).Dial(t.Context(), Target{Member: 2})
		if err != nil {
			t.Fatal(err)
		}
		h := helloOf(1, 2)
		conn.Write(h.marshal(nil))
		r := bufio.NewReader(conn)
		there, err := readHello(r, protocolMin, VersionNext)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(there.appendVerdict(nil, refusal(ErrForgot, "you have forgotten")))
	}
	until(t, "the reason in the log", func() bool { return strings.Contains(b.log.String(), "you have forgotten") })
	until(t, "member 1 to be asked", func() bool { return a.asked() })
	if len(b.refused) != 0 {
		t.Errorf("the impostor's refusal counts: %v", <-b.refused)
	}
}

// asked reports whether member 2 asked this member.
func (p *peer) asked() bool {
	p.role.Load().promises.mu.Lock()
	defer p.role.Load().promises.mu.Unlock()
	return p.role.Load().promises.mu.of[2] != nil
}

// A process that does not know the ensemble's digest does not learn it, nor any other part of a
// member's identity.
func TestStrangersLearnNothing(t *testing.T) {
	mesh := transporttest.NewMesh()
	onMesh(t, mesh, identity(2))
	for name, h := range map[string]hello{
		"another ensemble": {Identity: Identity{Digest: [32]byte{9}, Member: 1}, version: protocolMax, purpose: forMessages, wanted: 2},
		"no member":        {Identity: Identity{Digest: identity(2).Digest, Member: 77}, version: protocolMax, purpose: forMessages, wanted: 2},
	} {
		conn, err := mesh.Network(1).Dial(t.Context(), Target{Member: 2})
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		conn.Write(h.marshal(nil))
		got, err := readHello(bufio.NewReader(conn), protocolMin, protocolMax)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Identity, Identity{Member: 2}) {
			t.Errorf("%s learns %+v", name, got.Identity)
		}
		conn.Close()
	}
}

// A peer that is not recognised cannot make a member believe that its directory is wrong.
func TestStrangersDoNotRefuseDirectories(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		foreign := identity(2)
		foreign.Digest[0]++
		n := mesh.Network(2)
		l, err := n.Listen()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				h, err := readHello(bufio.NewReader(conn), protocolMin, protocolMax)
				if err == nil {
					there := hello{Identity: foreign, version: protocolMax, purpose: forMessages, wanted: 1}
					conn.Write(h.appendVerdict(there.marshal(nil), refusal(ErrNotAccepted, "go away")))
				}
			}
		}()
		a := onMesh(t, mesh, identity(1))
		a.link(t, 2).SendMessageBatch(beat(1, 2, 1))
		if reason := get(t, a.refused, "refusal"); errors.Is(reason, ErrNotAccepted) || !errors.Is(reason, ErrOtherEnsemble) {
			t.Fatal(reason)
		}
	})
}

// Bytes that are no handshake end the connection, without an answer and without a message.
func TestHandshakeBytes(t *testing.T) {
	good := helloOf(1, 2)
	whole := good.marshal(nil)
	flipped := bytes.Clone(whole)
	flipped[50] ^= 1
	newer := bytes.Clone(whole)
	newer[5] = 9
	older := bytes.Clone(whole)
	older[5] = 0
	mixed := good
	mixed.Levels = Levels{Min: 2, Max: 1}
	purposeless := hello{Identity: identity(1), version: protocolMax, purpose: 7, wanted: 2}
	for _, c := range []struct {
		name  string
		bytes []byte
		text  string
	}{
		{"nothing", nil, "closed the connection"},
		{"short", whole[:99], "closed the connection"},
		{"tiny", whole[:3], "closed the connection"},
		{"http", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "which no member sends"},
		{"zeros", make([]byte, 4096), "which no member sends"},
		{"oversized", bytes.Repeat([]byte("x"), 1<<20), "which no member sends"},
		{"flipped", flipped, "checksum"},
		{"purpose", purposeless.marshal(nil), "purpose 7"},
		{"newer", newer, "offers version 9 of the protocol between members, member 2 speaks versions 1 to 1"},
		{"older", older, "offers version 0 of the protocol between members, member 2 speaks versions 1 to 1: start a newer build on the peer"},
		{"levels", mixed.marshal(nil), "the build reads levels 2 to 1"},
		{"no verdict", whole, "closed the connection"},
		{"verdict on another nonce", (&hello{nonce: [16]byte{1}}).appendVerdict(bytes.Clone(whole), nil), "another hello"},
		{"frames for a verdict", appendEmpty(bytes.Clone(whole), kindAsk), "closed the connection"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mesh := transporttest.NewMesh()
			b := onMesh(t, mesh, identity(2))
			conn, err := mesh.Network(1).Dial(t.Context(), Target{Member: 2})
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(patience))
			conn.Write(c.bytes)
			conn.(interface{ CloseWrite() error }).CloseWrite()
			io.Copy(io.Discard, conn)
			conn.Close()
			until(t, "reason in the log", func() bool { return strings.Contains(b.log.String(), c.text) })
			if len(b.batches) != 0 {
				t.Fatal("a message passed")
			}
		})
	}
}

// A recorded conversation cannot be replayed: the verdict in it answers another nonce.
func TestReplayStaysOut(t *testing.T) {
	mesh := transporttest.NewMesh()
	b := onMesh(t, mesh, identity(2))
	n := mesh.Network(1)
	conn, err := n.Dial(t.Context(), Target{Member: 2})
	if err != nil {
		t.Fatal(err)
	}
	tape := &recorder{Conn: conn}
	if err := shake(tape, helloOf(1, 2)); err != nil {
		t.Fatal(err)
	}
	tape.Write(frame(t, beat(1, 2, 1)))
	get(t, b.batches, "batch")
	conn.Close()

	again, err := n.Dial(t.Context(), Target{Member: 2})
	if err != nil {
		t.Fatal(err)
	}
	again.Write(tape.sent)
	io.Copy(io.Discard, again)
	again.Close()
	until(t, "reason in the log", func() bool { return strings.Contains(b.log.String(), "verdict on another hello") })
	if len(b.batches) != 0 {
		t.Fatal("a replayed message passed")
	}
}

// recorder keeps all bytes that are written.
type recorder struct {
	net.Conn
	sent []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent = append(r.sent, b...)
	return r.Conn.Write(b)
}

// A peer that says nothing or too little loses its connection when the handshake's time is over, on
// both sides.
func TestHandshakeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		b := onMesh(t, mesh, identity(2))
		begin := time.Now()
		conn, err := mesh.Network(1).Dial(t.Context(), Target{Member: 2})
		if err != nil {
			t.Fatal(err)
		}
		h := helloOf(1, 2)
		for _, c := range h.marshal(nil) { // a byte a second
			if _, err := conn.Write([]byte{c}); err != nil {
				break
			}
			pass(time.Second)
		}
		if took := time.Since(begin); took < handshakeTimeout || took > handshakeTimeout+time.Second {
			t.Fatalf("the slow one was dropped after %v", took)
		}
		if !strings.Contains(b.log.String(), "timeout") {
			t.Fatalf("log: %s", b.log)
		}

		// Nobody answers at the address of member 3.
		l, err := mesh.Network(3).Listen()
		if err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		if _, err = b.module.GetSnapshotConnection(t.Context(), uuidOf(3)); err == nil {
			t.Fatal("connected to nobody")
		}
		if took := time.Since(begin); took != handshakeTimeout {
			t.Fatalf("gave up after %v: %v", took, err)
		}
		l.Close()
		b.module.Close()
	})
}

// The layouts in the package comment are those that travel.
func TestHandshakeLayout(t *testing.T) {
	h := hello{
		Identity: Identity{Digest: [32]byte{0xd0, 31: 0xd1}, Member: 1, Directory: [16]byte{0xe0, 15: 0xe1}, Start: 5,
			Run: 6, Tick: 256, Levels: Levels{Min: 2, Max: 3}, Level: 4, Lineage: [16]byte{0xa0, 15: 0xa1}, Address: "one:2181", Shards: []ShardState{{Term: 7, Vote: 8, Last: 9, Held: Held{10, 11, 12, 13}}, {Last: 14}}},
		version: protocolMax, purpose: forSnapshot, wanted: 2, nonce: [16]byte{0xf0, 15: 0xf1},
	}
	got := hex.EncodeToString(h.marshal(nil))
	want := "56764869" + "0001" + "02" + "02" +
		"d0" + strings.Repeat("00", 30) + "d1" +
		"0000000000000001" + "0000000000000002" +
		"e0" + strings.Repeat("00", 14) + "e1" +
		"0000000000000005" +
		"f0" + strings.Repeat("00", 14) + "f1" +
		"0000000000000006" + "0000000000000100" +
		"00000002" + "00000003" + "00000004" +
		"a0" + strings.Repeat("00", 14) + "a1" +
		"0008" +
		"0000000000000007" + "0000000000000008" + "0000000000000009" +
		"000000000000000a" + "000000000000000b" + "000000000000000c" + "000000000000000d" +
		strings.Repeat("00", 16) + "000000000000000e" + strings.Repeat("00", 32) +
		hex.EncodeToString([]byte("one:2181"))
	if got[:524] != want || len(got) != 532 {
		t.Fatalf("hello is %s", got)
	}
	back, err := readHello(bufio.NewReader(bytes.NewReader(h.marshal(nil))), protocolMin, protocolMax)
	if err != nil || !reflect.DeepEqual(back, h) {
		t.Fatalf("%+v came back as %+v, %v", h, back, err)
	}
	v := hex.EncodeToString(h.appendVerdict(nil, refusal(ErrNotMember, "no")))
	if want := "56764f6b" + "0003" + "0002" + "f0" + strings.Repeat("00", 14) + "f1" + "6e6f"; v[:52] != want || len(v) != 60 {
		t.Fatalf("verdict is %s", v)
	}
	long := refusal(ErrNotAccepted, "%s", strings.Repeat("x", 5000))
	err = readVerdict(bufio.NewReader(bytes.NewReader(h.appendVerdict(nil, long))), h.nonce)
	if err == nil || len(err.Error()) != reasonMax {
		t.Fatalf("long reason came back as %d bytes", len(err.Error()))
	}
}

// Two members with different ticks report it on both sides, with both values. If elections still
// work, they only warn.
func TestHandshakeTicks(t *testing.T) {
	for _, c := range []struct {
		one, two time.Duration
		kind     error
		warns    bool
	}{
		{one: 50 * time.Millisecond, two: 50 * time.Millisecond},
		{one: 0, two: 50 * time.Millisecond},
		{one: 50 * time.Millisecond, two: 100 * time.Millisecond, warns: true},
		{one: 100 * time.Millisecond, two: 50 * time.Millisecond, warns: true},
		{one: 50 * time.Millisecond, two: 101 * time.Millisecond, kind: ErrOtherTick},
		{one: 500 * time.Millisecond, two: 50 * time.Millisecond, kind: ErrOtherTick},
	} {
		t.Run(fmt.Sprint(c.one, c.two), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				mesh := transporttest.NewMesh()
				one, two := identity(1), identity(2)
				one.Tick, two.Tick = c.one, c.two
				a, b := onMesh(t, mesh, one), onMesh(t, mesh, two)
				if c.kind == nil {
					a.connected(t, 2).SendMessageBatch(beat(1, 2, 1))
					get(t, b.batches, "batch")
					for _, p := range []*peer{a, b} {
						if warns := strings.Contains(p.log.String(), "another tick than this member's"); warns != c.warns {
							t.Errorf("warns: %v\n%s", warns, p.log)
						}
					}
					return
				}
				a.link(t, 2).SendMessageBatch(beat(1, 2, 1))
				if reason := get(t, a.refused, "refusal"); !errors.Is(reason, c.kind) {
					t.Fatal(reason)
				}
				until(t, "both values in both logs", func() bool {
					for _, p := range []*peer{a, b} {
						if !strings.Contains(p.log.String(), c.one.String()) || !strings.Contains(p.log.String(), c.two.String()) {
							return false
						}
					}
					return true
				})
				if len(b.batches) != 0 {
					t.Error("a message passed")
				}
			})
		})
	}
}

func FuzzHandshake(f *testing.F) {
	h := helloOf(1, 2)
	h.Address, h.Shards = "one:2181", make([]ShardState, 1)
	for h.version = protocolMin; h.version <= protocolMax; h.version++ {
		f.Add(h.marshal(nil))
		f.Add(h.appendVerdict(h.marshal(nil), nil))
		f.Add(h.appendVerdict(h.marshal(nil), refusal(ErrNotAccepted, "because")))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for range 2 {
			r := bufio.NewReader(bytes.NewReader(b))
			got, err := readHello(r, protocolMin, protocolMax)
			if err == nil && !bytes.Equal(got.marshal(nil), b[:helloSize(b)]) {
				t.Fatalf("%x read as %+v", b, got)
			}
			err = readVerdict(r, h.nonce)
			if no := (*Refusal)(nil); errors.As(err, &no) && (len(no.Text) > 3*reasonMax || no.Kind == nil) {
				t.Fatalf("verdict %+v", no)
			}
			readVerdict(bufio.NewReader(bytes.NewReader(b)), h.nonce)
			b = withChecksum(b)
		}
	})
}

// withChecksum returns the bytes with the checksum that makes them a hello, if they are long
// enough.
func withChecksum(b []byte) []byte {
	if b = bytes.Clone(b); len(b) >= 8 && len(b) >= headSizeOf(binary.BigEndian.Uint16(b[4:])) && len(b) >= helloSize(b) {
		end := helloSize(b) - 4
		binary.BigEndian.PutUint32(b[end:], crc32.Checksum(b[:end], castagnoli))
	}
	return b
}

// Anyone who reaches the port may send a hello. The logs are read for members only. A log may make
// its readers wait, and unknown peers can be many.
func TestStrangersCannotHaveTheLogRead(t *testing.T) {
	mesh := transporttest.NewMesh()
	o := meshOptions(t, mesh, identity(2))
	o.Self.Shards = make([]ShardState, 1)
	var asked atomic.Int32
	o.Held = func(int) Held { asked.Add(1); return Held{} }
	newPeer(t, o)
	other := helloOf(1, 2)
	other.Digest[0]++
	for _, h := range []hello{other, helloOf(4, 2), helloOf(1, 3)} {
		if _, err := stranger(t, mesh.Network(1), 2, h); err == nil {
			t.Errorf("%d is recognised", h.Member)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the log was read %d times for strangers", n)
	}
	h := helloOf(1, 2)
	h.Shards = make([]ShardState, 1)
	if _, err := stranger(t, mesh.Network(1), 2, h); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the log was read %d times for a member", n)
	}
}
