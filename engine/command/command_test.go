package command

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A golden is a value and its encoding. A running ensemble has these bytes in its log and on its
// disks, and the next version must read them. So they never change. A new form gets a new name.
type golden struct {
	name   string
	value  any
	encode func() []byte
	decode func([]byte) (any, error)
}

func (c Command) encode() []byte {
	switch c.Kind {
	case KindRegister:
		return EncodeRegister(c.Origin, c.Wall, c.Rules)
	case KindBatch:
		var list [][]byte
		for i := range c.Requests {
			list = append(list, EncodeRequest(&c.Requests[i]))
		}
		return EncodeBatch(c.Origin.Member, c.Origin.Start, c.Seq, c.Wall, c.Home, len(list), slices.Values(list))
	case KindSilence:
		return EncodeSilence(c.Step, c.Silence, c.Wall)
	case KindExpire:
		return EncodeExpire(c.Wall, LevelMax)
	case KindReap:
		return EncodeReap(c.Wall, c.Reap)
	case KindPurge:
		return EncodePurge(c.Wall, c.Purge)
	case KindPurged:
		return EncodePurged(c.Shard, c.Sessions)
	case KindRaise:
		return EncodeRaise(c.Level, c.Behind)
	case KindFound:
		return EncodeFound(c.Lineage, c.Founders, c.Shard, c.Wall)
	case KindJoin:
		return EncodeJoin(c.Join, c.Wall)
	case KindReport:
		return EncodeReport(c.Member, c.Shard, c.Place, c.Wall)
	case KindGovern:
		return EncodeGovern(c.Number, c.Member)
	case KindWant:
		return EncodeWant(c.Number, c.Member, c.Wish, c.Reason, c.Wall)
	case KindRetire:
		return EncodeRetire(c.Member)
	case KindRecover:
		return EncodeRecover(c.Recovery, c.Lost, c.Zxid, c.Wall)
	case KindLoad:
		return EncodeLoad(*c.Load, c.Wall)
	}
	return nil
}

// filled returns different bytes, so that a test notices mixed-up fields.
func filled[T [16]byte | [32]byte](first byte) (a T) {
	for i := range len(a) {
		reflect.ValueOf(&a).Elem().Index(i).SetUint(uint64(first) + uint64(i))
	}
	return a
}

