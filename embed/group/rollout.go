package group

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/value"
)

// membersName is the child of a rollout's znode below which its members are.
const membersName = "members"

// Follow is a member of a rollout. It calls apply with the value at a path and with each one that
// follows. It tells the ensemble which one it has applied, and AwaitApplied waits for that. Follow
// joins when there is a value, and opens one session after the other. Each id has one member:
// Follow ends with ErrTaken as Announce does.
//
// The ctx of apply has the values of ctx. It ends with ctx or with this membership, whichever is
// first. It lasts when apply has returned, until the next membership begins. Its Err and Done
// compare the clock when they are called; a derived context ends with it, but does not compare the
// clock. The user of the value must stop when that ctx ends: from then on AwaitApplied no longer
// waits for this member. The next membership calls apply again, also with the same value.
//
// A member reads the value after it has joined. So it never applies one that is older than a value
// for which AwaitApplied has returned.
//
// If the ensemble refuses to record what was applied, Follow logs that, and tries again after pauses
// of up to a minute. apply is not called again for that.
//
// Follow returns the error of ctx; an error of apply, or of the Codec for a value that does not
// decode; ErrTaken; embed.ErrInvalidArgument; and the errors with which election.Run ends. By then
// the ctx of apply has ended, and after that the member has left.
func Follow[T any](
	ctx context.Context, from embed.Opener, path, id string, c value.Codec[T],
	apply func(context.Context, value.Versioned[T]) error,
) error {
	err := check(path, id)
	if err == nil {
		f := &follower[T]{path: path, codec: c, apply: apply}
		f.member = queue.Child(queue.Child(path, membersName), id)
		f.own = &keeper{a: &Announcement{path: f.member}}
		err = sessions.Each(ctx, from, f.live)
	}
	if err == ctx.Err() {
		return err
	}
	return fmt.Errorf("follow %s: %w", path, err)
}

// check returns an error for the path or the id of a rollout that there cannot be.
func check(path, id string) error {
	if path == "" {
		return errEmptyPath
	}
	_, _, err := Curator.name(id, nil)
	return err
}

// errApply marks an error that ends Follow.
type errApply struct{ error }

// Unwrap returns the error of apply, or of the Codec.
func (e errApply) Unwrap() error { return e.error }

// A follower is one call of Follow.
type follower[T any] struct {
	path, member string
	codec        value.Codec[T]
	apply        func(context.Context, value.Versioned[T]) error
	own          *keeper // removes what its own earlier sessions have left
}

// live follows with one session until the session has ended. It returns an error only if Follow
// must end.
func (f *follower[T]) live(ctx context.Context, s *embed.Session) error {
	f.own.remember(s)
	v := value.New(s, f.path, f.codec)
	for {
		c, err := f.join(ctx, s, v)
		if err == nil {
			err = f.follow(ctx, s, v, c)
			_ = c.Release() // if it cannot be sent, the node keeps trying until the session ends
		}
		if own, ok := errors.AsType[errApply](err); ok {
			return own.error
		}
		switch {
		case ctx.Err() != nil, s.Err() != nil:
			return nil
		case final(err) != nil, errors.Is(err, embed.ErrQuotaExceeded):
			return err
		case !sessions.Pause(ctx):
			return nil
		}
	}
}

// join waits until there is a value, and then creates the member, which has applied nothing yet.
//
// The value may change meanwhile. If it does so before the create, this node shows the newer one
// when the create has been applied here, and follow reads the value only then. If it does so after
// the create, AwaitApplied sees the member.
func (f *follower[T]) join(
	ctx context.Context, s *embed.Session, v value.Value[T],
) (*claim.Claim, error) {
	for now, err := range v.Changes(ctx) {
		switch {
		case errors.Is(err, embed.ErrNoNode):
			continue
		case err != nil && now.Mzxid == 0: // the session or ctx has ended, or it may not be read
			return nil, err
		}
		ops, err := f.own.makeRoom(ctx, s)
		if err != nil {
			return nil, err
		}
		parent := embed.OpEnsure(queue.Child(f.path, membersName))
		create := embed.OpCreate(f.member, number(0), embed.Ephemeral)
		c, _, err := submit(ctx, s, slices.Concat([]embed.Op{parent}, ops, []embed.Op{create})...)
		return c, err
	}
	return nil, ctx.Err()
}

