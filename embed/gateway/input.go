package gateway

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// An input reads a connection's frames. It has buffers while there is something to read: an idle connection keeps none.
type input struct {
	sock   net.Conn
	before func() error // called before the socket is read, which may take long; nil until there is a session

	hold func(bytes int) // told what a long frame takes
	came int             // bytes since the frame before
	held int             // of them, those that hold was told of

	first [aheadMax]byte
	ahead []byte // of first, what is not read on yet
	bufs  *buffers

	silence time.Duration // how long the client may say nothing; zero until there is a session
	armed   time.Time     // when the deadline was set
}

// aheadMax is what is read in the first go, before there are buffers; most requests are no longer.
const aheadMax = 128

// buffers are what reading a request takes, and dealing with it.
type buffers struct {
	r     *bufio.Reader
	frame []byte
	q     wire.Request
	a     answer
	one   [1]tree.Op // of q, if that is a write
}

// frameKept bounds the frame that is kept for the next one who reads.
const frameKept = 64 << 10

var pool = sync.Pool{New: func() any { return &buffers{r: bufio.NewReader(nil)} }}

// Read reads what there is ahead, then the connection.
func (in *input) Read(p []byte) (int, error) {
	if len(in.ahead) > 0 {
		n := copy(p, in.ahead)
		in.ahead = in.ahead[n:]
		return n, nil
	}
	return in.read(p)
}

func (in *input) read(p []byte) (int, error) {
	if in.before != nil {
		if err := in.before(); err != nil {
			return 0, err
		}
	}
	n, err := in.sock.Read(p)
	if in.came += n; in.came-in.held >= frameKept {
		in.hold(in.came - in.held)
		in.held = in.came
	}
	return n, err
}

// next reads a frame, which lies in the buffers until the next one is read.
func (in *input) next(limit int) ([]byte, error) {
	in.rearm()
	if in.came = 0; in.held > 0 {
		in.hold(-in.held)
		in.held = 0
	}
	if in.bufs == nil || in.bufs.r.Buffered() == 0 && len(in.ahead) == 0 {
		in.freeBuffers()
		if err := in.awaitFirst(); err != nil {
			return nil, err
		}
	}
	return in.readFrame(limit)
}

// readFrame reads a frame of which something is ahead.
func (in *input) readFrame(limit int) ([]byte, error) {
	if in.bufs == nil {
		in.bufs = pool.Get().(*buffers)
		in.bufs.r.Reset(in)
	}
	frame, err := wire.ReadFrame(in.bufs.r, in.bufs.frame, limit)
	if err == nil {
		in.bufs.frame = frame
	}
	return frame, err
}

// freeBuffers gives the buffers back.
func (in *input) freeBuffers() {
	b := in.bufs
	if b == nil {
		return
	}
	in.bufs = nil
	b.r.Reset(nil)
	b.q, b.a, b.one = wire.Request{}, answer{}, [1]tree.Op{}
	if cap(b.frame) > frameKept {
		b.frame = nil
	}
	pool.Put(b)
}

// awaitFirst reads what comes first. Whoever was silent for too long is asked once more: after a pause of this process the deadline has
// passed, and yet there may be something to read.
func (in *input) awaitFirst() error {
	n, err := in.read(in.first[:])
	if errors.Is(err, os.ErrDeadlineExceeded) && in.silence > 0 {
		_ = in.sock.SetReadDeadline(time.Now().Add(secondLook))
		n, err = in.sock.Read(in.first[:])
		in.limitSilence(in.silence)
	}
	in.ahead = in.first[:n]
	if n > 0 {
		return nil
	}
	return err
}

const secondLook = 100 * time.Millisecond

// limitSilence sets how long the client may say nothing from now on.
func (in *input) limitSilence(after time.Duration) {
	in.silence, in.armed = after, time.Time{}
	in.rearm()
}

// rearm moves the deadline, but not at every frame: it is up to a quarter later than it should be.
func (in *input) rearm() {
	now := time.Now()
	if in.silence == 0 || now.Sub(in.armed) < in.silence/4 {
		return
	}
	in.armed = now
	_ = in.sock.SetReadDeadline(now.Add(in.silence + in.silence/4))
}

// head reads the first four bytes of the connection, which may be one of ZooKeeper's words; they stay to be read.
func (in *input) head() ([]byte, error) {
	n := 0
	for n < 4 {
		more, err := in.sock.Read(in.first[n:])
		n += more
		if n < 4 && err != nil {
			return nil, err
		}
	}
	in.ahead = in.first[:n]
	return in.first[:4], nil
}
