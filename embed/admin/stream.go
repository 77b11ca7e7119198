package admin

import (
	"net/http"
	"time"
)

// patience is how long the other side may take to read what is sent to it, or to send more.
const patience = 30 * time.Second

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
