package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/config"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// M152: a node that is no member answers questions and refuses messages. The refusal is not final: the
// node becomes a member, starts, and then receives them on the same port.
func TestBecome(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		o := meshOptions(t, mesh, identity(2))
		o = among(o, 1, 2, 3)
		o.Self, o.Answer, o.Target, o.Logger = nobody(), echo, targetOf, slog.New(&logbook{})
		b := New(o)
		defer b.Close()
		if err := b.Open(); err != nil {
			t.Fatal(err)
		}
		if err := b.Open(); err != nil {
			t.Errorf("the second Open: %v", err)
		}
		a := onMesh(t, mesh, identity(1))
		link := a.link(t, 2)
		refused := func(text string) {
			t.Helper()
			until(t, "the refusal: "+text, func() bool {
				link.SendMessageBatch(beat(1, 2, 1))
				if len(a.refused) == 0 {
					return false
				}
				reason := (<-a.refused).(*Refusal)
				if reason.Kind != ErrNotMember || reason.Final() {
					t.Fatalf("refused because %v: %v", reason.Kind, reason)
				}
				return strings.Contains(reason.Text, text)
			})
			for _, p := range []*Transport{a.Transport, b} {
				for _, peer := range p.Peers() {
					if peer.Refused != nil || peer.RefusedBy != nil {
						t.Errorf("member %d has only to begin, and counts as refused: %+v", peer.Member, peer)
					}
				}
			}
			if _, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2)); !errors.Is(err, ErrNotMember) {
				t.Fatalf("snapshot: %v", err)
			}
			if got, err := a.Ask(t.Context(), Target{Member: 2}, []byte("x")); err != nil || string(got) != "re: x" {
				t.Fatalf("%q, %v", got, err)
			}
		}
		refused("is no member yet")
		b.Become(identity(2), "a founding in words")
		refused("member 2 has not started yet")
		b.Become(identity(3), "another")
		if got := b.self().Member; got != 2 {
			t.Fatalf("became member %d", got)
		}
		got := make(chan pb.MessageBatch, 1024)
		m := b.Factory().Create(config.NodeHostConfig{DeploymentID: deployment}, func(b pb.MessageBatch) { got <- b }, nil)
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "a message that passes", func() bool {
			link.SendMessageBatch(beat(1, 2, 7))
			return len(got) > 0
		})
		back, err := m.GetConnection(t.Context(), uuidOf(1))
		if err != nil {
			t.Fatal(err)
		}
		until(t, "a message back", func() bool {
			back.SendMessageBatch(beat(2, 1, 8))
			return len(a.batches) > 0
		})
	})
}

// Handshakes and questions run while the node becomes a member. The race detector watches.
func TestBecomeMeanwhile(t *testing.T) {
	mesh := transporttest.NewMesh()
	for round := range 20 {
		o := meshOptions(t, mesh, identity(2))
		o = among(o, 1, 2, 3)
		o.Self, o.Answer, o.Target, o.Logger = nobody(), echo, targetOf, slog.New(&logbook{})
		b := New(o)
		b.Open()
		a := onMesh(t, mesh, identity(1))
		var busy sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		busy.Go(func() {
			for ctx.Err() == nil {
				if s, err := a.module.GetSnapshotConnection(ctx, uuidOf(2)); err == nil {
					s.Close()
				}
				b.Peers()
				b.Pulse(1, 1)
			}
		})
		busy.Go(func() {
			for ctx.Err() == nil {
				a.Ask(ctx, Target{Member: 2}, []byte(fmt.Sprint(round)))
			}
		})
		b.Become(identity(2), "words")
		m := b.Factory().Create(config.NodeHostConfig{DeploymentID: deployment}, nil, nil)
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		cancel()
		busy.Wait()
		until(t, "a connection", func() bool { // a handshake that lasts may be cut for newer ones
			s, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2))
			if err == nil {
				s.Close()
			}
			return err == nil
		})
		a.Close()
		b.Close()
	}
	noGoroutines(t)
}

