package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/golden"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// goldenHello returns the hello of the golden file, as a build of a version says and reads it.
func goldenHello(version uint16) hello {
	return hello{
		Identity: Identity{Digest: [32]byte{0xd0, 31: 0xd1}, Member: 1, Directory: [16]byte{0xe0, 15: 0xe1}, Start: 5,
			Run: 6, Tick: 256, Levels: Levels{Min: 2, Max: 4}, Level: 3, Lineage: [16]byte{0xa0, 15: 0xa1}, Address: "one:2181",
			Shards: []ShardState{{Term: 7, Vote: 8, Last: 9, Held: Held{10, 11, 12, 13}}, {Last: 14}}},
		version: version, purpose: forSnapshot, wanted: 2, nonce: [16]byte{0xf0, 15: 0xf1},
	}
}

// Every build goes on to understand the first bytes of the versions that it speaks. A line of this
// file never changes; only new lines come.
func TestGoldenHandshake(t *testing.T) {
	const file = "testdata/handshake.txt"
	var text strings.Builder
	for v := uint16(protocolMin); v <= protocolMax; v++ {
		h := goldenHello(v)
		fmt.Fprintf(&text, "hello of version %d: %x\n", v, h.marshal(nil))
		fmt.Fprintf(&text, "accepted in version %d: %x\n", v, h.appendVerdict(nil, nil))
		for _, kind := range refusalKinds[1:] {
			fmt.Fprintf(&text, "%v in version %d: %x\n", kind, v, h.appendVerdict(nil, refusal(kind, "because")))
		}
	}
	golden.Check(t, file, text.String())

	lines, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		name, hexed, _ := strings.Cut(strings.TrimSpace(line), ": ")
		b, err := hex.DecodeString(hexed)
		if err != nil {
			t.Fatal(err)
		}
		r, version := bufio.NewReader(bytes.NewReader(b)), uint16(name[len(name)-1]-'0')
		want := goldenHello(version)
		if strings.HasPrefix(name, "hello") {
			if got, err := readHello(r, protocolMin, protocolMax); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s is read as %+v, %v", name, got, err)
			}
			continue
		}
		kind, _, _ := strings.Cut(name, " in version")
		err = readVerdict(r, want.nonce)
		if no := (*Refusal)(nil); kind == "accepted" && err != nil || kind != "accepted" && (!errors.As(err, &no) || no.Kind.Error() != kind || no.Text != "because") {
			t.Errorf("%s is read as %v", name, err)
		}
	}
}

// A single changed byte in the version or the levels of a hello is an error.
func TestChangedVersionOrLevels(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for v := uint16(protocolMin); v <= VersionNext; v++ {
			h := goldenHello(v)
			places := []int{4, 5}
			for i := 112; i < headSizeOf(v); i++ { // the levels, and what follows them
				places = append(places, i)
			}
			for _, i := range places {
				for change := 1; change < 256; change++ {
					b := h.marshal(nil)
					b[i] ^= byte(change)
					_, err := readHello(bufio.NewReader(bytes.NewReader(b)), protocolMin, VersionNext)
					if err != ErrOtherVersion && !errors.Is(err, errHandshake) {
						t.Fatalf("version %d, byte %d changed by %x: %v", v, i, change, err)
					}
				}
			}
		}
	})
}

// offers is a network that keeps the versions that a member offers when it dials.
type offers struct {
	Network
	mu   sync.Mutex
	list []uint16
}

func (o *offers) Dial(ctx context.Context, member Target) (net.Conn, error) {
	conn, err := o.Network.Dial(ctx, member)
	if err != nil {
		return nil, err
	}
	return &offering{Conn: conn, o: o}, nil
}

func (o *offers) take() []uint16 {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.list = nil }()
	return o.list
}

// offering is a connection whose first bytes are a hello.
type offering struct {
	net.Conn
	o    *offers
	said bool
}

