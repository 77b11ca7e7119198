package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// confirmTimeout is how long the last chunk waits for the receiver. The receiver makes the whole
// snapshot durable before it answers.
const confirmTimeout = 30 * time.Second

var (
	errUnconfirmed   = errors.New("snapshot is not confirmed by its receiver")
	errChunkTooLarge = errors.New("snapshot chunk is larger than a frame may be")
)

// A stream is a connection for one snapshot. Unlike a link it reports errors, because dragonboat
// must know whether a snapshot has arrived. So sending the last chunk succeeds only when the
// receiver has confirmed that it handled all chunks.
//
// An error also trips dragonboat's circuit breaker for the messages to that member, usually for
// less than 0.75 s.
type stream struct {
	t      *Transport
	meters *Meters
	conn   net.Conn
	w      frameWriter
	unhook func() bool
	buf    []byte

	confirmed chan struct{} // closed when the receiver has answered
	broken    chan struct{} // closed when the connection has ended
	cause     error         // why it ended; set before broken is closed
}

// newStream connects. It takes at most dialTimeout and handshakeTimeout together, and twice that if
// the peer's build is older.
func newStream(ctx context.Context, t *Transport, member uint64) (*stream, error) {
	dialling, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)() // dragonboat's ctx does not end with Shut
	conn, r, err := t.dialMember(dialling, member, forSnapshot)
	if err != nil {
		return nil, fmt.Errorf("snapshot connection to member %d: %w", member, err)
	}
	s := &stream{t: t, meters: t.meters(member), conn: conn, w: frameWriter{conn: conn}, confirmed: make(chan struct{}), broken: make(chan struct{})}
	answered := func() {
		select {
		case <-s.confirmed:
		default:
			close(s.confirmed)
		}
	}
	ok := t.spawn(func() {
		s.cause = readAnswers(r, answered)
		close(s.broken)
		t.release(conn)
	})
	if !ok {
		t.release(conn)
		return nil, ErrShut
	}
	s.unhook = context.AfterFunc(ctx, func() { t.release(conn) })
	return s, nil
}

// SendChunk sends a chunk. If it is the last one, SendChunk waits until the receiver has handled
// it.
func (s *stream) SendChunk(c pb.Chunk) error {
	if s.t.shut.Load() {
		return ErrShut
	}
	size := c.Size()
	if size > chunkMax {
		return errChunkTooLarge
	}
	s.buf = frameOf(s.buf, size)
	if _, err := c.MarshalTo(s.buf[headSize:]); err != nil {
		return err
	}
	finishFrame(s.buf, kindChunk)
	last := c.IsLastChunk()
	if last {
		s.buf = appendEmpty(s.buf, kindAsk)
	}
	if err := s.w.write(s.buf, time.Now()); err != nil {
		return err
	}
	s.meters.Sent.Add(uint64(len(s.buf)))
	if !last {
		return nil
	}
	return s.confirm()
}

// confirm waits for the receiver's answer.
func (s *stream) confirm() error {
	timer := time.NewTimer(confirmTimeout)
	defer timer.Stop()
	select {
	case <-s.confirmed:
		return nil
	case <-s.broken:
		return fmt.Errorf("%w: %w", errUnconfirmed, s.cause)
	case <-timer.C:
		return errUnconfirmed
	}
}

// Close ends the connection. There is nothing to wait for, because the last chunk has waited.
func (s *stream) Close() {
	s.unhook()
	s.t.release(s.conn)
}
