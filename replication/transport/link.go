package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/vivarium-go/vivarium/internal/rank"
)

const (
	// dialTimeout bounds a dial, including the handshake of TLS. If packets vanish, one new attempt
	// per second finds a healed path sooner than the system's own retries, which come at growing
	// intervals.
	dialTimeout = 1500 * time.Millisecond
	// redialMin and redialMax bound the pauses after failed dials, which double.
	redialMin = 50 * time.Millisecond
	redialMax = 250 * time.Millisecond
	// redialRefused is the pause after a refusal. Only a person or a commit can end a refusal.
	redialRefused = time.Second
	// holdMax is how long messages wait for a connection that was just lost or is not made yet. A
	// member that starts asks for votes at once. If that request were dropped, the member would
	// wait for another election.
	holdMax = 250 * time.Millisecond
	// askEvery is how often a link asks its peer for an answer while messages are sent.
	askEvery = 500 * time.Millisecond
	// answerPatience is how long the answer may take. It may take a second longer for each
	// slowestLine bytes sent since.
	answerPatience = 1500 * time.Millisecond
	slowestLine    = 1 << 20
)

// A link is where dragonboat puts the messages for one member. It exists as soon as dragonboat asks
// for it. It makes its connection when the first messages come, and makes it again when it breaks.
// While there is none it drops messages, as Raft expects of a network.
//
// A link does not return errors, because dragonboat has a circuit breaker. The breaker holds a
// member's messages back for up to 0.75 s after one failure and up to 1.5 s after several. Then it
// lets one attempt through, and may go on dropping after a success. A healed path would stay unused
// for longer than an election takes, and cause an election for nothing. The only other thing that
// dragonboat does on an error is to report the node itself, not the peer, as unreachable. So the
// link reports no error and dials as often as it needs to: every quarter of a second while there is
// something to send.
//
// A link asks for answers, because a path that was cut silently shows only in answers that do not
// come. TCP repeats lost bytes at growing intervals. So after a cut the old connection would stay
// silent for as long as the cut had lasted. Also, a proxy in front of a peer may acknowledge in its
// place.
type link struct {
	// Immutable after newLink.
	t      *Transport
	member uint64
	ctx    context.Context
	cancel context.CancelFunc
	unhook func() bool // detaches the link from dragonboat's context
	meters *Meters

	// Owned by the sending goroutine.
	buf     []byte
	holding time.Time // until when messages wait for a connection; zero while there is one

	mu struct {
		rank.Mutex[rank.Link]
		state   linkState
		wire    *wire         // the connection; nil unless linkConnected
		changed chan struct{} // closed and replaced when a dial ends
		retry   time.Time     // no dial before this time
		pause   time.Duration // the last pause
	}
}

// A linkState says what a link does about its connection.
//
//	        begins to dial             dial succeeds
//	idle ───────────────────▶ dialling ─────────────▶ connected
//	 ▲                           │                        │
//	 └───────────────────────────┴────────────────────────┘
//	             the dial fails, or the connection is lost
//
// Every state may change to closed, which is final.
type linkState uint8

const (
	linkIdle linkState = iota
	linkDialling
	linkConnected
	linkClosed
)

// linkChanges lists the states that may follow each state.
var linkChanges = [...][]linkState{
	linkIdle:      {linkDialling, linkClosed},
	linkDialling:  {linkConnected, linkIdle, linkClosed},
	linkConnected: {linkIdle, linkClosed},
	linkClosed:    {linkClosed}, // Close may follow the end of dragonboat's context
}

// changeLocked changes the state. w is the connection of linkConnected, and nil for all other
// states. A change that linkChanges does not list is a defect. It must not take the process down,
// which belongs to the service. So the link gives up its connection, and dials again if it is open.
func (l *link) changeLocked(to linkState, w *wire) {
	if !slices.Contains(linkChanges[l.mu.state], to) || (to == linkConnected) != (w != nil) {
		onDefect(fmt.Sprintf("link changes from state %d to %d", l.mu.state, to))
		for _, w := range []*wire{l.mu.wire, w} {
			if w != nil {
				l.t.release(w.conn)
			}
		}
		if to, w = linkIdle, nil; l.mu.state == linkClosed {
			to = linkClosed
		}
	}
	l.mu.state, l.mu.wire = to, w
}

// onDefect is told of impossible changes. The tests make it panic.
var onDefect = func(what string) {}

