package admin

import (
	"context"
	"io"
	"iter"
	"mime"
	"net/http"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/tree"
)

const (
	octetsType = "application/octet-stream"
	linesType  = "application/x-ndjson"
)

// backup sends a backup of the whole tree. If it fails in the middle, the answer is cut off.
func (c *call) backup() error {
	c.w.Header().Set("Content-Disposition", "attachment; filename=\"vivarium.backup\"")
	_, err := c.h.node.Backup(c.r.Context(), c.stream(octetsType))
	return err
}

// export sends the znode at a path and those below it as lines of JSON.
func (c *call) export() error {
	top := "/"
	if c.query.Has("path") {
		top = c.path
	}
	if err := tree.ValidatePath(top); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	from, to := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := c.h.node.Backup(ctx, to)
		to.CloseWithError(err)
	}()
	defer func() {
		cancel()
		from.Close()
		<-ended
	}()
	r, err := backup.NewReader(from)
	if err != nil {
		return err
	}
	_, err = backup.WriteLines(c.stream(linesType), backup.Below(r.Znodes(), top))
	return err
}

// existings are what an import can do with znodes that exist.
var existings = map[string]backup.Existing{"": backup.Fail, "fail": backup.Fail, "skip": backup.Skip, "overwrite": backup.Overwrite}

type importAnswer struct {
	Error       string `json:"error,omitempty"`
	Created     int    `json:"created"`
	Overwritten int    `json:"overwritten"`
	Existed     int    `json:"existed"`
	Ephemerals  int    `json:"ephemerals"` // left out
	Reserved    int    `json:"reserved"`   // left out
	NoPlace     int    `json:"noPlace"`    // left out: /zookeeper is the ensemble's own
	NoEnd       bool   `json:"noEnd"`      // the lines had no end: some may be missing
}

// imports creates the znodes of a backup or of lines.
func (c *call) imports() error {
	existing, known := existings[c.query.Get("existing")]
	if !known {
		return badRequest("existing is %q: want fail, skip or overwrite", c.query.Get("existing"))
	}
	dry, err := c.flag("dryRun")
	if err != nil {
		return err
	}
	znodes, err := c.uploaded()
	if err != nil {
		return err
	}
	o := backup.Options{Path: c.path, As: c.query.Get("as"), Existing: existing, DryRun: dry}
	return c.with(func(ctx context.Context, s *embed.Session) error {
		r, err := backup.Import(ctx, backup.Session(s), znodes, o)
		a := importAnswer{Created: r.Created, Overwritten: r.Overwritten, Existed: r.Existed, Ephemerals: r.Ephemerals, Reserved: r.Reserved, NoPlace: r.NoPlace, NoEnd: r.NoEnd}
		switch {
		case dry && err == nil: // nothing was written, and nothing refused
			c.w.Header().Del(outcomeHeader)
			return c.answer(http.StatusOK, a)
		case err == nil:
			c.done()
			return c.answer(http.StatusOK, a)
		case dry || r.Created+r.Overwritten == 0 && existing != backup.Overwrite: // to overwrite takes two writes
			return err
		}
		c.w.Header().Set(outcomeHeader, unknown) // a part of it may have been applied
		a.Error = err.Error()
		_ = c.answer(statusOf(err), a)
		return err
	})
}

// uploaded returns the znodes of the body.
func (c *call) uploaded() (iter.Seq2[backup.Znode, error], error) {
	body := c.body()
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	switch kind {
	case linesType:
		return backup.Lines(body), nil
	case octetsType:
		r, err := backup.NewReader(body)
		if err != nil {
			return nil, err
		}
		return r.Znodes(), nil
	}
	return nil, &refusal{http.StatusUnsupportedMediaType, "the Content-Type must be " + octetsType + " for a backup, or " + linesType + " for lines"}
}
