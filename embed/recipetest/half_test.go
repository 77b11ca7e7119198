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

// half calls wait with a client's session, and then a transaction of another session that makes a znode
// and deletes one. The client's connection breaks before an event that has a text. wait must not return
// unless it says that there is a gap.
func half(t *testing.T, path, cut string, mode embed.CreateMode, wait func(context.Context, *embed.Session) error) {
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
		must(t, barrier.NewCountdown(bob, "/work", 3).Done(ctx, "first"))
		gone := path + "/aaa"
		_, _, err = bob.CreateWith(ctx, gone, nil, embed.CreateOptions{Mode: mode, Parents: true})
		must(t, err)
		waited := begin(func() error { return wait(ctx, s) })
		<-time.After(5 * time.Second)
		text.Store(&cut)
		_, err = bob.Multi(ctx, embed.OpCreate(path+"/bbb", nil, mode), embed.OpDelete(gone, embed.AnyVersion))
		must(t, err)
		select {
		case err := <-waited:
			if errors.Is(err, embed.ErrWatchGap) {
				return
			}
			names, _, _ := bob.Children(ctx, path)
			t.Errorf("it has returned %v; enough were never there: %v", err, names)
		case <-time.After(time.Minute):
			if text.Load() != nil {
				t.Error("nothing was cut")
			}
		}
	})
}

// M135: one transaction puts a name in the place of another. Both are there at no zxid. Its two events
// show the countdown as the transaction leaves it, and who misses one of them knows that.
func TestHalf_ACountdownWaitsForTheWholeTransaction(t *testing.T) {
	half(t, "/work", "/work", embed.Persistent, func(ctx context.Context, s *embed.Session) error {
		return barrier.NewCountdown(s, "/work", 3).Wait(ctx)
	})
}

// M135: the same for a barrier: a member that takes another's place counts twice.
func TestHalf_ABarrierWaitsForTheWholeTransaction(t *testing.T) {
	half(t, "/b", "/b/aaa", embed.Ephemeral, func(ctx context.Context, s *embed.Session) error {
		_, err := barrier.Enter(ctx, s, "/b", 3)
		return err
	})
}