// A wire is one connection of a link.
type wire struct {
	conn  net.Conn
	r     *bufio.Reader
	began time.Time

	// Owned by the sending goroutine.
	w       frameWriter
	askedAt time.Time
	unheard int // bytes sent since askedAt

	asked   atomic.Int64 // askedAt since began, for the goroutine that reads the answer
	waiting atomic.Bool  // the newest ask is not answered
}

func newLink(ctx context.Context, t *Transport, member uint64) *link {
	l := &link{t: t, member: member, meters: t.meters(member)}
	l.ctx, l.cancel = context.WithCancel(t.ctx)
	l.mu.changed = make(chan struct{})
	l.unhook = context.AfterFunc(ctx, l.shut)
	return l
}

// Close ends the link.
func (l *link) Close() {
	l.unhook()
	l.shut()
}

func (l *link) shut() {
	l.cancel()
	l.mu.Lock()
	w := l.mu.wire
	l.changeLocked(linkClosed, nil)
	if w != nil {
		l.t.recordNotReached(l.member, nil)
	}
	l.mu.Unlock()
	if w != nil {
		l.t.release(w.conn)
	}
}

// SendMessageBatch sends the messages or loses them. It never returns an error; see the type.
func (l *link) SendMessageBatch(b pb.MessageBatch) error {
	l.t.role.Load().gate.noteRunning(b.Requests)
	if l.t.shut.Load() {
		return nil
	}
	w := l.current(time.Now())
	if w == nil {
		l.meters.Unsent.Add(uint64(len(b.Requests)))
		return nil
	}
	if err := l.send(w, b); err != nil {
		l.lost(w, err)
	}
	return nil
}

