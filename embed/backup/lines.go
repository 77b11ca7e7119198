package backup

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/tree"
)

// LineMax bounds a line. The largest znode that an ensemble can be configured for fits.
const LineMax = 128 << 20

var (
	// ErrLine says that a line is none of WriteLines, or that lines are missing. The text says which
	// line, and why.
	ErrLine = errors.New("not as an export wrote it")
	// ErrNoEnd says that lines lack their end, which has the number of znodes. They are written by
	// hand, or cut.
	ErrNoEnd = errors.New("the lines have no end: some may be missing")
)

// A line is a Znode as JSON, or the end of all lines.
type line struct {
	End   *int      `json:"end,omitempty"` // how many znodes came before; then there is no path
	Path  string    `json:"path,omitempty"`
	Text  *string   `json:"text,omitempty"`
	Data  []byte    `json:"data,omitempty"`
	Mode  string    `json:"mode,omitempty"` // empty: persistent
	TTL   int64     `json:"ttl,omitempty"`  // ms
	ACL   []lineACL `json:"acl,omitempty"`  // empty: open
	Stat  *lineStat `json:"stat,omitempty"`
	Owner int64     `json:"owner,omitempty"`
	Shard int       `json:"shard,omitempty"`
}

type lineACL struct {
	Perms  uint32 `json:"perms"`
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

// lineStat is what an import does not use.
type lineStat struct {
	Czxid    embed.Zxid `json:"czxid"`
	Mzxid    embed.Zxid `json:"mzxid"`
	Pzxid    embed.Zxid `json:"pzxid"`
	Ctime    time.Time  `json:"ctime"`
	Mtime    time.Time  `json:"mtime"`
	Version  int32      `json:"version"`
	Aversion int32      `json:"aversion"`
	Created  int32      `json:"created"`
}

var modes = map[string]embed.CreateMode{"": embed.Persistent, "persistent": embed.Persistent, "ephemeral": embed.Ephemeral, "container": embed.Container, "ttl": embed.TTL}

// WriteLines writes a line for each znode and then their end, and returns how many znodes it has
// written. It returns the sequence's error, or the writer's. After an error there is no end.
func WriteLines(w io.Writer, znodes iter.Seq2[Znode, error]) (n int, err error) {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for z, err := range znodes {
		if err == nil {
			err = enc.Encode(lineOf(&z))
		}
		if err != nil {
			return n, errors.Join(err, out.Flush())
		}
		n++
	}
	return n, errors.Join(enc.Encode(line{End: &n}), out.Flush())
}

func lineOf(z *Znode) line {
	l := line{Path: z.Path, TTL: z.TTL.Milliseconds(), Owner: int64(z.Owner), Shard: z.Shard,
		Stat: &lineStat{z.Czxid, z.Mzxid, z.Pzxid, z.Ctime, z.Mtime, z.Version, z.Aversion, z.Created}}
	for name, mode := range modes {
		if mode == z.Mode && name != "" {
			l.Mode = name
		}
	}
	for _, a := range z.ACL {
		l.ACL = append(l.ACL, lineACL{uint32(a.Perms), a.Scheme, a.ID})
	}
	switch {
	case utf8.Valid(z.Data) && z.Data != nil:
		text := string(z.Data)
		l.Text = &text
	default:
		l.Data = z.Data
	}
	return l
}

// Lines yields the znodes of lines, in their order. Empty lines are passed over. The sequence can
// be read once. It ends after an error: ErrLine, or the reader's. If all lines were good and their
// end is missing, it is ErrNoEnd: whether these are all znodes, nobody knows.
func Lines(r io.Reader) iter.Seq2[Znode, error] {
	return func(yield func(Znode, error) bool) {
		in := bufio.NewScanner(r)
		in.Buffer(nil, LineMax)
		znodes, ended := 0, false
		for n := 1; in.Scan(); n++ {
			if len(bytes.TrimSpace(in.Bytes())) == 0 {
				continue
			}
			l, err := parseLine(in.Bytes())
			switch {
			case err != nil:
			case ended:
				err = errors.New("it comes after the end")
			case l.End != nil && *l.End != znodes:
				err = fmt.Errorf("the end of %d znodes, and %d came: leave it out if you took some away",
					*l.End, znodes)
			}
			if err != nil {
				yield(Znode{}, fmt.Errorf("line %d: %w: %w", n, ErrLine, err))
				return
			}
			if ended = l.End != nil; ended {
				continue
			}
			if znodes++; !yield(l.znode(), nil) {
				return
			}
		}
		err := in.Err()
		if err == nil && !ended {
			err = ErrNoEnd
		}
		if err != nil {
			yield(Znode{}, err)
		}
	}
}

// parseLine reads a line, and refuses what is no znode and no end.
func parseLine(b []byte) (l line, err error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return l, err
	}
	switch {
	case dec.More():
		return l, errors.New("more follows it")
	case l.End == nil:
		return l, l.check()
	case l.Path != "":
		return l, errors.New("it is a znode and an end")
	}
	return l, nil
}

// check refuses what is no znode.
func (l *line) check() error {
	mode, known := modes[l.Mode]
	switch {
	case tree.ValidatePath(l.Path) != nil:
		return tree.ValidatePath(l.Path)
	case l.Text != nil && l.Data != nil:
		return fmt.Errorf("%s: it has both text and data", l.Path)
	case !known:
		return fmt.Errorf("%s: mode %q: it is persistent, container, ttl or ephemeral", l.Path, l.Mode)
	case l.TTL < 0 || l.TTL > tree.MaxTTL || (l.TTL > 0) != (mode == embed.TTL) && mode != embed.Ephemeral:
		return fmt.Errorf("%s: a ttl of %d in mode %q", l.Path, l.TTL, l.Mode)
	}
	return nil
}

func (l *line) znode() Znode {
	z := Znode{Path: l.Path, Data: l.Data, Mode: modes[l.Mode], TTL: time.Duration(l.TTL) * time.Millisecond,
		Owner: embed.SessionID(l.Owner), Shard: l.Shard}
	if l.Text != nil {
		z.Data = []byte(*l.Text)
	}
	for _, a := range l.ACL {
		z.ACL = append(z.ACL, embed.ACL{Perms: embed.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID})
	}
	if z.ACL == nil {
		z.ACL = embed.OpenACL()
	}
	if s := l.Stat; s != nil {
		z.Czxid, z.Mzxid, z.Pzxid, z.Ctime, z.Mtime = s.Czxid, s.Mzxid, s.Pzxid, s.Ctime, s.Mtime
		z.Version, z.Aversion, z.Created = s.Version, s.Aversion, s.Created
	}
	return z
}