// follow applies the value, and each one that follows, until the membership ends.
func (f *follower[T]) follow(
	ctx context.Context, s *embed.Session, v value.Value[T], c *claim.Claim,
) error {
	tenure, err := queue.Hold(ctx, s, c)
	if err != nil {
		return err
	}
	life, cancel := queue.Both(ctx, queue.Context(tenure, ctx))
	defer cancel()
	for now, err := range v.Changes(life) {
		switch {
		case life.Err() != nil:
			return context.Cause(life)
		case errors.Is(err, embed.ErrNoNode):
			continue
		case err != nil && now.Mzxid == 0:
			return err
		case err != nil:
			return errApply{err}
		}
		if err := f.apply(life, now); err != nil {
			if life.Err() != nil {
				return context.Cause(life)
			}
			return errApply{err}
		}
		if err := f.tell(life, s, tenure, now.Mzxid); err != nil {
			return err
		}
	}
	return life.Err()
}

// tell writes which value the member has applied.
func (f *follower[T]) tell(
	ctx context.Context, s *embed.Session, tenure *claim.Tenure, z embed.Zxid,
) error {
	return sessions.Record(ctx, s, f.member, ctx.Done(), func() error {
		_, err := s.Multi(ctx, claim.OpGuard(tenure),
			embed.OpSet(f.member, number(z), embed.AnyVersion))
		return err
	})
}

// number returns the data of a member that has applied a write.
func number(z embed.Zxid) []byte { return binary.BigEndian.AppendUint64(nil, uint64(z)) }

// applied returns the write that a member has applied. Data that is none says that it has applied
// nothing.
func applied(data []byte) embed.Zxid {
	if len(data) != 8 {
		return 0
	}
	return embed.Zxid(binary.BigEndian.Uint64(data))
}

// AwaitApplied waits until every member of a rollout has applied the write z of its value, or a
// later one. z is the Mzxid of that write, which value.Value.Set returns. From then on nobody joins
// who applies an earlier value. Members that are lost meanwhile count as gone: the ctx of their
// apply has ended before.
//
// AwaitApplied is bounded by ctx alone. After an error it returns the sorted ids of the members
// that had not applied z. Errors: the ctx's, those of view.Open, embed.ErrNoAuth if the session may
// not read what a member has applied, and those of an ended session.
func AwaitApplied(
	ctx context.Context, s *embed.Session, path string, z embed.Zxid,
) (missing []string, err error) {
	if missing, err = awaitApplied(ctx, s, path, z); err != nil {
		return missing, fmt.Errorf("await members of %s at %d: %w", path, z, err)
	}
	return nil, nil
}

func awaitApplied(
	ctx context.Context, s *embed.Session, path string, z embed.Zxid,
) (missing []string, err error) {
	if path == "" {
		return nil, errEmptyPath
	}
	// Only members that joined before z can be below it, and all of those are shown then.
	err = queue.Retry(ctx, s, func() error { return s.Await(ctx, path, z) })
	if err != nil {
		return nil, err
	}
	dir := queue.Child(path, membersName)
	g, err := Watch(ctx, s, dir, Options{})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	for {
		shown, err := g.Await(ctx, func(all []Member) bool {
			missing = nil
			for _, m := range all {
				if applied(m.Data) < z {
					missing = append(missing, m.ID)
				}
			}
			return len(missing) == 0
		})
		if err == nil {
			missing, err = unshown(ctx, s, dir, z, shown)
		}
		if err != nil || len(missing) == 0 {
			return missing, err
		}
		if !sessions.Pause(ctx) { // the group is about to show them
			return missing, ctx.Err()
		}
	}
}

// unshown returns the ids of the members that have not applied z although none of those that a group
// shows is such a member. It does not show those that the session may not read, for which the error
// is embed.ErrNoAuth, and not yet those that the session may read only now.
func unshown(
	ctx context.Context, s *embed.Session, dir string, z embed.Zxid, shown []Member,
) (ids []string, err error) {
	passed := make(map[string]bool, len(shown))
	for _, m := range shown {
		passed[m.Path] = true
	}
	names, _, err := s.Children(ctx, dir)
	if err != nil {
		if errors.Is(err, embed.ErrNoNode) {
			err = nil // so there are no members
		}
		return nil, err
	}
	var why error
	for _, name := range names {
		path := queue.Child(dir, name)
		if passed[path] {
			continue
		}
		data, _, err := s.Get(ctx, path)
		switch {
		case errors.Is(err, embed.ErrNoAuth):
			ids, why = append(ids, name), err
		case errors.Is(err, embed.ErrNoNode):
		case err != nil:
			return nil, err
		case applied(data) < z:
			ids = append(ids, name)
		}
	}
	return ids, why
}
