package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// locks prints the locks and elections at a path and below it, and the deadlocks among them.
func (s *shell) locks(ctx context.Context, a *args) error {
	queues, err := s.queues(ctx, a.words[1])
	if err != nil {
		return err
	}
	for _, q := range queues {
		s.printf("%s (%s)\n", q.Path, q.Kind)
		t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		for _, c := range q.Holders {
			printContender(t, "holds", c)
		}
		for _, c := range q.Waiters {
			printContender(t, "waits", c)
		}
		_ = t.Flush() // run looks at the output's errors
	}
	cycles, err := lock.Cycles(ctx, queues)
	if err != nil {
		return err
	}
	for _, c := range cycles {
		what := "deadlock"
		if !c.Certain {
			what = "possible deadlock, if what one session holds and waits for belongs together"
		}
		s.println(what + ":")
		for _, l := range c.Links {
			s.printf("  session 0x%x waits at %s\n    for session 0x%x at %s\n", int64(l.Waits.Session), l.Waits.Path, int64(l.Behind.Session), l.Behind.Path)
		}
	}
	return nil
}

func printContender(t *tabwriter.Writer, what string, c lock.Contender) {
	_, name, _ := cutLast(c.Path)
	fmt.Fprintf(t, "  %s\t%s\tsession 0x%x\t%s\t%s\n", what, name, int64(c.Session), c.Age.Round(time.Second), strings.ReplaceAll(c.Note, "\n", " "))
}

// revocation is the data by which Curator's Revoker and package lock ask for a lock.
const revocation = "__REVOKE__"

// revoke asks the holders of a lock to give it up.
func (s *shell) revoke(ctx context.Context, a *args) error {
	queues, err := s.queues(ctx, a.words[1])
	if err != nil {
		return err
	}
	i := slices.IndexFunc(queues, func(q lock.Queue) bool { return q.Path == a.words[1] })
	if i < 0 || queues[i].Kind == lock.KindElection || !slices.ContainsFunc(queues[i].Holders, contends) {
		return sentence("Nobody holds a lock on " + a.words[1])
	}
	for _, c := range queues[i].Holders {
		if !contends(c) {
			continue
		}
		o := at(wire.OpSetData, c.Path)
		o.Data, o.Version = []byte(revocation), -1
		if _, err := s.call(ctx, o); err != nil && client.CodeOf(err) != wire.NoNode {
			return err
		}
	}
	return nil
}

// contends reports whether somebody is there: what is no ephemeral only has a contender's name, or
// lingers.
func contends(c lock.Contender) bool { return c.Session != 0 }

// evict deletes a contender.
func (s *shell) evict(ctx context.Context, a *args) error {
	parent, _, ok := cutLast(a.words[1])
	if !ok {
		return sentence("Path must start with / character")
	}
	queues, err := s.queues(ctx, cmp.Or(parent, "/"))
	if err != nil {
		return err
	}
	for _, q := range queues {
		for _, c := range slices.Concat(q.Holders, q.Waiters) {
			if c.Path == a.words[1] && contends(c) {
				_, err := s.call(ctx, at(wire.OpDelete, c.Path))
				return err
			}
		}
	}
	return sentence("Nobody holds a lock or waits for one at " + a.words[1])
}

// queues returns the queues at a path and below it.
func (s *shell) queues(ctx context.Context, path string) (all []lock.Queue, err error) {
	_, chroot, err := client.ParseServers(s.host)
	if err != nil {
		return nil, err
	}
	for q, err := range lock.Queues(cmp.Or(chroot, "/"), s.znodes(ctx, path)) {
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// znodes reads a subtree, each znode before those below it. It passes over what is deleted
// meanwhile and what may not be read.
func (s *shell) znodes(ctx context.Context, path string) iter.Seq2[embed.Znode, error] {
	return func(yield func(embed.Znode, error) bool) {
		var visit func(path string, root bool) error
		visit = func(path string, root bool) error {
			r, err := s.call(ctx, at(wire.OpGetData, path))
			if code := client.CodeOf(err); !root && (code == wire.NoNode || code == wire.NoAuth) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(embed.Znode{Path: path, Data: r.Data, Stat: embed.Stat{
				Czxid: embed.Zxid(r.Stat.Czxid), Ctime: time.UnixMilli(r.Stat.Ctime), EphemeralOwner: embed.SessionID(r.Stat.EphemeralOwner),
			}}, nil) {
				return errEnough
			}
			if r.Stat.NumChildren == 0 {
				return nil
			}
			names, err := s.call(ctx, at(wire.OpGetChildren, path))
			if client.CodeOf(err) == wire.NoNode {
				return nil
			} else if err != nil {
				return err
			}
			for _, name := range names.Names {
				if err := visit(below(path, name), false); err != nil {
					return err
				}
			}
			return nil
		}
		if err := visit(path, true); err != nil && err != errEnough {
			yield(embed.Znode{}, err)
		}
	}
}

// cutLast cuts a path before its last name.
func cutLast(path string) (parent, name string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}
