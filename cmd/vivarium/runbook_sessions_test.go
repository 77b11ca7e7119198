//go:build unix

package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// A talker is a shell that runs as a process of its own, with one session. What it prints is in its
// log.
type talker struct {
	*child.Program
	t       *testing.T
	servers string
	in      *os.File
}

// newTalker starts a client whose session lasts for a time in milliseconds after it falls silent.
func newTalker(t *testing.T, servers, timeout string) *talker {
	t.Helper()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "in")
	must(t, syscall.Mkfifo(pipe, 0o600))
	in, err := os.OpenFile(pipe, os.O_RDWR, 0) // for writing alone it would wait for a reader
	must(t, err)
	t.Cleanup(func() { in.Close() })
	p := child.Run(t, dir, "sh", "-c", `exec "$0" "$@" <in 1>&2`,
		binary, "shell", "-server", servers, "-timeout", timeout)
	return &talker{Program: p, t: t, servers: servers, in: in}
}

// send gives the client a command.
func (c *talker) send(command string) {
	c.t.Helper()
	_, err := c.in.WriteString(command + "\n")
	must(c.t, err)
}

// do runs a command until the client prints a text. If nobody knows the outcome, it tries again. On
// a busy machine the session may have expired; then it connects again.
func (c *talker) do(command, want string) {
	c.t.Helper()
	until(c.t, fmt.Sprintf("%q after %q", want, command), func() bool {
		c.PassOver()
		c.send(command)
		until(c.t, "an answer to "+command, func() bool {
			return c.says(want, "already exists", "KeeperErrorCode", "Not connected")
		})
		if c.says("KeeperErrorCode = Session expired", "Not connected") {
			c.send("connect " + c.servers)
		}
		return c.says(want, "already exists")
	})
}

// says reports whether the client has printed one of some texts.
func (c *talker) says(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return c.Line(text) != "" })
}

// "Many sessions end at once", of one service only: its processes stood still. Their ephemerals
// and locks are gone. Each opens a new session when it goes on. Nobody restarts a member.
func TestRunbook_ClientsStandStill(t *testing.T) {
	t.Parallel()
	n := newNight(t, 1)
	file := n.config(1, nil)
	p := spawn(t, n.dir, "serve", "-config", file, "-v") // sessions of clients are Debug lines
	p.Says("msg=serving")
	other := newTalker(t, n.clients[0], "60000")
	other.do("create -e /other", "Created /other")
	var service []*talker
	for i := range 3 {
		c := newTalker(t, n.clients[0], "2000")
		c.do(fmt.Sprintf("create -e /service-%d", i), "Created /service")
		service = append(service, c)
	}
	for _, c := range service {
		c.Signal(syscall.SIGSTOP)
	}
	counts := func(of int) bool {
		answer := mntr(t, n.clients[0])
		return strings.Contains(answer, fmt.Sprintf("zk_ephemerals_count\t%d\n", of)) &&
			strings.Contains(answer, fmt.Sprintf("zk_global_sessions\t%d\n", of))
	}
	until(t, "mntr to count what is left", func() bool { return counts(1) })
	contains(t, p.Says("msg=\"session expired\""), "level=DEBUG")
	for _, c := range service {
		c.Signal(syscall.SIGCONT)
		c.Says("state:Expired")
		c.send("connect " + n.clients[0])
	}
	until(t, "mntr to count all", func() bool {
		for i, c := range service {
			c.do(fmt.Sprintf("create -e /again-%d", i), "Created /again")
		}
		return counts(4)
	})
}

// "Many sessions end at once", and "No quorum" before: the other members stand still. One of them
// is ended and started again. This process is the third member, with sessions of its own.
func TestRunbook_SessionsEndWithoutAQuorum(t *testing.T) {
	t.Parallel()
	n := newNight(t, 3)
	others := []*child.Program{n.start(1), n.start(2)}
	log := &logbook{}
	node, err := embed.Start(embed.Config{Dir: n.data(3), ID: 3, Tick: 20 * time.Millisecond,
		Logger:  slog.New(slog.NewTextHandler(log, nil)),
		Members: map[embed.MemberID]string{1: n.addrs[0], 2: n.addrs[1], 3: n.addrs[2]}})
	must(t, err)
	defer node.Close()
	ctx := testkit.Context(t)
	must(t, node.Ready(ctx))
	for _, p := range others {
		p.Says("msg=serving")
	}
	// locks opens a session with a lock. On a busy machine the first one may expire before that.
	locks := func(i int, timeout time.Duration) (s *embed.Session) {
		until(t, "a lock", func() bool {
			var err error
			if s, err = node.NewSession(ctx, embed.SessionOptions{Timeout: timeout}); err == nil {
				_, err = lock.NewMutex(s, fmt.Sprintf("/lock-%d", i)).Lock(ctx)
			}
			return err == nil
		})
		return s
	}
	var sessions []*embed.Session
	for i := range 10 {
		sessions = append(sessions, locks(i, 2*time.Second))
	}
	before := log.count("msg=\"no quorum\"") // of a slow start
	for _, p := range others {
		p.Signal(syscall.SIGSTOP)
	}
	until(t, "the log to say of each session that it has ended", func() bool {
		return log.count("msg=\"session expired\"") >= len(sessions)
	})
	until(t, "the sessions to end", func() bool {
		return !slices.ContainsFunc(sessions, func(s *embed.Session) bool { return s.Err() == nil })
	})
	until(t, "the log to say why", func() bool { return log.count("msg=\"no quorum\"") > before })
	others[0].Signal(syscall.SIGKILL)
	others[0].ExitCode()
	n.start(1)
	until(t, "the quorum to be back", func() bool {
		return log.count("msg=\"the quorum is back\"") > before
	})
	for i, old := range sessions {
		testkit.WantErr(t, old.Err(), embed.ErrSessionExpired)
		locks(i, 0)
	}
}

// A logbook keeps a log in memory.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}
