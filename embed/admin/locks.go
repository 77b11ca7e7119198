package admin

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

type queueAnswer struct {
	Path    string            `json:"path"`
	Kind    lock.Kind         `json:"kind"`
	Holders []contenderAnswer `json:"holders"`
	Waiters []contenderAnswer `json:"waiters"`
	Held    int               `json:"held"`    // how many holders there are, shown or not
	Waiting int               `json:"waiting"` // likewise
}

type contenderAnswer struct {
	Path    string         `json:"path"`
	Session string         `json:"session,omitempty"`
	Member  embed.MemberID `json:"member,omitempty"`
	Age     string         `json:"age"`
	Note    string         `json:"note,omitempty"`
	Token   string         `json:"token"`
	Holding []string       `json:"holding,omitempty"`
}

// A survey is what somebody contends for, as this node's replica knows it.
type survey struct {
	queues  []lock.Queue
	members map[embed.SessionID]embed.MemberID
}

// survey finds the queues at root and below it. It needs no session, so it works without a quorum.
func (c *call) survey() (*survey, error) {
	root := "/"
	if c.query.Has("root") {
		root = c.query.Get("root")
	}
	if err := tree.ValidatePath(root); err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	p, err := c.peek(root)
	if err != nil {
		return nil, err
	}
	s := &survey{members: make(map[embed.SessionID]embed.MemberID)}
	znodes := func(yield func(embed.Znode, error) bool) {
		for f, err := range walk(ctx, p, root) {
			if err != nil {
				yield(embed.Znode{}, err)
				return
			}
			z := embed.Znode{Path: f.path, Stat: f.stat}
			if _, name := queue.Split(f.path); queue.Word(name) != "" {
				z.Data = f.data() // a copy; Queues reads no data of other znodes
			}
			if !yield(z, nil) {
				return
			}
		}
	}
	for q, err := range lock.Queues("/", znodes) {
		if errors.Is(err, embed.ErrNoNode) {
			break // then nobody contends there
		}
		if err != nil {
			return nil, err
		}
		s.queues = append(s.queues, q)
	}
	return s, s.findMembers(ctx, c.h.parts.Engine)
}

// findMembers learns whose node speaks for each session.
func (s *survey) findMembers(ctx context.Context, e *engine.Engine) error {
	list, _, err := e.Tables.Sessions(ctx, 0, math.MaxInt) // all at once: each call sorts them all
	for _, r := range list {
		s.members[r.ID] = embed.MemberID(r.Member)
	}
	return err
}

// shownMax is how many holders and waiters of a queue are shown.
const shownMax = 100

// contenders shows the first contenders of a list.
func (s *survey) contenders(list []lock.Contender) []contenderAnswer {
	shown := []contenderAnswer{}
	for _, c := range list[:min(len(list), shownMax)] {
		shown = append(shown, s.contender(&c))
	}
	return shown
}

func (s *survey) contender(c *lock.Contender) contenderAnswer {
	a := contenderAnswer{Path: c.Path, Member: s.members[c.Session], Age: c.Age.String(), Note: c.Note, Token: c.Token.String(), Holding: c.Holding}
	if c.Session != 0 {
		a.Session = sessionID(c.Session)
	}
	return a
}

// locks shows who holds what and who waits, in the order of the paths.
func (c *call) locks() error {
	s, err := c.survey()
	if err != nil {
		return err
	}
	slices.SortFunc(s.queues, func(a, b lock.Queue) int { return strings.Compare(a.Path, b.Path) })
	n, err := c.limit()
	if err != nil {
		return err
	}
	if after := c.query.Get("after"); after != "" {
		i, found := slices.BinarySearchFunc(s.queues, after, func(q lock.Queue, path string) int { return strings.Compare(q.Path, path) })
		if found {
			i++
		}
		s.queues = s.queues[i:]
	}
	list := []queueAnswer{}
	for _, q := range s.queues[:min(n, len(s.queues))] {
		list = append(list, queueAnswer{q.Path, q.Kind, s.contenders(q.Holders), s.contenders(q.Waiters), len(q.Holders), len(q.Waiters)})
	}
	return c.answer(http.StatusOK, map[string]any{"queues": list, "more": len(s.queues) > n})
}

type cycleAnswer struct {
	Certain bool         `json:"certain"`
	Links   []linkAnswer `json:"links"`
	Length  int          `json:"length"` // how many links there are, shown or not
}

// A linkAnswer is a contender and the one that it waits for.
type linkAnswer struct {
	Waits  contenderAnswer `json:"waits"`
	Behind contenderAnswer `json:"behind"`
}

// lockGraph shows the callers that wait for one another.
func (c *call) lockGraph() error {
	s, err := c.survey()
	if err != nil {
		return err
	}
	cycles, err := lock.Cycles(c.r.Context(), s.queues)
	if err != nil {
		return err
	}
	list := []cycleAnswer{}
	for _, cycle := range cycles[:min(len(cycles), pageMax)] {
		a := cycleAnswer{Certain: cycle.Certain, Length: len(cycle.Links)}
		for _, l := range cycle.Links[:min(len(cycle.Links), shownMax)] {
			a.Links = append(a.Links, linkAnswer{s.contender(&l.Waits), s.contender(&l.Behind)})
		}
		list = append(list, a)
	}
	return c.answer(http.StatusOK, map[string]any{"cycles": list})
}
