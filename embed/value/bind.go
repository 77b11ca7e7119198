package value

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/embed"
)

// BindOptions are the settings of Bind. The zero value is usable.
type BindOptions[T any] struct {
	// Validate refuses a value by an error, before anybody sees it. Nil accepts every value.
	Validate func(T) error
	// Refused is told of each value after the first that does not decode or that Validate refuses.
	// Nil means that nobody is told. One goroutine calls it and, after Bind has returned, Validate,
	// and stores the values. Both may call stop.
	Refused func(error)
}

// Bind keeps the newest value of a znode in a pointer, for flags and other configuration: Load
// costs a nanosecond. When Bind returns, the value that this node shows is stored; after
// embed.Session.Sync that is the present one. A value is stored as a new T, so whoever has loaded
// one keeps it unchanged.
//
// While the znode does not exist, and after a value that is refused, the pointer keeps what it has:
// the last good value, or what the caller has put there.
//
// Bind ends with ctx, with the session, by stop, or as soon as the session may not read the znode.
// Then the pointer no longer changes: a service that outlives its session binds again with the next
// one. Once stop has returned, nothing is stored any more. It does not wait for a call of Validate
// or Refused that is under way. It returns why the binding had ended before, or nil if it had not.
// It is idempotent, and may be called by any number of goroutines.
//
// Errors: those of Value.Get, except embed.ErrNoNode, and that of Validate. So a service does not
// start with a value that it cannot use. After an error nothing is bound.
func Bind[T any](ctx context.Context, s *embed.Session, path string, c Codec[T], into *atomic.Pointer[T], o BindOptions[T]) (stop func() error, err error) {
	life, cancel := context.WithCancel(ctx)
	b := &binding[T]{path: path, into: into, o: o, cancel: cancel, turn: make(chan struct{}, 1), ended: make(chan struct{})}
	next, end := iter.Pull2(New(s, path, c).Changes(life))
	if now, err, _ := next(); !errors.Is(err, embed.ErrNoNode) {
		if err = b.store(now, err); err != nil {
			end()
			cancel()
			return nil, wrap("bind", path, err)
		}
	}
	go b.storeLoop(next, end)
	return b.stop, nil
}

// A binding keeps a pointer up to date.
type binding[T any] struct {
	path   string
	into   *atomic.Pointer[T]
	o      BindOptions[T]
	cancel context.CancelFunc
	ended  chan struct{} // closed when the loop has ended
	err    error         // why; only read after ended is closed

	turn    chan struct{} // full while a value is stored; guards stopped
	stopped bool
}

// stop ends the binding. It waits for no callback, since one may call it.
func (b *binding[T]) stop() error {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	select {
	case <-b.ended:
		if !b.stopped {
			return b.err
		}
	default:
		b.stopped = true
		b.cancel()
	}
	return nil
}

// storeLoop stores each value, until the sequence ends.
func (b *binding[T]) storeLoop(next func() (Versioned[T], error, bool), end func()) {
	defer close(b.ended)
	defer b.cancel()
	defer end()
	for {
		now, err, ok := next()
		if !ok {
			return // with the error before
		}
		b.err = wrap("bind", b.path, err)
		if errors.Is(err, embed.ErrNoNode) || err != nil && now.Mzxid == 0 {
			continue // it is gone, or the sequence is about to end
		}
		if err := b.store(now, err); err != nil && b.o.Refused != nil {
			b.o.Refused(wrap("bind", b.path, err))
		}
	}
}

// store stores a value, unless it is refused or the binding is stopped.
func (b *binding[T]) store(now Versioned[T], err error) error {
	if err == nil && b.o.Validate != nil {
		err = b.o.Validate(now.Value)
	}
	if err != nil {
		return err
	}
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if !b.stopped {
		b.into.Store(&now.Value)
	}
	return nil
}