// A probe says whether two members accept each other, and leaves no connection.
func TestProbe(t *testing.T) {
	mesh := transporttest.NewMesh()
	a, b := onMesh(t, mesh, identity(1)), onMesh(t, mesh, identity(2))
	if err := a.Probe(t.Context(), 2); err != nil {
		t.Error(err)
	}
	until(t, "the end of the connection", func() bool { return b.Heard() == 0 })
	if err := a.Probe(t.Context(), 3); !errors.Is(err, transporttest.ErrNoListener) {
		t.Errorf("nobody: %v", err)
	}
	if err := a.Probe(t.Context(), 1); !errors.Is(err, ErrWrongMember) {
		t.Errorf("itself: %v", err)
	}
	stranger := onMesh(t, mesh, identity(4))
	if err := stranger.Probe(t.Context(), 1); !errors.Is(err, ErrNotMember) {
		t.Errorf("refused: %v", err)
	}
	a.Shut()
	if err := a.Probe(t.Context(), 2); err == nil {
		t.Error("a probe after Shut")
	}
}

// Nobody who is not known is dialled. A member is dialled where Options.Address says at that time.
func TestAddressIsAskedEachTime(t *testing.T) {
	mesh := transporttest.NewMesh()
	onMesh(t, mesh, identity(2))
	var mu sync.Mutex
	address := ""
	o := Options{Self: identity(1), Network: &zeroed{mesh.Network(1)}, Address: func(uint64) string {
		mu.Lock()
		defer mu.Unlock()
		return address
	}}
	a := newPeer(t, o)
	for at, text := range map[string]string{"": "the address of member 2 is not known", "nowhere.test:1": "nobody listens", "member-2.test:1": ""} {
		mu.Lock()
		address = at
		mu.Unlock()
		s, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2))
		if text == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("at %q: %v", at, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// zeroed is a network that finds members by their addresses alone.
type zeroed struct{ Network }

func (z *zeroed) Dial(ctx context.Context, to Target) (net.Conn, error) {
	return z.Network.Dial(ctx, Target{Address: to.Address})
}

// M5, M33: a member that was removed is kept out by those that know it, in both directions. It is
// told, and that is final.
func TestRemovedMember(t *testing.T) {
	for _, version := range []uint16{protocolMax, VersionNext} {
		for _, from := range []uint64{1, 2} {
			t.Run(fmt.Sprintf("version %d, %d dials", version, from), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					mesh := transporttest.NewMesh()
					o := meshOptions(t, mesh, identity(1))
					o.Lineage = func() [16]byte { return [16]byte{1} }
					o.Members = func() []uint64 { return []uint64{2} }
					o.Knows = func(m uint64) *Refusal { return refusal(ErrRemoved, "member %d was removed at zxid 7", m) }
					a := newPeer(t, o)
					o = meshOptions(t, mesh, identity(2))
					o.Highest = version
					o.Lineage = func() [16]byte { return [16]byte{1} }
					o.Held = func(int) Held { t.Error("the log was read"); return Held{} }
					removed := newPeer(t, o)
					if from == 1 {
						a.link(t, 2).SendMessageBatch(beat(1, 2, 1)) // it is told when it asks back
					} else {
						removed.link(t, 1).SendMessageBatch(beat(2, 1, 1))
					}
					no := get(t, removed.refused, "refusal").(*Refusal)
					if no.Kind != ErrRemoved || !no.Final() || no.Text != "member 2 was removed at zxid 7" {
						t.Errorf("refused because %v: %v", no.Kind, no)
					}
					if len(a.refused)+len(a.batches)+len(removed.batches) != 0 {
						t.Error("something passed")
					}
					if p := a.Peers()[0]; from == 2 && !errors.Is(p.Refused, ErrRemoved) {
						t.Errorf("the other knows %+v", p)
					}
				})
			})
		}
	}
}

// Other lineages give other members the same ids. So a removal there is not said to a member here.
func TestRemovedInAnotherLineage(t *testing.T) {
	mesh := transporttest.NewMesh()
	o := meshOptions(t, mesh, identity(1))
	o.Lineage = func() [16]byte { return [16]byte{1} }
	o.Knows = func(m uint64) *Refusal { return refusal(ErrRemoved, "gone") }
	newPeer(t, o)
	o = meshOptions(t, mesh, identity(2))
	o.Lineage = func() [16]byte { return [16]byte{2} }
	b := newPeer(t, o)
	if _, err := b.module.GetSnapshotConnection(t.Context(), uuidOf(1)); !errors.Is(err, ErrOtherLineage) {
		t.Error(err)
	}
}

