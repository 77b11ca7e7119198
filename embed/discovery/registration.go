package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/group"
)

// A Registration keeps an instance registered, with one session after the other, until it is
// closed. All methods may be called by any number of goroutines. A Registration that Register has
// not made has ended.
type Registration struct {
	// Immutable.
	announcement *group.Announcement // one that has ended if refused is set
	refused      error
	turn         chan struct{} // capacity 1: filled while an Update works; guards waits

	now   atomic.Pointer[Instance] // stored by the Update whose turn it is
	waits bool                     // now may not be registered yet
}

// againMax is how long an Update that was refused waits until the one before it is registered.
const againMax = time.Second

// Register registers a Dynamic instance until Close. It does not wait; see Changes. Its znode is
// <base>/<name>/<id>, below containers. When its session is lost, the next one registers the
// instance again, with its newest fields. If another live session has registered the same id, the
// Registration ends with group.ErrTaken; see group.Announce.
//
// Fields that cannot be registered end it at once with embed.ErrInvalidArgument: an empty Name or
// ID or one with a slash, a Type other than Dynamic, and what Encode refuses. The sessions have the
// timeout embed.Config.SessionTimeout unless from is an embed.OpenerWith.
func Register(from embed.Opener, base string, in Instance) *Registration {
	in = clone(in)
	r := &Registration{announcement: new(group.Announcement), turn: make(chan struct{}, 1)}
	r.now.Store(&in)
	data, err := encode(in)
	if base == "" {
		err = errors.Join(err, fmt.Errorf("%w: the base path is empty", embed.ErrInvalidPath))
	}
	if err != nil {
		r.refused = fmt.Errorf("register instance %q of %q: %w", in.ID, in.Name, err)
		return r
	}
	r.announcement = group.Announce(from, in.Path(base), data, group.Options{})
	return r
}

// encode returns the data of an instance that can be registered.
func encode(in Instance) ([]byte, error) {
	var errs []error
	if in.Name == "" || strings.Contains(in.Name, "/") {
		errs = append(errs, wrong("Instance.Name is %q", in.Name))
	}
	if in.ID == "" || strings.Contains(in.ID, "/") {
		errs = append(errs, wrong("Instance.ID is %q", in.ID))
	}
	if in.Type != "" && in.Type != Dynamic {
		errs = append(errs, wrong("Instance.Type is %q", in.Type))
	}
	data, err := Encode(in)
	return data, errors.Join(append(errs, err)...)
}

// wrong returns an embed.ErrInvalidArgument that says what is wrong.
func wrong(format string, arg any) error {
	return fmt.Errorf("%w: %s", embed.ErrInvalidArgument, fmt.Sprintf(format, arg))
}

// clone returns a copy that shares nothing with the instance.
func clone(in Instance) Instance {
	in.Payload, in.URI.Parts = bytes.Clone(in.Payload), slices.Clone(in.URI.Parts)
	return in
}

// Instance returns the instance as it is, or is about to be, registered.
func (r *Registration) Instance() Instance {
	if now := r.now.Load(); now != nil {
		return clone(*now)
	}
	return Instance{}
}

// Update changes the instance: its address, ports, payload, URI, or whether it is Disabled. It
// calls change with a copy, and waits until the ensemble has what change made of it. Its Name, ID
// and Type stay. Updates are made one after the other. If ctx ends first, the instance is
// registered as it was changed as soon as that is possible.
//
// Errors: the ctx's; embed.ErrInvalidArgument, and embed.ErrTooLarge and embed.ErrQuotaExceeded,
// after which the instance is as before; and why the Registration has ended.
func (r *Registration) Update(ctx context.Context, change func(*Instance)) error {
	if err := r.Err(); err != nil {
		return err
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-r.Done():
		return r.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	was := r.now.Load()
	next := clone(*was)
	change(&next)
	next.Name, next.ID, next.Type = was.Name, was.ID, was.Type
	next = clone(next) // change may have kept the pointer
	data, err := encode(next)
	if err != nil {
		return fmt.Errorf("update instance %q of %q: %w", was.ID, was.Name, err)
	}
	r.now.Store(&next)
	err = r.announcement.Set(ctx, data)
	for _, refusal := range []error{embed.ErrTooLarge, embed.ErrQuotaExceeded, embed.ErrNoAuth} {
		if errors.Is(err, refusal) {
			r.back(ctx, was)
			return err
		}
	}
	r.waits = err != nil
	return err
}

// back makes the instance what it was before an Update that was refused. If that is not registered
// yet, the refused Update has taken its place, so it is announced again.
func (r *Registration) back(ctx context.Context, was *Instance) {
	r.now.Store(was)
	if !r.waits {
		return
	}
	if data, err := encode(*was); err == nil {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), againMax)
		defer cancel()
		r.waits = r.announcement.Set(short, data) != nil // or as soon as possible
	}
}

// Changes yields whether the instance is registered, and then each change of that, as
// group.Announcement.Changes does.
func (r *Registration) Changes(ctx context.Context) iter.Seq2[group.Status, error] {
	if err := r.Err(); err != nil {
		return func(yield func(group.Status, error) bool) { yield(group.Status{}, err) }
	}
	return r.announcement.Changes(ctx)
}

// Done returns a channel that is closed when the Registration has ended: by Close, with its node,
// or because no attempt can succeed.
func (r *Registration) Done() <-chan struct{} {
	if r.announcement == nil {
		return new(group.Announcement).Done()
	}
	return r.announcement.Done()
}

// Err returns why the Registration ended, or nil while it lasts. The reasons are those of
// group.Announcement.Err.
func (r *Registration) Err() error {
	switch {
	case r.announcement == nil:
		return embed.ErrReleased
	case r.refused != nil:
		return r.refused
	}
	return r.announcement.Err()
}

// Close removes the instance and ends the Registration, as group.Announcement.Close does. It is
// idempotent and always returns nil.
func (r *Registration) Close() error {
	if r.announcement == nil {
		return nil
	}
	return r.announcement.Close()
}
