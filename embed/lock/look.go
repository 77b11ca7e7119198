package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

// A Contender holds a lock or waits for it. If the asking session may not read the contender's
// znode, only Path is set.
type Contender struct {
	Path    string          // of its znode
	Session embed.SessionID // zero: it was lost, and keeps the lock for its Options.Delay
	// Member is the one whose node speaks for the session; zero: the session has ended meanwhile.
	Member embed.MemberID
	Age    time.Duration // since it entered, by the wall clocks of the members
	Note   string        // from its Options
	Token  Token         // the one it has, or will have

	// Holding are the paths of the contenders that its caller held when it entered. Only a caller
	// tells whose ctx comes from Hold.Context, from election.Leadership.Context, or from Do or Run.
	// At most 1 KiB of paths is kept. For a lock that a Mutex keeps (Options.Keep), it is what the
	// caller held that made the Mutex acquire it.
	Holding []string

	born birth
}

// A birth is the transaction that created a contender. Two shards may give the same zxid.
type birth struct {
	czxid embed.Zxid
	ctime int64 // milliseconds
}

// Holders returns the contenders that hold the lock on a path, in order, as this node's replica
// knows them. A Mutex has at most one, a RWMutex one writer or its readers, and a Semaphore one for
// each permit that is out. If there is no such lock, there are none. A Multi counts as holder on
// each path where it is first, because it keeps others out there, although it may still wait on
// other paths. Errors are those of embed.Session.Get on the path, and of embed.Session.Member.
func Holders(ctx context.Context, s *embed.Session, path string) ([]Contender, error) {
	holders, _, err := look(ctx, s, path)
	return holders, wrap("holders of", path, err)
}

// Waiters returns the contenders that wait for the lock on a path, in order, as this node's replica
// knows them. Errors are those of Holders.
func Waiters(ctx context.Context, s *embed.Session, path string) ([]Contender, error) {
	_, waiters, err := look(ctx, s, path)
	return waiters, wrap("waiters for", path, err)
}

func look(ctx context.Context, s *embed.Session, path string) (holders, waiters []Contender, err error) {
	names, err := children(ctx, s, path)
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(names, "leases") { // a semaphore
		return lookAtSemaphore(ctx, s, path)
	}
	all, err := contenders(ctx, s, path, names)
	if err != nil {
		return nil, nil, err
	}
	holders, waiters = split(all)
	return holders, waiters, nil
}

func lookAtSemaphore(ctx context.Context, s *embed.Session, path string) (holders, waiters []Contender, err error) {
	// The waiters come first: a caller that is let in meanwhile is seen twice, not missed.
	if waiters, err = below(ctx, s, queue.Child(path, "locks")); err != nil {
		return nil, nil, err
	}
	holders, err = below(ctx, s, queue.Child(path, "leases"))
	return holders, waiters, err
}

// below returns the contenders below a znode, or none if the znode does not exist.
func below(ctx context.Context, s *embed.Session, parent string) ([]Contender, error) {
	names, err := children(ctx, s, parent)
	if err != nil {
		return nil, err
	}
	return contenders(ctx, s, parent, names)
}

