//go:build unix

package processtest

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// TestDirectoryInUse: a start on a directory that another process has open is refused with an error
// that says so, and changes nothing there. The owner goes on. If the owner is killed, its directory
// is free at once.
func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, quickTick)
	e.startAll()
	r := e.session(1, "s", outlasting) // outlasts the stops of its process
	r.must(t, request{Call: callCreate, Session: "s", Path: "/a", Data: "a"})
	dir := e.memberDir(1)

	other := *e.config(1)
	other.Members = freeMembers(t)
	alone := config{Dir: dir, ID: 1}
	for name, c := range map[string]*config{"same member, other ports": &other, "alone": &alone} {
		// A stopped owner still has its directory open, and changes nothing there.
		r.stop()
		before := testkit.Contents(t, dir, true)
		p := spawn(t, filepath.Join(e.dir, "second.log"))
		_, err := p.callWithin(request{Call: callStart, Config: c})
		after := testkit.Contents(t, dir, true)
		r.resume()
		t.Logf("%s: %v", name, err)
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another process") {
			t.Errorf("%s: %v; want an error that names %s and says that another process has it open", name, err, dir)
		}
		testkit.Unchanged(t, name, before, after)
		p.Kill()
		<-p.Dead()
	}
	r.must(t, request{Call: callSet, Session: "s", Path: "/a", Data: "b", Version: 0})

	e.kill(1)
	e.start(1)
	r = e.session(1, "s", outlasting)
	if got := r.must(t, request{Call: callGet, Session: "s", Path: "/a"}); got.Data != "b" {
		t.Errorf("/a is %q", got.Data)
	}
}

// C4.5: TestPortInUse: a start on a port on which another process listens is refused with an error
// that names the port. Nothing on disk is changed or created.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, quickTick)
	e.startAll()
	e.kill(1)

	// This process listens on the port. The member that has to be refused is in another process.
	l, err := net.Listen("tcp", e.members[1])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fresh := *e.config(1)
	fresh.Dir = filepath.Join(e.dir, "not", "there")
	inUse := *e.config(1)
	inUse.Members = maps.Clone(e.members)
	inUse.Members[1] = e.members[2] // another member listens there
	inUse.Members[2] = e.members[1]
	for name, c := range map[string]*config{"a member's directory": e.config(1), "no directory yet": &fresh, "another member's port": &inUse} {
		before := testkit.Contents(t, e.memberDir(1), true)
		p := spawn(t, filepath.Join(e.dir, "second.log"))
		_, err := p.callWithin(request{Call: callStart, Config: c})
		t.Logf("%s: %v", name, err)
		if err == nil || !strings.Contains(err.Error(), c.Members[1]) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v; want an error that says that %s is in use", name, err, c.Members[1])
		}
		testkit.Unchanged(t, name, before, testkit.Contents(t, e.memberDir(1), true))
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
