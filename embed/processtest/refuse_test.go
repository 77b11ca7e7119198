//go:build unix

package processtest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDirectoryInUse: a start on a directory that another process has open is refused with an error
// that says so, and changes nothing there. The owner goes on. If the owner is killed, its directory
// is free at once.
func TestDirectoryInUse(t *testing.T) {
	e := newEnsemble(t, quickTick)
	e.startAll()
	r := e.session(1, "s", time.Minute) // outlasts the stops of its process
	r.must(t, request{Call: callCreate, Session: "s", Path: "/a", Data: "a"})
	dir := e.memberDir(1)

	other := *e.config(1)
	other.Members = freeMembers(t)
	alone := config{Dir: dir, ID: 1}
	for name, c := range map[string]*config{"same member, other ports": &other, "alone": &alone} {
		// A stopped owner still has its directory open, and changes nothing there.
		r.stop()
		before := scan(t, dir)
		p := spawn(t, filepath.Join(e.dir, "second.log"))
		_, err := p.callWithin(request{Call: callStart, Config: c})
		after := scan(t, dir)
		r.resume()
		t.Logf("%s: %v", name, err)
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another process") {
			t.Errorf("%s: %v; want an error that names %s and says that another process has it open", name, err, dir)
		}
		unchanged(t, name, before, after)
		p.Kill()
		<-p.Dead()
	}
	r.must(t, request{Call: callSet, Session: "s", Path: "/a", Data: "b", Version: 0})

	e.kill(1)
	e.start(1)
	r = e.session(1, "s", 0)
	if got := r.must(t, request{Call: callGet, Session: "s", Path: "/a"}); got.Data != "b" {
		t.Errorf("/a is %q", got.Data)
	}
}

// C4.5: TestPortInUse: a start on a port on which another process listens is refused with an error
// that names the port. Nothing on disk is changed or created.
func TestPortInUse(t *testing.T) {
	e := newEnsemble(t, quickTick)
	e.startAll()
	e.kill(1)

	// The listener is in a process of its own; here it would be closed with the test.
	l, err := net.Listen("tcp", e.members[1])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fresh := *e.config(1)
	fresh.Dir = filepath.Join(e.dir, "not", "there")
	taken := *e.config(1)
	taken.Members = maps.Clone(e.members)
	taken.Members[1] = e.members[2] // another member listens there
	taken.Members[2] = e.members[1]
	for name, c := range map[string]*config{"a member's directory": e.config(1), "no directory yet": &fresh, "another member's port": &taken} {
		before := scan(t, e.memberDir(1))
		p := spawn(t, filepath.Join(e.dir, "second.log"))
		_, err := p.callWithin(request{Call: callStart, Config: c})
		t.Logf("%s: %v", name, err)
		if err == nil || !strings.Contains(err.Error(), c.Members[1]) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v; want an error that says that %s is in use", name, err, c.Members[1])
		}
		unchanged(t, name, before, scan(t, e.memberDir(1)))
		if _, err := os.Lstat(filepath.Dir(fresh.Dir)); !os.IsNotExist(err) {
			t.Errorf("%s: %s was created: %v", name, filepath.Dir(fresh.Dir), err)
		}
		p.Kill()
		<-p.Dead()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	e.start(1)
	e.ready(1)
}

// scan returns what can be seen of a directory: names, modes, sizes, times and contents.
func scan(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%v %d bytes, %v", info.Mode(), info.Size(), info.ModTime())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(", %x", sha256.Sum256(data))
		}
		seen[path] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func unchanged(t *testing.T, name string, before, after map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if after[path] != before[path] {
			t.Errorf("%s: %s was changed:\n%s\n%s", name, path, before[path], after[path])
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			t.Errorf("%s: %s was created", name, path)
		}
	}
}