// children returns the names of a znode's children, or none if the znode does not exist.
func children(ctx context.Context, s *embed.Session, path string) ([]string, error) {
	names, _, err := s.Children(ctx, path)
	if errors.Is(err, embed.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// contenders returns the contenders among a znode's children, in order.
func contenders(ctx context.Context, s *embed.Session, parent string, names []string) (all []Contender, err error) {
	members := members{ctx, s, make(map[embed.SessionID]embed.MemberID)}
	for _, name := range queue.Sorted(names) {
		path := queue.Child(parent, name)
		data, stat, err := s.Get(ctx, path)
		switch {
		case errors.Is(err, embed.ErrNoNode):
			continue // it has just left
		case errors.Is(err, embed.ErrNoAuth):
			all = append(all, Contender{Path: path}) // it exists, and others wait for it
			continue
		case err != nil:
			return nil, err
		}
		c := contender(s.Root(), path, data, stat)
		if c.Member, err = members.of(c.Session); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// revocation is the data of a contender that was asked to give its lock up. Curator's Revoker uses
// the same word.
const revocation = "__REVOKE__"

// Revoke asks the holders of the lock on a path to give it up. Hold.Revoked tells them, and so does
// Curator's Revocable. They are free to go on. If a Mutex only keeps the lock (Options.Keep), its
// next Hold is told. The request replaces the holders' notes. If one holder cannot be asked, the
// others still are. The leader of an election is not asked, nor is a holder that was lost and
// lingers. What only has a name like a holder's keeps its data: Revoke asks ephemerals with the names
// of this package, Curator's or kazoo's, and nothing else.
//
// Errors are those of Holders, embed.Session.Sync and embed.Session.Set, and embed.ErrNoAuth if a
// holder may not be read.
func Revoke(ctx context.Context, s *embed.Session, path string) error {
	if _, err := s.Sync(ctx, path); err != nil { // else a holder may not be shown yet
		return wrap("revoke", path, err)
	}
	holders, err := Holders(ctx, s, path)
	if err != nil {
		return err
	}
	for _, h := range holders {
		if !h.canBeAsked() {
			continue
		}
		op := embed.OpSet(h.Path, []byte(revocation), embed.AnyVersion)
		if e := ifContends(ctx, s, h.Path, h.born.czxid, op); err == nil && !errors.Is(e, embed.ErrNoNode) {
			err = wrap("revoke", path, e)
		}
	}
	return err
}

// canBeAsked reports whether Revoke asks a holder: an ephemeral, or a contender that may not be read,
// which is an error. Who leads an election cannot be asked: its data is what it proclaims.
func (c Contender) canBeAsked() bool {
	_, name := queue.Split(c.Path)
	word := queue.Word(name)
	return word != "" && word != queue.Latch.Word && (c.Session != 0 || c.born == birth{})
}

// Evict deletes a contender's znode. It is for a holder that does not react to Revoke. contender is
// its path, as Holders, Waiters and Survey tell. If it waits, its call ends with embed.ErrDeleted. If
// it holds the lock, its Hold ends when its node learns of the deletion, but the next contender may
// hold the lock before that. What both do to other systems is kept apart by Token and Guard alone.
//
// Nothing is deleted but an ephemeral with the name of a contender. One whose session was lost, and
// which lingers for its Options.Delay, is none: it goes by itself.
//
// Errors: embed.ErrInvalidPath if the path is no contender's or its znode is no ephemeral, and those
// of embed.Session.Sync, Exists and Delete: embed.ErrNoNode if it has gone.
func Evict(ctx context.Context, s *embed.Session, contender string) error {
	return wrap("evict", contender, evict(ctx, s, contender))
}

func evict(ctx context.Context, s *embed.Session, contender string) error {
	if name := contender[strings.LastIndexByte(contender, '/')+1:]; queue.Word(name) == "" {
		return fmt.Errorf("%w: it is not the path of a contender", embed.ErrInvalidPath)
	}
	if _, err := s.Sync(ctx, contender); err != nil { // else it may not be shown yet
		return err
	}
	stat, ok, err := s.Exists(ctx, contender)
	switch {
	case err != nil:
		return err
	case !ok:
		return embed.ErrNoNode
	case stat.EphemeralOwner == 0:
		return fmt.Errorf("%w: its znode is no ephemeral", embed.ErrInvalidPath)
	}
	return ifContends(ctx, s, contender, stat.Czxid, embed.OpDelete(contender, embed.AnyVersion))
}

// ifContends changes a znode unless it is something else by now than the ephemeral that was created
// in transaction czxid. Then it has left.
func ifContends(ctx context.Context, s *embed.Session, path string, czxid embed.Zxid, op embed.Op) error {
	if czxid == 0 {
		return embed.ErrNoAuth // it could not be looked at
	}
	_, err := s.Multi(ctx, claim.OpCheckCzxid(path, czxid), op)
	if errors.Is(err, embed.ErrNotHeld) {
		return embed.ErrNoNode
	}
	return err
}

// A revoke records whether somebody has asked for a Hold to be given up.
type revoke struct {
	watching sync.Once
	once     sync.Once
	asked    chan struct{}
}

// Revoked returns a channel that is closed when somebody asks by Revoke for the Hold to be given
// up. That does not end the Hold. If its session may not read the znode by which it is asked, the
// channel is closed once the session may. The first call starts a goroutine for each of the Hold's
// znodes, which lasts until the Hold ends.
func (h *Hold) Revoked() <-chan struct{} {
	h.revoke.watching.Do(func() {
		h.revoke.asked = make(chan struct{})
		if h.contender == nil {
			return // nobody can ask
		}
		for _, path := range h.contender.Paths {
			go h.revokeLoop(path)
		}
	})
	return h.revoke.asked
}

// wasAsked reports whether the Hold's owner watches for a Revoke and has been asked.
func (h *Hold) wasAsked() bool {
	asked := false
	h.revoke.watching.Do(func() {}) // from now on nobody begins to watch
	if h.revoke.asked != nil {
		select {
		case <-h.revoke.asked:
			asked = true
		default:
		}
	}
	return asked
}

// revokeLoop waits until somebody asks by the znode at path. It ends then, or with the Hold, but with
// no error: what cannot be read now may be read later.
func (h *Hold) revokeLoop(path string) {
	for h.tenure.Err() == nil {
		asked, err := h.awaitRevoke(path)
		if asked {
			h.revoke.once.Do(func() { close(h.revoke.asked) })
			return
		}
		if err != nil {
			sessions.Pause(h.tenure.Context())
		}
	}
}

// awaitRevoke reports whether the znode at path asks. If not, it first waits for a change. While the
// znode is hidden, that is the end of the watch: a SetACL gives the permission to read it.
func (h *Hold) awaitRevoke(path string) (asked bool, err error) {
	ctx := h.tenure.Context()
	w, err := h.contender.Session.Watch(ctx, path, embed.WatchPersistent)
	if err != nil {
		return false, err
	}
	defer w.Close()
	data, _, err := h.contender.Session.Get(ctx, path)
	if string(data) == revocation || err != nil && !errors.Is(err, embed.ErrNoAuth) {
		return err == nil, err
	}
	select {
	case <-w.Events():
	case <-h.tenure.Done():
	}
	return false, nil
}