// M28: a member of a lineage that a forced recovery has ended is told so as soon as it meets a
// member of the next one, and that is final. Nothing passes between them, whoever dials. A member
// of another ensemble is not believed.
func TestSuperseded(t *testing.T) {
	parent, child := [16]byte{1}, [16]byte{2}
	pair := func(t *testing.T, digest byte) (survivor, old *peer) {
		mesh := transporttest.NewMesh()
		o := meshOptions(t, mesh, identity(1))
		o.Lineage = func() [16]byte { return child }
		o.Ancestor = func(l [16]byte) bool { return l == parent }
		survivor = newPeer(t, o)
		other := identity(2)
		other.Digest[0] += digest
		o = meshOptions(t, mesh, other)
		o.Lineage = func() [16]byte { return parent }
		return survivor, newPeer(t, o)
	}
	t.Run("it dials", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			survivor, old := pair(t, 0)
			old.link(t, 1).SendMessageBatch(beat(2, 1, 1))
			no := get(t, old.refused, "refusal").(*Refusal)
			if no.Kind != ErrSuperseded || !no.Final() || !strings.Contains(no.Text, "lineage 0100000000000000, which a forced recovery has ended") {
				t.Errorf("refused because %v: %v", no.Kind, no)
			}
			if len(survivor.refused)+len(survivor.batches)+len(old.batches) != 0 {
				t.Error("something passed")
			}
		})
	})
	t.Run("it is dialled", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			survivor, old := pair(t, 0)
			if _, err := survivor.module.GetSnapshotConnection(t.Context(), uuidOf(2)); !errors.Is(err, ErrOtherLineage) {
				t.Error(err)
			}
			if no := get(t, survivor.refused, "refusal").(*Refusal); no.Final() {
				t.Errorf("the survivor has to stop: %v", no)
			}
			if len(survivor.batches)+len(old.batches) != 0 {
				t.Error("something passed")
			}
		})
	})
	t.Run("of another ensemble", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			_, old := pair(t, 1)
			if _, err := old.module.GetSnapshotConnection(t.Context(), uuidOf(1)); !errors.Is(err, ErrOtherEnsemble) {
				t.Error(err)
			}
		})
	})
}

// M33: a member that is removed while its connection stands is cut off, and told at its next
// handshake.
func TestRemovedMeanwhile(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		var mu sync.Mutex
		out := false
		o := meshOptions(t, mesh, identity(1))
		o.Members = func() []uint64 { return nil }
		o.Knows = func(m uint64) *Refusal {
			mu.Lock()
			defer mu.Unlock()
			if out {
				return refusal(ErrRemoved, "removed")
			}
			return nil
		}
		a, b := newPeer(t, o), onMesh(t, mesh, identity(2))
		link := b.connected(t, 1)
		link.SendMessageBatch(beat(2, 1, 1))
		get(t, a.batches, "batch")
		mu.Lock()
		out = true
		mu.Unlock()
		until(t, "the refusal", func() bool {
			link.SendMessageBatch(beat(2, 1, 2))
			return len(b.refused) > 0
		})
		if no := <-b.refused; !errors.Is(no, ErrRemoved) {
			t.Error(no)
		}
	})
}

// M56: the log may have a member that this one does not know yet. It is let in, and listed once
// Options.Members has it.
func TestUnknownMemberIsLetIn(t *testing.T) {
	mesh := transporttest.NewMesh()
	o := meshOptions(t, mesh, identity(2))
	var mu sync.Mutex
	known := []uint64{1}
	o.Members = func() []uint64 {
		mu.Lock()
		defer mu.Unlock()
		return known
	}
	b := newPeer(t, o)
	a := onMesh(t, mesh, identity(4))
	a.connected(t, 2).SendMessageBatch(beat(4, 2, 1))
	get(t, b.batches, "batch")
	b.link(t, 4).SendMessageBatch(beat(2, 4, 1))
	if p := b.Peers(); len(p) != 1 || p[0].Member != 1 {
		t.Errorf("it knows %+v", p)
	}
	mu.Lock()
	known = []uint64{4, 1, 2}
	mu.Unlock()
	if p := b.Peers(); len(p) != 2 || p[1].Member != 4 || !p[1].Heard {
		t.Errorf("it knows %+v", p)
	}
}

