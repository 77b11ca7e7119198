package admin

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// patience is how long the other side may take to read what is sent to it, or to send more.
const patience = 30 * time.Second

// pieceBytes is how much of an answer the other side must read within patience.
const pieceBytes = 64 << 10

// send sends a whole answer. A caller that does not read it is given up in time, and its connection
// ends. Otherwise the connection goes on without a deadline: its next request may be for another
// handler of the service.
func (c *call) send(status int, kind string, body []byte) {
	c.begun = true
	if status != http.StatusNoContent {
		c.w.Header().Set("Content-Type", kind)
		c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	if c.r.Method == http.MethodHead {
		body = nil
	}
	c.w.WriteHeader(status)
	ctl := http.NewResponseController(c.w)
	for piece := range slices.Chunk(body, pieceBytes) {
		_ = ctl.SetWriteDeadline(time.Now().Add(patience)) // unless the service has wrapped the writer
		if _, err := c.w.Write(piece); err != nil {
			return // nobody is there any more
		}
	}
	_ = ctl.SetWriteDeadline(time.Now().Add(patience))
	if ctl.Flush() == nil { // nothing is left that the server would send later, without a deadline
		_ = ctl.SetWriteDeadline(time.Time{})
	}
}

// A stream sends an answer piece by piece.
type stream struct {
	c    *call
	kind string // the Content-Type
	ctl  *http.ResponseController
}

func (c *call) stream(kind string) *stream { return &stream{c, kind, http.NewResponseController(c.w)} }

// Write sends a piece. With the first one, the status is 200.
func (s *stream) Write(p []byte) (int, error) {
	if !s.c.begun {
		s.c.begun = true
		s.c.w.Header().Set("Content-Type", s.kind)
		s.c.w.Header().Set("Connection", "close") // the deadline would hold for the next request too
	}
	_ = s.ctl.SetWriteDeadline(time.Now().Add(patience)) // unless the service has wrapped the writer
	return s.c.w.Write(p)
}

// flush sends what has gathered.
func (s *stream) flush() error { return s.ctl.Flush() }

// bodyDeadline bounds the time until the first of a body is read, or what nobody wants is skipped.
// Otherwise a stranger could hold a goroutine by a body that never comes.
func (c *call) bodyDeadline() {
	if c.r.Body != nil && c.r.Body != http.NoBody {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(patience))
	}
}

// skipBody is called before a stranger is refused. The server would otherwise wait for the rest of the
// body before it answers, and the stranger would hold one of the port's connections meanwhile.
func (c *call) skipBody() {
	if c.r.Body != nil && c.r.Body != http.NoBody {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Now())
	}
}

// body is the request's body.
func (c *call) body() patientBody { return patientBody{c.r, http.NewResponseController(c.w)} }

// A patient body is read piece by piece, each in time.
type patientBody struct {
	r   *http.Request
	ctl *http.ResponseController
}

func (b patientBody) Close() error { return b.r.Body.Close() }

func (b patientBody) Read(p []byte) (int, error) {
	_ = b.ctl.SetReadDeadline(time.Now().Add(patience))
	n, err := b.r.Body.Read(p)
	if err != nil { // from now on the server reads, to see whether the caller goes away
		_ = b.ctl.SetReadDeadline(time.Time{})
	}
	return n, err
}
