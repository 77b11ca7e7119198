package value

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
)

// ErrChanged says that a Swap found another value than the caller expects. Nothing was written.
var ErrChanged = errors.New("value has changed")

// A Value is what one znode holds, as a T. It may be copied and used by any number of goroutines.
// It lasts as long as its session. New makes one; the zero Value cannot be used.
type Value[T any] struct {
	session *embed.Session
	path    string
	codec   Codec[T]
}

// New returns the Value at a path for a session. It sends and reads nothing.
func New[T any](s *embed.Session, path string, c Codec[T]) Value[T] {
	return Value[T]{session: s, path: path, codec: c}
}

// A Versioned is a value as one write left it. The zero Versioned stands for a znode that does not
// exist.
type Versioned[T any] struct {
	Value T
	Mzxid embed.Zxid // of that write: what Swap compares
	Stat  embed.Stat
}

// Get returns the value that this node shows. It may be behind what another member has written;
// after embed.Session.Sync it is not.
//
// Errors: those of embed.Session.Get, with embed.ErrNoNode if the znode does not exist, and those
// of the Codec. After an error of the Codec the Versioned has all but its Value, so that Swap can
// replace what cannot be read.
func (v Value[T]) Get(ctx context.Context) (Versioned[T], error) {
	data, stat, err := v.session.Get(ctx, v.path)
	if err != nil {
		return Versioned[T]{}, err
	}
	return v.versioned(data, stat)
}

// versioned decodes data.
func (v Value[T]) versioned(data []byte, stat embed.Stat) (Versioned[T], error) {
	x, err := v.codec.decode(data)
	if err != nil {
		var none T
		x, err = none, wrap("decode", v.path, err)
	}
	return Versioned[T]{Value: x, Mzxid: stat.Mzxid, Stat: stat}, err
}

// Set writes a value, whatever is there. If the znode or those above it are missing, Set creates
// them. It returns what it has written.
//
// Errors: those of embed.Session.Create and Set, and those of the Codec. After
// embed.ErrUnknownOutcome the value may have been written, or may yet be, at most once.
func (v Value[T]) Set(ctx context.Context, x T) (Versioned[T], error) {
	data, err := v.codec.encode(x)
	if err != nil {
		return Versioned[T]{}, wrap("encode", v.path, err)
	}
	stat, err := set(ctx, v.session, v.path, data)
	if err != nil {
		return Versioned[T]{}, wrap("set", v.path, err)
	}
	return Versioned[T]{Value: x, Mzxid: stat.Mzxid, Stat: stat}, nil
}

// set writes data to a znode, which it creates if it is missing.
func set(ctx context.Context, s *embed.Session, path string, data []byte) (stat embed.Stat, err error) {
	_, there, err := s.Exists(ctx, path)
	if err != nil && !errors.Is(err, embed.ErrNoAuth) { // it exists, and may be written all the same
		return embed.Stat{}, err
	}
	for there = there || err != nil; ; there = !there {
		if there {
			stat, err = s.Set(ctx, path, data, embed.AnyVersion)
			if !errors.Is(err, embed.ErrNoNode) {
				return stat, err
			}
		} else {
			stat, err = create(ctx, s, path, data)
			if !errors.Is(err, embed.ErrNodeExists) {
				return stat, err
			}
		}
	}
}

// Swap writes x if the znode's last write is still the one of old. Only old.Mzxid counts. The zero
// old means that the znode must not exist; then Swap creates it and the znodes above it.
//
// Errors: ErrChanged if there was another write, or the znode was deleted, created, or both. Those
// of embed.Session.Create, and those of the Codec. After embed.ErrUnknownOutcome the value may have been written, or may yet be, at most once.
func (v Value[T]) Swap(ctx context.Context, old Versioned[T], x T) (Versioned[T], error) {
	data, err := v.codec.encode(x)
	if err != nil {
		return Versioned[T]{}, wrap("encode", v.path, err)
	}
	stat, err := swap(ctx, v.session, v.path, old.Mzxid, data)
	if err != nil {
		return Versioned[T]{}, wrap("swap", v.path, err)
	}
	return Versioned[T]{Value: x, Mzxid: stat.Mzxid, Stat: stat}, nil
}

// swap replaces the data that the transaction old has written. Zero means that there is no znode.
func swap(ctx context.Context, s *embed.Session, path string, old embed.Zxid, data []byte) (embed.Stat, error) {
	if old == 0 {
		stat, err := create(ctx, s, path, data)
		if errors.Is(err, embed.ErrNodeExists) {
			return embed.Stat{}, fmt.Errorf("%w: the znode exists", ErrChanged)
		}
		return stat, err
	}
	r, err := s.Multi(ctx, embed.OpCheckMzxid(path, old), embed.OpSet(path, data, embed.AnyVersion))
	switch {
	case errors.Is(err, embed.ErrBadVersion):
		return embed.Stat{}, fmt.Errorf("%w: zxid %d is no longer its last write", ErrChanged, old)
	case errors.Is(err, embed.ErrNoNode):
		return embed.Stat{}, fmt.Errorf("%w: the znode does not exist", ErrChanged)
	case err != nil:
		return embed.Stat{}, err
	}
	return r[1].Stat, nil
}

// Update writes what fn makes of the present value. fn gets the zero T and false if the znode does
// not exist; then Update creates it. If somebody else writes meanwhile, Update calls fn again, with
// the newer value. So fn may be called several times, but only what it returned last is written.
//
// An error of fn ends the Update, which returns it as it is. Other errors are those of Get and
// Swap, except embed.ErrNoNode and ErrChanged. A value that does not decode is not replaced. If this
// node shows an old value, neither its error nor one that fn has for it counts, unless no quorum
// answers.
func (v Value[T]) Update(ctx context.Context, fn func(now T, exists bool) (T, error)) (Versioned[T], error) {
	for synced := false; ; {
		// A swap that was refused has shown this node the newer value, or that there is none.
		now, err := v.Get(ctx)
		var x T
		switch {
		case err == nil, errors.Is(err, embed.ErrNoNode):
			x, err = fn(now.Value, now.Mzxid != 0)
		case now.Mzxid == 0: // not an error of the Codec
			return Versioned[T]{}, err
		}
		if err != nil {
			if synced || !v.isOld(ctx, now.Mzxid) {
				return Versioned[T]{}, err
			}
			synced = true
			continue
		}
		if now, err = v.Swap(ctx, now, x); !errors.Is(err, ErrChanged) {
			return now, err
		}
	}
}

// isOld reports whether the ensemble has another last write than the one that this node has shown,
// zero for none. By then this node shows it.
func (v Value[T]) isOld(ctx context.Context, shown embed.Zxid) bool {
	if _, err := v.session.Sync(ctx, v.path); err != nil {
		return false
	}
	stat, _, err := v.session.Exists(ctx, v.path)
	return err == nil && stat.Mzxid != shown
}
