package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

// ErrTaken says that the znode to be announced belongs to another session, which is alive.
var ErrTaken = errors.New("another session has this znode")

var errEmptyPath = fmt.Errorf("%w: it is empty", embed.ErrInvalidPath)

// An Announcement keeps one ephemeral znode up, with one session after the other, until it is
// closed. All methods may be called by any number of goroutines. An Announcement that neither
// Announce nor Join has made has ended.
type Announcement struct {
	// Immutable.
	path   string
	fixed  bool // the layout leaves no room for data
	cancel context.CancelFunc
	done   chan struct{}
	turn   chan struct{} // capacity 1: filled while a Set waits
	wake   chan struct{} // capacity 1: filled when next is new

	next atomic.Pointer[update]   // the newest data, if it is not announced yet
	now  atomic.Pointer[standing] // stored by the loop only
}

// An update is new data that is to be announced. err is set before done is closed.
type update struct {
	data []byte
	done chan struct{}
	err  error
}

// A standing is what the loop knows of the znode. Immutable.
type standing struct {
	session *embed.Session
	claim   *claim.Claim // nil while there is no znode
	czxid   embed.Zxid
	why     error         // why there is none
	end     error         // why the Announcement has ended
	changed chan struct{} // closed when there is another standing
}

// A Status says whether an announced znode is there.
type Status struct {
	// Present says that the znode is there, and that its session is Connected.
	Present bool
	Czxid   embed.Zxid // of the znode's creation; zero unless Present
	// Err says why the znode is not Present: why the last attempt failed, or what ended. It is nil
	// while the first attempt is under way.
	Err error
}

// same reports whether two states say the same.
func (s Status) same(other Status) bool {
	return s.Present == other.Present && s.Czxid == other.Czxid &&
		fmt.Sprint(s.Err) == fmt.Sprint(other.Err)
}

// Announce creates an ephemeral znode at a path and keeps it up until Close. It does not wait; see
// Changes. It creates missing parents as containers. The data may be reused when Announce has
// returned.
//
// When its session is lost, or when somebody deletes the znode, the Announcement creates the znode
// again with the newest data. It replaces what its own lost sessions have left.
//
// If the znode belongs to any other session, the Announcement waits for two session timeouts,
// because the process of that session may have died. Then it ends with ErrTaken. A process that
// starts again on the same member need not wait: its node ends the sessions of its predecessor.
//
// As with election.Run, the sessions have the timeout embed.Config.SessionTimeout unless from is an
// embed.OpenerWith.
func Announce(from embed.Opener, path string, data []byte, o Options) *Announcement {
	err := o.check()
	switch {
	case o.Layout != Curator:
		err = errors.Join(err, wrong("Options.Layout is for Join"))
	case path == "":
		err = errors.Join(err, errEmptyPath)
	case path == "/":
		err = errors.Join(err, wrong("the root cannot be announced"))
	}
	return begin(from, path, data, o, err)
}

// Join announces a member of a directory: Announce with a path and data that Options.Layout says.
// Watch shows the members. In the layouts of kazoo a member has no data of its own, so data must be
// empty.
func Join(from embed.Opener, dir, id string, data []byte, o Options) *Announcement {
	name, own, err := o.Layout.name(id, data)
	if dir == "" { // with a name appended, it would mean the root
		err = errors.Join(err, errEmptyPath)
	}
	return begin(from, queue.Child(dir, name), own, o, errors.Join(o.check(), err))
}

// begin returns an Announcement that has begun, or has ended with err.
func begin(from embed.Opener, path string, data []byte, o Options, err error) *Announcement {
	ctx, cancel := context.WithCancel(context.Background())
	a := &Announcement{path: path, fixed: o.Layout != Curator, cancel: cancel}
	a.done, a.turn, a.wake = make(chan struct{}), make(chan struct{}, 1), make(chan struct{}, 1)
	k := &keeper{a: a, linger: o.Linger, data: bytes.Clone(data)}
	k.show(standing{})
	if err != nil {
		k.end(err)
		return a
	}
	go k.loop(ctx, from)
	return a
}

// Path returns the path of the znode.
func (a *Announcement) Path() string { return a.path }

