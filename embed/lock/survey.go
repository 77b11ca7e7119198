package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Kind says what the contenders of a Queue contend for.
type Kind string

// The kinds of queues.
const (
	KindMutex     Kind = "mutex" // Mutex, Multi, Curator's InterProcessMutex, kazoo's Lock
	KindReadWrite Kind = "read-write"
	KindSemaphore Kind = "semaphore"
	KindElection  Kind = "election" // package election, Curator's LeaderLatch
)

// A Queue is a lock or an election that somebody contends for.
type Queue struct {
	Path    string
	Kind    Kind
	Holders []Contender // in order; who leads an election
	Waiters []Contender // in order
}

// Survey yields every Queue at a path and below it, as this node's replica knows them. It finds
// them by the names of the contenders, so it also finds those of the other recipes and of Curator's
// and kazoo's clients. All that is below one child of the root is shown as it was at one zxid. Each
// Queue comes once, after those below it. The memory that it takes grows with the longest one.
//
// Contenders that the session may not read are missing, which makes others look like holders. A
// session with all rights sees everything. Errors are those of embed.Session.Walk and
// embed.Session.Member, but a path without a znode has no queues. After an error the sequence ends.
func Survey(ctx context.Context, s *embed.Session, path string) iter.Seq2[Queue, error] {
	return func(yield func(Queue, error) bool) {
		if _, err := survey(ctx, s, path, yield); err != nil {
			yield(Queue{}, wrap("survey", path, err))
		}
	}
}

// survey yields the queues at a path and below it, and reports whether the caller wants more.
func survey(ctx context.Context, s *embed.Session, path string, yield func(Queue, error) bool) (more bool, err error) {
	members := members{ctx, s, make(map[embed.SessionID]embed.MemberID)}
	for q, err := range Queues(s.Root(), s.Walk(ctx, path)) {
		switch {
		case errors.Is(err, embed.ErrCrossShard):
			return surveyEach(ctx, s, path, yield)
		case errors.Is(err, embed.ErrNoNode):
			return true, nil
		case err != nil:
			return false, err
		}
		for _, list := range [][]Contender{q.Holders, q.Waiters} {
			for i := range list {
				if list[i].Member, err = members.of(list[i].Session); err != nil {
					return false, err
				}
			}
		}
		if !yield(q, nil) {
			return false, nil
		}
	}
	return true, nil
}