// What is known of a removed member goes when another one comes. Its promises go too: no process of
// it is accepted again.
func TestRemovedMembersAreForgotten(t *testing.T) {
	mesh := transporttest.NewMesh()
	var mu sync.Mutex
	removed := map[uint64]bool{}
	o := meshOptions(t, mesh, identity(1))
	o.Members = func() []uint64 { return nil }
	o.Knows = func(m uint64) *Refusal {
		mu.Lock()
		defer mu.Unlock()
		if removed[m] {
			return refusal(ErrRemoved, "removed")
		}
		return nil
	}
	a := newPeer(t, o)
	for id := uint64(2); id < 30; id++ {
		h := helloOf(id, 1)
		conn, err := stranger(t, mesh.Network(id), 1, h)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		until(t, "the end of its connection", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			c := a.mu.served[id]
			return c != nil && len(c.conns) == 0
		})
		mu.Lock()
		removed[id] = true
		mu.Unlock()
	}
	a.mu.Lock()
	peers, served := len(a.mu.peers), len(a.mu.served)
	a.mu.Unlock()
	p := a.role.Load().promises
	p.mu.Lock()
	defer p.mu.Unlock()
	if peers != 1 || served != 1 || len(p.mu.of) != 1 {
		t.Errorf("it remembers %d peers, %d queues and %d promises", peers, served, len(p.mu.of))
	}
}

// What is remembered about ids that Options.Members does not have is bounded: anybody may claim any.
// Whoever was forgotten connects again, and members are not forgotten.
func TestStrangersAreForgotten(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		mesh := transporttest.NewMesh()
		o := meshOptions(t, mesh, identity(1))
		o.Members = func() []uint64 { return []uint64{2} }
		o.Knows = func(uint64) *Refusal { return nil }
		a := newPeer(t, o)
		b, c := onMesh(t, mesh, identity(2)), onMesh(t, mesh, identity(3))
		ofMember, ofStranger := b.connected(t, 1), c.connected(t, 1)
		before := ofMember.(*link)
		first, _, _ := before.look(time.Now())
		most := [4]int{}
		for id := uint64(100); id < 100+2*strangersMax+10; id++ {
			conn, err := stranger(t, mesh.Network(9), 1, helloOf(id, 1))
			if err != nil {
				t.Fatal(err)
			}
			if id%3 > 0 {
				conn.Close()
			}
			a.askBack(id)
			p := a.role.Load().promises
			a.mu.Lock()
			n := [4]int{len(a.mu.peers), len(a.mu.served), len(a.mu.asked), len(p.members())}
			a.mu.Unlock()
			for i := range n {
				most[i] = max(most[i], n[i])
			}
		}
		for i, n := range most {
			if n > strangersMax+5 {
				t.Errorf("map %d has had %d entries", i, n)
			}
		}
		if now, _, _ := before.look(time.Now()); now != first {
			t.Error("a member's connection was closed")
		}
		until(t, "a message of the stranger, and its pulse", func() bool {
			ofStranger.SendMessageBatch(batchOf(pb.Message{Type: pb.HeartbeatResp, From: 3, To: 1, ShardID: 1, Term: 1}))
			return !a.Pulse(3, 1).Answered.IsZero()
		})
		a.Shut()
	})
}