func goldenCommands() []golden {
	batch := func(seq uint64, requests ...Request) Command {
		return Command{Kind: KindBatch, Origin: session.Origin{Member: 2, Start: 3}, Seq: seq, Wall: 1700000000123, Requests: requests}
	}
	txn := func(ops ...tree.Op) Request { return Request{Kind: RequestTxn, Session: 77, Ops: ops} }
	values := []struct {
		name string
		c    Command
	}{
		{"register", Command{Kind: KindRegister, Wall: 1700000000123, Origin: session.Origin{
			Member: 2, Start: 3, Directory: filled[[16]byte](0x10), Digest: filled[[32]byte](0x40), Level: 1}}},
		{"register-with-a-bound", Command{Kind: KindRegister, Origin: session.Origin{Member: 1, Start: 1, Level: 1}, Rules: Rules{TreeMax: 1 << 40}}},
		{"register-with-schemes", Command{Kind: KindRegister, Origin: session.Origin{Member: 1, Start: 1, Level: 1}, Rules: Rules{Schemes: []string{"digest", "ip"}}}},
		{"register-of-the-largest-numbers", Command{Kind: KindRegister, Wall: math.MaxInt64, Origin: session.Origin{
			Member: math.MaxUint64, Start: math.MaxUint64, Level: math.MaxUint32}}},
		{"beat", batch(4)},
		{"beat-before-1970", Command{Kind: KindBatch, Origin: session.Origin{Member: 1, Start: 1}, Seq: 1, Wall: math.MinInt64}},
		{"create", batch(200, txn(tree.Op{Kind: tree.KindCreate, Path: "/a", Data: []byte("data"), Mode: tree.EphemeralSequential}))},
		{"create-without-data", batch(1, txn(tree.Op{Kind: tree.KindCreate, Path: "/a"}))},
		{"create-with-empty-data", batch(1, txn(tree.Op{Kind: tree.KindCreate, Path: "/a", Data: []byte{}}))},
		{"multi", batch(70000, txn(
			tree.Op{Kind: tree.KindCheck, Path: "/", Version: tree.AnyVersion},
			tree.Op{Kind: tree.KindSet, Path: "/sätze/" + strings.Repeat("x", 40), Data: bytes.Repeat([]byte{7}, 300), Version: math.MaxInt32},
			tree.Op{Kind: tree.KindDelete, Path: "/b", Version: math.MinInt32},
		))},
		{"create-with-all", batch(1, txn(tree.Op{Kind: tree.KindCreate, Path: "/t-", Mode: tree.SequentialTTL, TTL: tree.MaxTTL,
			ACL: []tree.ACL{{Perms: tree.PermsAll, Scheme: "auth"}, {Perms: -1, Scheme: "ip", ID: "10.0.0.0/8"}}}))},
		{"create-with-an-empty-acl", batch(1, txn(tree.Op{Kind: tree.KindCreate, Path: "/a", ACL: []tree.ACL{}}))},
		{"set-acl", batch(1, txn(tree.Op{Kind: tree.KindSetACL, Path: "/a", ACL: tree.ReadACL(), Version: 4}))},
		{"guarded-set", batch(1, txn(tree.Op{Kind: tree.KindGuard, Path: "/q/_c_x-lock-0000000001", Czxid: 1 << 33},
			tree.Op{Kind: tree.KindSet, Path: "/a", Version: tree.AnyVersion}))},
		{"delete-of-a-creation", batch(1, txn(tree.Op{Kind: tree.KindDelete, Path: "/q/_c_x-lock-0000000001", Version: tree.AnyVersion, Czxid: 1 << 33}))},
		{"create-where-there-is-room", batch(1, txn(tree.Op{Kind: tree.KindCreate, Path: "/s/leases/lease-", Mode: tree.EphemeralSequential},
			tree.Op{Kind: tree.KindCheckChildren, Path: "/s/leases", Version: math.MaxInt32}))},
		{"steps", batch(1, txn(tree.Op{Kind: tree.KindCheckMzxid, Path: "/a", Mzxid: 1 << 40},
			tree.Op{Kind: tree.KindAdd, Path: "/n", Width: tree.Int32, Delta: -7},
			tree.Op{Kind: tree.KindEnsure, Path: "/a/b"}))},
		{"check-of-a-loss", batch(1, txn(tree.Op{Kind: tree.KindCheckLost, Path: "/a", Mzxid: 1 << 40}))},
		{"empty-multi", batch(1, Request{Kind: RequestTxn, Session: -1, Ops: []tree.Op{}})},
		{"open", batch(1, Request{Kind: RequestOpen, Timeout: 10 * time.Second, Password: filled[[16]byte](0x80)})},
		{"open-with-identities", batch(1, Request{Kind: RequestOpen, Timeout: time.Second,
			Identities: []tree.Identity{{Scheme: "digest", ID: "bob:hash"}, {Scheme: "super"}}})},
		{"open-remote", batch(1, Request{Kind: RequestOpen, Timeout: 10 * time.Second, Password: filled[[16]byte](0x80), Remote: true,
			Identities: []tree.Identity{{Scheme: "ip", ID: "10.0.0.7"}}})},
		{"reattach", batch(1, Request{Kind: RequestReattach, Session: 77, Password: filled[[16]byte](0x80), Timeout: 4 * time.Second,
			Identities: []tree.Identity{{Scheme: "ip", ID: "10.0.0.7"}}})},
		{"reattach-of-nobody", batch(1, Request{Kind: RequestReattach, Session: -1})},
		{"set-identities", batch(1, Request{Kind: RequestSetIdentities, Session: 77, Attached: 1 << 33, Identities: []tree.Identity{{Scheme: "digest", ID: "bob:hash"}, {Scheme: "super"}}})},
		{"set-no-identities", batch(1, Request{Kind: RequestSetIdentities, Session: 77})},
		{"add-shard", batch(1, Request{Kind: RequestAddShard, Session: 77, Shard: 4})},
		{"introduce", batch(1, Request{Kind: RequestIntroduce, Session: 77, Timeout: 10 * time.Second, Identities: []tree.Identity{{Scheme: "super"}}})},
		{"introduce-remote", batch(1, Request{Kind: RequestIntroduce, Session: 77, Timeout: 10 * time.Second, Attached: 1 << 33})},
		{"batch-that-knows-the-home-shard", Command{Kind: KindBatch, Origin: session.Origin{Member: 2, Start: 3}, Seq: 4, Home: 1 << 33}},
		{"close", batch(1, Request{Kind: RequestClose, Session: 1 << 40})},
		{"close-remote", batch(1, Request{Kind: RequestClose, Session: 77, Attached: 1 << 33})},
		{"close-for-silence", batch(1, Request{Kind: RequestClose, Session: 77, Attached: 1 << 33, Lost: true})},
		{"release", batch(1, Request{Kind: RequestRelease, Session: 77, Path: "/q/_c_x-lock-0000000001", Czxid: 1 << 33})},
		{"release-of-what-was-lost", batch(1, Request{Kind: RequestRelease, Session: 77, Path: "/q", Czxid: 1, Lost: true})},
		{"create-that-lingers", batch(1, txn(tree.Op{Kind: tree.KindCreate, Path: "/q/_c_x-lock-", Mode: tree.EphemeralSequential, TTL: 15000}))},
		{"all-requests", batch(1<<32, Request{Kind: RequestRelease, Session: 1, Path: "/q", Czxid: 9}, Request{Kind: RequestClose, Session: 1},
			Request{Kind: RequestOpen, Timeout: time.Second}, txn(tree.Op{Kind: tree.KindDelete, Path: "/a"}))},
		{"silence", Command{Kind: KindSilence, Wall: 1700000000123, Step: session.Step{Member: 2, Start: 3, LastSeq: 1000, Number: 4}, Silence: 2500 * time.Millisecond}},
		{"expire", Command{Kind: KindExpire, Wall: math.MinInt64}},
		{"purge", Command{Kind: KindPurge, Wall: 1700000000123, Purge: []Ending{{Session: 77, Lost: true, Former: []session.Incarnation{{Member: 2, Start: 3}, {Member: 1, Start: 1 << 40}}, Zxid: 1 << 40},
			{Session: -1, Former: []session.Incarnation{{Member: math.MaxUint64, Start: math.MaxUint64}}, Zxid: math.MaxUint64}}}},
		{"purge-nothing", Command{Kind: KindPurge, Purge: []Ending{}}},
		{"purged", Command{Kind: KindPurged, Shard: 64, Sessions: []tree.SessionID{77, -1}}},
		{"purged-nothing", Command{Kind: KindPurged, Shard: math.MaxUint32, Sessions: []tree.SessionID{}}},
		{"reap", Command{Kind: KindReap, Wall: 1700000000123, Reap: []Mortal{
			{"/a", tree.Seen{Czxid: 1, Mzxid: 200, Pzxid: 70000}}, {"/b/c", tree.Seen{Czxid: math.MaxUint64}}}}},
		{"raise", Command{Kind: KindRaise, Level: 2, Behind: []session.MemberID{}}},
		{"raise-that-leaves-members-behind", Command{Kind: KindRaise, Level: math.MaxUint32, Behind: []session.MemberID{3, math.MaxUint64}}},
		{"found", Command{Kind: KindFound, Wall: 1700000000000, Lineage: session.Lineage(filled[[16]byte](0x60)), Founders: []session.MemberID{1, 2, math.MaxUint64}, Shard: 4}},
		{"join", Command{Kind: KindJoin, Wall: 1700000000123, Join: session.Candidate{Directory: filled[[16]byte](0x10), Name: "pod-4", Zone: "b", Address: "pod-4.pods:7400", Observer: true,
			Former: session.Former{ID: 2, Directory: filled[[16]byte](0x20)}, Instead: []session.MemberID{2, 3}}}},
		{"join-of-the-largest-numbers", Command{Kind: KindJoin, Wall: math.MinInt64, Join: session.Candidate{Former: session.Former{ID: math.MaxUint64}, Instead: []session.MemberID{}}}},
		{"report", Command{Kind: KindReport, Wall: 1700000000000, Member: 4, Shard: 2, Place: session.Place{Part: session.Voter, Change: 70000}}},
		{"report-of-the-largest-numbers", Command{Kind: KindReport, Wall: math.MinInt64, Member: math.MaxUint64, Shard: math.MaxUint32, Place: session.Place{Part: math.MaxUint8, Change: math.MaxUint64}}},
		{"govern", Command{Kind: KindGovern, Number: 12, Member: 3}},
		{"want", Command{Kind: KindWant, Number: 12, Member: 4, Wish: session.Out, Reason: session.Silent, Wall: 1700000000123}},
		{"want-of-the-largest-numbers", Command{Kind: KindWant, Number: math.MaxUint64, Member: math.MaxUint64, Wish: math.MaxUint8, Reason: math.MaxUint8, Wall: math.MinInt64}},
		{"retire", Command{Kind: KindRetire, Member: math.MaxUint64}},
		{"recover", Command{Kind: KindRecover, Recovery: session.Recovery{Lineage: session.Lineage(filled[[16]byte](0x60)), Parent: session.Lineage(filled[[16]byte](0x20)), Survivor: 3},
			Lost: []session.MemberID{1, 2}, Zxid: 1 << 33, Wall: 1700000000123}},
		{"recover-of-the-largest-numbers", Command{Kind: KindRecover, Recovery: session.Recovery{Survivor: math.MaxUint64},
			Lost: []session.MemberID{math.MaxUint64}, Zxid: math.MaxUint64, Wall: math.MinInt64}},
		{"load-begins", Command{Kind: KindLoad, Wall: 1700000000123, Load: &Load{Source: filled[[32]byte](0x40), Zxid: 1 << 33, Znodes: []tree.Named{}}}},
		{"load", Command{Kind: KindLoad, Load: &Load{Part: 200, Source: filled[[32]byte](0x40), Znodes: []tree.Named{
			{Path: "/", Znode: tree.Znode{Created: 1, Data: []byte{}}}, {Path: "/a", Znode: tree.Znode{Czxid: 1, Mzxid: 200, Pzxid: 70000, TTL: 5, Data: []byte("data")}}}}}},
		{"load-of-the-largest-numbers", Command{Kind: KindLoad, Wall: math.MinInt64, Load: &Load{Part: math.MaxUint64, Zxid: math.MaxUint64, Last: true, Znodes: []tree.Named{}}}},
		{"announce", batch(1, Request{Kind: RequestAnnounce, Announce: Announce{Name: "pod-4", Address: "pod-4.pods:7400", Client: "pod-4.pods:2181", Zone: "b"}})},
		{"reap-nothing", Command{Kind: KindReap, Reap: []Mortal{}}},
	}
	var list []golden
	for _, v := range values {
		list = append(list, golden{v.name, v.c, v.c.encode, func(b []byte) (any, error) { return Decode(b) }})
	}
	return list
}

