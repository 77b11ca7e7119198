package recipetest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// cutBefore reads frame by frame, and breaks once before a frame that has some text.
type cutBefore struct {
	net.Conn
	text *atomic.Pointer[string]
	rest []byte
}

func (c *cutBefore) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			return 0, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(c.Conn, body); err != nil {
			return 0, err
		}
		if text := c.text.Load(); text != nil && strings.Contains(string(body), *text) {
			c.text.Store(nil)
			_ = c.Conn.Close()
			return 0, errors.New("the connection is broken")
		}
		c.rest = append(head, body...)
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// M135: one transaction puts b in the place of a: there are two names at no zxid. The connection breaks
// between its two events.
func TestHalf_ACountdownWaitsForTheWholeTransaction(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var text atomic.Pointer[string]
		k, end, err := clienttest.Over(ens.Node(1), func(ctx context.Context) (net.Conn, error) {
			c, err := ens.Dial(ctx, 1)
			if err != nil {
				return nil, err
			}
			return &cutBefore{Conn: c, text: &text}, nil
		})
		must(t, err)
		defer end()
		bob := ens.Session(1, embed.SessionOptions{})
		s, err := k.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		defer s.Close()
		must(t, barrier.NewCountdown(bob, "/work", 2).Done(ctx, "a"))
		waited := begin(func() error { return barrier.NewCountdown(s, "/work", 2).Wait(ctx) })
		<-time.After(5 * time.Second)
		a := "/work/a"
		text.Store(&a)
		_, err = bob.Multi(ctx, embed.OpCreate("/work/b", nil, embed.Persistent), embed.OpDelete(a, embed.AnyVersion))
		must(t, err)
		select {
		case err := <-waited:
			names, _, _ := bob.Children(ctx, "/work")
			t.Errorf("Wait returned %v; two names are to be done, and there is only %v", err, names)
		case <-time.After(time.Minute):
			if text.Load() != nil {
				t.Error("nothing was cut")
			}
		}
	})
}

// M135: the same for a barrier: a member that takes another's place counts twice.
func TestHalf_ABarrierWaitsForTheWholeTransaction(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var text atomic.Pointer[string]
		k, end, err := clienttest.Over(ens.Node(1), func(ctx context.Context) (net.Conn, error) {
			c, err := ens.Dial(ctx, 1)
			if err != nil {
				return nil, err
			}
			return &cutBefore{Conn: c, text: &text}, nil
		})
		must(t, err)
		defer end()
		bob := ens.Session(1, embed.SessionOptions{})
		s, err := k.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		defer s.Close()
		_, _, err = bob.CreateWith(ctx, "/b/aaa", nil, embed.CreateOptions{Mode: embed.Ephemeral, Parents: true})
		must(t, err)
		entered := begin(func() error { _, err := barrier.Enter(ctx, s, "/b", 3); return err })
		<-time.After(5 * time.Second)
		a := "/b/aaa"
		text.Store(&a)
		_, err = bob.Multi(ctx, embed.OpCreate("/b/bbb", nil, embed.Ephemeral), embed.OpDelete(a, embed.AnyVersion))
		must(t, err)
		select {
		case err := <-entered:
			names, _, _ := bob.Children(ctx, "/b")
			t.Errorf("Enter returned %v; three members were never there: %v", err, names)
		case <-time.After(time.Minute):
		}
	})
}
