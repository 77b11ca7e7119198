package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/examples/internal/replicas"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestMain(m *testing.M) {
	settingsTime, nightTime, silenceTime = time.Second/2, time.Second/2, 1500*time.Millisecond
	hurried := func(ctx context.Context, cfg embed.Config) error {
		cfg.Tick = 20 * time.Millisecond // allows such a silence
		return serve(ctx, cfg)
	}
	if mine, err := replicas.Serve(hurried); mine {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A story is what the processes print, line by line.
type story struct {
	t     *testing.T
	lines chan string
}

func (s story) Write(line []byte) (int, error) {
	s.lines <- string(line)
	return len(line), nil
}

// until waits for a line, and returns it.
func (s story) until(what string, is func(line string) bool) string {
	s.t.Helper()
	limit := time.After(testkit.Patience)
	for {
		select {
		case line := <-s.lines:
			if is(line) {
				return line
			}
		case <-limit:
			s.t.Fatalf("no line says %s", what)
		}
	}
}

// The leader is killed, another one leads, and the work goes on. Then it comes back.
func TestService(t *testing.T) {
	kill, again := make(chan time.Time, 1), make(chan time.Time, 1)
	ctx, end := context.WithCancel(t.Context())
	s, ended := story{t, make(chan string, 1000)}, make(chan error)
	go func() { ended <- replicas.Run(ctx, s, kill, again) }()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	has := func(part string) func(string) bool {
		return func(line string) bool { return strings.Contains(line, part) }
	}
	s.until("who leads", has(" leads"))
	s.until("a report", has("writes the report"))
	s.until("settings that all have, changed once or more", func(line string) bool { return has("<nil>")(line) && !has("rate 10 ")(line) })

	kill <- time.Time{}
	victim, _, _ := strings.Cut(s.until("the death", has(" is killed")), " ")
	s.until("the next leader", func(line string) bool { return has(" leads")(line) && !has(victim)(line) })
	s.until("a report after it", has("writes the report"))

	again <- time.Time{}
	_, page, _ := strings.Cut(s.until("the page of the process that is back", has(victim+" has its page at ")), " has its page at ")
	s.until("settings that all have", has("<nil>"))
	for limit := time.Now().Add(testkit.Patience); ; <-time.After(20 * time.Millisecond) {
		text, err := read(strings.TrimSpace(page))
		if err == nil && strings.Count(text, "<li>") == 3 && strings.Contains(text, "<tr><td>"+shops[0]+"<td>process-") &&
			strings.Contains(text, "<td>done<td>") && strings.Contains(text, "rate: ") {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("the page says %s, %v", text, err)
		}
	}
}

// While nobody leads, the page shows the rest.
func TestServeHTTP_NobodyLeads(t *testing.T) {
	ens := embedtest.New(t, 1, embedtest.Options{})
	s := &service{name: "process-1", node: ens.Node(1)}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Leader: <b></b>") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

func read(page string) (string, error) {
	resp, err := http.Get(page)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
