package replication

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit/golden"
)

func testIdentity() Identity {
	id := Identity{
		Digest: Founding("orders", []MemberID{1, 2, 3}, 2), Member: 2, Shards: 2, Ensemble: "orders", Start: 41, Log: LogTan,
		Lineage: [16]byte{5, 6},
		Peers:   map[MemberID][16]byte{1: {1, 2}, 3: {3, 4}},
	}
	id.Directory[0], id.Directory[15] = 0xab, 0xcd
	return id
}

func TestIdentity_RoundTrip(t *testing.T) {
	dir, d := t.TempDir(), newPlainDisk(t)
	if _, found, err := ReadIdentity(d, dir); found || err != nil {
		t.Fatalf("empty directory: found %v, %v", found, err)
	}
	want := testIdentity()
	for range 2 { // the second write replaces the first
		want.Start++
		if err := WriteIdentity(d, dir, want); err != nil {
			t.Fatal(err)
		}
		got, found, err := ReadIdentity(d, dir)
		if err != nil || !found || !reflect.DeepEqual(got, want) {
			t.Fatalf("read %+v, %v, %v; wrote %+v", got, found, err, want)
		}
	}
}

// The file's format is fixed, because a newer version must read it.
func TestIdentity_Golden(t *testing.T) {
	first := testIdentity()
	first.Lineage = [16]byte{}
	joined := testIdentity()
	joined.Member, joined.Founders, joined.Joined, joined.Peers = 7, []MemberID{1, 2, 3}, true, nil
	joined.Former, joined.Out = Former{Member: 2, Directory: [16]byte{6, 7}}, "left"
	joining := joined
	joining.Member, joining.Lineage, joining.Founders, joining.Joined, joining.Out = 0, [16]byte{}, nil, false, ""
	recovering, recovered := testIdentity(), testIdentity()
	recovering.Commits = []uint64{7, 9}
	recovering.Recovering, recovering.Stopped, recovering.Ancestors = [16]byte{8, 9}, []MemberID{1, 3}, [][16]byte{{1}}
	recovered.Lineage, recovered.Ancestors, recovered.Recovered = [16]byte{8, 9}, [][16]byte{{1}, {5, 6}}, true
	for file, want := range map[string]Identity{"identity-new": first, "identity-recovering": recovering, "identity-recovered": recovered, "identity": testIdentity(), "identity-joined": joined, "identity-joining": joining} {
		dir, d := t.TempDir(), newPlainDisk(t)
		if err := WriteIdentity(d, dir, want); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "identity"))
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", file), string(text))
		got, err := decodeIdentity(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("decoded %+v, %v", got, err)
		}
	}
}

func TestIdentity_Corruption(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), newPlainDisk(t)
	if err := WriteIdentity(d, dir, testIdentity()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "identity")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, text []byte) {
		t.Helper()
		if err := os.WriteFile(name, text, 0o640); err != nil {
			t.Fatal(err)
		}
		_, _, err := ReadIdentity(d, dir)
		if !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("empty", nil)
	refused("something else", []byte("hello\nworld\n"))
	for i := range whole {
		flipped := append([]byte(nil), whole...)
		flipped[i] ^= 0x04
		refused("bit flipped at "+string(rune('0'+i%10)), flipped)
		refused("cut", whole[:i])
	}
	sealed := func(magic string, body []byte) []byte {
		return append(fmt.Appendf(nil, "%s%08x\n", magic, crc32.Checksum(body, castagnoli)), body...)
	}
	body := whole[bytes.IndexByte(whole, '\n')+1:]
	refused("newer format", sealed(identityMagic, bytes.Replace(body, []byte(`"format": 1`), []byte(`"format": 2`), 1)))
	refused("of before the first release", sealed(unreleasedMagic, body))
	if _, _, err := ReadIdentity(d, dir); !strings.Contains(err.Error(), "a build from before the first release wrote it") || strings.Contains(err.Error(), WayOut) {
		t.Errorf("of before the first release: %v", err)
	}
	body = bytes.Replace(body, []byte("{"), []byte(`{"pet": 1,`), 1)
	refused("unknown field", sealed(identityMagic, body))
	if err := os.WriteFile(name, make([]byte, identityMax+1), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadIdentity(d, dir); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("huge file: %v", err)
	}
}

