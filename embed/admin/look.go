package admin

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// live answers whether the process must be started again.
func (c *call) live() error {
	if err := c.h.node.Health().Err; err != nil {
		return c.text(http.StatusServiceUnavailable, "the node is over")
	}
	return c.text(http.StatusOK, "ok")
}

// ready answers whether the node serves. What it lacks contains addresses, so only who may see
// everything is told.
func (c *call) ready() error {
	verbose, err := c.flag("verbose")
	if err != nil {
		return err
	}
	if verbose && c.grant.Role == "" {
		if c.grant, err = c.h.admit(c.r); err != nil {
			return err
		}
	}
	health := c.h.node.Health()
	status, line := http.StatusOK, "ok"
	if !health.Ready {
		status, line = http.StatusServiceUnavailable, "not ready"
	}
	if verbose && c.grant.Role.may(Viewer) {
		for _, more := range []string{health.Waiting, health.Slow} {
			if more != "" {
				line += "\n" + more
			}
		}
		if health.Err != nil {
			line += "\n" + health.Err.Error()
		}
	}
	return c.text(status, line)
}

type statusAnswer struct {
	Member     embed.MemberID   `json:"member"`
	Ensemble   string           `json:"ensemble"`
	Version    string           `json:"version"` // of the build
	Ready      bool             `json:"ready"`
	Since      time.Time        `json:"since"`
	Waiting    string           `json:"waiting,omitempty"`
	Slow       string           `json:"slow,omitempty"`
	Over       string           `json:"over,omitempty"`
	Joining    string           `json:"joining,omitempty"`
	Level      int              `json:"level"`
	HeldDown   []embed.MemberID `json:"heldDown,omitempty"`
	Znodes     int              `json:"znodes"`
	Sessions   *int             `json:"sessions,omitempty"` // absent if unknown
	Ephemerals *int             `json:"ephemerals,omitempty"`
	Connected  []embed.MemberID `json:"connected"` // the others with which there are connections both ways
	Missing    []embed.MemberID `json:"missing"`   // the others with which it needs a connection, and has none
	Shards     []shardAnswer    `json:"shards"`
	Disk       *diskAnswer      `json:"disk,omitempty"` // absent if unknown
	Grant      grantAnswer      `json:"grant"`          // of the one who asks
}

type grantAnswer struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
}

// A diskAnswer has bytes: of the file system, and of the node's files.
type diskAnswer struct {
	Free  uint64 `json:"free"`
	Size  uint64 `json:"size"`
	Log   uint64 `json:"log"`
	Image uint64 `json:"image"`
}

type shardAnswer struct {
	Shard         int            `json:"shard"`
	Leader        embed.MemberID `json:"leader"` // 0: none known
	Leads         bool           `json:"leads"`
	Term          uint64         `json:"term"`
	Applied       uint64         `json:"applied"`
	Zxid          string         `json:"zxid"`
	TreeSize      int64          `json:"treeSize"`
	OverSoftQuota uint64         `json:"overSoftQuota"`
}

// countPatience is how long a status waits for the numbers of sessions, while a shard stands still,
// and for a disk to say what space it has.
const countPatience = 100 * time.Millisecond

func (c *call) status() error {
	s, health := c.h.node.Status(), c.h.node.Health()
	a := statusAnswer{Member: s.Member, Ensemble: c.h.parts.Config.Ensemble, Version: c.h.parts.Config.Version, Ready: health.Ready, Since: health.Since,
		Waiting: health.Waiting, Slow: health.Slow, Joining: s.Joining, Level: s.Level, HeldDown: s.HeldDown,
		Znodes: c.h.parts.Engine.Tables.Znodes(), Connected: []embed.MemberID{}, Missing: []embed.MemberID{}, Shards: []shardAnswer{}, Grant: grantAnswer{c.grant.Name, c.grant.Role}}
	a.Connected = append(a.Connected, c.h.parts.Engine.Connected()...)
	a.Missing = append(a.Missing, c.h.parts.Engine.Missing()...)
	if health.Err != nil {
		a.Over = health.Err.Error()
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), countPatience)
	defer cancel()
	if sessions, ephemerals, err := c.h.parts.Engine.Tables.Count(ctx); err == nil {
		a.Sessions, a.Ephemerals = &sessions, &ephemerals
	}
	a.Disk = (*diskAnswer)(c.h.parts.Engine.Space(countPatience))
	for _, d := range s.Shards {
		a.Shards = append(a.Shards, shardAnswer{d.Shard, d.Leader, s.Leading(d), d.Term, d.Applied, zxid(d.Zxid), d.TreeSize, d.OverSoftQuota})
	}
	return c.answer(http.StatusOK, a)
}

