package admin

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// zxidHeader has a zxid that the answer shows, or an earlier one.
const zxidHeader = "X-Vivarium-Zxid"

// A znodeAnswer has the parts of a znode that were asked for.
type znodeAnswer struct {
	Path string `json:"path"`
	dataJSON
	Stat     *statJSON `json:"stat,omitempty"`
	ACL      []aclJSON `json:"acl,omitempty"`
	Children *[]string `json:"children,omitempty"`
	More     bool      `json:"more,omitempty"` // there are more children
}

// dataJSON is data as the lines of package backup have it: text if it is UTF-8, otherwise base64.
// Neither means nil.
type dataJSON struct {
	Text *string `json:"text,omitempty"`
	Data []byte  `json:"data,omitempty"`
}

func dataOf(data []byte) (d dataJSON) {
	if data != nil && utf8.Valid(data) {
		text := string(data)
		return dataJSON{Text: &text}
	}
	return dataJSON{Data: data}
}

// bytes returns the data.
func (d dataJSON) bytes() ([]byte, error) {
	if d.Text != nil && d.Data != nil {
		return nil, badRequest("an operation has both text and data")
	}
	if d.Text != nil {
		return []byte(*d.Text), nil
	}
	return d.Data, nil
}

type statJSON struct {
	Czxid    string    `json:"czxid"`
	Mzxid    string    `json:"mzxid"`
	Pzxid    string    `json:"pzxid"`
	Ctime    time.Time `json:"ctime"`
	Mtime    time.Time `json:"mtime"`
	Version  int32     `json:"version"`
	Cversion int32     `json:"cversion"`
	Aversion int32     `json:"aversion"`
	Owner    string    `json:"owner,omitempty"`
	Length   int32     `json:"dataLength"`
	Children int32     `json:"numChildren"`
}

func statOf(s embed.Stat) *statJSON {
	a := &statJSON{Czxid: zxid(s.Czxid), Mzxid: zxid(s.Mzxid), Pzxid: zxid(s.Pzxid), Ctime: s.Ctime, Mtime: s.Mtime,
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion, Length: s.DataLength, Children: s.NumChildren}
	if s.EphemeralOwner != 0 {
		a.Owner = sessionID(s.EphemeralOwner)
	}
	return a
}

type aclJSON struct {
	Perms  string `json:"perms"` // of r, w, c, d and a
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

// permLetters are those of ZooKeeper's shell, in its order.
var permLetters = []struct {
	perm   embed.Perms
	letter rune
}{{embed.PermCreate, 'c'}, {embed.PermDelete, 'd'}, {embed.PermRead, 'r'}, {embed.PermWrite, 'w'}, {embed.PermAdmin, 'a'}}

func aclOf(list []embed.ACL) (out []aclJSON) {
	for _, a := range list {
		var perms strings.Builder
		for _, p := range permLetters {
			if a.Perms&p.perm != 0 {
				perms.WriteRune(p.letter)
			}
		}
		out = append(out, aclJSON{perms.String(), a.Scheme, a.ID})
	}
	return out
}

// entry returns what aclOf has written.
func (a aclJSON) entry() (embed.ACL, error) {
	out := embed.ACL{Scheme: a.Scheme, ID: a.ID}
	for _, letter := range a.Perms {
		known := false
		for _, p := range permLetters {
			if p.letter == letter {
				out.Perms |= p.perm
				known = true
			}
		}
		if !known {
			return out, badRequest("the perms are %q: want some of c, d, r, w and a", a.Perms)
		}
	}
	return out, nil
}

// etag names a state of a znode's data. It differs for a znode that was deleted and created again.
func etag(s embed.Stat) string {
	return fmt.Sprintf("\"%x-%x-%d\"", uint64(s.Czxid), uint64(s.Mzxid), s.Version)
}

// A precondition is what If-Match demands of a znode.
type precondition struct {
	any     bool // "*": that it exists
	mzxid   embed.Zxid
	version int32
}

// parseETag reads what etag has written, or "*".
func parseETag(text string) (p precondition, err error) {
	if text == "*" {
		return precondition{any: true, version: embed.AnyVersion}, nil
	}
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "\""), "\""), "-")
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' || len(parts) != 3 {
		return p, badRequest("the precondition is %s: want the ETag of a znode, or *", text)
	}
	_, czxid := strconv.ParseUint(parts[0], 16, 64)
	mzxid, bad := strconv.ParseUint(parts[1], 16, 64)
	version, worse := strconv.ParseInt(parts[2], 10, 32)
	if czxid != nil || bad != nil || worse != nil || version < 0 {
		return p, badRequest("the precondition is %s: want the ETag of a znode, or *", text)
	}
	return precondition{mzxid: embed.Zxid(mzxid), version: int32(version)}, nil
}

