//go:build unix

package child

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// childVariable makes this binary a child.
const childVariable = "VIVARIUM_CHILD_OF_A_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		Serve(func(q string, say func(a string, notice bool)) {
			switch q {
			case "echo":
				_, _ = os.Stderr.WriteString("echoing\n")
				say("first", true)
				say("second", false)
			case "end":
				os.Exit(3)
			}
		})
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for _, end := range []struct {
		by    func(*Process[string, string])
		alone bool
	}{
		{func(p *Process[string, string]) { p.Kill() }, false},
		{func(p *Process[string, string]) { p.Signal(syscall.SIGSTOP); p.Kill() }, false},
		{func(p *Process[string, string]) { p.Send("end", nil) }, true},
	} {
		p, err := Spawn[string, string](childVariable, log)
		if err != nil {
			t.Fatal(err)
		}
		var notices []string
		if a := <-p.Send("echo", func(a string) { notices = append(notices, a) }); a != "second" || strings.Join(notices, " ") != "first" {
			t.Errorf("answer %q after the notices %q", a, notices)
		}
		unanswered := p.Send("never answered", nil)
		end.by(p)
		if a, ok := <-unanswered; ok {
			t.Errorf("a dead process answers %q", a)
		}
		<-p.Dead()
		if how, alone := p.DiedAlone(); alone != end.alone {
			t.Errorf("%s: died alone %v, want %v", how, alone, end.alone)
		}
		if a, ok := <-p.Send("echo", nil); ok {
			t.Errorf("a dead process answers %q", a)
		}
	}
	if text, err := os.ReadFile(log); err != nil || strings.Count(string(text), "echoing\n") != 3 {
		t.Errorf("the log has %q, %v", text, err)
	}
}

// A later call that looks at the same ports, perhaps in another process, finds other ports, even
// before anybody listens on the first ones.
func TestFreeAddrs(t *testing.T) {
	seen, from := make(map[string]bool), ports.next
	for range 3 {
		ports.next = from
		addrs, err := FreeAddrs(4)
		if err != nil || len(addrs) != 4 {
			t.Fatal(addrs, err)
		}
		for _, addr := range addrs {
			l, err := net.Listen("tcp", addr)
			if err != nil || seen[addr] {
				t.Fatalf("%s was given before (%t), or is in use: %v", addr, seen[addr], err)
			}
			seen[addr] = true
			_ = l.Close()
		}
	}
}
