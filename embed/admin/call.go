package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A call is one request on its way.
type call struct {
	h     *Handler
	w     http.ResponseWriter
	r     *http.Request
	grant Grant
	query url.Values

	begun    bool // a part of the answer may have been sent
	answered bool // all of it was
	// What the log says of a change, as far as it is known.
	session      embed.SessionID
	path, reason string
}

// method is the method by which a route is found.
func (c *call) method() string {
	if c.r.Method == http.MethodHead {
		return http.MethodGet
	}
	return c.r.Method
}

// changes reports whether the request may change something.
func (c *call) changes() bool { return c.r.Method != http.MethodGet && c.r.Method != http.MethodHead }

// readQuery reads the parameters of the URL, all of which must be known.
func (c *call) readQuery(known []string) (err error) {
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return badRequest("the query: %v", err)
	}
	for name, values := range c.query {
		if !slices.Contains(known, name) {
			return badRequest("the query has %q: this path knows %q", name, known)
		}
		if len(values) > 1 {
			return badRequest("the query has %q more than once", name)
		}
	}
	c.path = c.query.Get("path")
	if c.changes() {
		if err := c.mayChange(c.path); err != nil {
			return err
		}
	}
	return c.setReason(c.query.Get("reason"))
}

// reasonMax bounds a reason, in bytes.
const reasonMax = 1 << 10

func (c *call) setReason(text string) error {
	if len(text) > reasonMax {
		return badRequest("the reason has %d bytes: at most %d are taken", len(text), reasonMax)
	}
	c.reason = text
	return nil
}

// znode returns the path that the request names.
func (c *call) znode() (string, error) {
	if !c.query.Has("path") {
		return "", badRequest("the query lacks path")
	}
	return c.path, tree.ValidatePath(c.path)
}

// mayChange returns an error if the znode at a path steers the ensemble: as to clients, it is closed
// to all but the super identity. The tree cannot know, because the sessions here are a member's own.
func (c *call) mayChange(path string) error {
	if !tree.Steers(path) {
		return nil
	}
	who, err := c.identities()
	if err != nil || slices.ContainsFunc(who, func(i tree.Identity) bool { return i.Scheme == "super" }) {
		return err
	}
	return fmt.Errorf("%w: %s steers the ensemble: it takes the super identity", embed.ErrNoAuth, path)
}

// flag returns a parameter that is set by its name alone, or by 1 or true.
func (c *call) flag(name string) (bool, error) {
	if !c.query.Has(name) {
		return false, nil
	}
	switch v := c.query.Get(name); v {
	case "", "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	default:
		return false, badRequest("%s is %q: want 1 or 0", name, v)
	}
}

// number returns a parameter between bounds.
func (c *call) number(name string, preset, least, most int) (int, error) {
	text := c.query.Get(name)
	if text == "" {
		return preset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, badRequest("%s is %q: want a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// pageMax is how many elements an answer has at most; a further one asks for what comes after.
const pageMax = 1000

func (c *call) limit() (int, error) { return c.number("limit", pageMax, 1, pageMax) }

// identities returns what ACLs are asked as.
func (c *call) identities() ([]tree.Identity, error) {
	credentials := make([]inside.Credential, len(c.grant.Identities))
	for i, a := range c.grant.Identities {
		credentials[i] = inside.Credential(a)
	}
	who, err := c.h.parts.Authenticate(credentials...)
	if err != nil {
		return nil, &refusal{http.StatusForbidden, "the identities of " + c.grant.Name + ": " + err.Error()}
	}
	return who, nil
}

// peek returns the node's replica as the grant may see it. With sync=1 it shows everything that was
// acknowledged before the request.
func (c *call) peek(path string) (engine.Peek, error) {
	who, err := c.identities()
	if err != nil {
		return engine.Peek{}, err
	}
	fresh, err := c.flag("sync")
	if err == nil && fresh {
		err = c.with(func(ctx context.Context, s *embed.Session) error {
			_, err := s.Sync(ctx, path)
			return err
		})
	}
	return c.h.parts.Engine.Peek(who...), err
}

// with calls fn with a session that has the grant's identities.
func (c *call) with(fn func(ctx context.Context, s *embed.Session) error) error {
	ctx := c.r.Context()
	s, give, err := c.h.sessions.take(ctx, c.grant.Identities)
	if err != nil {
		if errors.Is(err, embed.ErrUnknownOutcome) {
			return fmt.Errorf("%w: no session could be opened: %v", embed.ErrUnavailable, err) // nothing of the request was sent
		}
		return err
	}
	defer give()
	c.session = s.ID()
	return fn(ctx, s)
}

// bodySlack is how much longer than a znode's data a body in JSON may be.
const bodySlack = 64 << 10

// octets reads a body that is a znode's data.
func (c *call) octets() ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(c.w, c.body(), int64(c.h.parts.Config.MaxDataSize)))
	return data, bodyError(err)
}

// object reads a body of JSON into v. All its keys must be known.
func (c *call) object(v any) error {
	// A form of another page cannot send this type without asking first.
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &refusal{http.StatusUnsupportedMediaType, "the body must have the Content-Type application/json"}
	}
	// In JSON, six characters may stand for a byte.
	limit := 6*int64(c.h.parts.Config.MaxDataSize) + bodySlack
	in := json.NewDecoder(http.MaxBytesReader(c.w, c.body(), limit))
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil {
		return bodyError(err)
	}
	if _, err := in.Token(); err != io.EOF {
		return badRequest("the body has more than one object")
	}
	return nil
}

// bodyError returns the refusal of a body that could not be read whole. Nothing of it was used.
func bodyError(err error) error {
	if err == nil {
		return nil
	}
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", long.Limit)}
	}
	return badRequest("the body: %v", err)
}

// answer sends v as JSON.
func (c *call) answer(status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.answered = true
	c.send(status, "application/json", append(text, '\n'))
	return nil
}

// text sends a line of text.
func (c *call) text(status int, line string) error {
	c.send(status, "text/plain; charset=utf-8", []byte(line+"\n"))
	return nil
}

// inHex is how zxids and ids of sessions are written: not as numbers, which JavaScript would round.
func inHex(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

func zxid(z embed.Zxid) string           { return inHex(uint64(z)) }
func sessionID(s embed.SessionID) string { return inHex(uint64(s)) }

// parseSession reads the id of a session.
func parseSession(text string) (embed.SessionID, error) {
	digits, ok := strings.CutPrefix(text, "0x")
	n, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || n == 0 {
		return 0, badRequest("the session is %q: want an id such as 0x1c", text)
	}
	return embed.SessionID(n), nil
}
