package gateway

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// usersFile writes a file with the lines of users, who have the passwords of people.
func usersFile(t testing.TB, file string, names ...string) string {
	t.Helper()
	text := "# a comment\n\n"
	for _, name := range names {
		line, err := UserLine(name, people[name])
		testkit.Must(t, err)
		text += line + "\r\n"
	}
	if file == "" {
		file = filepath.Join(t.TempDir(), "users")
	}
	testkit.Must(t, os.WriteFile(file+".new", []byte(text), 0o600))
	testkit.Must(t, os.Rename(file+".new", file))
	return file
}

// A line is as Apache's htdigest writes it.
func TestUserLine(t *testing.T) {
	if line, err := UserLine("alice", "secret"); err != nil || line != "alice:zk-sasl-md5:"+fmt.Sprintf("%x", HA1("alice", "secret")) {
		t.Errorf("%q, %v", line, err)
	}
	// md5sum of "super:zk-sasl-md5:adminsecret"
	if got := fmt.Sprintf("%x", HA1("super", "adminsecret")); got != "b9263a98ac9cb16598bd837856dbf089" {
		t.Errorf("HA1: %s", got)
	}
	for _, bad := range [][2]string{{"", "p"}, {"a:b", "p"}, {"a", ""}, {"ä", "p"}, {"a", "ß"}, {"a\n", "p"}, {"a", "p\n"}, {"a@b@c", "p"}, {" a", "p"}, {"#a", "p"}, {strings.Repeat("a", nameMax+1), "p"}} {
		if line, err := UserLine(bad[0], bad[1]); err == nil || line != "" {
			t.Errorf("%q: %q", bad, line)
		}
	}
}

// A file is taken whole or not at all. An error names the line and nothing that is in it.
func TestParseUsers(t *testing.T) {
	good, err := UserLine("alice", "x")
	testkit.Must(t, err)
	for text, want := range map[string]int{"": 0, "\n# none\n": 0, good: 1, " " + good + " \r\n": 1, strings.ToUpper(good[len("alice:zk-sasl-md5:"):]): -1,
		"alice:zk-sasl-md5:" + strings.ToUpper(good[len("alice:zk-sasl-md5:"):]): 1} {
		if list, err := parseUsers([]byte(text)); want >= 0 && (err != nil || len(list) != want) {
			t.Errorf("%q: %v, %v", text, list, err)
		}
	}
	hash := strings.Repeat("5e", 16)
	for bad, want := range map[string]string{
		"alice":                                   "line 2: want user:",
		"alice:hunter2":                           "line 2: want user:",
		"alice:zk-sasl-md5:hunter2":               "line 2: want user:",
		"alice:zk-sasl-md5:" + hash + "5":         "line 2: want user:",
		"alice:zk-sasl-md5:" + hash[1:]:           "line 2: want user:",
		"alice:zk-sasl-md5:xx" + hash[2:]:         "line 2: want user:",
		"a:b:zk-sasl-md5:" + hash:                 "line 2: want user:",
		"alice:elsewhere:" + hash:                 "line 2: the realm",
		":zk-sasl-md5:" + hash:                    "line 2: the user's name",
		"a\xff:zk-sasl-md5:" + hash:               "line 2: the user's name",
		"a@b@c:zk-sasl-md5:" + hash:               "line 2: the user's name",
		"alice:zk-sasl-md5:" + hash + "\n" + good: "line 3: the user has",
	} {
		_, err := parseUsers([]byte("# users\n" + bad))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), hash[:8]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for n := range len(good) - 1 {
		if list, err := parseUsers([]byte(good[:n+1])); err == nil {
			t.Errorf("cut to %q: %v", good[:n+1], list)
		}
	}
}

func FuzzParseUsers(f *testing.F) {
	f.Add([]byte("alice:zk-sasl-md5:" + strings.Repeat("5e", 16) + "\n#\n"))
	f.Add([]byte("a:b:c\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseUsers(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for user, secret := range list {
			fmt.Fprintf(&again, "%s:zk-sasl-md5:%x\n", user, secret)
			if !SASL().Valid(user) || user == "" {
				t.Fatalf("a user named %q", user)
			}
		}
		if same, err := parseUsers([]byte(again.String())); err != nil || len(same) != len(list) {
			t.Fatalf("%q: %v", again.String(), err)
		}
	})
}