func goldenRecords() []golden {
	znode := func(name string, z tree.Znode) golden {
		return golden{name, z, func() []byte { return EncodeZnode(z) }, func(b []byte) (any, error) { return DecodeZnode(b) }}
	}
	record := func(name string, r session.Record) golden {
		return golden{name, r, func() []byte { return EncodeSession(r) }, func(b []byte) (any, error) { return DecodeSession(b) }}
	}
	origin := func(name string, o session.Origin) golden {
		return golden{name, o, func() []byte { return EncodeOrigin(o) }, func(b []byte) (any, error) { return DecodeOrigin(b) }}
	}
	one := func(name string, s State) golden {
		s.Level = max(s.Level, LevelMin)
		return golden{name, s, func() []byte { return EncodeState(s) }, func(b []byte) (any, error) { return DecodeState(b, LevelNext) }}
	}
	ensemble := func(name string, x session.Ensemble) golden {
		return golden{name, x, func() []byte { return EncodeEnsemble(x) }, func(b []byte) (any, error) { return DecodeEnsemble(b) }}
	}
	member := func(name string, m session.Member) golden {
		return golden{name, m, func() []byte { return EncodeMember(m) }, func(b []byte) (any, error) { return DecodeMember(b) }}
	}
	return []golden{
		znode("znode", tree.Znode{Czxid: 1, Mzxid: 200, Pzxid: 70000, Ctime: 1700000000123, Mtime: 1700000000456, Version: 2,
			Aversion: 3, Created: 4, Owner: 5, Data: []byte("data")}),
		znode("container", tree.Znode{Czxid: 1, Container: true, ACL: []tree.ACL{{Perms: tree.Read, Scheme: "digest", ID: "bob:hash"}}, Data: []byte{}}),
		znode("ttl-znode", tree.Znode{Czxid: 1, TTL: tree.MaxTTL}),
		znode("ephemeral-that-is-to-linger", tree.Znode{Czxid: 1, Owner: 5, TTL: 15000}),
		znode("znode-from-birth", tree.Znode{Version: -1, Aversion: -1, Data: []byte{}}),
		znode("znode-of-the-largest-numbers", tree.Znode{Czxid: math.MaxUint64, Mzxid: math.MaxUint64, Pzxid: math.MaxUint64,
			Ctime: math.MinInt64, Mtime: math.MaxInt64, Version: math.MinInt32, Aversion: math.MaxInt32, Created: math.MaxInt32, Owner: math.MinInt64}),
		record("session", session.Record{ID: 300, Password: filled[[16]byte](0x80), Timeout: 10 * time.Second, Origin: 2}),
		record("session-with-identities", session.Record{ID: 300, Timeout: 1, Origin: 2, Identities: []tree.Identity{{Scheme: "digest", ID: "bob:hash"}, {Scheme: "super"}}}),
		record("session-closing", session.Record{ID: -1, Timeout: 1, Origin: math.MaxUint64, Closing: true}),
		record("session-over-shards", session.Record{ID: 300, Timeout: 1, Origin: 2, Shards: []uint32{2, 3}}),
		record("session-of-a-remote-client", session.Record{ID: 300, Timeout: 1, Origin: 2, Attached: 70000, Shards: []uint32{2},
			Former: []session.Incarnation{{Member: 1, Start: 5}, {Member: 3, Start: 1 << 33}}}),
		record("session-ended", session.Record{ID: 300, Shards: []uint32{2}, Ended: 80000, Former: []session.Incarnation{{Member: 1, Start: 5}}}),
		record("session-lost", session.Record{ID: 300, Shards: []uint32{2}, Ended: 80000, Lost: true, Former: []session.Incarnation{{Member: 1, Start: 5}}}),
		record("session-of-the-largest-numbers", session.Record{ID: math.MaxInt64, Timeout: math.MaxInt64, Origin: math.MaxUint64, Attached: math.MaxUint64,
			Closing: true, Shards: []uint32{math.MaxUint32}, Ended: math.MaxUint64, Former: []session.Incarnation{{Member: math.MaxUint64, Start: math.MaxUint64}}}),
		origin("origin", session.Origin{Member: 2, Start: 3, Directory: filled[[16]byte](0x10), Digest: filled[[32]byte](0x40), Level: 1,
			LastSeq: 1000, Steps: 4, Silence: 5 * time.Second}),
		origin("origin-of-the-largest-numbers", session.Origin{Member: math.MaxUint64, Start: math.MaxUint64, Level: math.MaxUint32,
			LastSeq: math.MaxUint64, Steps: math.MaxUint64, Silence: math.MaxInt64}),
		origin("origin-with-schemes", session.Origin{Member: 2, Start: 3, Level: 2, Schemes: []string{"digest", "ip"}}),
		origin("origin-retired", session.Origin{Member: 2, Start: 3, Level: 3, Schemes: []string{"ip"}, Retired: true}),
		ensemble("ensemble", session.Ensemble{Lineage: session.Lineage(filled[[16]byte](0x60)), Next: 70000, Shards: 4, Govern: 300, Governor: 2}),
		ensemble("ensemble-of-the-largest-numbers", session.Ensemble{Next: math.MaxUint64, Shards: math.MaxUint32, Govern: math.MaxUint64, Governor: math.MaxUint64}),
		ensemble("ensemble-that-was-recovered", session.Ensemble{Lineage: session.Lineage(filled[[16]byte](0x60)), Next: 1004, Shards: 1,
			Ancestors: []session.Lineage{session.Lineage(filled[[16]byte](0x20)), session.Lineage(filled[[16]byte](0x40))}}),
		member("member", session.Member{ID: 2, Directory: filled[[16]byte](0x10)}),
		member("member-of-many-places", session.Member{ID: 4, Name: "pod-4", Zone: "b", Address: "pod-4.pods:7400", Client: "pod-4.pods:2181", Observer: true, Wish: session.Out,
			Reason: session.Replaced, Since: 1700000000123, Places: []session.Place{{Part: session.Learner, Change: 300}, {}}}),
		member("member-of-the-largest-numbers", session.Member{ID: math.MaxUint64, Wish: math.MaxUint8, Reason: math.MaxUint8, Since: math.MinInt64,
			Places: []session.Place{{Part: math.MaxUint8, Change: math.MaxUint64}}}),
		one("state", State{Zxid: 70000}),
		one("state-that-is-ahead", State{Zxid: 1 << 50, Lead: 1 << 32}),
		one("state-of-the-largest-numbers", State{Zxid: math.MaxUint64, Lead: math.MaxUint64}),
		one("state-with-a-bound", State{Zxid: 1, Rules: Rules{TreeMax: math.MaxInt64}}),
		one("state-with-schemes", State{Zxid: 1, Rules: Rules{Schemes: []string{"digest", "ip"}}}),
		one("state-of-the-next-level", State{Level: LevelNext, Zxid: 70000, Rules: Rules{Schemes: []string{"digest"}}}),
		one("state-of-a-shard-in-use", State{Zxid: 70000, Seed: Seed{Done: true}}),
		one("state-that-is-loaded", State{Zxid: 1 << 33, Seed: Seed{Source: filled[[32]byte](0x40), Next: 300}}),
		one("state-that-was-loaded", State{Zxid: 1 << 33, Seed: Seed{Source: filled[[32]byte](0x40), Next: math.MaxUint64, Done: true}}),
	}
}

