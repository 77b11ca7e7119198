package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// ErrMoved is the cause with which the ctx of a part ends when the part moves to another member.
var ErrMoved = errors.New("the part moves to another member")

// ErrTaken says that another live session has the member's ID.
var ErrTaken = errors.New("another session has the ID")

const (
	// SettleDefault is Options.Settle if that is zero.
	SettleDefault = 2 * time.Second
	// SettleKazoo is Options.Settle if that is zero and Options.Kazoo is set.
	SettleKazoo = 30 * time.Second
	// WeightMax is the largest Options.Weight.
	WeightMax = 100
)

// Options are the settings of a member. The zero value is usable.
type Options struct {
	// ID names the member, as one component of a path. A member that comes back with the same ID
	// gets the same parts. Empty means a random one, for each call of Run.
	ID string
	// Weight is the member's share beside those of the others, up to WeightMax. Zero means one.
	Weight int
	// Settle is how long a newcomer is left out after it was seen; zero means SettleDefault. So
	// members that come together cost one move. All members should have the same. Until the first
	// Settle is over, a new set has no owners.
	Settle time.Duration
	// Stuck is called when a part's function has not returned 10 s after its ctx ended, and every
	// 10 s from then on, with the time since. The part is kept from everybody until then. The calls
	// for several parts may overlap, and Run waits for them before it returns. Nil means nobody is
	// told.
	Stuck func(part string, since time.Duration)
	// Kazoo makes the member one of kazoo's SetPartitioner; see the package documentation. All
	// members of the directory must be of that kind, and have the same Settle as time_boundary.
	// Zero then means SettleKazoo. A Weight is refused.
	Kazoo bool
}

// Run makes this process a member, and calls fn for each part that it owns, until ctx ends. The
// calls for different parts run at the same time, each in a goroutine. The ctx of a call has the
// values and the lifetime of its Hold. It ends sooner when ctx ends, or with the cause ErrMoved when
// the part is to move. Then fn should return soon, because the next owner waits for it. When
// fn returns nil although the part stays, it is called again after a short pause, with a new Hold.
// When a part is lost, its ctx ends with the reason of Hold.Err, and Run goes on with a new
// session if it needs one.
//
// The parts are the whole set, in any order; one that is given twice counts once. Each is any UTF-8
// text that is not empty.
//
// Run returns in these cases, after all calls of fn have returned:
//
//   - ctx ends: its error. The other members take the parts over at once.
//   - The node ends: embed.ErrClosed or embed.ErrFailed.
//   - fn returns an error while it still owns its part: that error.
//   - No attempt can succeed: ErrTaken, if another session has had the ID for twice the session's
//     timeout; embed.ErrInvalidArgument for the options, an empty part or no parts;
//     embed.ErrTooLarge, if the set is larger than embed.Config.MaxDataSize; embed.ErrInvalidPath,
//     embed.ErrNoChildrenForEphemerals, embed.ErrAuthFailed, embed.ErrNoAuth,
//     embed.ErrQuotaExceeded, lock.ErrLockExhausted or embed.ErrCrossShard.
//
// embed.OpenerWith sets the timeout of the sessions, which is how long the others wait for a
// process that died, and credentials or a root.
func Run(ctx context.Context, from embed.Opener, dir string, parts []string, o Options,
	fn func(ctx context.Context, part string, h *lock.Hold) error) error {
	r := &runner{dir: dir, o: o, fn: fn}
	err := r.check(parts)
	if err == nil {
		err = sessions.Each(ctx, from, r.share)
	}
	if err == ctx.Err() {
		return err // nil cannot be
	}
	return wrap(dir, err)
}

func wrap(dir string, err error) error { return fmt.Errorf("partition %s: %w", dir, err) }

// A runner is one member. Immutable after check.
type runner struct {
	dir   string
	o     Options
	fn    func(ctx context.Context, part string, h *lock.Hold) error
	parts []string // sorted

	// Of the member's znode. With Options.Kazoo the name ends with the ID.
	members string // its parent
	name    string
	data    []byte
}