func TestFounding_CoversWhatMembersMustAgreeOn(t *testing.T) {
	same := Founding("a", []MemberID{1, 2, 3}, 1)
	if Founding("a", []MemberID{3, 1, 2}, 1) != same {
		t.Error("the order of members matters")
	}
	for what, other := range map[string][32]byte{
		"name": Founding("b", []MemberID{1, 2, 3}, 1), "members": Founding("a", []MemberID{1, 2, 4}, 1),
		"fewer members": Founding("a", []MemberID{1, 2}, 1), "shards": Founding("a", []MemberID{1, 2, 3}, 2),
	} {
		if other == same {
			t.Errorf("%s does not matter", what)
		}
	}
}

func TestUUID_IsOneAndDiffers(t *testing.T) {
	digest := Founding("a", []MemberID{1, 2}, 1)
	form := regexp.MustCompile("^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
	seen := map[string]bool{}
	for _, d := range [][32]byte{digest, Founding("b", []MemberID{1, 2}, 1)} {
		for m := MemberID(1); m <= 100; m++ {
			id := UUID(d, m)
			if !form.MatchString(id) {
				t.Fatalf("%s is no UUID of version 8", id)
			}
			if seen[id] {
				t.Fatalf("%s twice", id)
			}
			seen[id] = true
		}
	}
	// Logs contain these names, so they never change.
	if got := UUID([32]byte{}, 1); got != "4a70560a-916e-8871-8b7e-03de5fdb972a" {
		t.Errorf("%q", got)
	}
}

// C7: A second attempt in the same process is refused. It does not release the lock of the first.
func TestLockDir_TellsWhoHasIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	l, err := LockDir(files.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(wd, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, dir + "/", filepath.Dir(dir) + "/./way", link, relative} {
		_, err := LockDir(files.OS, name)
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "this process") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A refused attempt must not have released the lock.
	if out, err := lockElsewhere(dir); err == nil || !strings.Contains(out, "another process") {
		t.Errorf("another process: %v, %s", err, out)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if out, err := lockElsewhere(dir); err != nil {
		t.Errorf("another process after Close: %v, %s", err, out)
	}
	again, err := LockDir(files.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestLockDir_NotADirectory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{name, filepath.Join(name, "below")} {
		if _, err := LockDir(files.OS, dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// Shared locks exclude nodes but not each other, and they leave no trace.
func TestLockShared(t *testing.T) {
	dir := t.TempDir()
	if _, err := LockShared(files.OS, filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is missing: %v", err)
	}
	l, err := LockShared(files.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it left %v, %v", entries, err)
	}
	node, err := LockDir(files.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockShared(files.OS, dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "this process") {
		t.Errorf("while a node has it: %v", err)
	}
	if err := node.Close(); err != nil {
		t.Error(err)
	}
	var looks []io.Closer
	for range 2 {
		l, err := LockShared(files.OS, dir)
		if err != nil {
			t.Fatal(err)
		}
		looks = append(looks, l)
	}
	for _, l := range looks {
		if _, err := LockDir(files.OS, dir); !errors.Is(err, ErrLocked) {
			t.Errorf("a node while somebody looks: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if out, err := lockElsewhere(dir); err != nil {
		t.Errorf("afterwards: %v, %s", err, out)
	}
}

const lockVariable = "VIVARIUM_TEST_LOCK"

// lockElsewhere acquires and releases the lock of dir in another process.
func lockElsewhere(dir string) (string, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockDir_Elsewhere$")
	cmd.Env = append(os.Environ(), lockVariable+"="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestLockDir_Elsewhere is the test that lockElsewhere runs.
func TestLockDir_Elsewhere(t *testing.T) {
	dir := os.Getenv(lockVariable)
	if dir == "" {
		t.Skip("only run by TestLockDir_TellsWhoHasIt")
	}
	l, err := LockDir(files.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// The names that are known are bounded, whoever messages name. A name that was asked for just now
// leads back to its member.
func TestNames_AreBounded(t *testing.T) {
	n := NewNames([32]byte{1})
	first := n.UUID(1)
	for m := MemberID(2); m < 3*4096; m++ {
		if back, ok := n.Member(n.UUID(m)); !ok || back != m {
			t.Fatalf("the name of member %d is that of member %d: %v", m, back, ok)
		}
	}
	count := 0
	n.known.Load().uuids.Range(func(any, any) bool { count++; return true })
	if count > 4096 {
		t.Errorf("%d names are known", count)
	}
	if n.UUID(1) != first {
		t.Error("member 1 has another name")
	}
}