// Status compares the clock and returns the present status.
func (a *Announcement) Status() Status {
	n := a.now.Load()
	switch {
	case n == nil:
		return Status{Err: embed.ErrReleased}
	case n.end != nil:
		return Status{Err: n.end}
	case n.claim == nil:
		return Status{Err: n.why}
	}
	if err := n.claim.Err(); err != nil {
		return Status{Err: err}
	}
	if state, _ := n.session.State(); state != embed.Connected {
		return Status{Err: embed.ErrSuspended}
	}
	return Status{Present: true, Czxid: n.czxid}
}

// Changes yields the present Status, and then each one that differs. A slow loop may miss some, but
// never the newest. When ctx or the Announcement ends, Changes yields that error and stops. Another
// range over the result begins anew.
func (a *Announcement) Changes(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		var told *Status
		for {
			if err := ctx.Err(); err != nil {
				yield(Status{}, err)
				return
			}
			n := a.now.Load()
			if n == nil || n.end != nil {
				yield(Status{}, a.Err())
				return
			}
			var flips, over <-chan struct{}
			if n.claim != nil && n.claim.Err() == nil {
				_, flips = n.session.State()
				over = n.claim.Done()
			}
			now := a.Status()
			if (told == nil || !now.same(*told)) && !yield(now, nil) {
				return
			}
			told = &now
			select {
			case <-n.changed:
			case <-flips:
			case <-over:
			case <-ctx.Done():
			}
		}
	}
}

// Set replaces the data that is announced. It waits until the znode has this data, or newer data.
// If ctx ends first, the Announcement still announces the data as soon as it can, unless another
// Set follows. The data may be reused when Set has returned.
//
// After embed.ErrTooLarge, embed.ErrQuotaExceeded and embed.ErrNoAuth the former data stays. Other
// errors: the ctx's, embed.ErrInvalidArgument in the layouts of kazoo, and why the Announcement has
// ended. If somebody else writes to the znode, that stays until the next Set.
func (a *Announcement) Set(ctx context.Context, data []byte) error {
	if err := a.set(ctx, data); err != nil {
		return fmt.Errorf("announce data at %s: %w", a.path, err)
	}
	return nil
}

func (a *Announcement) set(ctx context.Context, data []byte) error {
	if err := a.Err(); err != nil {
		return err
	}
	if a.fixed {
		return errNoData
	}
	select { // so a refusal is that of its own data
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ctx.Err()
	case <-a.done:
		return a.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	u := &update{data: bytes.Clone(data), done: make(chan struct{})}
	a.next.Store(u)
	select {
	case a.wake <- struct{}{}:
	default: // the loop is about to look
	}
	select {
	case <-u.done:
		return u.err
	case <-ctx.Done():
		return ctx.Err()
	case <-a.done:
		return a.Err()
	}
}

// Done returns a channel that is closed when the Announcement has ended: by Close, with its node,
// or because no attempt can succeed.
func (a *Announcement) Done() <-chan struct{} {
	if a.done == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return a.done
}

// Err returns why the Announcement ended, or nil while it lasts:
//
//   - embed.ErrReleased: Close.
//   - embed.ErrClosed or embed.ErrFailed: the node has ended.
//   - ErrTaken: another live session has the znode.
//   - embed.ErrInvalidArgument: the arguments, or the Options.
//   - No attempt can succeed: embed.ErrInvalidPath, embed.ErrTooLarge, embed.ErrCrossShard,
//     embed.ErrNoChildrenForEphemerals, embed.ErrAuthFailed, embed.ErrNoAuth, embed.ErrInvalidTTL.
func (a *Announcement) Err() error {
	n := a.now.Load()
	if n == nil {
		return embed.ErrReleased
	}
	return n.end
}

// Close deletes the znode and ends the Announcement. It waits until the ensemble knows, for at most
// embed.Config.RequestTimeout. Without a quorum the session expires later, as if it were lost.
// Close is idempotent and always returns nil.
func (a *Announcement) Close() error {
	if a.done != nil {
		a.cancel()
		<-a.done
	}
	return nil
}

// final returns err if no further attempt can succeed, and otherwise nil.
func final(err error) error { return sessions.Final(err, ErrTaken, embed.ErrInvalidTTL) }
