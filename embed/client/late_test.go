package client_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/group"
)

// M167: a wait whose caller's ctx lives ends as ErrUnavailable, and says nothing of a deadline that
// the caller never had. So a recipe waits on.
func TestLate_NamesNoDeadlineOfItsOwn(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		var o outage
		k := w.client(func(c *client.Config) {
			c.Dial, c.SessionTimeout, c.RequestTimeout = o.over(w.dial), 30*time.Second, 2*time.Second
		})
		defer k.Close()
		s, err := k.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		_, _, err = s.CreateWith(t.Context(), "/v/members/a", nil, embed.CreateOptions{Parents: true})
		must(t, err)
		z, err := s.Sync(t.Context(), "/v")
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waited := make(chan error, 1)
		go func() { _, err := group.AwaitApplied(ctx, s, "/v", z); waited <- err }()
		awaits := func() error { return s.Await(t.Context(), "/v", 1<<40) }
		opens := func() error { _, err := k.NewSession(t.Context(), embed.SessionOptions{}); return err }
		if err := awaits(); !errors.Is(err, embed.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("connected: %v", err)
		}
		o.begin()
		<-time.After(time.Second)
		for what, do := range map[string]func() error{"await": awaits, "new session": opens} {
			if err := do(); !errors.Is(err, embed.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
		}
		bound, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if err := s.Await(bound, "/v", 1<<40); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, embed.ErrUnavailable) {
			t.Errorf("the caller's deadline: %v", err)
		}
		o.end()
		<-time.After(5 * time.Second)
		select {
		case err := <-waited:
			t.Errorf("the recipe did not wait: %v", err)
		default:
			cancel()
			<-waited
		}
	})
}

// M168: a service's Dial panics, ends its goroutine, hangs or returns nothing. The process goes on, the
// session is refused with the reason, and Close waits for nobody.
func TestDial_ThatIsFaulty(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		release := make(chan struct{})
		late := make(chan net.Conn, 1)
		for what, dial := range map[string]func(context.Context, string) (net.Conn, error){
			"panicked": func(context.Context, string) (net.Conn, error) { panic("a defect of the service") },
			"Goexit":   func(context.Context, string) (net.Conn, error) { runtime.Goexit(); return nil, nil },
			"nothing":  func(context.Context, string) (net.Conn, error) { return nil, nil },
			"not returned": func(context.Context, string) (net.Conn, error) {
				<-release
				conn, theirs := net.Pipe()
				select {
				case late <- theirs:
				default:
				}
				return conn, nil
			},
		} {
			k := w.client(func(c *client.Config) { c.Dial = dial })
			_, err := k.NewSession(t.Context(), embed.SessionOptions{})
			if !errors.Is(err, embed.ErrUnavailable) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
			closed := make(chan error, 1)
			go func() { closed <- k.Close() }()
			synctest.Wait()
			select {
			case err := <-closed:
				must(t, err)
			default:
				t.Errorf("%s: Close waits", what)
				close(release)
			}
		}
		select {
		case <-release:
		default:
			close(release)
		}
		if _, err := (<-late).Read(make([]byte, 1)); err == nil {
			t.Error("a connection that came too late is open")
		}
	})
}