type memberAnswer struct {
	ID       embed.MemberID `json:"id"`
	Name     string         `json:"name,omitempty"`
	Zone     string         `json:"zone,omitempty"`
	Address  string         `json:"address,omitempty"`
	Client   string         `json:"client,omitempty"`
	Role     embed.Role     `json:"role"`
	Observer bool           `json:"observer,omitempty"`
	Leaving  string         `json:"leaving,omitempty"`
	Since    time.Time      `json:"since,omitzero"`
	Answers  *bool          `json:"answers,omitempty"` // absent if unknown
	Behind   *uint64        `json:"behind,omitempty"`  // absent if unknown
}

// members lists the members. Only the leader of the first shard knows who answers, and always answers
// itself.
func (c *call) members() error {
	known, list := c.h.node.Members(), []memberAnswer{}
	leads := slices.ContainsFunc(known, func(m embed.Member) bool { return m.ID == c.h.node.Status().Member && m.Answers })
	for _, m := range known {
		a := memberAnswer{ID: m.ID, Name: m.Name, Zone: m.Zone, Address: m.Address, Client: m.Client, Role: m.Role,
			Observer: m.Observer, Leaving: m.Leaving, Since: m.Since}
		if leads {
			a.Answers = &m.Answers
		}
		if m.Answers {
			a.Behind = &m.Behind
		}
		list = append(list, a)
	}
	return c.answer(http.StatusOK, map[string]any{"members": list, "leads": leads})
}

type occurrenceAnswer struct {
	At     time.Time      `json:"at"`
	Kind   string         `json:"kind"`
	Shard  int            `json:"shard,omitempty"`
	Member embed.MemberID `json:"member,omitempty"`
	Number uint64         `json:"number,omitempty"`
	Took   string         `json:"took,omitempty"`
	Text   string         `json:"text"`
}

// recent lists what happened lately, the oldest first.
func (c *call) recent() error {
	n, err := c.limit()
	if err != nil {
		return err
	}
	list := []occurrenceAnswer{}
	for _, o := range c.h.node.Recent(n) {
		a := occurrenceAnswer{At: o.At, Kind: o.Kind, Shard: o.Shard, Member: o.Member, Number: o.Number, Text: o.String()}
		if o.Took != 0 {
			a.Took = o.Took.String()
		}
		list = append(list, a)
	}
	return c.answer(http.StatusOK, map[string]any{"recent": list})
}

type watchesAnswer struct {
	ClientPaths int             `json:"clientPaths"` // how many the clients of gateways watch
	Clients     []clientWatches `json:"clients"`
	Here        []pathWatches   `json:"here"` // of the sessions in this process
	More        bool            `json:"more,omitempty"`
}

type clientWatches struct {
	Session string   `json:"session"`
	Client  string   `json:"client"`
	Paths   []string `json:"paths"`
}

type pathWatches struct {
	Path       string `json:"path"`
	Once       int    `json:"once,omitempty"`
	Persistent int    `json:"persistent,omitempty"`
	Recursive  int    `json:"recursive,omitempty"`
}

// watches lists what the sessions of this member watch. Nobody else knows.
func (c *call) watches() error {
	n, err := c.limit()
	if err != nil {
		return err
	}
	a := watchesAnswer{ClientPaths: c.h.parts.Engine.Tables.WatchedPaths(), Clients: []clientWatches{}, Here: []pathWatches{}}
	list, more := c.h.parts.Engine.Tables.Watches(n)
	a.More = more
	for _, w := range list {
		a.Here = append(a.Here, pathWatches(w))
	}
	left := n
	for _, g := range c.h.options.Gateways {
		watched, more := g.Watched(left)
		a.More = a.More || more
		for _, w := range watched {
			left -= len(w.Paths)
			a.Clients = append(a.Clients, clientWatches{sessionID(w.Session), w.Client, w.Paths})
		}
	}
	return c.answer(http.StatusOK, a)
}

type sessionAnswer struct {
	ID         string         `json:"id"`
	Member     embed.MemberID `json:"member"`
	Timeout    string         `json:"timeout"`
	Remote     bool           `json:"remote"`
	Identities []string       `json:"identities,omitempty"`
	Ephemerals int            `json:"ephemerals"`
	Paths      []string       `json:"paths,omitempty"` // of the ephemerals, of one session only
	More       bool           `json:"more,omitempty"`  // there are more Paths
}

func answerOf(s engine.SessionRecord) sessionAnswer {
	a := sessionAnswer{ID: sessionID(s.ID), Member: embed.MemberID(s.Member), Timeout: s.Timeout.String(), Remote: s.Remote, Ephemerals: s.Ephemerals}
	for _, i := range s.Identities {
		a.Identities = append(a.Identities, shown(i))
	}
	return a
}