func (c *offering) Write(b []byte) (int, error) {
	if !c.said {
		c.said = true
		c.o.mu.Lock()
		c.o.list = append(c.o.list, binary.BigEndian.Uint16(b[4:]))
		c.o.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// speaker starts a member that speaks the versions up to highest. It returns what the member
// offers.
func speaker(t *testing.T, m networks, id Identity, highest uint16) (*peer, *offers) {
	t.Helper()
	o := meshOptions(t, m, id)
	made := &offers{Network: o.Network}
	o.Network, o.Highest = made, highest
	return newPeer(t, o), made
}

// Members of different builds talk in the highest version that both speak, in both directions, for
// messages and for snapshots. The extra dial is no refusal.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		one, two   uint16
		dial, back []uint16 // offers of one and of two
	}{
		{one: protocolMax, two: protocolMax, dial: []uint16{protocolMax}, back: []uint16{protocolMax}},
		{one: VersionNext, two: VersionNext, dial: []uint16{VersionNext}, back: []uint16{VersionNext}},
		{one: VersionNext, two: protocolMax, dial: []uint16{VersionNext, protocolMax}, back: []uint16{protocolMax}},
		{one: protocolMax, two: VersionNext, dial: []uint16{protocolMax}, back: []uint16{VersionNext, protocolMax}},
	} {
		t.Run(fmt.Sprintf("%d and %d", c.one, c.two), func(t *testing.T) {
			mesh := transporttest.NewMesh()
			a, aOffers := speaker(t, mesh, identity(1), c.one)
			b, bOffers := speaker(t, mesh, identity(2), c.two)
			for _, way := range []struct {
				from, to *peer
				offers   *offers
				want     []uint16
			}{{a, b, aOffers, c.dial}, {b, a, bOffers, c.back}} {
				from, to := way.from.self().Member, way.to.self().Member
				way.from.connected(t, to).SendMessageBatch(beat(from, to, 1))
				get(t, way.to.batches, "batch")
				if got := way.offers.take(); !slices.Equal(got, way.want) {
					t.Errorf("member %d offers %v for messages, want %v", from, got, way.want)
				}
				way.to.role.Load().gate.noteRunning(beat(to, from, 0).Requests)
				s, err := way.from.module.GetSnapshotConnection(t.Context(), uuidOf(to))
				if err != nil {
					t.Fatal(err)
				}
				if err := s.SendChunk(chunkOf(from, to, 0, true)); err != nil {
					t.Fatal(err)
				}
				get(t, way.to.chunks, "chunk")
				s.Close()
				if got := way.offers.take(); !slices.Equal(got, way.want) {
					t.Errorf("member %d offers %v for a snapshot, want %v", from, got, way.want)
				}
			}
			for _, p := range []*peer{a, b} {
				if log := p.log.String(); strings.Contains(log, "WARN") || strings.Contains(log, "refuse") {
					t.Errorf("log of member %d:\n%s", p.self().Member, log)
				}
				other := p.Peers()[0]
				if len(p.refused) > 0 || other.Refused != nil || other.RefusedBy != nil || other.Levels != (Levels{Min: 1, Max: 1}) {
					t.Errorf("member %d knows %+v", p.self().Member, other)
				}
			}
		})
	}
}

// Nothing is remembered of an old build: once its member runs a newer one, both use the newer
// version.
func TestUpgradedPeer(t *testing.T) {
	mesh := transporttest.NewMesh()
	a, offered := speaker(t, mesh, identity(1), VersionNext)
	old, _ := speaker(t, mesh, identity(2), protocolMax)
	link := a.connected(t, 2)
	if got := offered.take(); !slices.Equal(got, []uint16{VersionNext, protocolMax}) {
		t.Fatalf("offers %v to the old build", got)
	}
	old.module.Close()
	id := identity(2)
	id.Start, id.Run, id.Levels = 2, 2, Levels{Min: 1, Max: 2}
	b, _ := speaker(t, mesh, id, VersionNext)
	until(t, "a message that passes", func() bool {
		link.SendMessageBatch(beat(1, 2, 1))
		return len(b.batches) > 0
	})
	if got := offered.take(); len(got) == 0 || slices.Contains(got, protocolMax) {
		t.Errorf("offers %v to the new build", got)
	}
	if got := a.Peers()[0].Levels; got != id.Levels {
		t.Errorf("knows that the new build reads %v", got)
	}
}

// A member that gets an answer in a version that this build does not speak says which of the two
// builds is too old, and tries again later.
func TestUnspokenAnswer(t *testing.T) {
	for version, text := range map[uint16]string{
		0: "member 2 answers in version 0 of the protocol between members, member 1 speaks versions 1 to 1: start a newer build on member 2",
		2: "member 2 answers in version 2 of the protocol between members, member 1 speaks versions 1 to 1: start a newer build on member 1",
	} {
		mesh := transporttest.NewMesh()
		l, err := mesh.Network(2).Listen()
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
				if _, err := readHello(bufio.NewReader(conn), protocolMin, protocolMax); err == nil {
					conn.Write(binary.BigEndian.AppendUint16([]byte(helloMagic), version))
				}
				conn.Close()
			}
		}()
		a, offered := speaker(t, mesh, identity(1), protocolMax)
		_, err = a.module.GetSnapshotConnection(t.Context(), uuidOf(2))
		if no := (*Refusal)(nil); !errors.As(err, &no) || no.Kind != ErrOtherVersion || no.Final() || no.Text != text {
			t.Errorf("version %d: %v", version, err)
		}
		if got := offered.take(); !slices.Equal(got, []uint16{protocolMax}) {
			t.Errorf("version %d: offers %v", version, got)
		}
	}
}