// Both sides learn after each handshake where the other says that it is reached. An address that is
// no text, or too long, does not travel.
func TestMet(t *testing.T) {
	long := strings.Repeat("x", addressMax)
	for _, c := range []struct{ address, want string }{
		{"one:2181", "one:2181"}, {long, long}, {long + "x", ""}, {"one\x00:1", ""}, {"", ""},
	} {
		mesh := transporttest.NewMesh()
		type meeting struct {
			member  uint64
			address string
		}
		met := make(chan meeting, 16)
		o := meshOptions(t, mesh, identity(2))
		o.Self.Address = "two:1"
		o.Met = func(m uint64, address string) { met <- meeting{m, address} }
		newPeer(t, o)
		o = meshOptions(t, mesh, identity(1))
		back := make(chan meeting, 16)
		o.Self.Address = c.address
		o.Met = func(m uint64, address string) { back <- meeting{m, address} }
		a := newPeer(t, o)
		s, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendChunk(chunkOf(1, 2, 0, true)); err == nil {
			t.Fatal("a shard runs that does not")
		}
		s.Close()
		if got := get(t, back, "the address of the one that was dialled"); got != (meeting{2, "two:1"}) {
			t.Errorf("met %+v", got)
		}
		if c.want == "" {
			if len(met) > 0 {
				t.Errorf("%q: met %+v", c.address, <-met)
			}
		} else if got := get(t, met, "the dialler's address"); got != (meeting{1, c.want}) {
			t.Errorf("met %+v", got)
		}
	}
}

// Addresses in a hello are bounded text.
func TestAddressInHello(t *testing.T) {
	h := goldenHello(protocolMax)
	for name, b := range map[string][]byte{
		"too long":    withChecksum(append(withAddress(h, ""), make([]byte, addressMax)...)),
		"unprintable": withAddress(h, "a\nb"),
		"no utf-8":    withAddress(h, "a\xffb"),
	} {
		if name == "too long" {
			b[lengthAt], b[lengthAt+1] = 0xff, 0xff
		}
		if got, err := readHelloOf(b); !errors.Is(err, errHandshake) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := readHelloOf(withAddress(h, "München:1")); err != nil || got.Address != "München:1" {
		t.Errorf("%q, %v", got.Address, err)
	}
}

// M43: the RateLimit messages of a learner would stop all writers. They are dropped, without a line
// in the log, for every learner sends them all the time.
func TestLearnersDoNotLimit(t *testing.T) {
	mesh := transporttest.NewMesh()
	o := meshOptions(t, mesh, identity(2))
	o.Learner = func(m uint64, _ int) bool { return m == 3 }
	b := newPeer(t, o)
	for _, from := range []uint64{1, 3} {
		limit := pb.Message{Type: pb.RateLimit, From: from, To: 2, ShardID: 1, Term: 1, Hint: 1 << 30}
		batch := beat(from, 2, 1)
		batch.Requests = append([]pb.Message{limit}, append(batch.Requests, limit, batch.Requests[0])...)
		conn, err := stranger(t, mesh.Network(from), 2, helloOf(from, 2))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(frame(t, batch))
		got := get(t, b.batches, "batch").Requests
		want := 4
		if from == 3 {
			want = 2
		}
		if len(got) != want || got[want-1].Type != pb.Heartbeat {
			t.Errorf("of member %d came %+v", from, got)
		}
	}
	if strings.Contains(b.log.String(), "dropped") {
		t.Error(b.log)
	}
}

// Peers that only have to start are tried again soon.
func TestRetryAfterNotMember(t *testing.T) {
	for kind, want := range map[error]time.Duration{ErrNotMember: redialMax, ErrOtherEnsemble: redialRefused} {
		a := onMesh(t, transporttest.NewMesh(), identity(1))
		l := a.link(t, 2).(*link)
		l.mu.Lock()
		l.changeLocked(linkDialling, nil)
		l.mu.Unlock()
		before := time.Now()
		l.failed(refusal(kind, "no"))
		l.mu.Lock()
		if early, late := before.Add(want), time.Now().Add(want); l.mu.retry.Before(early) || l.mu.retry.After(late) {
			t.Errorf("after %v the pause is not %v", kind, want)
		}
		l.mu.Unlock()
	}
}

// withAddress returns a hello of version 4 whose address is any bytes.
func withAddress(h hello, address string) []byte {
	h.Address = ""
	b := h.marshal(nil)
	b = append(b[:len(b)-4], address...)
	binary.BigEndian.PutUint16(b[lengthAt:], uint16(len(address)))
	return withChecksum(append(b, 0, 0, 0, 0))
}

func readHelloOf(b []byte) (hello, error) {
	return readHello(bufio.NewReader(bytes.NewReader(b)), protocolMin, protocolMax)
}
