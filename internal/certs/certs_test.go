package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Loop warns from two weeks before the end, once a day, and says once what it cannot use. A new
// certificate begins anew.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		a := testkit.NewAuthority(t, "authority")
		issue := func(end time.Time) *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{a.Issue(t, func(c *x509.Certificate) { c.NotAfter = end })}, RootCAs: a.Pool}
		}
		type files struct {
			config *tls.Config
			broken error
		}
		var now atomic.Pointer[files]
		put := func(c *tls.Config, broken error) { now.Store(&files{c, broken}) }
		first := issue(time.Now().Add(16 * day))
		put(first, nil)
		s, err := New(func() (*tls.Config, error) { f := now.Load(); return f.config, f.broken })
		testkit.Must(t, err)
		var text book
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			s.Loop(slog.New(slog.NewTextHandler(&text, nil)), stop)
			close(stopped)
		}()
		lines := func(after time.Duration) (list []string) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			for line := range strings.Lines(text.take()) {
				_, line, _ = strings.Cut(line, "msg=")
				list = append(list, line[:strings.Index(line, " cause")])
			}
			return list
		}
		want := func(what string, got []string, want ...string) {
			t.Helper()
			if strings.Join(got, ";") != strings.Join(want, ";") {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		const soon, unused, again = `"the certificate ends soon"`, `"the certificates of the files are not used"`, `"the certificates were read again"`
		want("15 days and more", lines(2*day-5*time.Hour))
		want("14 days", lines(day), soon)
		want("the day after", lines(day), soon)
		put(first, errors.New("half written"))
		want("a broken file", lines(time.Hour), unused)
		put(first, errors.New("still broken"))
		want("broken otherwise", lines(time.Hour), unused)
		if n := s.Failures(); n != 120 {
			t.Errorf("%d failures in two hours", n)
		}
		put(first, nil)
		want("as before", lines(time.Hour))
		put(issue(time.Now().Add(time.Hour)), nil)
		want("a short one", lines(time.Hour), again, soon)
		last := issue(time.Now().Add(90 * day))
		put(last, nil)
		want("a long one", lines(day), again)
		if !s.Leaf().Equal(last.Certificates[0].Leaf) {
			t.Error("the new certificate is not used")
		}
		close(stop)
		<-stopped
	})
}

// Whoever wants to know of changes is told of each, when the new config is in use already. What is
// as before, and what cannot be read, is no change.
func TestStore_OnChange(t *testing.T) {
	a := testkit.NewAuthority(t, "authority")
	issue := func() *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{a.Issue(t, func(*x509.Certificate) {})}, RootCAs: a.Pool}
	}
	now, broken := issue(), error(nil)
	s, err := New(func() (*tls.Config, error) { return now, broken })
	testkit.Must(t, err)
	told := 0
	s.OnChange(func() {
		if told++; s.Config() != now {
			t.Error("it is told before the config has changed")
		}
	})
	for i, step := range []struct {
		config *tls.Config
		broken error
		told   int
	}{
		{now, nil, 0}, {issue(), nil, 1}, {issue(), errors.New("half written"), 1}, {issue(), nil, 2}, {nil, errors.New("gone"), 2},
	} {
		if now, broken = step.config, step.broken; now == nil {
			now = s.Config()
		}
		was := told
		changed, err := s.Reload()
		if told != step.told || changed != (told > was) || !errors.Is(err, step.broken) {
			t.Errorf("step %d: told %d times, changed %v, %v", i, told, changed, err)
		}
	}
}

// A book is a log that a test reads meanwhile.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

// take returns what was written since it was called last.
func (b *book) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// A config that a service gives is never read again.
func TestFixed(t *testing.T) {
	if Fixed(nil) != nil {
		t.Error("a Store of nothing")
	}
	c := &tls.Config{}
	s := Fixed(c)
	if changed, err := s.Reload(); changed || err != nil || s.Config() != c || s.Leaf() != nil {
		t.Errorf("changed: %v, %v, leaf %v", changed, err, s.Leaf())
	}
}
