package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/vivarium-go/vivarium/embed"
)

// recursiveMax is how many znodes one request can delete. They go in one transaction, which every
// member applies without a pause.
const recursiveMax = 10_000

// remove deletes a znode, or all of a subtree.
func (c *call) remove() error {
	path, err := c.znode()
	if err != nil {
		return err
	}
	p, err := c.match()
	if err != nil {
		return err
	}
	recursive, err := c.flag("recursive")
	if err != nil {
		return err
	}
	ops := append(p.guard(path), embed.OpDelete(path, p.version))
	if recursive {
		if !c.query.Has("expect") {
			return &refusal{http.StatusPreconditionRequired, "recursive needs expect: how many znodes are to go, the one at path included"}
		}
		n, err := c.number("expect", 0, 1, recursiveMax)
		if err != nil {
			return err
		}
		return c.with(func(ctx context.Context, s *embed.Session) error { return c.removeAll(ctx, s, path, n, ops) })
	}
	if c.query.Has("expect") {
		return badRequest("expect is for recursive")
	}
	return c.with(func(ctx context.Context, s *embed.Session) error { return c.removed(ctx, s, ops) })
}

// removeAll deletes a znode and all below it in one transaction, if they are n. own are the
// operations on the znode itself. A znode that is created meanwhile makes the transaction fail.
func (c *call) removeAll(ctx context.Context, s *embed.Session, path string, n int, own []embed.Op) error {
	if _, err := s.Sync(ctx, path); err != nil {
		return err
	}
	var below []string
	count := 0
	for z, err := range s.Walk(ctx, path) {
		if err != nil {
			return err
		}
		if count++; count > n {
			break
		}
		if z.Path != path {
			below = append(below, z.Path)
		}
	}
	if count != n {
		text := fmt.Sprintf("there are %d znodes that can be read, and %d were expected", count, n)
		if count > n {
			text = fmt.Sprintf("there are more znodes than the %d that were expected", n)
		}
		return &refusal{http.StatusPreconditionFailed, text}
	}
	ops := slices.Clone(own[:len(own)-1]) // the checks; the znode itself goes last
	for _, child := range slices.Backward(below) {
		ops = append(ops, embed.OpDelete(child, embed.AnyVersion))
	}
	return c.removed(ctx, s, append(ops, own[len(own)-1]))
}

func (c *call) removed(ctx context.Context, s *embed.Session, ops []embed.Op) error {
	if _, err := s.Multi(ctx, ops...); err != nil {
		return err
	}
	c.done()
	c.send(http.StatusNoContent, "", nil)
	return nil
}

// multiMax is how many operations a Multi may have.
const multiMax = 10_000

type multiBody struct {
	Ops []opJSON `json:"ops"`
}

type opJSON struct {
	Op   string `json:"op"` // create, set, delete or check
	Path string `json:"path"`
	dataJSON
	Mode    string `json:"mode,omitempty"`
	TTL     string `json:"ttl,omitempty"`
	ACL     string `json:"acl,omitempty"`
	Parents bool   `json:"parents,omitempty"`
	Match   string `json:"match,omitempty"` // as If-Match: of set, delete and check
}

// multi applies several operations in one transaction.
func (c *call) multi() error {
	var body multiBody
	if err := c.object(&body); err != nil {
		return err
	}
	if len(body.Ops) == 0 || len(body.Ops) > multiMax {
		return badRequest("there are %d ops: want 1 to %d", len(body.Ops), multiMax)
	}
	var ops []embed.Op
	var last []int // for each op of the body, the last of its operations
	for i, o := range body.Ops {
		made, err := o.made()
		if err == nil && o.Op != "check" {
			err = c.mayChange(o.Path)
		}
		if err != nil {
			return fmt.Errorf("ops[%d]: %w", i, err)
		}
		ops = append(ops, made...)
		last = append(last, len(ops)-1)
	}
	c.path = body.Ops[0].Path
	return c.with(func(ctx context.Context, s *embed.Session) error {
		results, err := s.Multi(ctx, ops...)
		if err != nil {
			return inBody(err, last)
		}
		list := make([]written, len(body.Ops))
		for i, o := range body.Ops {
			r := results[last[i]]
			list[i].Path = o.Path
			if r.Path != "" {
				list[i].Path = r.Path
			}
			if r.Stat != (embed.Stat{}) {
				list[i].Stat = statOf(r.Stat)
			}
		}
		c.done()
		return c.answer(http.StatusOK, map[string]any{"results": list})
	})
}

// made returns the operations that an op of the body stands for.
func (o opJSON) made() ([]embed.Op, error) {
	data, err := o.bytes()
	if err != nil {
		return nil, err
	}
	if o.Op == "create" {
		if o.Match != "" {
			return nil, badRequest("a create has no match")
		}
		options, err := createOptions(o.Mode, o.TTL, o.ACL, o.Parents)
		return []embed.Op{embed.OpCreateWith(o.Path, data, options)}, err
	}
	if o.Mode != "" || o.TTL != "" || o.ACL != "" || o.Parents {
		return nil, badRequest("mode, ttl, acl and parents are for a create")
	}
	if o.Match == "" {
		return nil, &refusal{http.StatusPreconditionRequired, "it needs match: an ETag, or * for any state"}
	}
	p, err := parseETag(o.Match)
	if err != nil {
		return nil, err
	}
	ops := p.guard(o.Path)
	switch o.Op {
	case "set":
		return append(ops, embed.OpSet(o.Path, data, p.version)), nil
	case "delete":
		return append(ops, embed.OpDelete(o.Path, p.version)), nil
	case "check":
		return append(ops, embed.OpCheck(o.Path, p.version)), nil
	}
	return nil, badRequest("the op is %q: want create, set, delete or check", o.Op)
}

// inBody adds to the error of a Multi which op of the body was refused.
func inBody(err error, last []int) error {
	var multi *embed.MultiError
	if !errors.As(err, &multi) {
		return err
	}
	i, _ := slices.BinarySearch(last, multi.Index)
	return fmt.Errorf("ops[%d]: %w", i, multi.Err)
}