// match returns the precondition of a request, which it must have.
func (c *call) match() (precondition, error) {
	values := c.r.Header.Values("If-Match")
	if len(values) == 0 {
		return precondition{}, &refusal{http.StatusPreconditionRequired,
			"the request needs If-Match: the ETag that a GET has shown, or * for any state"}
	}
	return parseETag(strings.Join(values, ", "))
}

// guard returns the operations that make a transaction fail unless the precondition holds. The
// transaction's own operation compares the version.
func (p precondition) guard(path string) []embed.Op {
	if p.any {
		return nil
	}
	return []embed.Op{embed.OpCheckMzxid(path, p.mzxid)}
}

// read shows a znode.
func (c *call) read() error {
	path, err := c.znode()
	if err != nil {
		return err
	}
	p, err := c.peek(path)
	if err != nil {
		return err
	}
	if z := p.Zxid(path); z != 0 { // before the reads: what they show is no older
		c.w.Header().Set(zxidHeader, zxid(z))
	}
	if c.r.Header.Get("Accept") == "application/octet-stream" {
		return c.readOctets(p, path)
	}
	a := znodeAnswer{Path: path}
	views := "data,stat"
	if c.query.Has("view") {
		views = c.query.Get("view")
	}
	for view := range strings.SplitSeq(views, ",") {
		if err := c.readView(p, path, view, &a); err != nil {
			return err
		}
	}
	return c.answer(http.StatusOK, a)
}

// readView adds a part of a znode to an answer.
func (c *call) readView(p engine.Peek, path, view string, a *znodeAnswer) error {
	switch view {
	case "data":
		data, stat, err := p.Get(path)
		if err != nil {
			return err
		}
		a.dataJSON = dataOf(data)
		c.w.Header().Set("ETag", etag(stat))
	case "stat":
		stat, ok, err := p.Exists(path)
		if err == nil && !ok {
			err = embed.ErrNoNode
		}
		if err != nil {
			return err
		}
		if a.Stat = statOf(stat); c.w.Header().Get("ETag") == "" {
			c.w.Header().Set("ETag", etag(stat))
		}
	case "acl":
		acl, _, err := p.ACL(path)
		if err != nil {
			return err
		}
		a.ACL = aclOf(acl)
	case "children":
		n, err := c.limit()
		if err != nil {
			return err
		}
		names, err := p.Page(path, c.query.Get("after"), n+1)
		if err != nil {
			return err
		}
		a.More = len(names) > n
		names = append([]string{}, names[:min(n, len(names))]...)
		a.Children = &names
	default:
		return badRequest("view has %q: want some of data, stat, acl and children, with commas", view)
	}
	return nil
}

// readOctets sends the data of a znode as it is. A browser must not take it for a page of ours.
func (c *call) readOctets(p engine.Peek, path string) error {
	data, stat, err := p.Get(path)
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("ETag", etag(stat))
	header.Set("Content-Disposition", "attachment; filename=\"znode\"")
	c.send(http.StatusOK, "application/octet-stream", data)
	return nil
}

// A written answers a write of a znode.
type written struct {
	Path string    `json:"path"`
	Stat *statJSON `json:"stat,omitempty"`
}

