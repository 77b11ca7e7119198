package gateway

import (
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/internal/wire/wiretest"
)

// Appendix A of the catalogue, byte for byte, except for times and for zxids, which count failed
// writes in ZooKeeper.
func TestGoldenConversation(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		oneShard(t)
		frames := wiretest.Golden(t)
		frame := func(name string) []byte {
			if frames[name] == nil {
				t.Fatalf("no golden frame is called %q", name)
			}
			return frames[name]
		}
		c := dial(t, start(t, Config{}))
		c.write(frame("connect request"))
		answer := c.read()
		// These bytes are the protocol, the timeout and readOnly. The server chooses the id and
		// password.
		equal(t, "connect answer", append(append([]byte{}, answer[:8]...), answer[36]), append(append([]byte{}, frame("connect answer")[4:12]...), 0))

		masked := func(b []byte, statAt int) []byte {
			b = append([]byte{}, b...)
			clear(b[4:12]) // zxid
			if statAt > 0 {
				clear(b[statAt : statAt+32])    // czxid, mzxid, ctime, mtime
				clear(b[statAt+60 : statAt+68]) // pzxid
			}
			return b
		}
		for _, step := range []struct {
			request, reply string
			statAt         int // where a Stat is in the frame
		}{
			{"create", "create reply", 0},
			{"create", "create refused", 0}, // its xid differs, see below
			{"getChildren2", "getChildren2 reply", 16 + 4},
			{"multi", "multi refused", 0},
			{"ping", "ping reply", 0},
			{"auth", "auth reply", 0},
			{"closeSession", "closeSession reply", 0},
		} {
			q := append([]byte{}, frame(step.request)...)
			if step.reply == "create refused" {
				q[7] = 2
			}
			c.write(q)
			equal(t, step.reply, masked(c.read(), step.statAt), masked(frame(step.reply)[4:], step.statAt))
		}
		c.endsSilently()
	})
}

// G6: a client that sends an unknown op gets Unimplemented, and its connection ends.
func TestGoldenUnknownOp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		for _, o := range []wire.Op{0, 10, 13, 20, -10, 23, 99, 108, 1 << 30, -1} {
			c := connect(t, g)
			q := wire.Request{Xid: 9, Operation: wire.Operation{Op: wire.OpPing}}
			b := raw(q)
			b[8], b[9], b[10], b[11] = byte(o>>24), byte(o>>16), byte(o>>8), byte(o)
			c.write(b)
			equal(t, "unknown op", c.read(), []byte{0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfa})
			c.endsSilently()
		}
	})
}