// current returns the connection. If the connection was lost only now, or this is the first batch,
// it waits up to holdMax for one.
func (l *link) current(now time.Time) *wire {
	w, changed, retry := l.look(now)
	if w != nil {
		l.holding = time.Time{}
		return w
	}
	if l.holding.IsZero() {
		l.holding = now.Add(holdMax)
	}
	for w == nil && now.Before(l.holding) {
		until := l.holding
		if retry.After(now) && retry.Before(until) {
			until = retry
		}
		timer := time.NewTimer(until.Sub(now))
		select {
		case <-changed:
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
		now = time.Now()
		w, changed, retry = l.look(now)
	}
	return w
}

// look returns the connection, or nil. Without a connection it begins to dial if it is time to.
// changed is closed when a dial ends; retry is the time of the next dial.
func (l *link) look(now time.Time) (w *wire, changed <-chan struct{}, retry time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state == linkIdle && !now.Before(l.mu.retry) && l.t.spawn(l.connectionLoop) {
		l.changeLocked(linkDialling, nil)
	}
	return l.mu.wire, l.mu.changed, l.mu.retry
}

// connectionLoop makes a connection and reads the answers on it until it ends.
func (l *link) connectionLoop() {
	conn, r, err := l.t.dialMember(l.ctx, l.member, forMessages)
	if err != nil {
		l.failed(err)
		return
	}
	w := &wire{conn: conn, r: r, began: time.Now(), w: frameWriter{conn: conn}}
	if !l.connected(w) {
		l.t.release(conn)
		return
	}
	l.lost(w, readAnswers(r, func() { l.answered(w) }))
}

// answered records the answer to the newest ask.
func (l *link) answered(w *wire) {
	if w.waiting.Load() { // else nobody has asked
		l.meters.RoundTrips.Observe(time.Since(w.began) - time.Duration(w.asked.Load()))
	}
	w.waiting.Store(false)
}

// readAnswers reads the answers of an accepting member until the connection ends.
func readAnswers(r *bufio.Reader, answered func()) error {
	f := frameReader{r: r, max: answersOnly}
	for {
		if _, _, err := f.next(); err != nil {
			return err
		}
		answered()
	}
}

// answersOnly returns the limits of the frames that an accepting member sends.
func answersOnly(k kind) int {
	if k == kindAnswer {
		return 0
	}
	return -1
}

// connected puts a new connection to use. It returns false if the link was closed meanwhile.
func (l *link) connected(w *wire) bool {
	l.mu.Lock()
	l.dialEndedLocked(redialMin)
	ok := l.mu.state != linkClosed
	if ok {
		l.changeLocked(linkConnected, w)
		l.mu.pause = 0
		l.t.recordReached(l.member)
	}
	l.mu.Unlock()
	if ok {
		l.t.notices.give(slog.LevelInfo, notice{event: "connected to member", peer: l.member})
		l.t.warnPlain(w.conn, l.member)
	}
	return ok
}

// failed records that a dial has failed.
func (l *link) failed(err error) {
	var no *Refusal
	pause := redialRefused
	l.mu.Lock()
	switch {
	case !errors.As(err, &no):
		l.mu.pause = min(max(2*l.mu.pause, redialMin), redialMax)
		pause = l.mu.pause
	case no.Kind == ErrNotMember:
		pause = redialMax // it may only have to start
	}
	l.dialEndedLocked(pause)
	closed := l.mu.state == linkClosed
	if !closed {
		l.changeLocked(linkIdle, nil)
	}
	l.mu.Unlock()
	if closed || l.t.shut.Load() {
		return
	}
	if no != nil {
		// Two followers may have nothing to send for long, and somebody may mend what is wrong.
		time.AfterFunc(pause, func() { l.look(time.Now()) })
	}
	l.t.recordNotReached(l.member, err)
	n, level := notice{event: "no connection to member", peer: l.member}, slog.LevelWarn
	if no != nil {
		n.kind, level = no.Kind, no.level()
	}
	l.t.notices.give(level, n, "cause", err)
}

// dialEndedLocked wakes all that wait for a connection.
func (l *link) dialEndedLocked(pause time.Duration) {
	l.mu.retry = time.Now().Add(pause)
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// lost gives up a connection. Both the sender and the reader of answers may call it.
func (l *link) lost(w *wire, err error) {
	l.t.release(w.conn)
	l.mu.Lock()
	mine := l.mu.wire == w
	if mine {
		l.changeLocked(linkIdle, nil)
		l.mu.retry = time.Now().Add(redialMin)
		l.t.recordNotReached(l.member, err)
	}
	l.mu.Unlock()
	if mine && !l.t.shut.Load() {
		l.t.notices.give(slog.LevelInfo, notice{event: "connection to member lost", peer: l.member}, "cause", err)
	}
}

// errSilent means that the peer of a connection does not answer.
var errSilent = errors.New("the peer does not answer")

// send writes a batch as one frame, or as several frames if it is too large for one.
func (l *link) send(w *wire, b pb.MessageBatch) error {
	size := b.Size()
	if size > l.t.o.FrameMax {
		return l.sendParts(w, b, size)
	}
	now := time.Now()
	if w.waiting.Load() && now.Sub(w.askedAt) > answerPatience+time.Duration(w.unheard)*time.Second/slowestLine {
		return errSilent
	}
	l.buf = frameOf(l.buf, size)
	if _, err := b.MarshalTo(l.buf[headSize:]); err != nil {
		return err
	}
	finishFrame(l.buf, kindBatch)
	if !w.waiting.Load() && now.Sub(w.askedAt) >= askEvery {
		l.buf = appendEmpty(l.buf, kindAsk)
		w.askedAt, w.unheard = now, 0
		w.asked.Store(int64(now.Sub(w.began)))
		w.waiting.Store(true)
	}
	w.unheard += len(l.buf)
	err := w.w.write(l.buf, now)
	if err == nil {
		l.meters.Sent.Add(uint64(len(l.buf)))
	}
	if cap(l.buf) > bufferKeep {
		l.buf = nil
	}
	return err
}

// frameOf returns a buffer for a frame with a payload of size bytes. It is b itself if that is
// large enough.
func frameOf(b []byte, size int) []byte {
	if n := headSize + size; cap(b) >= n {
		return b[:n]
	}
	return make([]byte, headSize+size, 2*headSize+size+size/4)
}

// sendParts sends a batch that is too large in two parts. A single message that is too large is
// lost, because no frame may carry it.
func (l *link) sendParts(w *wire, b pb.MessageBatch, size int) error {
	all := b.Requests
	if len(all) == 1 {
		l.t.notices.give(slog.LevelError, notice{event: "message is larger than a frame may be", peer: l.member},
			"type", all[0].Type.String(), "bytes", size, "limit", l.t.o.FrameMax)
		return nil
	}
	b.Requests = all[:len(all)/2]
	if err := l.send(w, b); err != nil {
		return err
	}
	b.Requests = all[len(all)/2:]
	return l.send(w, b)
}
