package shell

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// At night: somebody looks who keeps whom waiting, asks the holder, and then takes the lock away.
// Paths are those below the shell's chroot.
func TestLocks(t *testing.T) {
	n := node(t)
	g, err := gateway.Start(n, gateway.Config{Listen: "127.0.0.1:0", FirstFrame: patience, WriteTimeout: patience})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	ctx := testkit.Context(t)
	open := func() *embed.Session {
		s, err := n.NewSession(ctx, embed.SessionOptions{Timeout: time.Minute})
		testkit.Must(t, err)
		return s
	}
	one, two := open(), open()
	a, err := lock.NewMutex(one, "/app/a").With(lock.Options{Note: "first"}).Lock(ctx)
	testkit.Must(t, err)
	b, err := lock.NewMutex(two, "/app/b").Lock(ctx)
	testkit.Must(t, err)
	ended := make(chan error, 2)
	waits := func(s *embed.Session, path string, held *lock.Hold) {
		t.Helper()
		ctx, cancel := context.WithCancel(held.Context())
		t.Cleanup(cancel)
		go func() {
			_, err := lock.NewMutex(s, path).Lock(ctx)
			ended <- err
		}()
		testkit.Until(t, "the contender to queue", func() bool {
			w, err := lock.Waiters(ctx, one, path)
			return err == nil && len(w) == 1
		})
	}
	waits(one, "/app/b", a)
	waits(two, "/app/a", b)
	server := g.Addr().String()
	shell := func(args ...string) (code int, out, err string) {
		return run(t, t.Context(), strings.NewReader(""), append([]string{"-server", server + "/app"}, args...)...)
	}
	code, out, errors1 := shell("locks", "/")
	name := `_c_[-0-9a-f]{36}-lock-\d{10}`
	id := func(s *embed.Session) string { return fmt.Sprintf("session 0x%x", int64(s.ID())) }
	row := func(what string, s *embed.Session, note string) string {
		return "  " + what + `  ` + name + `  ` + id(s) + `  \d+s +` + note + ` *\n`
	}
	link := func(s *embed.Session, at string, other *embed.Session) string {
		return "  " + id(s) + " waits at " + at + "/" + name + "\n    for " + id(other) + " at " + at + "/" + name + "\n"
	}
	want := regexp.MustCompile(`^/a \(mutex\)\n` + row("holds", one, "first") + row("waits", two, "") +
		`/b \(mutex\)\n` + row("holds", two, "") + row("waits", one, "") +
		`deadlock:\n(` + link(one, "/b", two) + link(two, "/a", one) + "|" + link(two, "/a", one) + link(one, "/b", two) + `)$`)
	if code != 0 || errors1 != "" || !want.MatchString(out) {
		t.Errorf("exit code %d, %q, printed:\n%s\nwant:\n%s", code, errors1, out, want)
	}
	_, _, err = one.CreateWith(ctx, "/app/rows/lock-0000000001", []byte("precious"), embed.CreateOptions{Parents: true})
	testkit.Must(t, err)
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"revoke", "/rows"}, 1, "Nobody holds a lock on /rows\n"},
		{[]string{"evict", "/rows/lock-0000000001"}, 1, "Nobody holds a lock or waits for one at /rows/lock-0000000001\n"},
		{[]string{"revoke", "/a"}, 0, ""},
		{[]string{"revoke", "/"}, 1, "Nobody holds a lock on /\n"},
		{[]string{"revoke", "/nothing"}, 1, "Node does not exist: /nothing\n"},
		{[]string{"evict", "/a"}, 1, "Nobody holds a lock or waits for one at /a\n"},
		{[]string{"evict", "a"}, 1, "Path must start with / character\n"},
		{[]string{"evict", strings.TrimPrefix(a.Path(), "/app")}, 0, ""},
		{[]string{"evict", strings.TrimPrefix(a.Path(), "/app")}, 1, "Nobody holds a lock or waits for one at " + strings.TrimPrefix(a.Path(), "/app") + "\n"},
		{[]string{"locks"}, 2, "locks path\n"},
	} {
		code, out, err := shell(c.args...)
		expect(t, strings.Join(c.args, " "), code, out, err, c.code, "", c.err)
		if c.args[0] == "revoke" && code == 0 {
			<-a.Revoked()
		}
	}
	if data, _, err := one.Get(ctx, "/app/rows/lock-0000000001"); err != nil || string(data) != "precious" {
		t.Errorf("what is no contender: %q, %v", data, err)
	}
	<-a.Done()
	if !errors.Is(a.Err(), embed.ErrDeleted) {
		t.Errorf("the evicted Hold ended with %v", a.Err())
	}
	if err := <-ended; err != nil && !errors.Is(err, embed.ErrDeleted) && !errors.Is(err, context.Canceled) {
		t.Errorf("a waiter ended with %v", err)
	}
}