func TestCommandBytesNeverChange(t *testing.T) { checkGolden(t, "commands.txt", goldenCommands()) }
func TestRecordBytesNeverChange(t *testing.T)  { checkGolden(t, "records.txt", goldenRecords()) }

// checkGolden compares encodings with the golden file, and decodes the file's bytes. The file has a
// line "name: hex" for each value.
func checkGolden(t *testing.T, file string, list []golden) {
	t.Helper()
	name := filepath.Join("testdata", file)
	if *update {
		var out strings.Builder
		for _, g := range list {
			fmt.Fprintf(&out, "%s: %x\n", g.name, g.encode())
		}
		if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string][]byte)
	for line := range strings.Lines(string(content)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if want[name], err = hex.DecodeString(digits); err != nil {
			t.Fatal(err)
		}
	}
	if len(want) != len(list) {
		t.Errorf("%d values, %d lines in %s", len(list), len(want), file)
	}
	for _, g := range list {
		if got := g.encode(); !bytes.Equal(got, want[g.name]) {
			t.Errorf("%s is encoded as\n%x, want\n%x", g.name, got, want[g.name])
		}
		switch got, err := g.decode(want[g.name]); {
		case err != nil:
			t.Errorf("%s: %v", g.name, err)
		case !reflect.DeepEqual(got, g.value):
			t.Errorf("%s is decoded as\n%+v, want\n%+v", g.name, got, g.value)
		}
	}
}