// shown returns an identity as the audit writes it. Of a digest that is only the user.
func shown(i tree.Identity) string {
	id := i.ID
	if i.Scheme == "digest" {
		id, _, _ = strings.Cut(id, ":")
	}
	if id == "" {
		return i.Scheme
	}
	return i.Scheme + ":" + id
}

func (c *call) listSessions() error {
	n, err := c.limit()
	if err != nil {
		return err
	}
	var after embed.SessionID
	if text := c.query.Get("after"); text != "" {
		if after, err = parseSession(text); err != nil {
			return err
		}
	}
	found, more, err := c.h.parts.Engine.Tables.Sessions(c.r.Context(), after, n)
	if err != nil {
		return err
	}
	list := []sessionAnswer{}
	for _, s := range found {
		list = append(list, answerOf(s))
	}
	return c.answer(http.StatusOK, map[string]any{"sessions": list, "more": more})
}

func (c *call) oneSession() error {
	id, err := parseSession(c.query.Get("id"))
	if err != nil {
		return err
	}
	s, paths, err := c.h.parts.Engine.Tables.Session(c.r.Context(), id)
	if err != nil {
		return err
	}
	a := answerOf(s)
	a.Paths, a.More = paths[:min(len(paths), pageMax)], len(paths) > pageMax
	return c.answer(http.StatusOK, a)
}

type usageAnswer struct {
	Path        string `json:"path"`
	Children    int    `json:"children"`
	Descendants int    `json:"descendants"`
	Bytes       int64  `json:"bytes"` // of data, the znode's own included
}

// usage counts what the grant may read.
func (c *call) usage() error {
	top, err := c.znode()
	if err != nil {
		return err
	}
	p, err := c.peek(top)
	if err != nil {
		return err
	}
	a := usageAnswer{Path: top, Descendants: -1}
	for f, err := range walk(c.r.Context(), p, top) {
		if err != nil {
			return err
		}
		if a.Descendants++; a.Descendants == 0 {
			a.Children = int(f.stat.NumChildren)
		}
		a.Bytes += int64(f.stat.DataLength)
	}
	return c.answer(http.StatusOK, a)
}

// find lists the znodes of a subtree whose name contains a text, whatever the case.
func (c *call) find() error {
	top, err := c.znode()
	if err != nil {
		return err
	}
	text := strings.ToLower(c.query.Get("name"))
	if text == "" {
		return badRequest("the query lacks name")
	}
	n, err := c.limit()
	if err != nil {
		return err
	}
	p, err := c.peek(top)
	if err != nil {
		return err
	}
	paths, more := []string{}, false
	for f, err := range walk(c.r.Context(), p, top) {
		if err != nil {
			return err
		}
		if !strings.Contains(strings.ToLower(f.path[strings.LastIndexByte(f.path, '/')+1:]), text) {
			continue
		}
		if more = len(paths) == n; more {
			break
		}
		paths = append(paths, f.path)
	}
	return c.answer(http.StatusOK, map[string]any{"paths": paths, "more": more})
}

// A found is a znode of a walk.
type found struct {
	path string
	stat embed.Stat
	data func() []byte // reads it
}

// walk yields a znode and what is below it, also if that is on several shards: then each part is
// shown as it was at a moment of its own. A child that vanishes meanwhile is passed over.
func walk(ctx context.Context, p engine.Peek, top string) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) { _ = walkTo(ctx, p, top, yield) }
}

// walkTo reports whether the caller wants more.
func walkTo(ctx context.Context, p engine.Peek, top string, yield func(found, error) bool) bool {
	more := true
	_, err := p.Walk(ctx, top, func(_ tree.Zxid, path string, f tree.Found) bool {
		more = yield(found{path, f.Stat(), f.Data}, nil)
		return more
	})
	if !errors.Is(err, embed.ErrCrossShard) {
		return more && (err == nil || yield(found{}, err))
	}
	data, stat, err := p.Get(top)
	if err != nil {
		return yield(found{}, err)
	}
	names, _, err := p.Children(top)
	if err != nil {
		return yield(found{}, err)
	}
	if !yield(found{top, stat, func() []byte { return data }}, nil) {
		return false
	}
	for _, name := range names {
		pass := func(f found, err error) bool { return errors.Is(err, embed.ErrNoNode) || yield(f, err) }
		if !walkTo(ctx, p, child(top, name), pass) {
			return false
		}
	}
	return true
}

// child returns the path of a child.
func child(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}