// surveyEach surveys each child of a znode whose descendants are on several shards.
func surveyEach(ctx context.Context, s *embed.Session, path string, yield func(Queue, error) bool) (more bool, err error) {
	names, err := children(ctx, s, path)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if more, err = survey(ctx, s, queue.Child(path, name), yield); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// members knows the members of sessions that it was asked for before.
type members struct {
	ctx     context.Context
	session *embed.Session
	known   map[embed.SessionID]embed.MemberID
}

// of returns the member whose node speaks for a session, or zero if the session has ended.
func (m members) of(id embed.SessionID) (embed.MemberID, error) {
	member, known := m.known[id]
	if known || id == 0 {
		return member, nil
	}
	member, err := m.session.Member(m.ctx, id)
	if err != nil && !errors.Is(err, embed.ErrNoSession) {
		return 0, err
	}
	m.known[id] = member
	return member, nil
}

// Queues is Survey of znodes that the caller has read, from a client's connection or a file for
// example. Each must come before those below it, and these right behind it, as in a Walk. root is
// the Root of the session that read them. The Member of every contender is zero.
func Queues(root string, znodes iter.Seq2[embed.Znode, error]) iter.Seq2[Queue, error] {
	return func(yield func(Queue, error) bool) {
		c := collector{root: root, yield: func(q Queue) bool { return yield(q, nil) }}
		for z, err := range znodes {
			if err == nil && !strings.HasPrefix(z.Path, "/") {
				err = fmt.Errorf("%w: %q does not begin with a slash", embed.ErrInvalidPath, z.Path)
			}
			if err != nil {
				yield(Queue{}, err)
				return
			}
			if !c.add(z) {
				return
			}
		}
		c.leave("")
	}
}

// A collector puts contenders together that belong to one queue.
type collector struct {
	root  string
	yield func(Queue) bool
	open  []*level // the znode that was read last, and those above it, the root first
	over  bool     // yield has returned false
}

// A level is a znode and what is known of its children.
type level struct {
	path    string
	zNodes  map[string]embed.Znode // of the contenders, by name
	permits map[string][]Contender // of the children that may belong to a semaphore, by name
}

// The children of a semaphore's znode.
const (
	locksName  = "locks"
	leasesName = "leases"
)

// add adds the next znode, and reports whether the caller wants more.
func (c *collector) add(z embed.Znode) bool {
	c.leave(z.Path)
	if c.over {
		return false
	}
	if parent, name := queue.Split(z.Path); len(c.open) > 0 && c.open[len(c.open)-1].path == parent {
		at := c.open[len(c.open)-1]
		if queue.Word(name) != "" {
			at.add(name, z)
			return true
		}
		if name == locksName || name == leasesName {
			at.permits[name] = nil // it exists
		}
	}
	c.open = append(c.open, &level{path: z.Path, permits: make(map[string][]Contender)})
	return true
}

func (l *level) add(name string, z embed.Znode) {
	if l.zNodes == nil {
		l.zNodes = make(map[string]embed.Znode)
	}
	l.zNodes[name] = z
}

// leave ends the levels that the znode at path is not below.
func (c *collector) leave(path string) {
	for len(c.open) > 0 && !c.over {
		last := c.open[len(c.open)-1]
		if last.path == "/" && path != "" || strings.HasPrefix(path, last.path+"/") {
			return
		}
		c.open = c.open[:len(c.open)-1]
		c.end(last)
	}
}

// end yields the queue of a level, if it has one. Whether the children of a semaphore are queues of
// their own is known only at the end of their parent.
func (c *collector) end(l *level) {
	all := l.contenders(c.root)
	parent, name := queue.Split(l.path)
	if above := len(c.open) - 1; above >= 0 && c.open[above].path == parent && (name == locksName || name == leasesName) {
		c.open[above].permits[name] = all
		return
	}
	if _, semaphore := l.permits[leasesName]; semaphore {
		c.found(Queue{Path: l.path, Kind: KindSemaphore, Holders: l.permits[leasesName], Waiters: l.permits[locksName]})
	} else if below := l.permits[locksName]; len(below) > 0 {
		c.found(queueOf(queue.Child(l.path, locksName), below))
	}
	c.found(queueOf(l.path, all))
}

func (c *collector) found(q Queue) {
	if len(q.Holders)+len(q.Waiters) > 0 && !c.over {
		c.over = !c.yield(q)
	}
}

// contenders returns the level's contenders, in order.
func (l *level) contenders(root string) (all []Contender) {
	names := make([]string, 0, len(l.zNodes))
	for name := range l.zNodes {
		names = append(names, name)
	}
	for _, name := range queue.Sorted(names) {
		z := l.zNodes[name]
		all = append(all, contender(root, z.Path, z.Data, z.Stat))
	}
	return all
}

// contender returns the contender of a znode. Its Member is not known yet.
func contender(root, path string, data []byte, stat embed.Stat) Contender {
	_, name := queue.Split(path)
	c := Contender{Path: path, Session: stat.EphemeralOwner, Age: max(0, time.Since(stat.Ctime)), born: birth{stat.Czxid, stat.Ctime.UnixMilli()}}
	c.Token.Zxid, c.Token.Local = queue.Order(name, stat.Czxid)
	c.Note = string(data)
	if queue.Word(name) == queue.Latch.Word {
		return c // its data belongs to the candidate alone
	}
	var holding []string
	c.Note, holding = readNote(data)
	for _, at := range holding {
		if root == "/" {
			c.Holding = append(c.Holding, at)
		} else if below, ok := strings.CutPrefix(at, root); ok && strings.HasPrefix(below, "/") {
			c.Holding = append(c.Holding, below)
		}
	}
	return c
}

// queueOf returns the queue of contenders that wait for one another, or that have permits of a
// semaphore, if a caller has asked for what is below its leases alone.
func queueOf(path string, all []Contender) Queue {
	q := Queue{Path: path, Kind: KindMutex}
	for i, c := range all {
		_, name := queue.Split(c.Path)
		switch {
		case queue.Word(name) == queue.Lease.Word:
			q.Kind, q.Holders = KindSemaphore, all
			return q
		case queue.Word(name) == queue.Latch.Word:
			q.Kind = KindElection
			if i == 0 && queue.NeedsGrant(name) {
				q.Waiters = all // nobody leads until it is granted its place
				return q
			}
		case queue.Word(name) == queue.Write.Word, isReader(name):
			q.Kind = KindReadWrite
		}
	}
	q.Holders, q.Waiters = split(all)
	return q
}

// split returns who of a queue's contenders holds the lock, and who waits.
func split(all []Contender) (holders, waiters []Contender) {
	crowd, writer := false, false // whether anybody is ahead, and anybody for whom readers wait
	for _, c := range all {
		_, name := queue.Split(c.Path)
		waits := crowd
		if isReader(name) {
			waits = writer
		}
		if waits {
			waiters = append(waiters, c)
		} else {
			holders = append(holders, c)
		}
		crowd, writer = true, writer || queue.Waits(queue.Read, []string{name})
	}
	return holders, waiters
}

// isReader reports whether a contender waits for writers only.
func isReader(name string) bool { return len(queue.KindOf(name).After) > 0 }