// checkCanonical checks that b is refused, or is what the encoder writes. All members read the same
// bytes. If a value had two encodings, a later version could tell them apart.
func checkCanonical(t *testing.T, b []byte, decode func([]byte) (any, error), encode func(any) []byte) {
	t.Helper()
	before := bytes.Clone(b)
	v, err := decode(b)
	if !bytes.Equal(b, before) {
		t.Fatalf("decoding changed its input %x", before)
	}
	if err != nil {
		if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrLevel) {
			t.Fatalf("%x: %v", b, err)
		}
		return
	}
	if again := encode(v); !bytes.Equal(again, b) {
		t.Fatalf("%x is decoded as %+v, which is encoded as\n%x", b, v, again)
	}
}

func decodeAnyCommand(b []byte) (any, error) { return Decode(b) }
func encodeAnyCommand(v any) []byte          { return v.(Command).encode() }

func encodeAnyRecord(v any) []byte {
	switch v := v.(type) {
	case tree.Znode:
		return EncodeZnode(v)
	case session.Record:
		return EncodeSession(v)
	case session.Origin:
		return EncodeOrigin(v)
	case session.Member:
		return EncodeMember(v)
	case session.Ensemble:
		return EncodeEnsemble(v)
	}
	return EncodeState(v.(State))
}

