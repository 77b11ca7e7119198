package gateway

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// An input reads a connection's frames. It has buffers while there is something to read. An idle
// connection keeps none.
type input struct {
	sock net.Conn
	// before runs before the socket is read, which may block. It is nil until there is a session.
	before func() error

	bytes    *meter.Counter  // counts what is read
	hold     func(bytes int) // counts memory
	received int             // bytes since the last frame
	held     int             // what hold counts at present; see keep

	first [aheadMax]byte
	ahead []byte // the part of first that was read from the socket and not consumed yet
	bufs  *buffers

	silence time.Duration // how long the client may be silent; zero until there is a session
	armed   time.Time     // when the read deadline was set
}

// aheadMax is how much is read before the input gets buffers. Most requests are no longer.
const aheadMax = 128

// frameFree is what a frame and its request may take without being counted.
const frameFree = 4 << 10

// keep says how many bytes the frame and what was decoded from it take at present. They count until
// they are free, however long the next frame takes to come.
func (in *input) keep(bytes int) {
	if bytes <= frameFree {
		bytes = 0
	}
	if bytes != in.held {
		in.hold(bytes - in.held)
		in.held = bytes
	}
}

// buffers are what it takes to read one request and to handle it.
type buffers struct {
	r     *bufio.Reader
	frame []byte
	q     wire.Request
	a     answer
	one   [1]tree.Op // the operation of q, if q is a write
}

// frameKept bounds the frame that the buffers keep for the next request.
const frameKept = 64 << 10

// forget frees what the last request has left.
func (b *buffers) forget() {
	b.q, b.a, b.one = wire.Request{}, answer{}, [1]tree.Op{}
	if cap(b.frame) > frameKept {
		b.frame = nil
	}
}

var pool = sync.Pool{New: func() any { return &buffers{r: bufio.NewReader(nil)} }}

// Read returns what was read ahead, then reads the connection.
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
	in.bytes.Add(uint64(n))
	in.received += n
	in.keep(max(in.held, 2*in.received)) // a frame has at most twice the room that it needs so far
	return n, err
}

// next reads a frame. The frame lies in the buffers until the next call.
func (in *input) next(limit int) ([]byte, error) {
	in.rearm()
	in.received = 0
	if in.bufs == nil || !in.waiting() {
		in.freeBuffers()
		if err := in.awaitFirst(); err != nil {
			return nil, err
		}
	} else {
		in.bufs.forget()
	}
	return in.readFrame(limit)
}

// waiting reports whether there is input that was read from the socket, behind the newest frame.
func (in *input) waiting() bool { return in.bufs.r.Buffered() > 0 || len(in.ahead) > 0 }

// readFrame reads a frame. Part of it may have been read ahead.
func (in *input) readFrame(limit int) ([]byte, error) {
	if in.bufs == nil {
		in.bufs = pool.Get().(*buffers)
		in.bufs.r.Reset(in)
	}
	in.keep(cap(in.bufs.frame))
	frame, err := wire.ReadFrame(in.bufs.r, in.bufs.frame, limit)
	if err == nil {
		in.bufs.frame = frame
		in.keep(cap(frame))
	}
	return frame, err
}

// freeBuffers returns the buffers to the pool.
func (in *input) freeBuffers() {
	b := in.bufs
	if b == nil {
		return
	}
	in.bufs = nil
	b.r.Reset(nil)
	b.forget()
	pool.Put(b)
	in.keep(0)
}

// awaitFirst reads the first bytes of a frame. If the client was silent for too long, it reads once
// more: after a pause of this process the deadline has passed, and yet there may be input.
func (in *input) awaitFirst() error {
	n, err := in.read(in.first[:])
	if errors.Is(err, os.ErrDeadlineExceeded) && in.silence > 0 {
		_ = in.sock.SetReadDeadline(time.Now().Add(secondLook))
		n, err = in.sock.Read(in.first[:])
		in.bytes.Add(uint64(n))
		in.limitSilence(in.silence)
	}
	in.ahead = in.first[:n]
	if n > 0 {
		return nil
	}
	return err
}

const secondLook = 100 * time.Millisecond

// limitSilence sets how long the client may be silent from now on.
func (in *input) limitSilence(after time.Duration) {
	in.silence, in.armed = after, time.Time{}
	in.rearm()
}

// rearm sets the read deadline anew, but not at every frame. So the deadline is up to a quarter
// later than asked for.
func (in *input) rearm() {
	now := time.Now()
	if in.silence == 0 || now.Sub(in.armed) < in.silence/4 {
		return
	}
	in.armed = now
	_ = in.sock.SetReadDeadline(now.Add(in.silence + in.silence/4))
}

// head reads the first four bytes of the connection, which may be a four-letter word. They are read
// again as part of the first frame.
func (in *input) head() ([]byte, error) {
	n := 0
	for n < 4 {
		more, err := in.sock.Read(in.first[n:])
		in.bytes.Add(uint64(more))
		n += more
		if n < 4 && err != nil {
			return nil, err
		}
	}
	in.ahead = in.first[:n]
	return in.first[:4], nil
}