// A member whose build does not read the ensemble's level is kept out, whichever side dials. Both
// sides say what to do, and no refusal is final: an old build that is told goes on to try.
func TestLevels(t *testing.T) {
	const tooOld = "the ensemble is at level 2 and member 1's build reads level 1: start a build on member 1 that reads level 2"
	for _, c := range []struct {
		name     string
		one, two Levels
		at       [2]uint32 // the levels in use on both
		text     string
	}{
		{name: "the same", one: Levels{1, 2}, two: Levels{1, 2}, at: [2]uint32{2, 2}},
		{name: "one lags behind", one: Levels{1, 2}, two: Levels{2, 3}, at: [2]uint32{1, 2}},
		{name: "one reads more", one: Levels{1, 3}, two: Levels{1, 1}, at: [2]uint32{1, 1}},
		{name: "one reads less", one: Levels{1, 1}, two: Levels{1, 2}, at: [2]uint32{1, 2}, text: tooOld},
		{name: "nothing that both read", one: Levels{1, 1}, two: Levels{3, 4}, at: [2]uint32{1, 4},
			text: "the ensemble is at level 4 and member 1's build reads level 1: start a build on member 1 that reads level 4"},
		{name: "many levels", one: Levels{1, 3}, two: Levels{3, 4}, at: [2]uint32{1, 4},
			text: "the ensemble is at level 4 and member 1's build reads levels 1 to 3: start a build on member 1 that reads level 4"},
	} {
		for _, from := range []uint64{1, 2} {
			t.Run(fmt.Sprint(c.name, ", ", from, " dials"), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					mesh := transporttest.NewMesh()
					member := func(id uint64, levels Levels, at uint32) *peer {
						o := meshOptions(t, mesh, identity(id))
						o.Self.Levels, o.Self.Level = levels, 0
						o.Level = func() uint32 { return at }
						return newPeer(t, o)
					}
					a, b := member(1, c.one, c.at[0]), member(2, c.two, c.at[1])
					if from == 2 {
						a, b = b, a
					}
					to := b.self().Member
					if c.text == "" {
						a.connected(t, to).SendMessageBatch(beat(from, to, 1))
						get(t, b.batches, "batch")
						if got := b.Peers()[0].Levels; got != a.self().Levels {
							t.Errorf("knows that the peer reads %v", got)
						}
						return
					}
					a.link(t, to).SendMessageBatch(beat(from, to, 1))
					until(t, "the reason in both logs", func() bool {
						return strings.Contains(a.log.String(), c.text) && strings.Contains(b.log.String(), c.text)
					})
					kind := ErrOtherLevel
					_, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(to))
					if no := (*Refusal)(nil); !errors.As(err, &no) || no.Kind != kind || no.Final() {
						t.Errorf("the snapshot is refused because %v", err)
					}
					if len(b.batches) != 0 {
						t.Error("a message passed")
					}
					if p := a.Peers()[0]; !errors.Is(p.Refused, kind) && !errors.Is(p.RefusedBy, kind) {
						t.Errorf("the dialler knows %+v", p)
					}
				})
			})
		}
	}
}

// Each handshake says the level in use at that time, and Options.Accept sees it.
func TestLevelIsAskedEachTime(t *testing.T) {
	mesh := transporttest.NewMesh()
	seen := make(chan Identity, 16)
	o := meshOptions(t, mesh, identity(2))
	o.Self.Levels = Levels{Min: 1, Max: 7}
	o.Accept = func(p Identity) error { seen <- p; return nil }
	newPeer(t, o)
	var level atomic.Uint32
	o = meshOptions(t, mesh, identity(1))
	o.Self.Levels = Levels{Min: 1, Max: 9}
	o.Level = level.Load
	a := newPeer(t, o)
	for _, at := range []uint32{1, 6} {
		level.Store(at)
		s, err := a.module.GetSnapshotConnection(t.Context(), uuidOf(2))
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if p := get(t, seen, "the peer's identity"); p.Level != at || p.Levels != o.Self.Levels {
			t.Errorf("at level %d the peer says %+v", at, p)
		}
	}
}

// M7: members of two ensembles with the same config do not talk, whichever side dials. Neither
// makes the other fail. A member that does not know its lineage yet talks to everybody.
func TestLineages(t *testing.T) {
	a, b := [16]byte{0xaa}, [16]byte{0xbb}
	for _, c := range []struct {
		name     string
		one, two [16]byte
		refused  bool
	}{{name: "none"}, {"the same", a, a, false}, {"one knows none", [16]byte{}, b, false}, {"two knows none", a, [16]byte{}, false}, {"others", a, b, true}} {
		t.Run(c.name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				mesh := transporttest.NewMesh()
				member := func(id uint64, l [16]byte) *peer {
					o := meshOptions(t, mesh, identity(id))
					o.Lineage = func() [16]byte { return l }
					return newPeer(t, o)
				}
				one, two := member(1, c.one), member(2, c.two)
				if !c.refused {
					one.connected(t, 2).SendMessageBatch(beat(1, 2, 1))
					get(t, two.batches, "batch")
					return
				}
				one.link(t, 2).SendMessageBatch(beat(1, 2, 1))
				_, err := one.module.GetSnapshotConnection(t.Context(), uuidOf(2))
				const text = "member 1 is of another lineage than member 2 (aa00000000000000, not bb00000000000000)"
				if no := (*Refusal)(nil); !errors.As(err, &no) || no.Kind != ErrOtherLineage || no.Final() || !strings.Contains(no.Text, text) {
					t.Errorf("refused because %v", err)
				}
				until(t, "the reason in both logs", func() bool {
					return strings.Contains(one.log.String(), text) && strings.Contains(two.log.String(), text)
				})
			})
		})
	}
}