// damaged calls fn with every prefix of b, with b and one more byte, and with every value of every
// byte; by day with every fifth value.
func damaged(b []byte, fn func([]byte)) {
	step := 5 // 255 is among them
	if testkit.Night() {
		step = 1
	}
	for n := range b {
		fn(b[:n])
	}
	fn(append(bytes.Clone(b), 0))
	for i := range b {
		changed := bytes.Clone(b)
		for v := 0; v < 256; v += step {
			changed[i] = byte(v)
			fn(changed)
		}
	}
}

func TestOnlyCanonicalBytesAreRead(t *testing.T) {
	for _, g := range goldenCommands() {
		damaged(g.encode(), func(b []byte) { checkCanonical(t, b, decodeAnyCommand, encodeAnyCommand) })
	}
	for _, g := range goldenRecords() {
		damaged(g.encode(), func(b []byte) { checkCanonical(t, b, g.decode, encodeAnyRecord) })
	}
}

// MessagePack has several forms for numbers, strings, data and arrays. The encoder uses one of
// each.
func TestOtherFormsOfTheSameValueAreRefused(t *testing.T) {
	expire := "920405"
	silence := "9703" + "02" + "03" + "cd03e8" + "04" + "05" + "06"
	beat := "9702" + "02" + "03" + "04" + "05" + "06" + "90"
	release := "9702" + "02" + "03" + "04" + "05" + "06" + "91" + "95" + "04" + "01" + "a2" + "2f71" + "09" + "00"
	register := "9901" + "02" + "03" + "c410" + strings.Repeat("00", 16) + "c420" + strings.Repeat("00", 32) + "01" + "05" + "90" + "00"
	for _, s := range []string{expire, silence, beat, release, register} {
		b, _ := hex.DecodeString(s)
		if _, err := Decode(b); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	for name, s := range map[string]string{
		"array of 16-bit length":          "dc00020405",
		"array of 32-bit length":          "dd000000020405",
		"kind in two bytes":               "92cc0405",
		"kind in nine bytes":              "92cf000000000000000405",
		"signed kind":                     "92d00405",
		"kind beyond a byte":              "92cd010405",
		"nil kind":                        "92c005",
		"no kind":                         "90",
		"unknown kind without fields":     "904d",
		"unknown kind":                    "914d",
		"batch of nil requests":           beat[:len(beat)-2] + "c0",
		"request without a kind":          strings.Replace(release, "9504", "9009", 1)[:16],
		"unknown request kind":            strings.Replace(release, "9504", "9509", 1),
		"string of 8-bit length":          strings.Replace(release, "a22f71", "d9022f71", 1),
		"path as data":                    strings.Replace(release, "a22f71", "c4022f71", 1),
		"nil path":                        strings.Replace(release, "a22f71", "c0", 1),
		"directory id of 16-bit length":   strings.Replace(register, "c410", "c50010", 1),
		"directory id as a string":        strings.Replace(register, "c410", "b0", 1),
		"directory id of another length":  strings.Replace(register, "c41000", "c40f", 1),
		"number larger than needed":       strings.Replace(silence, "cd03e8", "ce000003e8", 1),
		"negative number where none fits": strings.Replace(silence, "cd03e8", "ff", 1),
	} {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %s is decoded as %+v, %v", name, s, c, err)
		}
	}
}