// check completes the options.
func (r *runner) check(parts []string) error {
	o := &r.o
	parts = slices.Compact(slices.Sorted(slices.Values(parts)))
	switch {
	case r.dir == "":
		return fmt.Errorf("%w: it is empty", embed.ErrInvalidPath)
	case len(parts) == 0:
		return fmt.Errorf("%w: no parts given", embed.ErrInvalidArgument)
	case parts[0] == "":
		return fmt.Errorf("%w: a part is empty", embed.ErrInvalidArgument)
	case !utf8.ValidString(strings.Join(parts, "")): // which JSON would change
		return fmt.Errorf("%w: a part is not UTF-8", embed.ErrInvalidArgument)
	case strings.Contains(o.ID, "/"):
		return fmt.Errorf("%w: Options.ID is %q, not one component of a path",
			embed.ErrInvalidArgument, o.ID)
	case o.Weight < 0 || o.Weight > WeightMax:
		return fmt.Errorf("%w: Options.Weight is %d, not 1 to %d, or zero",
			embed.ErrInvalidArgument, o.Weight, WeightMax)
	case o.Kazoo && o.Weight != 0:
		return fmt.Errorf("%w: Options.Weight and Options.Kazoo exclude each other",
			embed.ErrInvalidArgument)
	case o.Settle < 0:
		return fmt.Errorf("%w: Options.Settle is %v, but must not be negative",
			embed.ErrInvalidArgument, o.Settle)
	}
	if o.ID == "" {
		o.ID = newID()
	}
	r.parts = parts
	if o.Kazoo {
		o.Settle = cmp.Or(o.Settle, SettleKazoo)
		r.members, r.name, r.data = queue.Child(r.dir, "party"), kazooName(o.ID), []byte(o.ID)
		return nil
	}
	o.Weight, o.Settle = max(o.Weight, 1), cmp.Or(o.Settle, SettleDefault)
	r.members, r.name, r.data = queue.Child(r.dir, "members"), o.ID, encode(o.Weight, parts)
	return nil
}

// final returns err if no further attempt can succeed, and otherwise nil.
func final(err error) error {
	return sessions.Final(err, ErrTaken, lock.ErrLockExhausted, embed.ErrQuotaExceeded)
}

// share is a member with one session, until that session is lost. It returns an error only if Run
// must end.
func (r *runner) share(ctx context.Context, s *embed.Session) error {
	me, err := r.join(ctx, s)
	if err != nil {
		return final(err)
	}
	defer me.Release()
	look, err := r.open(ctx, s)
	if err != nil {
		return final(err)
	}
	defer look.close()
	t := newTeam(ctx, r, s)
	err = t.followLoop(ctx, me, look)
	why := cmp.Or(err, me.Err())
	// From now on the others queue for its parts, while its functions return.
	_ = me.Release() // if it cannot be sent, the node keeps trying until the session ends
	return errors.Join(err, t.stop(why))
}

// join creates the member's znode. If its ID is taken, it waits for twice the session's timeout: the
// znode may be that of a process that died.
func (r *runner) join(ctx context.Context, s *embed.Session) (*claim.Claim, error) {
	patience := time.NewTimer(2 * s.Timeout())
	defer patience.Stop()
	for {
		var me *claim.Claim
		err := queue.Within(ctx, s, r.members, func(parents bool) error {
			other, err := r.other(ctx, s)
			if err == nil && other != "" {
				err = waitGone(ctx, s, other, patience)
			}
			if err != nil {
				return err
			}
			me, err = create(ctx, s, queue.Child(r.members, r.name), r.data, parents)
			return err
		})
		if !errors.Is(err, embed.ErrNodeExists) {
			return me, err
		}
	}
}

// other returns the path of another znode with the member's ID, or nothing.
func (r *runner) other(ctx context.Context, s *embed.Session) (string, error) {
	if r.o.Kazoo {
		return kazooOther(ctx, s, r.members, r.o.ID)
	}
	path := queue.Child(r.members, r.name)
	_, there, err := s.Exists(ctx, path)
	if !there || err != nil {
		return "", err
	}
	return path, nil
}

// create creates the member's znode, and its parents if they are missing. After an error it leaves
// nothing.
func create(
	ctx context.Context, s *embed.Session, path string, data []byte, parents bool,
) (*claim.Claim, error) {
	how := embed.CreateOptions{Mode: embed.Ephemeral, Parents: parents}
	c, err := claim.New(ctx, s, embed.OpCreateWith(path, data, how))
	if err != nil {
		return nil, err
	}
	if _, err := c.Created(ctx); err != nil {
		_ = c.Release()
		return nil, err
	}
	return c, nil
}

// waitGone waits until the znode that has the ID may be gone.
func waitGone(ctx context.Context, s *embed.Session, path string, patience *time.Timer) error {
	w, err := s.Watch(ctx, path, embed.WatchOnce)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, there, err := s.Exists(ctx, path); !there || err != nil {
		return err
	}
	select {
	case <-w.Events(): // also if it is closed: look again
		return nil
	case <-patience.C:
		patience.Reset(2 * s.Timeout()) // for the next one
		return verdict(ctx, s, path)
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// verdict returns ErrTaken if the znode that has the ID is still there. What this node shows may be
// old, so it asks the ensemble first.
func verdict(ctx context.Context, s *embed.Session, path string) error {
	if _, err := s.Sync(ctx, path); err != nil {
		return err
	}
	_, there, err := s.Exists(ctx, path)
	if there && err == nil {
		err = ErrTaken
	}
	return err
}
