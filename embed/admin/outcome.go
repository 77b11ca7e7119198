package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/engine"
)

// outcomeHeader says what became of a write. Its values never mix.
const (
	outcomeHeader = "Vivarium-Outcome"
	applied       = "applied"
	refused       = "refused"
	unknown       = "unknown"
)

// A refusal is an error with a status. Nothing was changed.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func badRequest(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// errBusy says that the Handler has too much to do.
var errBusy = errors.New("too much runs already")

// statuses are those of errors. The first that matches counts.
var statuses = []struct {
	err    error
	status int
}{
	{embed.ErrUnknownOutcome, http.StatusGatewayTimeout}, // first: it may match the ctx's error too
	{errBusy, http.StatusServiceUnavailable},

	{embed.ErrNoNode, http.StatusNotFound},
	{embed.ErrNoSession, http.StatusNotFound},
	{backup.ErrMissing, http.StatusNotFound},
	{embed.ErrNoAuth, http.StatusForbidden},
	{embed.ErrAuthFailed, http.StatusForbidden},
	{embed.ErrNodeExists, http.StatusConflict},
	{embed.ErrNotEmpty, http.StatusConflict},
	{embed.ErrNoChildrenForEphemerals, http.StatusConflict},
	{embed.ErrLevel, http.StatusConflict},
	{engine.ErrElsewhere, http.StatusConflict},
	{engine.ErrSessionMoved, http.StatusConflict},
	{embed.ErrBadVersion, http.StatusPreconditionFailed},
	{embed.ErrTooLarge, http.StatusRequestEntityTooLarge},
	{embed.ErrQuotaExceeded, http.StatusInsufficientStorage},
	{embed.ErrInvalidPath, http.StatusBadRequest},
	{embed.ErrInvalidMode, http.StatusBadRequest},
	{embed.ErrInvalidTTL, http.StatusBadRequest},
	{embed.ErrInvalidACL, http.StatusBadRequest},
	{embed.ErrInvalidArgument, http.StatusBadRequest},
	{embed.ErrCrossShard, http.StatusBadRequest},
	{backup.ErrLine, http.StatusBadRequest},
	{backup.ErrNotBackup, http.StatusBadRequest},
	{backup.ErrCorrupt, http.StatusBadRequest},
	{backup.ErrNewer, http.StatusBadRequest},

	// The request was certainly not applied, and may be repeated.
	{embed.ErrUnavailable, http.StatusServiceUnavailable},
	{embed.ErrSessionExpired, http.StatusServiceUnavailable}, // of the Handler's own
	{embed.ErrSessionClosed, http.StatusServiceUnavailable},
	{embed.ErrJoining, http.StatusServiceUnavailable},
	{embed.ErrClosed, http.StatusServiceUnavailable},
	{embed.ErrFailed, http.StatusServiceUnavailable},
	{context.Canceled, http.StatusServiceUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable},
}

// statusOf returns the status that says what has become of a request.
func statusOf(err error) int {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.status
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return http.StatusInternalServerError
}

// outcomeOf returns what has become of a write.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return applied
	case statusOf(err) == http.StatusGatewayTimeout || statusOf(err) == http.StatusInternalServerError:
		return unknown // of an error that is not in the table, nobody knows what it means
	}
	return refused
}

// fail answers with an error. If a part of the answer was sent, it cuts the answer off, so that
// nobody takes it for a whole one.
func (c *call) fail(err error) {
	if c.answered {
		return
	}
	if c.begun {
		panic(http.ErrAbortHandler)
	}
	header, status := c.w.Header(), statusOf(err)
	switch {
	case status == http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case status == http.StatusServiceUnavailable && c.h.node.Err() == nil:
		header.Set("Retry-After", "1")
	}
	for _, name := range []string{"Content-Disposition", "ETag"} {
		header.Del(name)
	}
	if c.changes() && header.Get(outcomeHeader) != unknown {
		header.Set(outcomeHeader, outcomeOf(err))
	}
	_ = c.answer(status, map[string]string{"error": err.Error()}) // of strings alone
}

// done notes that a write was applied.
func (c *call) done() { c.w.Header().Set(outcomeHeader, applied) }

// logChange logs a request that may have changed something.
func (c *call) logChange(err error) {
	if err == nil && c.w.Header().Get(outcomeHeader) == "" {
		return // a dry run
	}
	outcome, cause := outcomeOf(err), ""
	if err != nil {
		cause = err.Error()
	}
	if c.w.Header().Get(outcomeHeader) == unknown {
		outcome = unknown
	}
	c.h.log.Info("asked for a change", "name", c.grant.Name, "method", c.r.Method+" "+c.r.URL.Path, "path", c.path,
		"session", c.session, "outcome", outcome, "reason", c.reason, "cause", cause)
}