// C13.1: a command's bytes belong to the Raft log, which uses them again. By then the replica has
// let go of the data.
func TestDecodedCommandSharesNothingButDataWithItsBytes(t *testing.T) {
	for _, g := range goldenCommands() {
		b := g.encode()
		c, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			b[i] ^= 0xff
		}
		for _, r := range c.Requests {
			for i := range r.Ops {
				for j := range r.Ops[i].Data {
					r.Ops[i].Data[j] ^= 0xff
				}
			}
		}
		if c.Load != nil {
			for _, z := range c.Load.Znodes {
				for j := range z.Data {
					z.Data[j] ^= 0xff
				}
			}
		}
		if !reflect.DeepEqual(c, g.value) {
			t.Errorf("%s changed with its input", g.name)
		}
	}
}

// No entry leaves anything to the next one.
func TestReaderKeepsNothingOfAnEntry(t *testing.T) {
	var r Reader
	for range 2 {
		for _, g := range goldenCommands() {
			c, err := r.Decode(g.encode())
			if err != nil || !reflect.DeepEqual(c, g.value) {
				t.Errorf("%s is decoded as\n%+v, %v, want\n%+v", g.name, c, err, g.value)
			}
			r.Reset()
			for _, q := range r.requests[:cap(r.requests)] {
				if !reflect.DeepEqual(q, Request{}) {
					t.Fatalf("%s: Reset kept %+v", g.name, q)
				}
			}
			for _, op := range r.ops[:cap(r.ops)] {
				if !reflect.DeepEqual(op, tree.Op{}) {
					t.Fatalf("%s: Reset kept %+v", g.name, op)
				}
			}
		}
	}
}

// A command of the next level is another one than this build's, and only who reads that level takes it.
func TestDecode_OfTheNextLevel(t *testing.T) {
	b := EncodeExpire(5, LevelNext)
	if _, err := Decode(b); !errors.Is(err, ErrMalformed) {
		t.Errorf("this build reads it: %v", err)
	}
	next := Reader{Next: true}
	for _, b := range [][]byte{b, EncodeExpire(5, LevelMax)} {
		if c, err := next.Decode(b); err != nil || c.Kind != KindExpire || c.Wall != 5 {
			t.Errorf("%x is read as %+v, %v", b, c, err)
		}
	}
}

