package gateway

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

const (
	// walkBytes is where a portion of a walk ends. It is small enough for a slow network to carry it
	// between two pings.
	walkBytes = 1 << 20
	// walkTimeMax bounds how long a walk keeps in memory what is replaced meanwhile; the engine bounds
	// how much. Then it is over once the client asks for something, which its pings do.
	walkTimeMax = time.Minute
	// walkWaits is about what a walk takes that waits, beside three copies of the path where it is.
	walkWaits = 16 << 10
)

// errWalkOver says that a walk cannot go on: its connection broke, or it took too long.
var errWalkOver = fmt.Errorf("%w: this walk is over, begin it again", engine.ErrUnavailable)

// A walk reads a subtree at one zxid, in portions. A connection has one at a time. It is owned by
// the reader.
type walk struct {
	path  string
	depth int32
	began time.Time
	next  func() (struct{}, bool) // goes on to the next znode
	stop  func()

	znode wire.NativeZnode // that next has come to. It is taken at once: next would keep it otherwise
	zxid  tree.Zxid
	after string // the last path that was shown
	held  int    // bytes counted for it
	err   error  // why the walk has ended, if next returns false
}

// nativeWalk shows the first portion of a walk, or the next one.
func (c *conn) nativeWalk(n *wire.Native, r *wire.NativeReply) error {
	switch w := c.walk; {
	case n.Count < 0:
		return fmt.Errorf("%w: a depth of %d", embed.ErrInvalidArgument, n.Count)
	case n.After == "":
		c.endWalk()
		c.walk = newWalk(c, n)
	case w == nil || w.path != n.Path || w.depth != n.Count || w.after != n.After || w.zxid != tree.Zxid(n.Zxid):
		return errWalkOver
	}
	if err := c.reserve(walkBytes + c.gate.node.Config.MaxDataSize); err != nil {
		return err
	}
	err := c.walk.portion(r)
	c.holdWalk(walkWaits + 3*len(c.walk.after))
	if !r.Flag {
		c.endWalk()
	}
	return cmp.Or(c.writes.Live(), err)
}

// endWalk ends the walk of the connection, if there is one.
func (c *conn) endWalk() {
	if c.walk != nil {
		c.walk.stop()
		c.holdWalk(0)
		c.walk = nil
	}
}

// holdWalk counts what the walk takes until its next portion.
func (c *conn) holdWalk(bytes int) {
	c.hold(bytes - c.walk.held)
	c.walk.held = bytes
}

// endOldWalk ends a walk that takes too long.
func (c *conn) endOldWalk() {
	if c.walk != nil && time.Since(c.walk.began) > walkTimeMax {
		c.endWalk()
	}
}

func newWalk(c *conn, n *wire.Native) *walk {
	w := &walk{path: n.Path, depth: n.Count, began: time.Now()}
	w.next, w.stop = iter.Pull(func(yield func(struct{}) bool) {
		w.zxid, w.err = c.writes.Walk(c.gate.ctx, w.path, int(w.depth), func(at tree.Zxid, path string, f tree.Found) bool {
			w.zxid = at
			stat := f.Stat()
			w.znode = wire.NativeZnode{Path: path, Data: f.Data(), Stat: native.ToStat(&stat)}
			return yield(struct{}{})
		})
	})
	return w
}

// portion fills in an answer. Flag says that the walk may show more.
func (w *walk) portion(r *wire.NativeReply) error {
	for size := 0; size < walkBytes; {
		_, ok := w.next()
		z := w.znode
		w.znode = wire.NativeZnode{}
		if r.Zxid = int64(w.zxid); !ok {
			return w.err
		}
		size += answerBytes + len(z.Path) + len(z.Data)
		r.Znodes = append(r.Znodes, z)
		w.after = z.Path
	}
	r.Flag = true
	return nil
}