// answerWrite answers a write that was applied.
func (c *call) answerWrite(status int, r embed.Result, path string) error {
	c.done()
	c.w.Header().Set("ETag", etag(r.Stat))
	return c.answer(status, written{path, statOf(r.Stat)})
}

// set replaces the data of a znode.
func (c *call) set() error {
	path, err := c.znode()
	if err != nil {
		return err
	}
	p, err := c.match()
	if err != nil {
		return err
	}
	data, err := c.octets()
	if err != nil {
		return err
	}
	return c.with(func(ctx context.Context, s *embed.Session) error {
		results, err := s.Multi(ctx, append(p.guard(path), embed.OpSet(path, data, p.version))...)
		if err != nil {
			return err
		}
		return c.answerWrite(http.StatusOK, results[len(results)-1], path)
	})
}

type aclBody struct {
	ACL []aclJSON `json:"acl"`
}

// setACL replaces the ACL of a znode, if its ACL is still the one that was read.
func (c *call) setACL() error {
	path, err := c.znode()
	if err != nil {
		return err
	}
	if c.query.Get("aversion") == "" {
		return &refusal{http.StatusPreconditionRequired, "the query needs aversion: that of the stat, or -1 for any"}
	}
	aversion, err := c.number("aversion", 0, int(embed.AnyVersion), math.MaxInt32)
	if err != nil {
		return err
	}
	var body aclBody
	if err := c.object(&body); err != nil {
		return err
	}
	list := make([]embed.ACL, len(body.ACL))
	for i, a := range body.ACL {
		if list[i], err = a.entry(); err != nil {
			return fmt.Errorf("acl[%d]: %w", i, err)
		}
	}
	return c.with(func(ctx context.Context, s *embed.Session) error {
		stat, err := s.SetACL(ctx, path, list, int32(aversion))
		if err != nil {
			return err
		}
		return c.answerWrite(http.StatusOK, embed.Result{Stat: stat}, path)
	})
}

// createModes are those that leave a znode behind. The others would belong to a session that all
// callers share.
var createModes = map[string]embed.CreateMode{
	"": embed.Persistent, "persistent": embed.Persistent, "sequential": embed.Sequential, "container": embed.Container,
	"ttl": embed.TTL, "sequentialTTL": embed.SequentialTTL,
}

// createACLs are ZooKeeper's.
var createACLs = map[string]func() []embed.ACL{"": embed.OpenACL, "open": embed.OpenACL, "read": embed.ReadACL, "creator": embed.CreatorACL}

// createOptions reads what kind of znode is wanted.
func createOptions(mode, ttl, acl string, parents bool) (o embed.CreateOptions, err error) {
	var known bool
	if o.Mode, known = createModes[mode]; !known {
		return o, badRequest("the mode is %q: want persistent, sequential, container, ttl or sequentialTTL", mode)
	}
	if ttl != "" {
		if o.TTL, err = time.ParseDuration(ttl); err != nil {
			return o, badRequest("the ttl is %q: want a duration such as 90s", ttl)
		}
	}
	list, known := createACLs[acl]
	if !known {
		return o, badRequest("the acl is %q: want open, read or creator", acl)
	}
	o.ACL, o.Parents = list(), parents
	return o, nil
}

// create creates a znode, and never changes one that exists.
func (c *call) create() error {
	if !c.query.Has("path") {
		return badRequest("the query lacks path")
	}
	parents, err := c.flag("parents")
	if err != nil {
		return err
	}
	o, err := createOptions(c.query.Get("mode"), c.query.Get("ttl"), c.query.Get("acl"), parents)
	if err != nil {
		return err
	}
	if err := tree.ValidateCreatePath(c.path, o.Mode); err != nil {
		return err
	}
	data, err := c.octets()
	if err != nil {
		return err
	}
	return c.with(func(ctx context.Context, s *embed.Session) error {
		path, stat, err := s.CreateWith(ctx, c.path, data, o)
		if err != nil {
			return err
		}
		return c.answerWrite(http.StatusCreated, embed.Result{Stat: stat}, path)
	})
}
