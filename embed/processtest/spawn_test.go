//go:build unix

package processtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// errDied says that a member's process ended before it answered.
var errDied = errors.New("the process died before it answered")

// A process is one run of a member. Its methods may be called by any number of goroutines.
type process struct {
	*child.Process[request, reply]
	log     string // where its standard error goes
	mayFail bool   // its node may fail; set before the test ends
}

// spawn starts this binary as a member. It is killed when the test ends, in any case.
func spawn(t *testing.T, log string) *process {
	t.Helper()
	c, err := child.Spawn[request, reply](memberVariable, log)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Process: c, log: log}
	t.Cleanup(func() {
		p.Kill()
		<-p.Dead()
		checkLog(t, log, p.mayFail)
	})
	return p
}

// send sends a request to a process and returns at once.
func (p *process) send(q request) <-chan reply { return p.Send(q, nil) }

// call sends a request to a process and waits for the answer. The error is errDied if there is
// none.
func (p *process) call(q request) (reply, error) {
	r, ok := <-p.send(q)
	if !ok {
		return reply{Outcome: unknown, Error: errDied.Error()}, errDied
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s: %s", q.Call, r.Error)
	}
	return r, nil
}

// must is call for a test that expects no error, however busy the machine is. Only the test's own
// goroutine may call it.
func (p *process) must(t *testing.T, q request) reply {
	t.Helper()
	if q.Within == 0 {
		q.Within = patience
	}
	r, err := p.callWithin(q)
	if err != nil {
		t.Fatalf("process %d: %v", p.Pid(), err)
	}
	return r
}

// callWithin is call, for at most this package's patience.
func (p *process) callWithin(q request) (reply, error) {
	return receive(p.send(q), q.Call)
}

func receive(ch <-chan reply, what call) (reply, error) {
	select {
	case r, ok := <-ch:
		switch {
		case !ok:
			return reply{Outcome: unknown}, errDied
		case r.Error != "":
			return r, fmt.Errorf("%s: %s", what, r.Error)
		}
		return r, nil
	case <-time.After(patience):
		return reply{Outcome: unknown}, fmt.Errorf("%s: no answer in %v", what, patience)
	}
}

// checkLog fails the test if a member logged something that no member may ever log. After a failure
// it shows the end of the log.
func checkLog(t *testing.T, name string, mayFail bool) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	never := []string{"WARNING: DATA RACE", "panic:", "fatal error:"}
	if !mayFail {
		never = append(never, "NODE FAILED:", "level=ERROR")
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	for i, line := range lines {
		for _, bad := range never {
			if strings.Contains(line, bad) {
				t.Errorf("%s:%d:\n%s", name, i+1, strings.Join(lines[i:min(i+60, len(lines))], "\n"))
				return
			}
		}
	}
	if t.Failed() {
		const most = 60
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "level=DEBUG") })
		t.Logf("the end of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-most):], "\n"))
	}
}
