package zkdir

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang/snappy"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// An encoder writes jute.
type encoder []byte

func (e *encoder) add(values ...any) *encoder {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			*e = append(binary.BigEndian.AppendUint32(*e, uint32(len(v))), v...)
		case []byte:
			if v == nil {
				e.add(int32(-1))
				continue
			}
			*e = append(binary.BigEndian.AppendUint32(*e, uint32(len(v))), v...)
		case int:
			*e = binary.BigEndian.AppendUint64(*e, uint64(v))
		case int32:
			*e = binary.BigEndian.AppendUint32(*e, uint32(v))
		case bool:
			*e = append(*e, map[bool]byte{true: 1}[v])
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return e
}

// raw adds bytes without a length.
func (e *encoder) raw(s string) *encoder {
	*e = append(*e, s...)
	return e
}

func (e *encoder) seal() *encoder { return e.add(int(adler32.Checksum(*e)), "/") }

// aLog returns a log of these values.
func aLog(values ...*encoder) []byte {
	e := new(encoder).raw(logMagic).add(int32(formatVersion), 0)
	for _, v := range values {
		e.add(int(adler32.Checksum(*v)), []byte(*v)).raw("B")
	}
	return *e
}

const session = 0x100

// header begins a transaction.
func header(zxid int, kind int32) *encoder {
	return new(encoder).add(session, int32(1), zxid, 1000+zxid, kind)
}

// acl is a list of one entry.
func (e *encoder) acl(perms int32, scheme, id string) *encoder {
	return e.add(int32(1), perms, scheme, id)
}

// aTree is a snapshot at zxid 1 with the znodes / and /a. Its bytes go on with what a version adds.
func aTree() *encoder {
	e := new(encoder).raw(snapshotMagic).add(int32(formatVersion), -1)
	e.add(int32(1), session, int32(4000))
	e.add(int32(1), 1).acl(1, "digest", "user:x")
	e.znode("", nil, -1, 0, 0, 0)
	e.znode("/a", []byte("one"), 1, 1, 3, 0)
	return e.add("/").seal()
}

func (e *encoder) znode(path string, data []byte, acl, zxid int, created int32, owner int) *encoder {
	return e.add(path, data, acl, zxid, zxid, 1001, 1001, int32(0), created, int32(0), owner, zxid)
}