// The users of a file come and go while the gateway runs. A file that cannot be used changes
// nothing.
func TestUsers_Reload(t *testing.T) {
	file := usersFile(t, "", "alice")
	g := startOn(t, startSASL(t, nil), Config{SASLUsers: file})
	answer := func(user string) wire.Code {
		c := connect(t, g)
		p := proofOf(user, nonceOf(t, c.token(nil).Data))
		return c.token([]byte(p.String())).Err
	}
	reload := func(want bool) {
		t.Helper()
		if changed, err := g.ReloadUsers(); changed != want || err != nil {
			t.Errorf("changed: %v, %v", changed, err)
		}
	}
	if a, b := answer("alice"), answer("carol"); a != wire.OK || b != wire.AuthFailed {
		t.Errorf("codes %d, %d", a, b)
	}
	people := people
	people["carol"] = "secret of carol"
	defer delete(people, "carol")
	in := connect(t, g)
	in.logIn("alice")
	usersFile(t, file, "carol")
	reload(true)
	reload(false)
	if a, b := answer("alice"), answer("carol"); a != wire.AuthFailed || b != wire.OK {
		t.Errorf("codes %d, %d", a, b)
	}
	in.must(op(wire.OpWhoAmI, "")) // until the connection ends
	testkit.Must(t, os.WriteFile(file, []byte("carol:zk-sasl-md5:hunter2"), 0o600))
	if changed, err := g.ReloadUsers(); changed || err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a broken file: %v, %v", changed, err)
	}
	testkit.Must(t, os.Remove(file))
	if changed, err := g.ReloadUsers(); changed || err == nil {
		t.Errorf("no file: %v, %v", changed, err)
	}
	if n := read(g)["vivarium_gateway_users_reload_failures_total"]; n < 2 {
		t.Errorf("%v failed reloads, want the two", n)
	}
	if code := answer("carol"); code != wire.OK {
		t.Errorf("code %d", code)
	}
	if changed, err := start(t, Config{}).ReloadUsers(); changed || err != nil {
		t.Errorf("without SASL: %v, %v", changed, err)
	}
	big := filepath.Join(t.TempDir(), "big")
	testkit.Must(t, os.WriteFile(big, []byte(strings.Repeat("#\n", usersFileMax/2+1)), 0o600))
	if _, err := openUsers(big); err == nil {
		t.Error("a file beyond the bound is read")
	}
}

// The loop logs what changes, and once what it cannot use.
func TestUsers_Loop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := usersFile(t, "", "alice")
		u, err := openUsers(file)
		testkit.Must(t, err)
		var log lockedBuffer
		stop := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { u.loop(slog.New(slog.NewTextHandler(&log, nil)), stop) })
		seen := 0
		wantLines := func(what string, want ...string) {
			t.Helper()
			<-time.After(10 * time.Minute)
			synctest.Wait()
			text := log.String()[seen:]
			seen += len(text)
			if strings.Count(text, "\n") != len(want) {
				t.Errorf("%s: %s", what, text)
			}
			for _, line := range want {
				if !strings.Contains(text, line) {
					t.Errorf("%s: %s, want %s", what, text, line)
				}
			}
		}
		wantLines("the same")
		usersFile(t, file)
		wantLines("none", `level=INFO msg="the file of users was read again" count=0`)
		testkit.Must(t, os.WriteFile(file, []byte("x"), 0o600))
		wantLines("broken", `level=WARN msg="the file of users is not used"`)
		usersFile(t, file)
		wantLines("as before")
		testkit.Must(t, os.WriteFile(file, []byte("x"), 0o600))
		wantLines("broken again", `level=WARN msg="the file of users is not used"`)
		usersFile(t, file, "alice", `b"o\b`)
		wantLines("two", `level=INFO msg="the file of users was read again" count=2`)
		close(stop)
		all.Wait()
	})
}

// Clients log in while the file changes.
func TestUsers_ManyAtOnce(t *testing.T) {
	file := usersFile(t, "", "alice")
	u, err := openUsers(file)
	testkit.Must(t, err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				x := u.Begin(nil)
				challenge, _, _, _ := x.Next(nil)
				if _, _, done, err := x.Next([]byte(proofOf("alice", nonceOf(t, challenge)).String())); err != nil || !done {
					t.Error(err)
				}
			}
		})
	}
	for i := range 20 {
		usersFile(t, file, []string{"alice", `b"o\b`}[:1+i%2]...)
		if _, err := u.reload(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if _, ok := u.ha1(`b"o\b`); !ok {
		t.Error("the last file does not count")
	}
}
