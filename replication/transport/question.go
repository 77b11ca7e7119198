package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/vivarium-go/vivarium/internal/crowd"
)

const (
	// questionMax and replyMax bound the bytes of a question and of its answer.
	questionMax = 64 << 10
	replyMax    = 1 << 20
	// replyTimeout bounds how long an answer may take, on both sides.
	replyTimeout = 30 * time.Second
	// questionsMax bounds the questions that are answered at once. A node that asks again later
	// loses nothing, so the newest is refused. But one address does not keep out the others; see
	// roomLocked. Until a question is read it takes none of these places: its connection is one of
	// those whose handshake is not done.
	questionsMax = 64
)

// Errors of questions.
var (
	errQuestionSize = fmt.Errorf("a question has at most %d bytes", questionMax)
	errReplySize    = fmt.Errorf("an answer has at most %d bytes", replyMax)
	errNoReply      = errors.New("the connection ended before the answer")
)

// Ask asks whoever is at a target, which may be a member or not, and returns the answer. It waits
// at most 30 seconds. A *Refusal says why there is no answer, also if the build there is too old to
// be asked. If the target names a member, another member's answer counts as ErrWrongMember.
func (t *Transport) Ask(ctx context.Context, to Target, question []byte) ([]byte, error) {
	if len(question) > questionMax {
		return nil, errQuestionSize
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	life, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(t.ctx, end)()
	reply, err := t.ask(life, to, question)
	switch {
	case err == nil:
		return reply, nil
	case t.shut.Load():
		err = ErrShut
	case ctx.Err() != nil:
		err = ctx.Err() // which closed the connection
	}
	return nil, fmt.Errorf("ask %s: %w", placeOf(to), err)
}

// placeOf names a target.
func placeOf(to Target) string {
	if to.Address == "" {
		return fmt.Sprintf("member %d", to.Member)
	}
	return to.Address
}

// ask makes a connection, sends the question and reads the answer.
func (t *Transport) ask(life context.Context, to Target, question []byte) ([]byte, error) {
	conn, r, err := t.dial(life, to, func(conn net.Conn, r *bufio.Reader, version uint16) error {
		return t.dialQuestion(conn, r, version, to, question)
	})
	if err != nil {
		return nil, err
	}
	defer t.release(conn)
	defer context.AfterFunc(life, func() { cut(conn) })()
	f := frameReader{r: r, max: only(kindReply, replyMax)}
	_, reply, err := f.next()
	if err == io.EOF {
		err = errNoReply
	}
	return reply, err
}

// only returns the limit of the one kind of frames that may come.
func only(want kind, limit int) func(kind) int {
	return func(k kind) int {
		if k != want {
			return -1
		}
		return limit
	}
}

// dialQuestion does the asking side's half of a handshake, and sends the question. The two sides
// compare nothing but the version of the protocol.
func (t *Transport) dialQuestion(conn net.Conn, r *bufio.Reader, version uint16, to Target, question []byte) error {
	own := t.questionHello(version, to)
	if _, err := conn.Write(own.marshal(nil)); err != nil {
		return err
	}
	h, err := readHello(r, version, version)
	switch {
	case err == ErrOtherVersion:
		return t.askedIn(h.version)
	case err != nil:
		return err
	}
	if err := readVerdict(r, own.nonce); err != nil {
		return err
	}
	if h.Member != 0 && to.Member != 0 && h.Member != to.Member {
		return refusal(ErrWrongMember, "found member %d where member %d was expected", h.Member, to.Member)
	}
	verdict := h.appendVerdict(nil, nil)
	n := len(verdict)
	b := append(append(verdict, make([]byte, headSize)...), question...)
	finishFrame(b[n:], kindQuestion)
	_, err = conn.Write(b)
	return err
}

// questionHello returns the hello before a question. Whoever reads it may be anybody, so it does
// not say the digest.
func (t *Transport) questionHello(version uint16, to Target) hello {
	h, self := t.bareHello(version, forQuestion, to.Member), t.self()
	h.Directory, h.Start, h.Run = self.Directory, self.Start, self.Run
	h.Tick, h.Levels = self.Tick, self.Levels
	return h
}

// askedIn returns the error for a peer that answers in another version than was offered.
func (t *Transport) askedIn(version uint16) error {
	switch {
	case version < protocolMin:
		return refusal(ErrOtherVersion, "the peer's build is too old to be asked (it speaks version %d of the protocol between members, this one speaks versions %d to %d): start a newer build there", version, protocolMin, t.o.Highest)
	case version > t.o.Highest:
		return refusal(ErrOtherVersion, "the peer's build answers in version %d of the protocol between members, this one speaks versions %d to %d: start a newer build here", version, protocolMin, t.o.Highest)
	}
	return &versionError{version}
}

// admitQuestion refuses a question that would find no place.
func (t *Transport) admitQuestion(conn net.Conn) *Refusal {
	if t.o.Answer == nil {
		return refusal(ErrNotMember, "the node at this address answers no questions")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.roomLocked(conn); !ok {
		return refusal(ErrNotMember, "the node at this address is busy with %d other questions: ask again later", t.mu.asking.max)
	}
	return nil
}

// questionRead moves a connection from the queue of handshakes to that of questions. It returns
// false if there is no place any more. forget gives the place back.
func (t *Transport) questionRead(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.handshaking.remove(conn)
	out, ok := t.roomLocked(conn)
	if !ok {
		return false
	}
	if out != nil {
		t.mu.asking.remove(out)
		cut(out)
	}
	t.mu.asking.add(conn)
	return true
}

// roomLocked reports whether there is a place for one more question. If all are taken, it is that of
// out, the oldest of the address that holds most, unless the asker would then hold as many.
func (t *Transport) roomLocked(conn net.Conn) (out net.Conn, ok bool) {
	q := &t.mu.asking
	if len(q.conns) < q.max {
		return nil, true
	}
	out, most := q.greediest()
	return out, q.of(crowd.Of(conn.RemoteAddr()))+1 < most
}

// serveQuestion reads a question and sends the answer. An answer that nobody waits for ends early:
// whoever asks says nothing more, so the end of its connection is the next thing to be read.
func (t *Transport) serveQuestion(conn net.Conn, r *bufio.Reader) (err error) {
	defer contained(&err)
	f := frameReader{r: r, max: only(kindQuestion, questionMax)}
	_, question, err := f.next()
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if !t.questionRead(conn) {
		return nil // others took the last places meanwhile
	}
	ctx, cancel := context.WithTimeout(t.ctx, replyTimeout)
	defer cancel()
	if !t.spawn(func() { _, _ = r.ReadByte(); cancel() }) {
		return nil
	}
	reply := t.o.Answer(ctx, question)
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // nobody waits, or the answer is not what it would have been in time
	case len(reply) > replyMax:
		return errReplySize
	}
	b := append(make([]byte, headSize, headSize+len(reply)), reply...)
	finishFrame(b, kindReply)
	w := frameWriter{conn: conn}
	return w.write(b, time.Now())
}

// logQuestion logs why a question has no answer. It is no news that somebody stopped waiting.
func (t *Transport) logQuestion(conn net.Conn, err error) {
	level := slog.LevelDebug
	switch {
	case err == nil || t.shut.Load():
		return
	case errors.Is(err, errPanic) || errors.Is(err, errReplySize):
		level = slog.LevelError
	case errors.Is(err, errFrame):
		level = slog.LevelWarn
	}
	address, host := addressOf(conn)
	t.notices.give(level, notice{event: "a question is not answered", host: host}, "address", address, "cause", err)
}