// files writes a directory.
func files(t *testing.T, list map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range list {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return dir
}

// show describes a tree in words.
func show(t *Tree) string {
	var b strings.Builder
	for path, z := range t.Znodes() {
		fmt.Fprintf(&b, "%s=%q %d.%d.%d", path, z.Data, z.Version, z.Created, z.Aversion)
		if z.Owner != 0 || z.Container || z.TTL != 0 {
			fmt.Fprintf(&b, " owner %#x %v %d", int64(z.Owner), z.Container, z.TTL)
		}
		if z.ACL != nil {
			fmt.Fprintf(&b, " %v", z.ACL)
		}
		fmt.Fprintf(&b, " %d/%d/%d\n", z.Czxid, z.Mzxid, z.Pzxid)
	}
	return fmt.Sprintf("%#x at %d\n%s", uint64(t.Zxid), t.millis, &b)
}

// The log behind aTree, without digests and what came later than 3.4.
func someLog() []byte {
	multi := header(7, opMulti).add(int32(3))
	multi.add(int32(opCreate), []byte(*new(encoder).add("/a/m", []byte{}).acl(31, "world", "anyone").add(false, int32(5))))
	multi.add(int32(opSetData), []byte(*new(encoder).add("/a", []byte("seven"), int32(1))))
	multi.add(int32(opCheck), []byte(*new(encoder).add("/a", int32(1))))
	failed := header(8, opMulti).add(int32(1), int32(opError), []byte(*new(encoder).add(int32(-101))))
	return aLog(
		header(2, opCreateSession).add(int32(4000)),
		header(3, opCreate).add("/a/e", []byte(nil)).acl(31, "world", "anyone").add(true), // as the first versions of 3.4 wrote it
		header(4, opSetACL).add("/a").acl(31, "ip", "10.0.0.1").add(int32(1)),
		header(5, opError).add(int32(-110)),
		header(6, opDelete).add("/none"),
		multi, failed,
		header(9, opCloseSession),
	)
}

const afterSomeLog = "0x9 at 1009\n" +
	"/=\"\" 0.0.0 0/0/6\n" +
	"/a=\"seven\" 1.5.1 [{31 ip 10.0.0.1}] 1/7/9\n" +
	"/a/m=\"\" 0.0.0 7/7/7\n"

// What a server of 3.4 leaves is read, and the same in the formats that came later.
func TestRead(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(*aTree())
	testkit.Must(t, err)
	testkit.Must(t, z.Close())
	snapped := new(encoder).raw(snappyHead).add(int32(1), int32(1))
	for _, part := range [][]byte{(*aTree())[:100], (*aTree())[100:]} {
		snapped.add(snappy.Encode(nil, part))
	}
	digest := func(zxid int, version int32) *encoder { return aTree().add(zxid, version, 77).seal() }
	for name, list := range map[string]map[string][]byte{
		"3.4":                     {"snapshot.1": *aTree()},
		"3.5, gz":                 {"snapshot.1.gz": zipped.Bytes()},
		"3.5, snappy":             {"snapshot.1.snappy": *snapped},
		"3.6":                     {"snapshot.1": *digest(4, 2)},
		"of a digest to come":     {"snapshot.1": *digest(4, 3)},
		"3.6, first digest":       {"snapshot.1": *aTree().add(4, int32(1), "4d").seal()},
		"3.9":                     {"snapshot.1": *digest(4, 2).add(1).seal()},
		"3.9, no digest":          {"snapshot.1": *aTree().add(1).seal()},
		"an older one too":        {"snapshot.0": []byte("damaged"), "snapshot.1": *aTree()},
		"a newer one that is cut": {"snapshot.1": *aTree(), "snapshot.5": (*aTree())[:60]},
		"a log that begins anew":  {"snapshot.1": *aTree(), "log.a": nil},
		"an empty log":            {"snapshot.1": *aTree(), "log.1": nil},
		"a log that grew":         {"snapshot.1": *aTree(), "log.2": append(someLog(), make([]byte, 100)...)},
		"a record that is cut":    {"snapshot.1": *aTree(), "log.2": append(append(someLog(), aLog(header(10, opDelete).add("/a/m"))[logHead:50]...), make([]byte, 100)...)},
		"other files":             {"snapshot.1": *aTree(), "acceptedEpoch": nil, "snapshot.tmp": nil},
	} {
		t.Run(name, func(t *testing.T) {
			if list["log.2"] == nil {
				list["log.2"] = someLog()
			}
			dir := files(t, list)
			got, err := Read(dir, dir)
			testkit.Must(t, err)
			if s := show(got); s != afterSomeLog {
				t.Errorf("got\n%s", s)
			}
		})
	}
}

// A compressed snapshot takes no more memory than its size can justify.
func TestUnzip(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(make([]byte, 1<<20))
	testkit.Must(t, errors.Join(err, z.Close()))
	if b, err := unzip(zipped.Bytes(), 1<<20); err != nil || len(b) != 1<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := unzip(zipped.Bytes(), 1<<20-1); err == nil || !strings.Contains(err.Error(), "unpack it with gunzip first") {
		t.Error(err)
	}
}

// Everything else that a log can have.
func TestRead_Kinds(t *testing.T) {
	dir := files(t, map[string][]byte{"log.1": aLog(
		header(1, opCreateContainer).add("/c", []byte("x")).acl(31, "world", "anyone").add(int32(1)),
		header(2, opCreateTTL).add("/t", []byte("x")).acl(31, "world", "anyone").add(int32(2), 5000),
		header(3, opCreate2).add("/e", []byte("x")).acl(31, "world", "anyone").add(true, int32(3)),
		header(4, opCreate).add("/f", []byte("x")).acl(31, "world", "anyone").add(true, int32(4)),
		header(5, opReconfig).add("/zookeeper/config", []byte("server.1"), int32(-1)),
		header(6, opDeleteContainer).add("/c"),
		header(7, opCloseSession).add(int32(1), "/e"),
	), "log.8": aLog(
		header(8, opCreate).add("/zookeeper/quota/t", []byte(nil)).acl(31, "world", "anyone").add(false, int32(1)),
		header(1<<32|1, opCreate).add("/later", []byte(nil)).acl(31, "world", "anyone").add(false, int32(5)),
	)})
	got, err := Read(dir, dir)
	testkit.Must(t, err)
	want := "0x100000001 at 4294968297\n" +
		"/=\"\" 0.5.0 0/0/4294967297\n" +
		"/later=\"\" 0.0.0 4294967297/4294967297/4294967297\n" +
		"/t=\"x\" 0.0.0 owner 0x0 false 5000 2/2/2\n" +
		"/zookeeper=\"\" 0.0.0 0/0/0\n" +
		"/zookeeper/quota=\"\" 0.1.0 0/0/8\n" +
		"/zookeeper/quota/t=\"\" 0.0.0 8/8/8\n"
	if s := show(got); s != want {
		t.Errorf("got\n%s", s)
	}
}

// A snapshot may have what came while it was written: a znode that was created later, one that was
// deleted later and is gone, and one that was deleted and created again. An ACL that came meanwhile is
// not in its table.
func TestRead_AFuzzySnapshot(t *testing.T) {
	s := new(encoder).raw(snapshotMagic).add(int32(formatVersion), -1, int32(0), int32(0))
	s.znode("", nil, -1, 0, 0, 0).znode("/a", []byte("old"), -1, 1, 2, 0)
	s.znode("/a/new", []byte("three"), 7, 3, 0, 0).znode("/a/twice", []byte("first"), -1, 1, 0, 0)
	list := map[string][]byte{"snapshot.1": *s.add("/").seal(), "log.2": aLog(
		header(2, opCreate).add("/a/gone", []byte("x")).acl(31, "world", "anyone").add(false, int32(2)),
		header(3, opCreate).add("/a/new", []byte("three")).acl(1, "ip", "10.0.0.1").add(false, int32(3)),
		header(4, opDelete).add("/a/gone"),
		header(5, opDelete).add("/a/twice"),
		header(6, opCreate).add("/a/twice", []byte("second")).acl(31, "world", "anyone").add(false, int32(4)),
		header(7, opSetData).add("/a", []byte("new"), int32(1)),
	)}
	dir := files(t, list)
	got, err := Read(dir, dir)
	testkit.Must(t, err)
	want := "0x7 at 1007\n" +
		"/=\"\" 0.0.0 0/0/0\n" +
		"/a=\"new\" 1.4.0 1/7/6\n" +
		"/a/new=\"three\" 0.0.0 [{1 ip 10.0.0.1}] 3/3/3\n" +
		"/a/twice=\"second\" 0.0.0 6/6/6\n"
	if s := show(got); s != want {
		t.Errorf("got\n%s", s)
	}
	// Without the log behind it, the snapshot is no state that anybody has seen.
	list["log.2"] = aLog(header(2, opCreate).add("/a/gone", []byte("x")).acl(31, "world", "anyone").add(false, int32(2)))
	dir = files(t, list)
	if _, err := Read(dir, dir); err == nil || !strings.Contains(err.Error(), "ends at transaction 0x2, and the snapshot has 0x3") {
		t.Errorf("without its log: %v", err)
	}
}

// A session of the servers 128 and 255 may look like a TTL, when the machine has run for less than
// 4.7 hours. A transaction says which it is. A snapshot has a table of sessions; those that came while
// it was written are in the log.
func TestRead_SessionsThatLookLikeTTLs(t *testing.T) {
	for _, server := range []int{0x80, 0xff} {
		session, later := server<<56|1_000_000<<16, server<<56|1_000_001<<16
		by := func(session, zxid int, kind int32) *encoder {
			return new(encoder).add(session, int32(1), zxid, 1000+zxid, kind)
		}
		s := new(encoder).raw(snapshotMagic).add(int32(formatVersion), -1, int32(1), session, int32(4000), int32(0))
		s.znode("", nil, -1, 0, 3, 0).znode("/in-table", nil, -1, 1, 0, session)
		s.znode("/later", nil, -1, 3, 0, later).znode("/ttl", nil, -1, 1, 0, server<<56|5000)
		dir := files(t, map[string][]byte{"snapshot.1": *s.add("/").seal(), "log.2": aLog(
			by(later, 2, opCreateSession).add(int32(4000)),
			by(later, 3, opCreate).add("/later", []byte(nil)).acl(31, "world", "anyone").add(true, int32(3)),
			by(session, 4, opCreate).add("/in-log", []byte(nil)).acl(31, "world", "anyone").add(true, int32(4)),
		)})
		got, err := Read(dir, dir)
		testkit.Must(t, err)
		for path, want := range map[string]tree.Znode{
			"/in-table": {Owner: tree.SessionID(session)}, "/in-log": {Owner: tree.SessionID(session)},
			"/later": {Owner: tree.SessionID(later)}, "/ttl": {TTL: 5000},
		} {
			if z := got.znodes[path]; z == nil || z.Owner != want.Owner || z.TTL != want.TTL {
				t.Errorf("server %#x, %s: %+v", server, path, z)
			}
		}
		got.apply(&txn{session: tree.SessionID(later), zxid: 5, kind: opCloseSession})
		if got.znodes["/later"] != nil {
			t.Errorf("server %#x: the end of a session left its ephemeral", server)
		}
	}
}

// What cannot be made a state that clients have seen is refused, with what is wrong.
func TestRead_Refused(t *testing.T) {
	behind := func(list ...*encoder) []byte { return append(someLog(), aLog(list...)[logHead:]...) }
	digested := func(digest int) []byte { return behind(header(10, opDelete).add("/none", int32(2), digest)) }
	damaged := someLog()
	damaged[60] ^= 1
	for name, test := range map[string]struct {
		list map[string][]byte
		want string
	}{
		"nothing":                     {nil, "neither a snapshot nor a log"},
		"a damaged snapshot":          {map[string][]byte{"snapshot.1": (*aTree())[:50], "log.2": someLog()}, "snapshot.1: a vector of 1 elements"},
		"a log without its beginning": {map[string][]byte{"log.2": someLog()}, "does not go back to the first transaction"},
		"a file is missing":           {map[string][]byte{"snapshot.1": *aTree(), "log.3": aLog(header(3, opDelete).add("/a"))}, "log.3: byte 16: transaction 0x3 comes after 0x1: a file of the log is missing"},
		"a log of a newer snapshot":   {map[string][]byte{"snapshot.1": *aTree(), "snapshot.20": []byte("cut"), "log.2": someLog()}, "ends at transaction 0x9"},
		"a digest later than the log": {map[string][]byte{"snapshot.1": *aTree().add(100, int32(2), 1).seal(), "log.2": someLog()}, "and the snapshot has 0x64"},
		"another digest":              {map[string][]byte{"snapshot.1": *aTree(), "log.2": digested(1)}, "the server had 0x1: these files do not belong together"},
		"a snapshot's digest":         {map[string][]byte{"snapshot.1": *aTree().add(1, int32(2), 1).seal(), "log.1": aLog(header(1, opCreateSession).add(int32(4000)))}, "the server had 0x1"},
		"no log":                      {map[string][]byte{"snapshot.1": *aTree()}, "no log that goes as far as the snapshot"},
		"an old log":                  {map[string][]byte{"snapshot.50": *aTree(), "log.2": someLog()}, "no log that goes as far as the snapshot, which is of transaction 0x50"},
		"a snapshot in a gap": {map[string][]byte{"snapshot.1": *aTree(), "snapshot.40": []byte("damaged"), "log.2": behind(header(1<<32|1, opDelete).add("/none"))},
			"snapshot.40 lies between: a file of the log is missing"},
		"a damaged record":       {map[string][]byte{"snapshot.1": *aTree(), "log.2": damaged}, "log.2: byte 16: "},
		"a renamed log":          {map[string][]byte{"snapshot.1": *aTree(), "log.1": someLog()}, "its first transaction is 0x2"},
		"an unknown kind":        {map[string][]byte{"snapshot.1": *aTree(), "log.2": behind(header(10, 99).add("/a"))}, "of a type that ZooKeeper 3.9 does not have"},
		"too long a transaction": {map[string][]byte{"snapshot.1": *aTree(), "log.2": behind(header(10, opDelete).add("/a").raw("abc"))}, "3 bytes too many"},
		"no parent":              {map[string][]byte{"snapshot.1": *new(encoder).raw(snapshotMagic).add(int32(2), -1, int32(0), int32(0)).znode("", nil, -1, 0, 0, 0).znode("/a/b", nil, -1, 1, 0, 0).add("/").seal(), "log.2": someLog()}, `znode "/a/b" has no parent`},
		"no ACL":                 {map[string][]byte{"snapshot.1": *new(encoder).raw(snapshotMagic).add(int32(2), -1, int32(0), int32(0)).znode("", nil, 5, 0, 0, 0).add("/").seal(), "log.2": someLog()}, "has an ACL that neither the snapshot nor the log has"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, test.list)
			if got, err := Read(dir, dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none"), "."); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// Whatever byte is changed, the outcome is refused or right. A log that is cut ends earlier, as it
// does for ZooKeeper, and says so.
func TestRead_Damage(t *testing.T) {
	list := map[string][]byte{"snapshot.1": *aTree().add(4, int32(2), 77).seal().add(1).seal(), "log.2": append(someLog(), make([]byte, 20)...)}
	dir := files(t, list)
	write := func(name string, content []byte) {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	// with reads the directory while one file has another content.
	with := func(name string, content []byte) (*Tree, error) {
		defer write(name, list[name])
		write(name, content)
		return Read(dir, dir)
	}
	states := make(map[string]bool) // after each transaction that the log may end with
	whole, err := Read(dir, dir)
	testkit.Must(t, err)
	right := show(whole)
	cuts := make(map[int]bool) // by where the log ends; not where a record's first zeros may be
	for at := logHead; at < len(someLog()); {
		value, ok, err := record(someLog()[at:])
		if !ok {
			t.Fatal(at, err)
		}
		next := at + recordHead + len(value) + 1
		for n := at + recordHead; n < next; n++ {
			cuts[n] = true
		}
		cuts[next] = false
		at = next
	}
	for n := logHead; n <= len(someLog()); n++ {
		got, err := with("log.2", append(someLog()[:n], make([]byte, len(someLog())-n+20)...))
		if err == nil {
			states[show(got)] = true
		}
		if want, certain := cuts[n]; err == nil && certain && got.Cut != want {
			t.Errorf("cut at byte %d: %v", n, got.Cut)
		}
	}
	if len(states) != 5 { // after the transactions 5 to 9: after 4 the digest is not the snapshot's
		t.Errorf("%d states", len(states))
	}
	refused := 0
	for name, content := range list {
		for at := range content {
			for _, bit := range []byte{1, 0x80} {
				changed := bytes.Clone(content)
				changed[at] ^= bit
				got, err := with(name, changed)
				switch {
				case err != nil:
					refused++
				case show(got) != right:
					t.Errorf("%s, byte %d changed by %#x:\n%s", name, at, bit, show(got))
				}
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d changes were refused", refused)
	}
	for n := range list["snapshot.1"] {
		if got, err := with("snapshot.1", list["snapshot.1"][:n]); err == nil && show(got) != right {
			t.Errorf("a snapshot of %d bytes:\n%s", n, show(got))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(*aTree()), someLog())
	f.Fuzz(func(t *testing.T, snapshot, log []byte) {
		s, err := parseSnapshot(snapshot, 1)
		if err != nil {
			return
		}
		_, _ = eachTxn(log, func(x *txn) error { return s.tree.next(x, s.fuzzy) })
		_ = s.tree.check()
		for path := range s.tree.Znodes() {
			_ = tree.Parent(path)
		}
	})
}