// B5: the level comes first, because the rest of a state of another level may have another form.
func TestImageOfAnotherLevelIsRefused(t *testing.T) {
	for _, state := range [][]byte{{0x94, LevelMax + 1, 0x05, 0x90, 0x00}, {0x92, LevelMax + 1, 0xc0}, {0x94, LevelMin - 1, 0x05, 0x90, 0x00}} {
		if _, err := DecodeState(state, LevelMax); !errors.Is(err, ErrLevel) {
			t.Errorf("%x: %v", state, err)
		}
	}
}

// The package doc draws every field of every command, request and record.
func TestDocShowsEveryField(t *testing.T) {
	request := func(k RequestKind) []byte { return EncodeRequest(&Request{Kind: k}) }
	src, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"register": EncodeRegister(session.Origin{}, 0, Rules{}), "batch": EncodeBatch(0, 0, 0, 0, 0, 0, slices.Values([][]byte(nil))),
		"silence": EncodeSilence(session.Step{}, 0, 0), "expire": EncodeExpire(0, 1), "reap": EncodeReap(0, nil),
		"purge": EncodePurge(0, nil), "purged": EncodePurged(0, nil), "raise": EncodeRaise(0, nil), "found": EncodeFound(session.Lineage{}, nil, 0, 0),
		"govern": EncodeGovern(0, 0), "want": EncodeWant(0, 0, 0, 0, 0), "retire": EncodeRetire(0), "load": EncodeLoad(Load{}, 0), "seed": encoded(func(e *encoder) { e.seed(Seed{Next: 1}) }),
		"recover": EncodeRecover(session.Recovery{}, nil, 0, 0),
		"join":    EncodeJoin(session.Candidate{}, 0), "report": EncodeReport(0, 0, session.Place{}, 0), "announce": request(RequestAnnounce),
		"txn": request(RequestTxn), "open": request(RequestOpen), "close": request(RequestClose), "release": request(RequestRelease),
		"addShard": request(RequestAddShard), "introduce": request(RequestIntroduce), "reattach": request(RequestReattach),
		"setIdentities": request(RequestSetIdentities), "op": encoded(func(e *encoder) { e.op(&tree.Op{}) }),
		"znode": EncodeZnode(tree.Znode{}), "session": EncodeSession(session.Record{}), "origin": EncodeOrigin(session.Origin{}), "state": EncodeState(State{Level: LevelMax}),
		"member": EncodeMember(session.Member{}), "ensemble": EncodeEnsemble(session.Ensemble{}),
	} {
		want := newDecoder(b).array()
		if got := drawnFields(string(src), name); len(got) != want {
			t.Errorf("%s has %d fields, doc.go draws %d: %q", name, want, len(got), got)
		} else if drawn, err := strconv.Atoi(got[0]); err == nil && drawn != int(b[1]) {
			t.Errorf("%s has kind %d, doc.go draws %d", name, b[1], drawn)
		}
	}
}

func encoded(write func(*encoder)) []byte {
	e := newEncoder()
	write(e)
	return e.done()
}

// drawnFields returns the fields of the array that the doc draws behind a name.
func drawnFields(doc, name string) (fields []string) {
	_, drawing, _ := strings.Cut(strings.ReplaceAll(doc, "\n//", ""), "\t"+name+" ")
	drawing = strings.TrimLeft(drawing, " ")
	depth, field := 0, ""
	for _, r := range drawing {
		switch {
		case r == '[' && depth == 0:
		case (r == ',' || r == ']') && depth == 1:
			fields, field = append(fields, strings.TrimSpace(field)), ""
		default:
			field += string(r)
		}
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		}
		if depth == 0 {
			return fields
		}
	}
	return nil
}

func FuzzDecodeCommand(f *testing.F) {
	for _, g := range goldenCommands() {
		f.Add(g.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkCanonical(t, b, decodeAnyCommand, encodeAnyCommand) })
}

func FuzzDecodeRecord(f *testing.F) {
	records := goldenRecords()
	for _, g := range records {
		f.Add(g.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, g := range records {
			checkCanonical(t, b, g.decode, encodeAnyRecord)
		}
	})
}
